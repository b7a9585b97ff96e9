package worker_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/wake"
	"github.com/a2ad/a2ad/internal/worker"
)

// elsewhere is an agent whose work continues elsewhere without a run.
type elsewhere struct {
	agentFunc
	delivered chan cancel
	fails     chan error // errors of the next tries
}

type cancel struct {
	run      executor.Run
	metadata string
}

func newElsewhere(run agentFunc) *elsewhere {
	return &elsewhere{run, make(chan cancel, 10), make(chan error, 10)}
}

func (e *elsewhere) Cancel(_ context.Context, run executor.Run, metadata a2a.Raw) error {
	e.delivered <- cancel{run, string(metadata)}
	select {
	case err := <-e.fails:
		return err
	default:
		return nil
	}
}

func (f *fixture) undelivered() int {
	return value[int](f, "SELECT count(*)::int FROM a2a.task_cancels")
}

// waiting is a task that has asked its client and saved where its work is.
func (f *fixture) waiting(agent string) a2a.ID {
	f.t.Helper()
	task := f.send(
		tasks.Submission{
			Agent:       agent,
			ContextID:   "ctx",
			Message:     message("x"),
			Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		},
	)
	f.waitState(task, a2a.StateInputRequired)
	return task
}

func asks() agentFunc {
	return say(&a2a.Checkpoint{Body: a2a.Raw(`{"at": "far"}`)}, status(a2a.StateInputRequired, "which?"))
}

func TestCancelOfAWaitingTaskIsDelivered(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	e := newElsewhere(asks())
	p := f.start(config(nil, agent("a", e)))
	task := f.waiting("a")
	if _, err := f.Tasks.CancelWith(t.Context(), ann, "a", task, a2a.Raw(`{"why": 1.50}`)); err != nil {
		t.Fatal(err)
	}
	got := receive(t, "cancel", e.delivered)
	same(t, "metadata", `{"why": 1.50}`, got.metadata)
	same(t, "run", executor.Run{
		Task: a2a.Task{
			ID:    task,
			Agent: "a",
		},
		Agent:       "a",
		Tenant:      "acme",
		Owner:       "ann",
		Checkpoint:  a2a.Raw(`{"at": "far"}`),
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}, got.run)
	p.stop()
	if n := f.undelivered(); n != 0 {
		t.Errorf("%d cancels are left", n)
	}
}

// A cancel that was stored before a crash is delivered by the next server.
func TestCancelIsDeliveredUntilItSucceeds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	e := newElsewhere(asks())
	first := f.start(config(nil, agent("a", e)))
	task := f.waiting("a")
	first.stop()
	if _, err := f.Tasks.Cancel(t.Context(), ann, "a", task); err != nil {
		t.Fatal(err)
	}
	e.fails <- errors.New("unreachable")
	p := f.start(config(nil, agent("a", e)))
	receive(t, "first try", e.delivered)
	f.hub.Wake(wake.Cancels) // it is not due
	f.exec("UPDATE a2a.task_cancels SET due_at = clock_timestamp()")
	f.hub.Wake(wake.Cancels)
	receive(t, "second try", e.delivered)
	p.stop()
	if n := f.undelivered(); n != 0 || len(e.delivered) != 0 {
		t.Errorf("%d cancels are left, %d were delivered again", n, len(e.delivered))
	}
}

// While a worker has the lease, it tells the agent about a cancel. If it is dead, another one does so when the lease
// would have expired.
func TestCancelIsDeliveredAfterItsWorkerDied(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	e := newElsewhere(asks())
	first := f.start(config(nil, agent("a", e)))
	task := f.waiting("a")
	first.stop()
	f.followUp("a", task, "this one")
	got, err := f.Tasks.NewClaimer().ClaimFor(
		t.Context(),
		tasks.ClaimRequest{Agent: "a", Slots: 1, TTL: time.Hour},
	) // by a worker that dies now
	if err != nil || len(got) != 1 {
		t.Fatalf("%d tasks were claimed, %v", len(got), err)
	}
	if _, err := f.Tasks.Cancel(t.Context(), ann, "a", task); err != nil {
		t.Fatal(err)
	}
	p := f.start(config(nil, agent("a", e)))
	f.hub.Wake(wake.Cancels)
	if !value[bool](f, "SELECT due_at > clock_timestamp() FROM a2a.task_cancels") {
		t.Error("the cancel is due while the lease lasts")
	}
	f.exec("UPDATE a2a.task_cancels SET due_at = clock_timestamp()")
	f.hub.Wake(wake.Cancels)
	receive(t, "cancel", e.delivered)
	p.stop()
	if n := f.undelivered(); n != 0 {
		t.Errorf("%d cancels are left", n)
	}
}

// Cancels are not delivered to agents without work elsewhere, nor to agents of remote workers, nor for a task without a
// checkpoint.
func TestUnneededCancelsAreDeleted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	e := newElsewhere(say(status(a2a.StateInputRequired, "which?")))
	agents := []worker.Agent{agent("a", asks()), agent("b", e)}
	first := f.start(config(nil, agents...))
	plain, bare := f.waiting("a"), f.waiting("b")
	first.stop()
	for _, task := range []a2a.ID{plain, bare} {
		if _, err := f.Tasks.Cancel(t.Context(), ann, "", task); err != nil {
			t.Fatal(err)
		}
	}
	if n := f.undelivered(); n != 1 {
		t.Errorf("%d cancels are stored, want only the one of the task with a checkpoint", n)
	}
	e.agentFunc = asks()
	p := f.start(config(nil, agents...))
	// Delivered after the others are deleted.
	if _, err := f.Tasks.Cancel(t.Context(), ann, "", f.waiting("b")); err != nil {
		t.Fatal(err)
	}
	receive(t, "cancel", e.delivered)
	p.stop()
	if n := f.undelivered(); n != 0 {
		t.Errorf("%d cancels are left", n)
	}
	if len(e.delivered) != 0 {
		t.Error("the cancel of a task without a checkpoint was delivered")
	}
}

// renewals reports each renewal that begins.
type renewals chan struct{}

func (r renewals) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, "name: LeaseRenew ") {
		r <- struct{}{}
	}
	return ctx
}

func (renewals) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// The cancel comes after the claim is committed, and its renewal does not know the run. There is no other renewal,
// because the lease lasts an hour.
func TestCancelBetweenClaimAndStartIsFound(t *testing.T) {
	t.Parallel()
	renewed := make(renewals, 10)
	between := make(chan func(a2a.ID), 1)
	f := newFixture(t, func(c *store.Config) {
		told := c.Committed
		c.Tracer, c.Committed = renewed, func(task a2a.ID, events []a2a.Entry) {
			told(task, events)
			if len(events) == 0 {
				return
			}
			select {
			case f := <-between:
				f(task)
			default:
			}
		}
	})
	other, g := newGate(), newGate()
	p := f.start(config(nil, agent("other", other), agent("a", g)))
	f.submit("other", "x")
	receive(t, "another run, which is renewed", other.started)
	between <- func(task a2a.ID) {
		if _, err := f.Tasks.Cancel(t.Context(), ann, "a", task); err != nil {
			t.Error(err)
		}
		select {
		case <-renewed:
		case <-time.After(5 * time.Minute):
			t.Error("the cancel caused no renewal")
		}
	}
	task := f.submit("a", "x")
	receive(t, "run", g.started)
	wantCause(t, executor.ErrCanceled, receive(t, "end", g.ended))
	other.next <- []a2a.Event{status(a2a.StateCompleted)}
	p.stop()
	same(t, "outcomes", []string{"canceled"}, f.outcomes(task))
}

// mute is an agent elsewhere that does not answer until the test opens it.
type mute struct {
	agentFunc
	delivered chan a2a.ID
	open      chan struct{}
}

func (e *mute) Cancel(_ context.Context, run executor.Run, _ a2a.Raw) error {
	e.delivered <- run.Task.ID
	<-e.open
	return nil
}

// An agent that does not answer has slots of its own. Cancels of other agents are delivered in the meantime, and its
// other cancels when it answers.
func TestSlowAgentDoesNotDelayCancelsOfOthers(t *testing.T) {
	t.Parallel()
	const many = 6
	f := newFixture(t)
	dead := &mute{asks(), make(chan a2a.ID, many), make(chan struct{})}
	live := newElsewhere(asks())
	open := sync.OnceFunc(func() { close(dead.open) })
	p := f.start(config(nil, agent("dead", dead), agent("live", live)))
	t.Cleanup(open)
	for range many {
		if _, err := f.Tasks.Cancel(t.Context(), ann, "dead", f.waiting("dead")); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 {
		receive(t, "try", dead.delivered)
	}
	task := f.waiting("live")
	if _, err := f.Tasks.Cancel(t.Context(), ann, "live", task); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, "cancel of the other agent", live.delivered); got.run.Task.ID != task {
		t.Errorf("the cancel of %s was delivered, want %s", got.run.Task.ID, task)
	}
	if n := len(dead.delivered); n != 0 {
		t.Errorf("%d more tries than slots", n)
	}
	open()
	for range many - 4 {
		receive(t, "try of what was left", dead.delivered)
	}
	p.stop()
	if n := f.undelivered(); n != 0 {
		t.Errorf("%d cancels are left", n)
	}
}
