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
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/worker"
)

// gated is an executor that reports which task it has started, and ends it when the test opens the gate.
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

// replica is the store and the worker of one replica.
type replica struct {
	t *testing.T
	*store.Store
	gated
	pool      *worker.Pool
	sql       *pgxpool.Pool
	stop      func()      // and wait
	completed chan a2a.ID // tasks
	reserved  int         // slots for tasks that were submitted; the test submits one at a time
}

func newReplica(t *testing.T, slots int, agent *a2a.Agent, change ...func(*worker.Config)) *replica {
	t.Helper()
	p := &replica{
		t: t, gated: gated{make(chan a2a.ID, 100), make(chan struct{}, 100), &atomic.Int64{}},
		completed: make(chan a2a.ID, 100),
	}
	hub := &notify.Hub{}
	var err error
	pg := storetest.New(t)
	p.sql = pg.Pool(t)
	p.Store, err = store.Open(t.Context(), store.Config{
		Config: db.Config{URL: pg.URL, Replica: "r1", PoolSize: 6, Wake: hub.Wake}, Committed: p.note,
		Reserve: func(agent string) (tasks.Slot, bool) {
			slot, ok := p.pool.Reserve(agent)
			if ok {
				p.reserved++
			}
			return slot, ok
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg := worker.Config{
		Worker: "r1", Slots: slots, Agents: []worker.Agent{{Agent: agent, Executor: p.gated}},
		Limits: a2a.Limits{LeaseTTL: time.Minute, MaxAttempts: 3, Deadline: time.Hour},
		// Only wake-ups and free slots may make it claim.
		Poll: time.Hour, Drain: time.Hour, Logger: slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(&cfg)
	}
	p.pool = worker.New(p.Tasks, hub, cfg)
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

func (p *replica) submit() a2a.ID {
	p.t.Helper()
	out, err := p.Tasks.Submit(p.t.Context(), tasks.Submission{
		Caller: db.Caller{Tenant: "acme", Owner: "ann"}, Agent: "gate", ContextID: "c",
		Message: a2a.Message{ID: "m", Role: a2a.RoleUser, Parts: []a2a.Part{{Kind: a2a.PartText, Text: "x"}}},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return out.Task
}

// note notes tasks that are completed.
func (p *replica) note(task a2a.ID, events []a2a.Entry) {
	for _, e := range events {
		if u, ok := e.Event.(*a2a.StatusUpdate); ok && u.Status.State == a2a.StateCompleted {
			p.completed <- task
		}
	}
}

// completes waits until the next task is completed, which must be this one.
func (p *replica) completes(want a2a.ID) {
	p.t.Helper()
	if got := receive(p.t, "completed task", p.completed); got != want {
		p.t.Errorf("task %s is completed, want %s", got, want)
	}
}

// runs waits until the next task is started, which must be this one.
func (p *replica) runs(want a2a.ID) {
	p.t.Helper()
	select {
	case got := <-p.started:
		if got != want {
			p.t.Errorf("task %s runs, want %s", got, want)
		}
	case <-time.After(5 * time.Minute):
		p.t.Fatalf("task %s does not run", want)
	}
}

// warm waits until the pool has found its queue empty. Nothing else shows that, so it polls.
func (p *replica) warm() {
	p.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if slot, ok := p.pool.Reserve("gate"); ok {
			slot.Release()
			p.reserved = 0
			return
		}
		select {
		case <-tick.C:
		case <-p.t.Context().Done():
			p.t.Fatal("no slot can be reserved")
		}
	}
}

// A new task does not wait while a slot is free, and does not overtake queued tasks.
func TestReservedSlotsKeepTheOrderOfTheQueue(t *testing.T) {
	t.Parallel()
	p := newReplica(t, 2, &a2a.Agent{Name: "gate"})
	p.warm()
	for range 2 {
		p.runs(p.submit())
	}
	if got := p.reserved; got != 2 {
		t.Errorf("%d of 2 tasks got a slot when they were submitted", got)
	}
	third, fourth, fifth := p.submit(), p.submit(), p.submit()
	if got := p.reserved; got != 2 {
		t.Errorf("%d tasks got a slot when they were submitted, want 2", got)
	}
	for _, next := range []a2a.ID{third, fourth, fifth} {
		p.end <- struct{}{}
		p.runs(next)
	}
}

// Only the claim can enforce the concurrency limit of an agent.
func TestReserveRefusesAnAgentWithALimit(t *testing.T) {
	t.Parallel()
	p := newReplica(t, 8, &a2a.Agent{Name: "gate", Limits: a2a.Limits{Concurrency: 1}})
	first, second, third := p.submit(), p.submit(), p.submit()
	for _, next := range []a2a.ID{first, second, third} {
		p.runs(next)
		if n := p.atWork.Load(); n != 1 {
			t.Errorf("%d at work at once, want 1", n)
		}
		p.end <- struct{}{}
	}
	if p.reserved != 0 {
		t.Errorf("%d slots were reserved", p.reserved)
	}
}

// Only the claim asks the database whether an operator has stopped the agent. A task that is in the queue runs when the
// agent continues.
func TestStoppedAgentStartsNothing(t *testing.T) {
	t.Parallel()
	var stopped atomic.Bool
	p := newReplica(t, 8, &a2a.Agent{Name: "gate"}, func(c *worker.Config) {
		c.MayStart = func(string) bool { return !stopped.Load() }
	})
	p.warm()
	stopped.Store(true)
	if _, _, err := p.Tasks.BeginStop(t.Context(), tasks.StopAgent, "gate", false); err != nil {
		t.Fatal(err)
	}
	id := p.submit()
	if p.reserved != 0 || p.atWork.Load() != 0 {
		t.Errorf("%d slots were reserved, %d are at work", p.reserved, p.atWork.Load())
	}
	if _, err := p.Tasks.EndStop(t.Context(), tasks.StopAgent, "gate"); err != nil {
		t.Fatal(err)
	}
	p.runs(id)
	p.end <- struct{}{}
	// A drained worker is told to look again when it may continue.
	if _, _, err := p.Tasks.BeginStop(t.Context(), tasks.StopWorker, "r1", false); err != nil {
		t.Fatal(err)
	}
	id = p.submit()
	if _, err := p.Tasks.EndStop(t.Context(), tasks.StopWorker, "r1"); err != nil {
		t.Fatal(err)
	}
	p.pool.Recheck()
	p.runs(id)
	p.end <- struct{}{}
}

// A slot is for an agent's work. While its last events are being written the next run may begin.
func TestSlotIsFreeWhenTheExecutorHasEnded(t *testing.T) {
	t.Parallel()
	p := newReplica(t, 1, &a2a.Agent{Name: "gate"})
	p.warm()
	first := p.submit()
	p.runs(first)
	release := p.lock(first)
	p.end <- struct{}{}
	p.runs(p.submit())
	if _, n := p.pool.Stats(); n != 2 {
		t.Errorf("%d runs, want 2: one is still being written", n)
	}
	release()
}

// lock locks the row of a task until release.
func (p *replica) lock(task a2a.ID) (release func()) {
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

// A worker that learns late that it has a task, when the lease may have expired, leaves the task to the rescue.
func TestReservedSlotThatIsStartedLateStartsNothing(t *testing.T) {
	t.Parallel()
	p := newReplica(t, 1, &a2a.Agent{Name: "gate"})
	p.warm()
	slot, ok := p.pool.Reserve("gate")
	if !ok {
		t.Fatal("no slot is free")
	}
	slot.Start(tasks.Lease{TaskID: db.NewTaskID(), Agent: "gate"}, tasks.Input{}, time.Now().Add(-slot.TTL))
	if stats, running := p.pool.Stats(); stats.Lost != 1 || running != 0 {
		t.Errorf("%d lost, %d running, want one and none", stats.Lost, running)
	}
	if slot, ok = p.pool.Reserve("gate"); !ok {
		t.Fatal("its slot is not free again")
	}
	slot.Release()
}

// A worker that is stopping reserves no more slots, and waits for the ones that are reserved.
func TestReservedSlotDelaysTheStop(t *testing.T) {
	t.Parallel()
	p := newReplica(t, 8, &a2a.Agent{Name: "gate"})
	p.warm()
	first := p.submit()
	p.runs(first)
	slot, ok := p.pool.Reserve("gate")
	if !ok {
		t.Fatal("no slot is free")
	}
	stopped := make(chan struct{})
	go func() { p.stop(); close(stopped) }()
	for {
		more, ok := p.pool.Reserve("gate")
		if !ok {
			break
		}
		more.Release()
	}
	late := p.submit()
	p.end <- struct{}{}
	p.completes(first)
	select {
	case <-stopped:
		t.Error("the worker has stopped while a slot is reserved")
	case <-p.started:
		t.Error("a worker that is stopping has started a task")
	default:
	}
	slot.Release()
	<-stopped
	taskList, err := p.Operate.ListTasks(t.Context(), operate.TaskFilter{ID: late, Limit: 1})
	if err != nil || len(taskList) != 1 || taskList[0].State != a2a.StateSubmitted || taskList[0].ReadyAt.IsZero() {
		t.Errorf("the late task is %+v, %v: want it queued", taskList, err)
	}
}
