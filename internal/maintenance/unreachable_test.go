package maintenance

import (
	"log/slog"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// Tasks of an agent without a worker fail after its limit, and outages that no replica touches are forgotten.
func TestUnreachableAgentsAreSwept(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	agents := map[string]a2a.Limits{storetest.Agent: {Unreachable: time.Hour}}
	s := &UnreachableSweeper{Store: f.Tasks, Logger: slog.New(slog.DiscardHandler),
		Agents: func() map[string]a2a.Limits { return agents }}
	task := f.NewTask()
	if err := f.Tasks.BeginOutage(t.Context(), "removed", "refused", time.Second); err != nil {
		t.Fatal(err)
	}
	outages := func() int { return storetest.Value[int](f, "SELECT count(*) FROM a2a.agent_outages") }
	for minutes := 0; ; minutes += 4 {
		s.round(t.Context())
		if state := f.Snapshot(task).Status.State; state == a2a.StateFailed {
			break
		}
		if minutes > 80 {
			t.Fatal("the task has waited for 80 minutes, and its limit is an hour")
		}
		f.SetClockBack(-4 * time.Minute)
	}
	if n := outages(); n != 1 {
		t.Errorf("%d outages are recorded, want that of the agent without a worker", n)
	}
	agents = nil // it is removed
	f.SetClockBack(-11 * time.Minute)
	s.round(t.Context())
	if n := outages(); n != 0 {
		t.Errorf("%d outages are recorded after both agents were removed", n)
	}
	f.Invariants()
}
