package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	readyLimit = 5 * time.Minute
	stopLimit  = 5 * time.Minute
)

// replica is one a2ad server process.
type replica struct {
	api    string // address that it listens on
	cmd    *exec.Cmd
	log    *serverLog
	exited chan struct{} // closed after err is written
	err    error         // of Wait
}

// startReplica returns when the server has logged that it is ready. args begin with the command.
func startReplica(ctx context.Context, args ...string) (*replica, error) {
	r := &replica{log: newServerLog(), exited: make(chan struct{})}
	r.cmd = command(context.Background(), append(args, "--listen", "127.0.0.1:0", "--admin-listen", "off",
		"--log-format", "json")...)
	r.cmd.Stderr = r.log
	started := make(chan error, 1)
	go func() {
		// The kernel treats the end of the forking thread as the death of the parent.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(r.exited)
		err := r.cmd.Start()
		started <- err
		if err == nil {
			r.err = r.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start a2ad: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, readyLimit, errors.New("not ready in time"))
	defer cancel()
	select {
	case r.api = <-r.log.ready:
		return r, nil
	case <-r.exited:
		return nil, fmt.Errorf("a2ad %s: %w\n%s", args[0], r.err, r.log)
	case <-ctx.Done():
		r.kill()
		return nil, fmt.Errorf("a2ad %s: %w\n%s", args[0], context.Cause(ctx), r.log)
	}
}

// command runs a2ad with these arguments, without this process's settings.
func command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, tests.binary, args...)
	cmd.Dir = tests.dir
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "A2AD_") || strings.HasPrefix(kv, "A2AD_PG_BINDIR=") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, "GORACE=atexit_sleep_ms=50") // the default is a second at the end of every process
	cmd.SysProcAttr = childAttr()
	return cmd
}

// run executes a command of a2ad that ends by itself and returns its output.
func run(ctx context.Context, args ...string) ([]byte, error) {
	cmd := command(ctx, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("a2ad %s: %w\n%s", strings.Join(args[:2], " "), err, &stderr)
	}
	return out, nil
}

// kill is kill -9: the server announces nothing and releases nothing. It returns when the process has ended.
func (r *replica) kill() {
	_ = r.cmd.Process.Kill() // it may have ended
	<-r.exited
}

// stop asks for an orderly shutdown. Its error also reports log lines that no server may write.
func (r *replica) stop() error {
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	limit := time.NewTimer(stopLimit)
	defer limit.Stop()
	select {
	case <-r.exited:
	case <-limit.C:
		r.kill()
		return fmt.Errorf("a2ad did not stop in %s\n%s", stopLimit, r.log)
	}
	if r.err != nil {
		return fmt.Errorf("a2ad: %w\n%s", r.err, r.log)
	}
	return r.log.fault()
}

// serverLog reads the log of a server.
type serverLog struct {
	ready chan string // the address, once

	mu        sync.Mutex
	lines     []string // guarded by mu
	rest      []byte   // guarded by mu; a line without its end
	announced bool     // guarded by mu; ready was sent
}

func newServerLog() *serverLog { return &serverLog{ready: make(chan string, 1)} }

func (l *serverLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte{'\n'})
		if !ok {
			return len(p), nil
		}
		l.line(string(line))
		l.rest = rest
	}
}

func (l *serverLog) line(text string) {
	l.lines = append(l.lines, text)
	var record struct{ Msg, API string }
	if json.Unmarshal([]byte(text), &record) == nil && record.Msg == "ready" && !l.announced {
		l.announced = true
		l.ready <- record.API
	}
}

// String returns the end of the log, for failure messages.
func (l *serverLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines[max(0, len(l.lines)-50):], "\n") + "\n" + string(l.rest)
}

// fault returns the first line that no healthy server writes: an error, or something that is not a log line, as from
// a panic or the race detector.
func (l *serverLog) fault() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, text := range l.lines {
		var record struct{ Level string }
		if err := json.Unmarshal([]byte(text), &record); err != nil || record.Level == "ERROR" {
			return fmt.Errorf("a2ad logged:\n%s", strings.Join(l.lines[i:min(len(l.lines), i+60)], "\n"))
		}
	}
	return nil
}

// address is the stable address of a server over its restarts, with its database.
type address struct {
	cable *cable
	args  []string
	now   *replica // nil while it is down
}

// newAddress starts a server with a new database.
func newAddress(t *testing.T, flags ...string) *address {
	t.Helper()
	return newAddressOn(t, newDatabase(t), flags...)
}

// newAddressOn starts another server on a database.
func newAddressOn(t *testing.T, database string, flags ...string) *address {
	t.Helper()
	return newAddressWith(t, append([]string{"dev", "--database-url", database}, flags...)...)
}

// newAddressWith starts a server with these arguments. It is stopped when the test ends; a log with errors then fails
// the test.
func newAddressWith(t *testing.T, args ...string) *address {
	t.Helper()
	p := &address{cable: newCable(t)}
	p.args = append(args, "--public-url", p.url())
	t.Cleanup(func() { p.stop(t) })
	p.start(t)
	return p
}

func (p *address) url() string { return "http://" + p.cable.addr() }

func (p *address) start(t *testing.T) {
	t.Helper()
	var err error
	if p.now, err = startReplica(testContext(t), p.args...); err != nil {
		t.Fatal(err)
	}
	p.cable.plug(p.now.api)
}

func (p *address) stop(t *testing.T) {
	t.Helper()
	if p.now == nil {
		return
	}
	if err := p.now.stop(); err != nil {
		t.Error(err)
	}
	p.now = nil
}

func (p *address) kill() {
	p.now.kill()
	p.now = nil
}
