package worker_test

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/notify"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/wake"
	"github.com/a2ad/a2ad/internal/worker"
)

func TestMain(m *testing.M) { storetest.Main(m) }

var ann = db.Caller{Tenant: "acme", Owner: "ann"}

// fixture is a store on a database of its own and a hub that it wakes, as in a replica.
type fixture struct {
	*store.Store
	t   testing.TB
	sql *pgxpool.Pool
	hub *notify.Hub
	url string
}

func newFixture(t testing.TB, change ...func(*store.Config)) *fixture {
	t.Helper()
	pg := storetest.New(t)
	f := &fixture{t: t, sql: pg.Pool(t), hub: &notify.Hub{}, url: pg.URL}
	cfg := store.Config{
		Config:    db.Config{URL: pg.URL, Replica: "r1", PoolSize: 8, Wake: f.hub.Wake},
		Committed: func(task a2a.ID, _ []a2a.Entry) { f.hub.Wake(wake.Task(task)) },
	}
	for _, c := range change {
		c(&cfg)
	}
	var err error
	if f.Store, err = store.Open(t.Context(), cfg); err != nil {
		t.Fatalf("open store: %v", err)
	}
	t.Cleanup(f.Store.Close)
	return f
}

// agentFunc is an executor for one test.
type agentFunc func(ctx context.Context, run executor.Run, yield func(a2a.Event, error) bool)

func (f agentFunc) Execute(ctx context.Context, run executor.Run) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) { f(ctx, run, yield) }
}

// say yields events and then ends.
func say(events ...a2a.Event) agentFunc {
	return func(_ context.Context, _ executor.Run, yield func(a2a.Event, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// failing yields an error after events.
func failing(err error, events ...a2a.Event) agentFunc {
	return func(_ context.Context, _ executor.Run, yield func(a2a.Event, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
		yield(nil, err)
	}
}

// gate is an executor that waits in each run for the test, or for the end of its context.
type gate struct {
	started chan executor.Run // a run has begun
	next    chan []a2a.Event  // what it is to report now
	ended   chan error        // the cause with which its context ended
	working atomic.Int64      // runs that have begun and not ended
}

func newGate() *gate {
	return &gate{started: make(chan executor.Run, 100), next: make(chan []a2a.Event), ended: make(chan error, 100)}
}

func (g *gate) Execute(ctx context.Context, run executor.Run) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		g.working.Add(1)
		defer g.working.Add(-1)
		g.started <- run
		for {
			select {
			case events := <-g.next:
				for _, e := range events {
					if !yield(e, nil) {
						g.ended <- context.Cause(ctx)
						return
					}
					if s, ok := e.(*a2a.StatusUpdate); ok && s.Status.State.EndsTurn() {
						return
					}
				}
			case <-ctx.Done():
				g.ended <- context.Cause(ctx)
				return
			}
		}
	}
}

// config has no poll and long leases, so that only wake-ups make things happen.
func config(change func(*worker.Config), agents ...worker.Agent) worker.Config {
	cfg := worker.Config{
		Worker:  "r1",
		Slots:   4,
		Agents:  agents,
		Poll:    time.Hour,
		Drain:   5 * time.Minute,
		Abandon: 5 * time.Minute,
		Logger:  slog.New(slog.DiscardHandler),
		Limits: a2a.Limits{
			MaxAttempts: 3,
			LeaseTTL:    time.Hour,
			BackoffBase: time.Millisecond,
			BackoffMax:  2 * time.Millisecond,
		},
	}
	if change != nil {
		change(&cfg)
	}
	return cfg
}

func agent(name string, e executor.Executor, limits ...a2a.Limits) worker.Agent {
	a := &a2a.Agent{Name: name}
	if len(limits) > 0 {
		a.Limits = limits[0]
	}
	return worker.Agent{Agent: a, Executor: e}
}

// running is a pool that runs.
type running struct {
	*worker.Pool
	drain func() // lets it claim nothing more
	stop  func() // ends it and waits; may be called again
}

// start runs a pool until the test ends, or stop is called.
func (f *fixture) start(cfg worker.Config) running {
	f.t.Helper()
	p := worker.New(f.Tasks, f.hub, cfg)
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := p.Run(ctx); err != nil {
			f.t.Errorf("Run = %v", err)
		}
	})
	stop := sync.OnceFunc(func() { cancel(); wg.Wait() })
	f.t.Cleanup(stop)
	return running{p, cancel, stop}
}

func (f *fixture) submit(agent, text string) a2a.ID {
	f.t.Helper()
	return f.send(tasks.Submission{Agent: agent, ContextID: "ctx", Message: message(text)})
}

func message(text string) a2a.Message {
	return a2a.Message{ID: "m-" + text, Role: a2a.RoleUser, Parts: texts(text)}
}

func (f *fixture) followUp(agent string, task a2a.ID, text string) {
	f.t.Helper()
	f.send(tasks.Submission{Agent: agent, Task: task, Message: message(text)})
}

func (f *fixture) send(in tasks.Submission) a2a.ID {
	f.t.Helper()
	in.Caller = ann
	out, err := f.Tasks.Submit(f.t.Context(), in)
	if err != nil {
		f.t.Fatalf("submit: %v", err)
	}
	return out.Task
}

func texts(text ...string) []a2a.Part {
	parts := make([]a2a.Part, len(text))
	for i, s := range text {
		parts[i] = a2a.Part{Kind: a2a.PartText, Text: s}
	}
	return parts
}

func status(s a2a.State, text ...string) *a2a.StatusUpdate {
	u := &a2a.StatusUpdate{Status: a2a.Status{State: s}}
	if len(text) > 0 {
		u.Status.Message = &a2a.Message{ID: "agent-" + text[0], Role: a2a.RoleAgent, Parts: texts(text...)}
	}
	return u
}

func chunk(id string, text ...string) *a2a.ArtifactUpdate {
	return &a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: id, Parts: texts(text...)}, Append: true}
}

func (f *fixture) snapshot(task a2a.ID) *a2a.Task {
	f.t.Helper()
	t, err := f.Tasks.SnapshotOfAny(f.t.Context(), task, tasks.Want{Artifacts: true})
	if err != nil {
		f.t.Fatalf("snapshot: %v", err)
	}
	return t
}

// waitFor returns the task when ok is true for it. It reads the task after each commit.
func (f *fixture) waitFor(task a2a.ID, what string, ok func(*a2a.Task) bool) *a2a.Task {
	f.t.Helper()
	wake, stop := f.hub.Wait(wake.Task(task))
	defer stop()
	for {
		t := f.snapshot(task)
		if ok(t) {
			return t
		}
		select {
		case <-wake:
		case <-time.After(5 * time.Minute):
			f.t.Fatalf("the task is %s at %d, want %s", t.Status.State, t.LastSeq, what)
		case <-f.t.Context().Done():
			f.t.Fatalf("the task is %s at %d, want %s", t.Status.State, t.LastSeq, what)
		}
	}
}

func (f *fixture) waitState(task a2a.ID, s a2a.State) *a2a.Task {
	f.t.Helper()
	return f.waitFor(task, s.String(), func(t *a2a.Task) bool { return t.Status.State == s })
}

// receive receives a value that must be sent.
func receive[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(5 * time.Minute):
		t.Fatalf("%s: nothing was received", what)
		panic("unreachable")
	}
}

func (f *fixture) exec(query string, args ...any) {
	f.t.Helper()
	if _, err := f.sql.Exec(f.t.Context(), query, args...); err != nil {
		f.t.Fatalf("%s: %v", query, err)
	}
}

func value[T any](f *fixture, query string, args ...any) (v T) {
	f.t.Helper()
	if err := f.sql.QueryRow(f.t.Context(), query, args...).Scan(&v); err != nil {
		f.t.Fatalf("%s: %v", query, err)
	}
	return v
}

// steal rescues a task from its worker, as if its lease had expired.
func (f *fixture) steal(task a2a.ID) {
	f.t.Helper()
	f.exec("UPDATE a2a.task_leases SET lease_until = clock_timestamp() - interval '1 second' WHERE task_id = $1", task)
	if n, err := f.Tasks.Rescue(f.t.Context(), nil, tasks.Policy{MaxAttempts: 100}, 10); err != nil || n != 1 {
		f.t.Fatalf("rescue = %d, %v, want 1", n, err)
	}
}

func (f *fixture) hold(query string, args ...any) (release func()) {
	f.t.Helper()
	tx, err := f.sql.Begin(f.t.Context())
	if err != nil {
		f.t.Fatalf("begin: %v", err)
	}
	release = sync.OnceFunc(func() { _ = tx.Rollback(context.WithoutCancel(f.t.Context())) })
	f.t.Cleanup(release)
	if _, err := tx.Exec(f.t.Context(), query, args...); err != nil {
		f.t.Fatalf("%s: %v", query, err)
	}
	return release
}

// outcomes returns how the attempts of a task ended, oldest first.
func (f *fixture) outcomes(task a2a.ID) []string {
	f.t.Helper()
	rows, err := f.Operate.Attempts(f.t.Context(), task)
	if err != nil {
		f.t.Fatalf("attempts: %v", err)
	}
	var out []string
	for _, r := range rows {
		out = append(out, r.Outcome)
	}
	return out
}

// events returns a task's log after the claim of its first attempt, without times.
func (f *fixture) events(task a2a.ID) []a2a.Event {
	f.t.Helper()
	entries, err := f.Tasks.EventsAfter(f.t.Context(), task, 2, 100_000)
	if err != nil {
		f.t.Fatalf("log: %v", err)
	}
	var out []a2a.Event
	for _, e := range entries {
		if u, ok := e.Event.(*a2a.StatusUpdate); ok {
			u.Status.Time = time.Time{}
		}
		out = append(out, e.Event)
	}
	return out
}

func same[T any](t testing.TB, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func wantCause(t testing.TB, want, got error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("the context ended with %v, want %v", got, want)
	}
}

func statusText(t *a2a.Task) string {
	if t.Status.Message == nil || len(t.Status.Message.Parts) == 0 {
		return ""
	}
	return t.Status.Message.Parts[0].Text
}
