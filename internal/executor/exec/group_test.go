//go:build unix

package exec_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/executor/exec"
)

// witness is a FIFO that every process of a command keeps open. It shows when the command has started, and when
// its last process has ended.
type witness struct {
	path string
	file chan *os.File
}

func newWitness(t *testing.T) *witness {
	t.Helper()
	w := &witness{path: filepath.Join(t.TempDir(), "fifo"), file: make(chan *os.File, 1)}
	if err := syscall.Mkfifo(w.path, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() { // ends when the command opens the other end; every test waits for that
		f, err := os.Open(w.path)
		if err != nil {
			panic(err)
		}
		w.file <- f
	}()
	return w
}

func (w *witness) begun() *os.File { return <-w.file }

// gone waits until no process has the FIFO open.
func gone(f *os.File) {
	_, _ = io.Copy(io.Discard, f)
	f.Close()
}

func TestCancelEndsTheGroup(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, script string }{
		{"obedient", `exec 9>"$W"; sleep 1000`},
		{"with a grandchild", `exec 9>"$W"; sleep 1000 & sleep 1000 & wait`},
		{"ignores SIGTERM", `trap "" TERM; exec 9>"$W"; while :; do sleep 1000; done`},
		{"flooding", `exec 9>"$W"; yes '{"checkpoint":1}'`},
		{"done with its output", `exec 9>"$W" >&- 2>&-; sleep 1000`},
	} {
		w := newWitness(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		begun := make(chan *os.File, 1)
		go func() {
			f := w.begun()
			cancel(executor.ErrCanceled)
			begun <- f
		}()
		var last error
		c := exec.Config{Command: sh(tc.script), Env: map[string]string{"W": w.path}, Grace: 20 * time.Millisecond}
		for _, err := range newExecutor(t, c).Execute(ctx, runOf(message("x"))) {
			last = err
		}
		if !errors.Is(last, executor.ErrCanceled) {
			t.Errorf("%s: error %v, want %v", tc.name, last, executor.ErrCanceled)
		}
		gone(<-begun)
	}
}

func TestCallerStops(t *testing.T) {
	t.Parallel()
	w := newWitness(t)
	c := exec.Config{Command: sh(`exec 9>"$W"; yes '{"checkpoint":1}'`), Env: map[string]string{"W": w.path},
		Grace: 20 * time.Millisecond}
	for _, err := range newExecutor(t, c).Execute(t.Context(), runOf(message("x"))) {
		if err != nil {
			t.Error(err)
		}
		break
	}
	gone(w.begun())
}

func TestCommandIsStoppedAfterItsLastEvent(t *testing.T) {
	t.Parallel()
	w := newWitness(t)
	const script = `trap "" TERM; exec 9>"$W"; echo '{"statusUpdate":{"status":{"state":"completed"}}}'
		while :; do sleep 1000; done`
	c := exec.Config{Command: sh(script),
		Env: map[string]string{"W": w.path}, Grace: 20 * time.Millisecond}
	events, err := collect(t, c, runOf(message("x")))
	if diff := cmp.Diff([]a2a.Event{status(a2a.StateCompleted)}, events); diff != "" || err != nil {
		t.Errorf("error %v, events (-want +got):\n%s", err, diff)
	}
	gone(w.begun())
}

// The context of the run ends with its last event, as in a worker. The command, which waits for the FIFO, must
// not get a signal.
func TestCommandMayCleanUp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fifo, tidied := filepath.Join(dir, "fifo"), filepath.Join(dir, "tidied")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const script = `echo '{"statusUpdate":{"status":{"state":"completed"}}}'; exec 9>fifo; echo yes >tidied`
	c := exec.Config{Command: sh(script), Dir: dir, Grace: 5 * time.Minute}
	for _, err := range newExecutor(t, c).Execute(ctx, runOf(message("x"))) {
		if err != nil {
			t.Error(err)
		}
		cancel()
		f, err := os.Open(fifo)
		if err != nil {
			t.Error(err)
		}
		defer f.Close()
	}
	if _, err := os.Stat(tidied); err != nil {
		t.Error(err)
	}
}

func TestGrandchildThatKeepsStdoutOpen(t *testing.T) {
	t.Parallel()
	want := []a2a.Event{stdout("stdout-1", "hi\n", false, true), status(a2a.StateCompleted)}
	w := newWitness(t)
	events, err := collect(t, exec.Config{Command: sh(`exec 9>"$W"; sleep 1000 & echo hi`),
		Env: map[string]string{"W": w.path}, Output: exec.OutputText}, runOf(message("x")))
	if diff := cmp.Diff(want, events); diff != "" || err != nil {
		t.Errorf("in the group: error %v, events (-want +got):\n%s", err, diff)
	}
	gone(w.begun())
	if _, err := osexec.LookPath("setsid"); err != nil {
		t.Skip("no setsid here")
	}
	w = newWitness(t)
	const script = `exec 9>"$W"; setsid sh -c 'echo $$; : >"$W.up"; sleep 1000' &
		until [ -e "$W.up" ]; do sleep 0.01; done; echo hi`
	events, err = collect(t,
		exec.Config{Command: sh(script), Env: map[string]string{"W": w.path},
			Input: exec.InputText, Output: exec.OutputText}, runOf(message("x\n")))
	if err != nil || len(events) != 2 {
		t.Fatalf("outside the group: error %v, events %v", err, events)
	}
	var pid int
	if _, err := fmt.Sscan(strings.ReplaceAll(events[0].(*a2a.ArtifactUpdate).Artifact.Parts[0].Text, "hi\n", ""),
		&pid); err != nil {
		t.Fatal(err)
	}
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	gone(w.begun())
}

func TestPipelineIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	// The command ends first, and a process that it started continues to write.
	events, err := collect(t, exec.Config{Command: sh(`(read x; echo late) & echo early`), Output: exec.OutputText,
		Lull: 5 * time.Minute}, runOf(message("x")))
	if err != nil {
		t.Fatal(err)
	}
	if got := events[0].(*a2a.ArtifactUpdate).Artifact.Parts[0].Text; got != "early\nlate\n" && got != "late\nearly\n" {
		t.Errorf("got %q", got)
	}
}
