package workerapi_test

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/workerapi"
)

// TestKilledWorkerLosesNothing: one worker is killed during its work, and another one continues.
// The artifact has every line once, and the record shows both attempts.
func TestKilledWorkerLosesNothing(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skipf("the example needs it: %v", err)
	}
	f := newFixture(t, func(c *workerapi.Config) { c.Agents = append(c.Agents, &a2a.Agent{Name: "lines"}) })
	start := func(name string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "python3", "../../examples/python-pull/worker.py", f.at, name)
		cmd.Env = append(cmd.Environ(), "A2AD_API_KEY=all")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return cmd
	}
	const lines = 12
	var text strings.Builder
	for i := range lines {
		fmt.Fprintf(&text, "line %d\n", i+1)
	}
	first := start("first")
	out, err := f.Tasks.Submit(t.Context(), tasks.Submission{
		Caller: db.Caller{Tenant: "acme", Owner: "ann"}, Agent: "lines", ContextID: "ctx",
		Message: a2a.Message{ID: "m", Role: a2a.RoleUser, Parts: []a2a.Part{{Kind: a2a.PartText, Text: text.String()}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	f.await("three lines", func() bool { return f.logLength(out.Task) >= 5 })
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	f.expire(run{TaskID: out.Task.String()})
	if n, err := f.Tasks.Rescue(t.Context(), nil, tasks.Policy{MaxAttempts: 3}, 10); n != 1 || err != nil {
		t.Fatalf("rescue = %d, %v", n, err)
	}
	start("second")
	f.await("the end", func() bool { return f.snapshot(out.Task).Status.State.Terminal() })
	task := f.snapshot(out.Task)
	if task.Status.State != a2a.StateCompleted || len(task.Artifacts) != 1 || len(task.Artifacts[0].Parts) != lines {
		t.Fatalf("the task is %s with %+v", task.Status.State, task.Artifacts)
	}
	for i, p := range task.Artifacts[0].Parts {
		if want := fmt.Sprintf("%d line %d\n", i+1, i+1); p.Text != want {
			t.Errorf("part %d is %q, want %q", i, p.Text, want)
		}
	}
	if got := f.outcomes(out.Task); !slices.Equal(got, []string{"first expired ", "second completed "}) {
		t.Errorf("attempts %q", got)
	}
}

// await polls until something has happened in another process.
func (f *fixture) await(what string, ok func() bool) {
	f.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(5 * time.Minute)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			f.t.Fatalf("timed out waiting for %s", what)
		}
	}
}
