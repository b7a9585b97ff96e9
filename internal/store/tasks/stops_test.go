package tasks_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/wake"
)

// claims returns how many tasks a worker gets, with and without a limit of attempts.
func claims(f *storetest.Fixture, agent, worker string) (n int) {
	f.T.Helper()
	for _, limit := range []int{0, 100} {
		leases, err := f.Tasks.NewClaimer().ClaimFor(f.T.Context(), tasks.ClaimRequest{
			Agent: agent, Worker: worker, Slots: 1, Running: limit, TTL: time.Minute,
		})
		if err != nil {
			f.T.Fatal(err)
		}
		n += len(leases)
	}
	return n
}

func TestStoppedAgentsAndWorkersGetNoTasks(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	ctx := access.ActingBy(t.Context(), access.By{Actor: "key k1", Reason: "it hangs"})
	f.SubmitMany(20)
	other := storetest.Submission("x")
	other.Agent = "other"
	for range 2 {
		f.Submit(other)
	}
	for _, s := range []struct {
		kind       tasks.Stoppable
		name       string
		other      [2]string // agent and worker that are not stopped
		begin, end string
	}{
		{tasks.StopAgent, storetest.Agent, [2]string{"other", "w1"}, "agent.pause", "agent.resume"},
		{tasks.StopWorker, "w1", [2]string{storetest.Agent, "w2"}, "worker.drain", "worker.resume"},
	} {
		f.TakeWakes()
		before := len(f.Actions())
		for i := range 2 { // the second time, nothing changes
			if began, _, err := f.Tasks.BeginStop(ctx, s.kind, s.name, false); err != nil || began != (i == 0) {
				t.Errorf("stop %s: %t, %v", s.name, began, err)
			}
		}
		list, err := f.Tasks.Stops(t.Context())
		if err != nil || len(list) != 1 || list[0].Kind != s.kind || list[0].Name != s.name ||
			list[0].Actor != "key k1" || list[0].Reason != "it hangs" {
			t.Errorf("stopped are %+v, %v", list, err)
		}
		if n := claims(f, storetest.Agent, "w1"); n != 0 {
			t.Errorf("%s %s is stopped, and %d tasks were claimed", s.kind, s.name, n)
		}
		if n := claims(f, s.other[0], s.other[1]); n != 2 {
			t.Errorf("%s %s is stopped, and %v got %d tasks, want 2", s.kind, s.name, s.other, n)
		}
		for i := range 2 {
			if ended, err := f.Tasks.EndStop(ctx, s.kind, s.name); err != nil || ended != (i == 0) {
				t.Errorf("resume %s: %t, %v", s.name, ended, err)
			}
		}
		if n := claims(f, storetest.Agent, "w1"); n != 2 {
			t.Errorf("after the stop of %s %s, %d tasks were claimed, want 2", s.kind, s.name, n)
		}
		wakes := f.TakeWakes()
		if !slices.Contains(wakes, wake.Stops) ||
			slices.Contains(wakes, wake.Ready(storetest.Agent)) != (s.kind == tasks.StopAgent) {
			t.Errorf("woken were %q", wakes)
		}
		got := f.Actions()[before:]
		if len(got) != 2 || !strings.HasPrefix(got[0], "key k1 "+s.begin) ||
			!strings.HasPrefix(got[1], "key k1 "+s.end) {
			t.Fatalf("the audit log has %q", got)
		}
		for _, action := range got {
			if !strings.Contains(action, `"it hangs"`) || !strings.Contains(action, `"`+s.name+`"`) {
				t.Errorf("the audit log has %q", action)
			}
		}
	}
	f.Invariants()
}

// TestDrainThatEndsLeasesGivesTheTasksToOthers: the worker that hangs can write nothing any more.
func TestDrainThatEndsLeasesGivesTheTasksToOthers(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	f.SubmitMany(2)
	claimer := f.Tasks.NewClaimer()
	claim := func(worker string) []tasks.Lease {
		t.Helper()
		leases, err := claimer.ClaimFor(t.Context(), tasks.ClaimRequest{
			Agent: storetest.Agent, Worker: worker, Slots: 1, TTL: time.Minute,
		})
		if err != nil {
			t.Fatal(err)
		}
		return leases
	}
	hangs, works := claim("hangs"), claim("works")
	for _, want := range []int{1, 0} { // the second time, it holds no leases
		_, ended, err := f.Tasks.BeginStop(t.Context(), tasks.StopWorker, "hangs", true)
		if err != nil || ended != want {
			t.Errorf("%d leases were ended, %v, want %d", ended, err, want)
		}
	}
	f.Append(&works[0], storetest.Status(a2a.StateCompleted))
	f.Rescue(1)
	_, err := f.Tasks.Append(t.Context(), &hangs[0], storetest.Batch(storetest.Status(a2a.StateCompleted)))
	if !errors.Is(err, db.ErrLeaseLost) {
		t.Errorf("the worker that hangs reports: %v, want ErrLeaseLost", err)
	}
	if got := claim("hangs"); len(got) != 0 {
		t.Errorf("the drained worker got %d tasks", len(got))
	}
	again := claim("works")
	if len(again) != 1 || again[0].TaskID != hangs[0].TaskID {
		t.Fatalf("the other worker got %+v", again)
	}
	f.Append(&again[0], storetest.Status(a2a.StateCompleted))
	f.Invariants()
}
