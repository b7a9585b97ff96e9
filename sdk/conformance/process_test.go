package conformance_test

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"
)

// process is a server or a worker.
type process struct {
	cmd    *exec.Cmd
	output *output
	exited chan struct{} // closed when it has ended and is reaped
}

// spawn starts a program. The caller kills it at the end of the test.
func spawn(t *testing.T, env []string, command ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(command[0], command[1:]...), output: newOutput(), exited: make(chan struct{})}
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = env, p.output, p.output
	p.cmd.SysProcAttr = childAttr()
	started := make(chan error, 1)
	go func() {
		// The kernel treats the end of the forking thread as the end of the parent, so the thread must last as long
		// as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.exited)
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // the state says how it ended
			p.output.change()
		}
	}()
	if err := <-started; err != nil {
		t.Fatalf("start %v: %v", command, err)
	}
	return p
}

// kill simulates a crash.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended already
	<-p.exited
}

func (p *process) signal(t *testing.T, sig os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		t.Fatalf("signal the process: %v", err)
	}
}

// stop tells the process to stop. It must end by itself and without an error.
func (p *process) stop(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
	p.awaitStopped(t)
}

func (p *process) awaitStopped(t *testing.T) {
	t.Helper()
	within(t, "the process stops", p.exited)
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the process stopped with the status %d:\n%s", code, p.output)
	}
}

func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// output is what a process has written.
type output struct {
	mu      sync.Mutex
	text    bytes.Buffer  // guarded by mu
	changed chan struct{} // guarded by mu; closed and replaced at each change
}

func newOutput() *output { return &output{changed: make(chan struct{})} }

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	o.text.Write(p)
	o.mu.Unlock()
	o.change()
	return len(p), nil
}

func (o *output) change() {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.changed)
	o.changed = make(chan struct{})
}

// now returns the text, and a channel that the next change closes.
func (o *output) now() (string, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String(), o.changed
}

func (o *output) String() string {
	text, _ := o.now()
	return text[max(0, len(text)-4000):]
}
