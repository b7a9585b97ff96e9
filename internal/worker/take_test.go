package worker_test

import (
	"context"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/notify"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/worker"
)

// gated is an executor that says which task it has started and ends it when it is told to.
type gated struct {
	started chan a2a.ID
	end     chan struct{}
	atWork  *atomic.Int64
}

// Execute waits at the gate, or for the end of ctx.
func (g gated) Execute(ctx context.Context, run executor.Run) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		g.atWork.Add(1)
		defer g.atWork.Add(-1)
		g.started <- run.Task.ID
		select {
		case <-g.end:
			yield(&a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateCompleted}}, nil)
		case <-ctx.Done():
			yield(nil, context.Cause(ctx))
		}
	}
}

// place is one replica's store and worker.
type place struct {
	t *testing.T
	*store.Store
	gated
	pool  *worker.Pool
	sql   *pgxpool.Pool
	stop  func() // and wait
	taken int    // what the pool took; flushes of the test are one at a time
}

func newPlace(t *testing.T, slots int, agent *a2a.Agent) *place {
	t.Helper()
	p := &place{t: t, gated: gated{make(chan a2a.ID, 100), make(chan struct{}, 100), &atomic.Int64{}}}
	hub := &notify.Hub{}
	var err error
	db := storetest.New(t)
	p.sql = db.Pool(t)
	p.Store, err = store.Open(t.Context(), store.Config{
		URL: db.URL, Replica: "r1", PoolSize: 6, Wake: hub.Wake,
		Take: func(agent string) (store.Slot, bool) {
			slot, ok := p.pool.Reserve(agent)
			if ok {
				p.taken++
			}
			return slot, ok
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	p.pool = worker.New(p.Store, hub, worker.Config{
		Worker: "r1", Slots: slots, Agents: []worker.Agent{{Agent: agent, Executor: p.gated}},
		Limits: a2a.Limits{LeaseTTL: time.Minute, MaxAttempts: 3, Deadline: time.Hour},
		// Nothing but wakes and slots that come free may move it.
		Poll: time.Hour, Drain: time.Hour, Logger: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := p.pool.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	p.stop = func() { cancel(); running.Wait() }
	t.Cleanup(func() {
		for range cap(p.end) - len(p.end) {
			p.end <- struct{}{}
		}
		p.stop()
		p.Close()
	})
	return p
}

func (p *place) submit() a2a.ID {
	p.t.Helper()
	out, err := p.Submit(p.t.Context(), store.Submission{
		Caller: store.Caller{Tenant: "acme", Owner: "ann"}, Agent: "gate", ContextID: "c",
		Message: a2a.Message{ID: "m", Role: a2a.RoleUser, Parts: []a2a.Part{{Kind: a2a.PartText, Text: "x"}}},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return out.Task
}

// runs waits for the next task that is started, and wants it to be this one.
func (p *place) runs(want a2a.ID) {
	p.t.Helper()
	select {
	case got := <-p.started:
		if got != want {
			p.t.Errorf("task %s runs, want %s", got, want)
		}
	case <-time.After(20 * time.Second):
		p.t.Fatalf("task %s does not run", want)
	}
}

// warm waits until the pool has found that nothing waits.
func (p *place) warm() {
	p.t.Helper()
	for {
		if slot, ok := p.pool.Reserve("gate"); ok {
			slot.Leave()
			p.taken = 0
			return
		}
		select {
		case <-time.After(time.Millisecond):
		case <-p.t.Context().Done():
			p.t.Fatal("there is never room")
		}
	}
}

// A new task does not wait where there is room, and does not overtake those that wait.
func TestTakeKeepsTheOrderOfTheQueue(t *testing.T) {
	t.Parallel()
	p := newPlace(t, 2, &a2a.Agent{Name: "gate"})
	p.warm()
	first, second := p.submit(), p.submit()
	p.runs(first)
	p.runs(second)
	if got := p.taken; got != 2 {
		t.Errorf("%d of 2 tasks were taken at once", got)
	}
	third, fourth, fifth := p.submit(), p.submit(), p.submit()
	if got := p.taken; got != 2 {
		t.Errorf("%d tasks were taken where there was room for 2", got)
	}
	for _, next := range []a2a.ID{third, fourth, fifth} {
		p.end <- struct{}{}
		p.runs(next)
	}
}

// An agent's own limit is for the claim to keep.
func TestTakeLeavesAnAgentWithALimitToTheClaim(t *testing.T) {
	t.Parallel()
	p := newPlace(t, 8, &a2a.Agent{Name: "gate", Limits: a2a.Limits{Concurrency: 1}})
	first, second, third := p.submit(), p.submit(), p.submit()
	for _, next := range []a2a.ID{first, second, third} {
		p.runs(next)
		if n := p.atWork.Load(); n != 1 {
			t.Errorf("%d at work at once, want 1", n)
		}
		p.end <- struct{}{}
	}
	if p.taken != 0 {
		t.Errorf("%d tasks were taken", p.taken)
	}
}

// A slot is for an agent's work. While what it said is being written the next one may begin.
func TestSlotIsFreeWhenTheExecutorHasEnded(t *testing.T) {
	t.Parallel()
	p := newPlace(t, 1, &a2a.Agent{Name: "gate"})
	p.warm()
	first := p.submit()
	p.runs(first)
	release := p.lock(first)
	p.end <- struct{}{}
	p.runs(p.submit())
	if _, n := p.pool.Stats(); n != 2 {
		t.Errorf("%d runs are under way, want the one that is being written too", n)
	}
	release()
}

// lock holds the row of a task.
func (p *place) lock(task a2a.ID) (release func()) {
	p.t.Helper()
	tx, err := p.sql.Begin(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := tx.Exec(p.t.Context(), "SELECT FROM a2a.tasks WHERE id = $1 FOR UPDATE", task.String()); err != nil {
		p.t.Fatal(err)
	}
	return func() {
		if err := tx.Rollback(p.t.Context()); err != nil {
			p.t.Error(err)
		}
	}
}

// A worker that is stopping takes nothing more, and waits for what it took.
// A worker that is told so late that it has a task that the lease may be over leaves it to the rescue.
func TestTakeThatIsAnsweredLateStartsNothing(t *testing.T) {
	t.Parallel()
	const ttl = 30 * time.Millisecond
	p := newPlace(t, 1, &a2a.Agent{Name: "gate", Limits: a2a.Limits{LeaseTTL: ttl}})
	p.warm()
	slot, ok := p.pool.Reserve("gate")
	if !ok {
		t.Fatal("there was no room")
	}
	<-time.After(ttl) // the commit hangs
	slot.Start(store.Lease{TaskID: store.NewTaskID(), Agent: "gate"}, store.Input{})
	if stats, running := p.pool.Stats(); stats.Lost != 1 || running != 0 {
		t.Errorf("%d lost, %d running, want one and none", stats.Lost, running)
	}
	if slot, ok = p.pool.Reserve("gate"); !ok {
		t.Fatal("its slot is not free again")
	}
	slot.Leave()
}

func TestTakeEndsWithTheWorker(t *testing.T) {
	t.Parallel()
	p := newPlace(t, 8, &a2a.Agent{Name: "gate"})
	p.warm()
	first := p.submit()
	p.runs(first)
	slot, ok := p.pool.Reserve("gate")
	if !ok {
		t.Fatal("there was no room")
	}
	stopped := make(chan struct{})
	go func() { p.stop(); close(stopped) }()
	for {
		more, ok := p.pool.Reserve("gate")
		if !ok {
			break
		}
		more.Leave()
	}
	late := p.submit()
	p.end <- struct{}{}
	select {
	case <-stopped:
		t.Error("the worker has stopped and a slot is still held")
	case <-p.started:
		t.Error("a worker that is stopping has started a task")
	case <-time.After(100 * time.Millisecond):
	}
	slot.Leave()
	<-stopped
	tasks, err := p.ListTasks(t.Context(), store.TaskFilter{ID: late, Limit: 1})
	if err != nil || len(tasks) != 1 || tasks[0].State != a2a.StateSubmitted || tasks[0].ReadyAt.IsZero() {
		t.Errorf("the late task is %+v, %v: want it to wait", tasks, err)
	}
}
