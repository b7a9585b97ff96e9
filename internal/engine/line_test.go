package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/budget"
	"github.com/a2ad/a2ad/internal/engine"
	"github.com/a2ad/a2ad/internal/store/db"
)

// held holds the statements of requests until the test lets them run.
type held struct {
	only  string        // the name of the statements to hold; "": all
	begun chan struct{} // receives when a statement begins; large enough for all
	runs  chan struct{} // one statement runs for each value, and all when it is closed

	mu       sync.Mutex
	requests []int // guarded by mu; those that have begun a statement, in order
}

func newHeld(only string) *held {
	return &held{only: only, begun: make(chan struct{}, 10_000), runs: make(chan struct{})}
}

type heldKey struct{}

type heldRequest struct {
	*held
	first sync.Once
	id    int
}

// request returns the context of one request whose statements are held.
func (h *held) request(ctx context.Context, id int) context.Context {
	return context.WithValue(ctx, heldKey{}, &heldRequest{held: h, id: id})
}

// order returns the requests that have begun a statement, in order.
func (h *held) order() []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.requests)
}

func (r *heldRequest) wait(ctx context.Context, statement string) {
	if r.only != "" && r.only != statement {
		return
	}
	r.first.Do(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.requests = append(r.requests, r.id)
	})
	r.begun <- struct{}{}
	select {
	case <-r.runs:
	case <-ctx.Done():
	}
}

// opening is a stream that begins in the background.
type opening struct {
	stream *engine.Stream
	err    error
}

func opened(open func() (*engine.Stream, error)) <-chan opening {
	done := make(chan opening, 1)
	go func() {
		s, err := open()
		done <- opening{s, err}
	}()
	return done
}

func (r *rig) subscribe(ctx context.Context, id a2a.ID) <-chan opening {
	return opened(func() (*engine.Stream, error) {
		return r.Subscribe(ctx, ann, words, &a2a.Subscribe{ID: id.String()})
	})
}

// awaitStreams waits until n streams are open or wait to begin.
func (r *rig) awaitStreams(n int) {
	r.t.Helper()
	r.await(fmt.Sprint(n, " streams are open or wait"), func() bool { return r.Streams() == n })
}

func (r *rig) await(what string, isSo func() bool) {
	r.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	patience := time.After(5 * time.Minute)
	for !isSo() {
		select {
		case <-tick.C:
		case <-patience:
			r.t.Fatalf("%s: timed out", what)
		}
	}
}

// The clients of a replica that has crashed come back at once. None is refused, and they do not use up what other
// requests need.
func TestSubscriptionsWaitInLine(t *testing.T) {
	t.Parallel()
	const streams = 50
	r := newRig(t, func(c *engine.Config) { c.MaxPending, c.MaxStreams = 1, streams+1 })
	turns := r.store.DB.StreamConns()
	id := r.task("x")
	h := newHeld("")
	var waiting []<-chan opening
	for i := range turns {
		waiting = append(waiting, r.subscribe(h.request(t.Context(), i), id))
	}
	for range turns {
		receive(t, "a statement of the first streams", h.begun)
	}
	gone := errors.New("the client disconnected")
	leaving, leave := context.WithCancelCause(t.Context())
	left := r.subscribe(leaving, id)
	r.await("the client that will leave waits", func() bool { return r.Waiting() == 1 })
	for i := turns; i < streams; i++ {
		waiting = append(waiting, r.subscribe(h.request(t.Context(), i), id))
		r.await("one more waits", func() bool { return r.Waiting() == 2+i-turns })
	}
	r.awaitStreams(streams + 1)
	_, err := r.Subscribe(t.Context(), ann, words, &a2a.Subscribe{ID: id.String()})
	wantCode(t, "one more than the limit of streams", err, a2a.CodeUnavailable)
	for range 10 {
		if _, err := r.Get(t.Context(), ann, words, &a2a.GetTask{ID: id.String()}); err != nil {
			t.Errorf("another request meanwhile: %v", err)
		}
	}
	leave(gone)
	if o := receive(t, "the stream of a client that has left", left); !errors.Is(o.err, gone) {
		t.Errorf("a client that has left the line: %v", o.err)
	}
	r.awaitStreams(streams)
	const run, each = 20, 2 // statements
	for range run {
		h.runs <- struct{}{}
	}
	if n := len(h.order()); n > run/each+turns {
		t.Errorf("%d streams have begun with %d statements: those at the front must come first", n, run)
	}
	close(h.runs)
	for _, c := range waiting {
		s := receive(t, "a stream", c)
		if s.err != nil {
			t.Fatal(s.err)
		}
		same(t, "a stream", "task@1 …", frames(t, s.stream, "task@1 …"))
		s.stream.Close()
	}
	order := h.order()
	for i, n := range order {
		if n < i-turns || n > i+turns { // as many begin at once
			t.Fatalf("the streams began in the order %v", order)
		}
	}
	if n := r.Streams(); n != 0 {
		t.Errorf("%d streams are open, want none", n)
	}
}

// When the server drains, those in line go to another one. A message that is stored gets its stream.
func TestDrainEndsTheLine(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.task("x")
	keyed := func() (*engine.Stream, error) { return r.Stream(t.Context(), ann, words, send("k", key("k"))) }
	if s, err := keyed(); err != nil {
		t.Fatal(err)
	} else {
		s.Close()
	}
	h := newHeld("")
	var first []<-chan opening
	for range r.store.DB.StreamConns() {
		first = append(first, r.subscribe(h.request(t.Context(), 0), id))
	}
	for range first {
		receive(t, "a statement of the first streams", h.begun)
	}
	refused, stored := r.subscribe(t.Context(), id), opened(keyed)
	r.awaitStreams(len(first) + 2)
	r.drain()
	wantCode(t, "a stream that has waited", receive(t, "the refusal", refused).err, a2a.CodeUnavailable)
	_, err := r.Subscribe(t.Context(), ann, words, &a2a.Subscribe{ID: id.String()})
	wantCode(t, "a stream that would wait", err, a2a.CodeUnavailable)
	close(h.runs)
	for _, c := range append(first, stored) {
		s := receive(t, "a stream", c)
		if s.err != nil {
			t.Fatal(s.err)
		}
		s.stream.Close()
	}
}

// Streams of large tasks wait for each other, and those of small tasks do not wait for them.
func TestLargeTasksLeaveTheLine(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	memory := budget.New(budget.Config{Total: 256 << 20})
	large, small := r.task("large"), r.task("small")
	r.append(r.claim(), status(a2a.StateWorking, ""), artifact("a", strings.Repeat("x", 1500<<10), false))
	h := newHeld("TaskSnapshots")
	var held []<-chan opening
	for range r.store.DB.StreamConns() + 1 {
		lease := memory.Open(budget.Owner{Tenant: ann.Tenant, Name: ann.Owner})
		defer lease.Release()
		held = append(held, r.subscribe(budget.With(h.request(t.Context(), 0), lease), large))
	}
	for range 2 {
		receive(t, "a read of the large task", h.begun)
	}
	r.awaitStreams(len(held))
	for range 10 {
		s := receive(t, "the stream of a small task", r.subscribe(t.Context(), small))
		if s.err != nil {
			t.Fatal(s.err)
		}
		s.stream.Close()
	}
	close(h.runs)
	for _, c := range held {
		s := receive(t, "the stream of a large task", c)
		if s.err != nil {
			t.Fatal(s.err)
		}
		s.stream.Close()
	}
}

// What was done is answered, however long the answer waits for a connection. A refusal would look as if nothing had
// been done.
func TestAnswersAreNotRefused(t *testing.T) {
	t.Parallel()
	r := newRigOn(t, db.Config{AcquireTimeout: time.Second}, func(c *engine.Config) { c.MaxPending = 5 })
	asked := r.task("x")
	r.append(r.claim(), status(a2a.StateInputRequired, "and?"))
	var canceled []a2a.ID
	for range 5 { // as many as may write at once
		canceled = append(canceled, r.task("y"))
	}
	release := r.holdReads(asked)
	r.refused(asked)
	var answers []<-chan answer
	for _, id := range canceled {
		answers = append(answers, inBackground(func() (*a2a.Task, error) {
			return r.Cancel(t.Context(), ann, words, &a2a.CancelTask{ID: id.String()})
		}))
	}
	for _, id := range canceled {
		r.awaitState(id, a2a.StateCanceled)
	}
	answers = append(answers, r.async(t.Context(), send("more", to(asked))))
	r.awaitState(asked, a2a.StateSubmitted)
	for range 2 {
		r.refused(asked)
	}
	release()
	for i, c := range answers {
		if a := receive(t, "an answer", c); a.err != nil {
			t.Errorf("answer %d: %v", i, a.err)
		}
	}
}

// A stream that must end does not wait for a connection: its client is gone, so nothing would end the wait.
func TestPatienceEndsWithTheClient(t *testing.T) {
	t.Parallel()
	r := newRigOn(t, db.Config{AcquireTimeout: time.Second})
	asked := r.task("x")
	s, err := r.Stream(t.Context(), ann, talker, send("y"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	release := r.holdReads(asked)
	defer release()
	r.refused(asked)
	ended := make(chan error, 1)
	go func() {
		draining, drain := context.WithCancelCause(t.Context())
		drain(engine.ErrDraining)
		_, err := s.Next(draining)
		ended <- err
	}()
	wantCode(t, "a stream of a draining server", receive(t, "its end", ended), a2a.CodeUnavailable)
}

// holdReads makes reads of callers hold all connections that they may, until release.
func (r *rig) holdReads(id a2a.ID) (release func()) {
	h := newHeld("")
	var held []<-chan answer
	for range 2 * r.store.DB.StreamConns() { // more than they may
		held = append(held, r.get(h.request(db.Patient(r.t.Context()), 0), id))
	}
	return func() {
		r.t.Helper()
		close(h.runs)
		for _, c := range held {
			if a := receive(r.t, "a read", c); a.err != nil {
				r.t.Error(a.err)
			}
		}
	}
}

// refused waits until a read is refused because no connection is free.
func (r *rig) refused(id a2a.ID) {
	r.t.Helper()
	for {
		a := receive(r.t, "a read", r.get(r.t.Context(), id))
		if a2a.CodeOf(a.err) == a2a.CodeUnavailable {
			return
		}
		if a.err != nil { // there are still connections for a read that is not held
			r.t.Fatal(a.err)
		}
	}
}

func (r *rig) get(ctx context.Context, id a2a.ID) <-chan answer {
	return inBackground(func() (*a2a.Task, error) {
		return r.Get(ctx, ann, words, &a2a.GetTask{ID: id.String()})
	})
}

// awaitState waits until a task has a state, which it reads on the pool of runs.
func (r *rig) awaitState(id a2a.ID, want a2a.State) {
	r.t.Helper()
	r.await(fmt.Sprint("the task is ", want), func() bool {
		states, err := r.store.Tasks.States(r.t.Context(), []a2a.ID{id})
		if err != nil {
			r.t.Fatal(err)
		}
		return states[id] == want
	})
}

// A stream that waits for memory, because its owner has used up his share, does not keep others from beginning.
func TestMemoryIsNotWaitedForInLine(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	memory := budget.New(budget.Config{Total: budget.Least, Wait: 5 * time.Minute})
	large, small := r.task("large"), r.task("small")
	r.append(r.claim(), status(a2a.StateWorking, ""), artifact("a", strings.Repeat("x", 200<<10), false))
	full := memory.Open(budget.Owner{Tenant: ann.Tenant, Name: ann.Owner})
	if err := full.Grow(t.Context(), memory.Share()); err != nil {
		t.Fatal(err)
	}
	var hungry []<-chan opening
	for range 3 * r.store.DB.StreamConns() {
		lease := memory.Open(budget.Owner{Tenant: ann.Tenant, Name: ann.Owner})
		defer lease.Release()
		hungry = append(hungry, r.subscribe(budget.With(t.Context(), lease), large))
	}
	r.await("all wait for memory", func() bool { return memory.Stats().Waiting == len(hungry) })
	s := receive(t, "the stream of a small task", r.subscribe(t.Context(), small))
	if s.err != nil {
		t.Fatal(s.err)
	}
	s.stream.Close()
	full.Release()
	for _, c := range hungry {
		s := receive(t, "a stream that has waited for memory", c)
		if s.err != nil {
			t.Fatal(s.err)
		}
		s.stream.Close()
	}
}
