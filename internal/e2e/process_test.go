package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience ends a wait that hangs. It is no measure: nothing that works comes near it, however busy the machine. Speed
// belongs to make bench.
const patience = 5 * time.Minute

// replica is one process of a2ad.
type replica struct {
	t      *testing.T
	name   string
	base   string // URL of its API
	admin  string // URL for operators, or empty
	grpc   string // address of its API over gRPC, or empty
	binary string
	env    []string
	log    *logbook
	cmd    *exec.Cmd
	exited chan struct{} // closed when it has ended and is reaped
	err    error         // of the end; read it after exited is closed
}

// spawn starts a2ad serve. The caller ends it.
func spawn(t *testing.T, name string, env []string) *replica {
	t.Helper()
	binary, err := build()
	if err != nil {
		t.Fatalf("build a2ad: %v", err)
	}
	return spawnBinary(t, binary, name, env)
}

// spawnBinary starts serve with another binary.
func spawnBinary(t *testing.T, binary, name string, env []string) *replica {
	t.Helper()
	r := &replica{t: t, name: name, binary: binary, env: env, log: newLogbook(), exited: make(chan struct{})}
	r.cmd = exec.Command(binary, "serve")
	r.cmd.Env = env
	r.cmd.Stderr = r.log
	r.cmd.SysProcAttr = childAttr()
	started := make(chan error, 1)
	go func() {
		// The kernel treats the end of the forking thread as the end of the parent, so the thread must last as long
		// as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(r.exited)
		err := r.cmd.Start()
		started <- err
		if err == nil {
			r.err = r.cmd.Wait()
			r.log.close()
		}
	}()
	if err := <-started; err != nil {
		t.Fatalf("start a2ad: %v", err)
	}
	return r
}

// awaitReady returns when the replica serves.
func (r *replica) awaitReady() {
	r.t.Helper()
	ready := r.awaitLog("ready", nil)
	scheme := "http://"
	if slices.ContainsFunc(r.env, func(kv string) bool { return strings.HasPrefix(kv, "A2AD_TLS_CERT=") }) {
		scheme = "https://"
	}
	r.base, r.admin, r.grpc = scheme+ready.str("api"), "http://"+ready.str("admin"), ready.str("grpc")
}

// end makes sure that the process has ended, whatever the result of the test.
func (r *replica) end() {
	_ = r.cmd.Process.Kill() // usually it has ended already
	<-r.exited
	r.log.judge(r.t, r.name)
}

// awaitLog returns the first log line with a message that match accepts; a nil match accepts any.
func (r *replica) awaitLog(msg string, match func(logLine) bool) logLine {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	line, ok := r.log.await(ctx, func(l logLine) bool { return l.str("msg") == msg && (match == nil || match(l)) })
	if !ok {
		r.t.Fatalf("%s does not log %q. Its log ends:\n%s", r.name, msg, r.log.tail())
	}
	return line
}

func (r *replica) signal(sig syscall.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(sig); err != nil {
		r.t.Fatalf("signal %s: %v", r.name, err)
	}
}

// kill simulates a crash.
func (r *replica) kill() {
	r.t.Helper()
	r.signal(syscall.SIGKILL)
	r.awaitExit()
	if ws, ok := r.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL {
		r.t.Fatalf("%s ended by itself and not by the kill: %v", r.name, r.cmd.ProcessState)
	}
}

// awaitExit waits for the end of the process and returns how long that took.
func (r *replica) awaitExit() time.Duration {
	r.t.Helper()
	start := time.Now()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-r.exited:
	case <-timer.C:
		r.t.Fatalf("%s does not end. Its log ends:\n%s", r.name, r.log.tail())
	}
	return time.Since(start)
}

func (r *replica) running() bool {
	select {
	case <-r.exited:
		return false
	default:
		return true
	}
}

// stop shuts the replica down and checks that the shutdown was orderly.
func (r *replica) stop() {
	r.t.Helper()
	r.signal(syscall.SIGTERM)
	r.awaitExit()
	if r.err != nil {
		r.t.Errorf("%s ends with %v. Its log ends:\n%s", r.name, r.err, r.log.tail())
	}
}

// freeze stops the process like a long pause of its machine; thaw resumes it.
func (r *replica) freeze() {
	r.t.Helper()
	r.signal(syscall.SIGSTOP)
	until(r.t, "the process is in state T", func() bool { return procState(r.cmd.Process.Pid) == "T" })
}

func (r *replica) thaw() {
	r.t.Helper()
	r.signal(syscall.SIGCONT)
}

// logLine is one line of a log in JSON.
type logLine map[string]any

func (l logLine) str(key string) string {
	s, _ := l[key].(string)
	return s
}

func (l logLine) num(key string) float64 {
	n, _ := l[key].(float64)
	return n
}

// logbook is the log of a process so far.
type logbook struct {
	mu      sync.Mutex
	part    []byte        // guarded by mu; a line without its end
	lines   []logLine     // guarded by mu
	plain   []string      // guarded by mu; lines that are not JSON
	text    []string      // guarded by mu; the raw lines, for failure messages
	closed  bool          // guarded by mu
	changed chan struct{} // guarded by mu; closed and replaced with each write
	faulty  bool          // guarded by mu; errors are expected
}

// next returns a channel that the next write closes.
func (b *logbook) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

func newLogbook() *logbook { return &logbook{changed: make(chan struct{})} }

// Write receives what the process writes to stderr.
func (b *logbook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.part = append(b.part, p...)
	for {
		line, rest, ok := bytes.Cut(b.part, []byte("\n"))
		if !ok {
			break
		}
		b.add(string(line))
		b.part = rest
	}
	close(b.changed)
	b.changed = make(chan struct{})
	return len(p), nil
}

func (b *logbook) add(line string) {
	var l logLine
	if json.Unmarshal([]byte(line), &l) == nil {
		b.lines = append(b.lines, l)
		if l.str("level") == "INFO" && l.str("task_id") != "" && l.num("status") < 500 {
			return // there are thousands
		}
	} else {
		b.plain = append(b.plain, line)
	}
	b.text = append(b.text, line)
}

func (b *logbook) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	close(b.changed)
	b.changed = make(chan struct{})
}

// await returns the first line that matches, including earlier ones.
func (b *logbook) await(ctx context.Context, match func(logLine) bool) (logLine, bool) {
	for from := 0; ; {
		b.mu.Lock()
		fresh, changed, closed := b.lines[from:len(b.lines):len(b.lines)], b.changed, b.closed
		b.mu.Unlock()
		for _, l := range fresh {
			if match(l) {
				return l, true
			}
		}
		from += len(fresh)
		if closed {
			return nil, false
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, false
		}
	}
}

// count returns the number of matching lines.
func (b *logbook) count(match func(logLine) bool) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.lines {
		if match(l) {
			n++
		}
	}
	return n
}

func (b *logbook) tail() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.text[max(0, len(b.text)-25):], "\n")
}

func (b *logbook) all() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return fmt.Sprint(b.lines, b.plain)
}

// expectErrors says that from now on the test causes errors inside the server.
func (b *logbook) expectErrors() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faulty = true
}

// judge fails the test for lines that no replica may ever log.
func (b *logbook) judge(t *testing.T, name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, line := range b.plain {
		if strings.Contains(line, "WARNING: DATA RACE") || strings.HasPrefix(line, "panic:") ||
			strings.HasPrefix(line, "fatal error:") {
			t.Errorf("%s:\n%s", name, strings.Join(b.plain[i:min(len(b.plain), i+60)], "\n"))
			break
		}
	}
	for i, l := range b.lines {
		msg := l.str("msg")
		if msg == "handler panicked" || !b.faulty &&
			(msg == "internal error" || msg == "request" && l.num("status") >= 500 && l.str("level") == "ERROR") {
			t.Errorf("%s: %v", name, b.lines[i])
		}
	}
	if t.Failed() {
		t.Logf("the log of %s ends:\n%s", name, strings.Join(b.text[max(0, len(b.text)-40):], "\n"))
	}
}

func srvLog(path string) (string, error) {
	text, err := os.ReadFile(path)
	return string(text), err
}
