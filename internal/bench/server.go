package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// server is one replica, run as a separate process like an operator would run it.
type server struct {
	name   string
	url    string // URL of the default agent
	admin  string
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process has ended
	log    string
}

func (s *server) pid() int { return s.cmd.Process.Pid }

// addr returns the address of the API.
func (s *server) addr() string { return strings.TrimPrefix(s.url, "http://") }

// build makes the server's binary, once.
func (b *bench) build(ctx context.Context) error {
	if b.a2ad != "" {
		return nil
	}
	if err := b.agentFiles(); err != nil {
		return err
	}
	if b.opts.server != "" {
		b.a2ad = b.opts.server
		return nil
	}
	out := filepath.Join(b.dir, "a2ad")
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", out, "./cmd/a2ad")
	cmd.Dir, cmd.Env = b.root, append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, text)
	}
	b.a2ad = out
	return nil
}

func (b *bench) agentFiles() error {
	dir := filepath.Join(b.dir, "agents")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, body := range map[string]string{
		"echo.yaml":   "name: echo\ndescription: Says what it was told.\ndefault: true\nexecutor: {echo: {}}\n",
		"script.yaml": "name: script\ndescription: Plays a script.\nexecutor: {script: {}}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(body), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// environ returns the server's environment. It contains nothing of the caller's settings.
func (b *bench) environ(database string, extra ...string) []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "A2AD_") {
			env = append(env, kv)
		}
	}
	env = append(env, "A2AD_DATABASE_URL="+database, "A2AD_AGENTS="+filepath.Join(b.dir, "agents"))
	// One owner makes the whole load.
	env = append(env, "A2AD_RATE_READS=off", "A2AD_RATE_SENDS=off", "A2AD_RATE_STREAMS=off",
		"A2AD_RATE_PUSH_WRITES=off")
	env = append(env, extra...)
	for name, value := range b.opts.set {
		env = append(env, name+"="+value)
	}
	return env
}

// key creates an API key, so that requests are authenticated as in production.
func (b *bench) key(ctx context.Context, database string) (string, error) {
	return b.keyOf(ctx, database, benchOwner)
}

func (b *bench) keyOf(ctx context.Context, database, owner string) (string, error) {
	if err := b.build(ctx); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, b.a2ad, "apikey", "create", "--tenant", benchTenant, "--owner", owner, "-o", "json")
	cmd.Env = b.environ(database)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("a2ad apikey create: %w%s", err, stderrOf(err))
	}
	var key struct{ Key string }
	if err := json.Unmarshal(out, &key); err != nil || key.Key == "" {
		return "", fmt.Errorf("a2ad apikey create answered %q", out)
	}
	return key.Key, nil
}

func stderrOf(err error) string {
	var e *exec.ExitError
	if errors.As(err, &e) {
		return ": " + strings.TrimSpace(string(e.Stderr))
	}
	return ""
}

// noAdmin turns the listener for operators off.
const noAdmin = "A2AD_ADMIN_LISTEN=off"

// serve starts a replica and returns when it is ready.
func (b *bench) serve(ctx context.Context, name, database string, extra ...string) (*server, error) {
	s, err := b.newServer(ctx, name, database, extra...)
	if err != nil {
		return nil, err
	}
	if err := s.run(ctx, 20*time.Millisecond); err != nil {
		return nil, err
	}
	return s, nil
}

// newServer prepares a replica, which run starts.
func (b *bench) newServer(ctx context.Context, name, database string, extra ...string) (*server, error) {
	if err := b.build(ctx); err != nil {
		return nil, err
	}
	api, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	admin, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	s := &server{name: name, url: "http://" + api, admin: "http://" + admin,
		log: filepath.Join(b.dir, name+".log")}
	if slices.Contains(extra, noAdmin) {
		s.admin = ""
	}
	s.cmd = exec.Command(b.a2ad, "serve")
	s.cmd.Dir = b.dir
	s.cmd.Env = b.environ(database,
		append([]string{"A2AD_LISTEN=" + api, "A2AD_ADMIN_LISTEN=" + admin, "A2AD_REPLICA=" + name}, extra...)...)
	return s, nil
}

// run starts the replica and returns when it is ready, which it checks at each tick.
func (s *server) run(ctx context.Context, tick time.Duration) error {
	if err := s.start(); err != nil {
		return err
	}
	if err := s.await(ctx, tick); err != nil {
		s.stop()
		text, _ := os.ReadFile(s.log)
		return fmt.Errorf("a2ad serve: %w\n%s", err, text)
	}
	return nil
}

// start starts the process, whose errors go to the log.
func (s *server) start() error {
	s.exited = make(chan struct{})
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := os.Create(s.log)
	if err != nil {
		return err
	}
	defer log.Close()
	s.cmd.Stderr = log
	started := make(chan error, 1)
	go func() {
		// The kernel treats the end of the forking thread as the end of the parent.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(s.exited)
		err := s.cmd.Start()
		started <- err
		if err == nil {
			_ = s.cmd.Wait() // the log says why it ended
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	return nil
}

var (
	errExited  = errors.New("it ended")
	errUnready = errors.New("it was not ready in time")
)

// await polls until the replica is ready.
func (s *server) await(ctx context.Context, interval time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, errUnready)
	defer cancel()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if s.ready(ctx) == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-s.exited:
			return errExited
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// ready reports whether a replica serves.
func (s *server) ready(ctx context.Context) error {
	if s.admin == "" {
		return fetch(ctx, s.url+"/.well-known/agent-card.json", io.Discard)
	}
	return s.get(ctx, "/readyz", io.Discard)
}

// get reads a path of the admin listener.
func (s *server) get(ctx context.Context, path string, w io.Writer) error {
	return fetch(ctx, s.admin+path, w)
}

func fetch(ctx context.Context, url string, w io.Writer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	_, err = io.Copy(w, resp.Body)
	return err
}

// profile takes a CPU profile of the server if -profile is set.
func (b *bench) profile(ctx context.Context, s *server, name string, d time.Duration) error {
	if b.opts.profile == "" {
		return nil
	}
	if err := os.MkdirAll(b.opts.profile, 0o755); err != nil {
		return err
	}
	var buf bytes.Buffer
	if err := s.get(ctx, fmt.Sprintf("/debug/pprof/profile?seconds=%d", max(int(d.Seconds()), 1)), &buf); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.opts.profile, name+".pprof"), buf.Bytes(), 0o644)
}

// stop ends the process as an operator would, and kills it if that takes too long.
func (s *server) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	limit := time.NewTimer(stopLimit)
	defer limit.Stop()
	select {
	case <-s.exited:
	case <-limit.C:
		_ = s.cmd.Process.Kill()
		<-s.exited
	}
}

// freeAddr returns an address whose port is free at the moment.
func freeAddr(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
