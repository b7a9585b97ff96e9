package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/engine"
	"github.com/a2ad/a2ad/internal/notify"
	"github.com/a2ad/a2ad/internal/sse"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/stream"
	"github.com/a2ad/a2ad/internal/wake"
)

var words = &a2a.Agent{Name: "words"}

// rig is an engine without a worker. The test does what a worker would.
type rig struct {
	*engine.Engine
	t        testing.TB
	store    *store.Store
	drain    context.CancelFunc
	freeSlot func(agent string) (tasks.Slot, bool) // nil: no worker has room for a new task
	runs     statements
}

// statements records the statements that ran on the pool of runs, and how often tasks were read for callers.
type statements struct {
	mu    sync.Mutex
	names map[string]bool // guarded by mu
	reads atomic.Int64
}

func (s *statements) TraceQueryStart(ctx context.Context, conn *pgx.Conn,
	data pgx.TraceQueryStartData) context.Context {
	name, _, _ := strings.Cut(strings.TrimPrefix(data.SQL, "-- name: "), " ")
	if held, ok := ctx.Value(heldKey{}).(*heldRequest); ok {
		held.wait(ctx, name)
	}
	if name == "TaskSnapshots" {
		s.reads.Add(1)
	}
	if strings.HasSuffix(conn.Config().RuntimeParams["application_name"], "-worker") {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.names[name] = true
	}
	return ctx
}

func (s *statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// reset returns the names since the last call.
func (s *statements) reset() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := slices.Sorted(maps.Keys(s.names))
	s.names = map[string]bool{}
	return names
}

func newRig(t testing.TB, change ...func(*engine.Config)) *rig {
	t.Helper()
	return newRigOn(t, db.Config{}, change...)
}

func newRigOn(t testing.TB, conns db.Config, change ...func(*engine.Config)) *rig {
	t.Helper()
	hub := &notify.Hub{}
	var follower *stream.Follower
	r := &rig{t: t, runs: statements{names: map[string]bool{}}}
	conns.URL, conns.Replica, conns.PoolSize = storetest.New(t).URL, "r1", 8
	conns.Wake, conns.Tracer = hub.Wake, &r.runs
	s, err := store.Open(t.Context(), store.Config{
		Config: conns,
		Reserve: func(agent string) (tasks.Slot, bool) {
			if r.freeSlot == nil {
				return tasks.Slot{}, false
			}
			return r.freeSlot(agent)
		},
		Committed: func(id a2a.ID, events []a2a.Entry) {
			if !follower.Offer(id, events) {
				hub.Wake(wake.Task(id))
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	follower = stream.New(s.Tasks.Log(), hub, time.Hour, slog.New(slog.DiscardHandler))
	drain, startDrain := context.WithCancel(context.Background())
	cfg := engine.Config{PageKey: make([]byte, 32), BlockingMaxWait: time.Minute, Drain: drain}
	for _, c := range change {
		c(&cfg)
	}
	eng, err := engine.New(s, follower, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := follower.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		stop()
		startDrain()
		running.Wait()
		s.Close()
	})
	r.Engine, r.store, r.drain = eng, s, startDrain
	return r
}

func send(text string, change ...func(*a2a.SendMessage)) *a2a.SendMessage {
	op := &a2a.SendMessage{Message: a2a.Message{ID: "m-" + text, Role: a2a.RoleUser,
		Parts: []a2a.Part{{Kind: a2a.PartText, Text: text}}}}
	op.Digest[0] = text[0]
	for _, c := range change {
		c(op)
	}
	return op
}

func to(task a2a.ID) func(*a2a.SendMessage) {
	return func(op *a2a.SendMessage) { op.Message.TaskID = task.String() }
}

func blocking(op *a2a.SendMessage) { op.Blocking = true }

func key(k string) func(*a2a.SendMessage) {
	return func(op *a2a.SendMessage) { op.Idempotency = k }
}

func (r *rig) task(text string) a2a.ID {
	r.t.Helper()
	t, err := r.Send(r.t.Context(), ann, words, send(text))
	if err != nil {
		r.t.Fatal(err)
	}
	return t.ID
}

// claim claims a waiting task of words for the test.
func (r *rig) claim() *tasks.Lease {
	r.t.Helper()
	leases, err := r.store.Tasks.NewClaimer().Claim(r.t.Context(), words.Name, 1, time.Minute, 0)
	if err != nil || len(leases) != 1 {
		r.t.Fatalf("claim = %d leases, %v", len(leases), err)
	}
	return &leases[0]
}

// awaitClaim is claim for a task that another goroutine is about to submit.
func (r *rig) awaitClaim() *tasks.Lease {
	r.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		leases, err := r.store.Tasks.NewClaimer().Claim(r.t.Context(), words.Name, 1, time.Minute, 0)
		if err != nil {
			r.t.Fatal(err)
		}
		if len(leases) == 1 {
			return &leases[0]
		}
		select {
		case <-tick.C:
		case <-r.t.Context().Done():
			r.t.Fatal("no task was submitted")
		}
	}
}

func (r *rig) append(l *tasks.Lease, events ...a2a.Event) {
	r.t.Helper()
	for _, e := range events { // as the worker does
		if u, ok := e.(*a2a.StatusUpdate); ok && u.Status.Message != nil {
			u.Status.Message.Role = a2a.RoleAgent
		}
	}
	if _, err := r.store.Tasks.Append(r.t.Context(), l, tasks.Batch{Events: events}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) snapshot(id a2a.ID) *a2a.Task {
	r.t.Helper()
	t, err := r.store.Tasks.SnapshotOfAny(r.t.Context(), id, tasks.Want{Artifacts: true})
	if err != nil {
		r.t.Fatal(err)
	}
	return t
}

func (r *rig) log(id a2a.ID) []a2a.Entry {
	r.t.Helper()
	entries, err := r.store.Tasks.EventsAfter(r.t.Context(), id, 0, 1000)
	if err != nil {
		r.t.Fatal(err)
	}
	return entries
}

// eventID returns the Last-Event-ID of an event.
func (r *rig) eventID(id a2a.ID, seq int) string {
	e := r.log(id)[seq-1]
	return sse.FormatID(e.Seq, e.UID.Short())
}

// frames reads as many frames as want has, and any after them, and describes them: "task@3",
// "gap@3" or the seq of an event. "!" marks the last frame, "…" a stream that waits for more.
func frames(t testing.TB, s *engine.Stream, want string) string {
	t.Helper()
	n := len(strings.Fields(strings.TrimSuffix(want, "…")))
	var out []string
	for {
		limit := 5 * time.Minute
		if len(out) >= n {
			limit = 30 * time.Millisecond // no more frames expected
		}
		ctx, cancel := context.WithTimeoutCause(context.Background(), limit, errNothing)
		f, err := s.Next(ctx)
		cancel()
		switch {
		case errors.Is(err, io.EOF):
			return strings.Join(out, " ")
		case errors.Is(err, errNothing):
			return strings.Join(append(out, "…"), " ")
		case err != nil:
			t.Fatalf("Next after %v: %v", out, err)
		}
		out = append(out, describe(&f))
	}
}

func describe(f *engine.Frame) string {
	seq, uid := f.Seq()
	text := fmt.Sprint(seq)
	switch {
	case f.Gap:
		text = "gap@" + text
	case f.Task != nil:
		text = "task@" + text
	}
	if uid.IsZero() {
		text += "?"
	}
	if f.Last {
		text += "!"
	}
	return text
}

var errNothing = errors.New("nothing yet")

// next returns a frame that must come.
func next(t testing.TB, s *engine.Stream) engine.Frame {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	f, err := s.Next(ctx)
	if err != nil {
		t.Fatalf("Next: %v", err)
	}
	return f
}

func same[T any](t testing.TB, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func wantCode(t testing.TB, what string, err error, code a2a.ErrorCode) {
	t.Helper()
	if err == nil || a2a.CodeOf(err) != code {
		t.Errorf("%s: error = %v, want one with code %s", what, err, code.Reason())
	}
}

func receive[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(5 * time.Minute):
		t.Fatalf("%s: timed out", what)
		panic("unreachable")
	}
}
