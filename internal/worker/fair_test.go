package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/wake"
	"github.com/a2ad/a2ad/internal/worker"
)

// An agent with many queued tasks shares the slots with another one.
func TestFloodedAgentDoesNotDelayAnother(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := make(chan string, 1000)
	gate := make(chan struct{})
	work := agentFunc(func(ctx context.Context, run executor.Run, yield func(a2a.Event, error) bool) {
		order <- run.Agent
		select {
		case <-gate:
		case <-ctx.Done():
		}
		yield(status(a2a.StateCompleted), nil)
	})
	for range 100 {
		f.submit("flooded", "hello")
	}
	cfg := config(func(c *worker.Config) { c.Slots = 1 }, agent("flooded", work), agent("quiet", work))
	f.start(cfg)
	for round := range 3 {
		receive(t, "a run of the flooded agent", order)
		id := f.submit("quiet", "hello")
		first := 0
		for n := 1; first == 0; n++ {
			gate <- struct{}{}
			if receive(t, "a run", order) == "quiet" {
				first = n
			}
		}
		if first > 4 {
			t.Errorf("round %d: the quiet agent's task was run as number %d", round, first)
		}
		gate <- struct{}{}
		f.waitState(id, a2a.StateCompleted)
	}
	close(gate)
}

// A concurrency limit applies over processes, and the end of a run in one lets another begin in the other
// immediately: the poll is an hour away.
func TestConcurrencyLimitAppliesOverReplicas(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	second := f.second()
	g := newGate()
	limits := a2a.Limits{Concurrency: 1, LeaseTTL: time.Hour}
	f.start(config(nil, agent("few", g, limits)))
	f.startOn(second, config(func(c *worker.Config) { c.Worker = "r2" }, agent("few", g, limits)))
	const tasks = 6
	ids := make([]a2a.ID, tasks)
	for i := range ids {
		ids[i] = f.submit("few", "hello")
	}
	for range tasks {
		receive(t, "a run", g.started)
		if n := value[int](f, "SELECT count(*)::int FROM a2a.task_leases"); n != 1 {
			t.Errorf("%d tasks are run at once, want 1", n)
		}
		g.next <- []a2a.Event{status(a2a.StateCompleted)}
	}
	for _, id := range ids {
		f.waitState(id, a2a.StateCompleted)
	}
}

// second opens another store on the database, with the same hub, as if wake-ups arrived immediately.
func (f *fixture) second() *store.Store {
	f.t.Helper()
	s, err := store.Open(f.t.Context(), store.Config{
		Config:    db.Config{URL: f.sql.Config().ConnString(), Replica: "r2", PoolSize: 8, Wake: f.hub.Wake},
		Committed: func(task a2a.ID, _ []a2a.Entry) { f.hub.Wake(wake.Task(task)) },
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(s.Close)
	return s
}

// startOn is start on another store.
func (f *fixture) startOn(s *store.Store, cfg worker.Config) running {
	f.t.Helper()
	other := *f
	other.Store = s
	return other.start(cfg)
}
