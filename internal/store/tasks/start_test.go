package tasks_test

import (
	"bytes"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// freeWorker is a worker that has a slot for every new task. It records what it gets.
type freeWorker struct {
	mu     sync.Mutex
	asked  []string      // guarded by mu; agents
	leases []tasks.Lease // guarded by mu
	inputs []tasks.Input // guarded by mu
	sent   []time.Time   // guarded by mu; from when on the leases count
	left   int           // guarded by mu; slots that were given back
}

// reserve offers a slot for a task of the agent.
func (w *freeWorker) reserve(agent string) (tasks.Slot, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, agent)
	return tasks.Slot{
		TTL: storetest.TTL, Deadline: time.Hour,
		Start: func(l tasks.Lease, in tasks.Input, sent time.Time) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.leases, w.inputs, w.sent = append(w.leases, l), append(w.inputs, in), append(w.sent, sent)
		},
		Release: func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.left++
		},
	}, true
}

// withWorker offers the slots of a worker to the store.
func withWorker(w *freeWorker) func(*store.Config) {
	return func(c *store.Config) { c.Reserve = w.reserve }
}

// A new task that goes to a worker at once is in the same state as a claimed one, and its run gets the same input.
func TestNewTaskGoesToAWorkerAtOnce(t *testing.T) {
	t.Parallel()
	w := &freeWorker{}
	f := storetest.Open(t, withWorker(w))
	in := storetest.Submission("hello")
	in.Message.ContextID, in.Message.Metadata = in.ContextID, a2a.Raw(`{"n":1.0}`)
	in.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	out := f.Submit(in)
	if out.State != a2a.StateSubmitted || len(w.leases) != 1 || w.left != 0 {
		t.Fatalf("submitted as %s, %d runs started, %d slots given back", out.State, len(w.leases), w.left)
	}
	log := f.Log(out.Task)
	storetest.Same(t, "states", []a2a.State{a2a.StateSubmitted, a2a.StateWorking}, states(f, out.Task))
	storetest.Same(t, "committed events", [][]a2a.Entry{log[1:]}, f.TakeCommitted(out.Task))
	if log[0].UID != out.UID {
		t.Errorf("the first event is %s, but the answer has %s", log[0].UID, out.UID)
	}
	storetest.Same(t, "wakes", nil, f.TakeWakes())
	f.Invariants()
	lease := &w.leases[0]
	inputs, err := f.Tasks.Inputs(t.Context(), w.leases)
	if err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "input", inputs[0], w.inputs[0])
	storetest.Same(t, "attempts", 1, len(attempts(f, out.Task)))
	const deadline = "SELECT deadline_at = created_at + interval '1 hour' FROM a2a.tasks WHERE id = $1"
	if !storetest.Value[bool](f, deadline, out.Task.String()) {
		t.Error("the deadline is not that of the slot")
	}
	// The same through the queue.
	plain := f.Replica("r1")
	queued, err := plain.Tasks.Submit(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	claimed, err := plain.Tasks.NewClaimer().Claim(t.Context(), storetest.Agent, 10, storetest.TTL, time.Hour)
	if err != nil || len(claimed) != 1 {
		t.Fatalf("claimed %d, %v", len(claimed), err)
	}
	got, want := *lease, claimed[0]
	if want.Left <= 0 || got.Left <= 0 {
		t.Errorf("left until the deadline: %s for the claimed task, %s for the other", want.Left, got.Left)
	}
	got.TaskID, got.Left = queued.Task, want.Left
	storetest.Same(t, "lease", want, got)

	f.Append(lease, storetest.Chunk("a", "x"), storetest.Status(a2a.StateCompleted))
	storetest.Same(t, "state at the end", a2a.StateCompleted, f.Snapshot(out.Task).Status.State)
	f.Invariants()
}

// A new task that was found stored runs once, even if the confirmation of that is lost, too.
func TestNewTaskWithALostConfirmationRunsOnce(t *testing.T) {
	t.Parallel()
	w := &freeWorker{}
	f := storetest.Open(t)
	p, url := storetest.NewProxy(t, f.URL)
	s := f.Replica("r1", withWorker(w), func(c *store.Config) { c.URL, c.PoolSize = url, 2 })
	var unconfirmed <-chan struct{}
	fired := p.Arm(storetest.Fault{Match: storetest.IsExecute, Answered: true, Then: func() {
		unconfirmed = p.Arm(storetest.Fault{Match: func(request []byte) bool {
			return bytes.Contains(request, []byte("Confirm :exec"))
		}})
	}})
	if _, err := s.Tasks.Submit(t.Context(), storetest.Submission("hello")); err != nil {
		t.Fatal(err)
	}
	storetest.WantFired(t, fired)
	storetest.WantFired(t, unconfirmed)
	if len(w.leases) != 1 || w.left != 0 {
		t.Errorf("%d runs, %d slots given back", len(w.leases), w.left)
	}
	f.Invariants()
}

// A submission with a known key makes no task and needs no worker.
func TestReplayGivesItsSlotBack(t *testing.T) {
	t.Parallel()
	w := &freeWorker{}
	f := storetest.Open(t, withWorker(w))
	in := storetest.Submission("hello")
	in.Key = "h:k"
	first := f.Submit(in)
	again := f.Submit(in)
	if !again.Replay || again.Task != first.Task || len(w.leases) != 1 || w.left != 1 {
		t.Errorf("replay %v, %d runs, %d slots given back", again.Replay, len(w.leases), w.left)
	}
	f.Invariants()
}

// An invalid submission fails neither the others of its flush nor their runs.
func TestInvalidSubmissionGivesItsSlotBack(t *testing.T) {
	t.Parallel()
	w := &freeWorker{}
	f := storetest.Open(t, withWorker(w))
	release := f.Lock("LOCK TABLE a2a.messages IN EXCLUSIVE MODE")
	var wg sync.WaitGroup
	var mu sync.Mutex
	var made []a2a.ID
	failed := 0
	for n := range 6 {
		in := storetest.Submission("hello")
		if n == 3 {
			in.Owner = "" // refused by a constraint
		}
		wg.Go(func() {
			out, err := f.Tasks.Submit(t.Context(), in)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed++
			} else {
				made = append(made, out.Task)
			}
		})
	}
	f.WaitBlocked(1)
	release()
	wg.Wait()
	if failed != 1 || len(made) != 5 || len(w.leases) != 5 {
		t.Errorf("%d failed, %d made, %d runs", failed, len(made), len(w.leases))
	}
	if got := len(w.asked) - len(w.leases); got != w.left {
		t.Errorf("%d slots given back, want %d", w.left, got)
	}
	for _, l := range w.leases {
		if !slices.Contains(made, l.TaskID) {
			t.Errorf("task %s runs, but its submission failed", l.TaskID)
		}
	}
	f.Invariants()
}

// Whatever the connection loses, a new task runs once, and every slot is used or given back.
func TestNewTaskWithALostAnswerRunsOnce(t *testing.T) {
	t.Parallel()
	for _, ft := range faults() {
		w := &freeWorker{}
		f := storetest.Open(t)
		p, url := storetest.NewProxy(t, f.URL)
		s := f.Replica("r1", withWorker(w), func(c *store.Config) { c.URL, c.PoolSize = url, 2 })
		var lost time.Time
		ft.fault.Match, ft.fault.Then = storetest.IsExecute, func() { lost = time.Now() }
		fired := p.Arm(ft.fault)
		out, err := s.Tasks.Submit(t.Context(), storetest.Submission("hello"))
		storetest.WantFired(t, fired)
		if err != nil {
			t.Errorf("%s: %v", ft.name, err)
			continue
		}
		if len(w.leases) != 1 || w.left != 0 || w.leases[0].TaskID != out.Task {
			t.Fatalf("%s: %d runs, %d slots given back", ft.name, len(w.leases), w.left)
		}
		if w.sent[0].Before(lost) != ft.fault.Answered { // the request that was answered stored the lease
			t.Errorf("%s: the lease counts from %s after the fault", ft.name, w.sent[0].Sub(lost))
		}
		f.Invariants()
		f.Append(&w.leases[0], storetest.Status(a2a.StateCompleted))
		f.Invariants()
	}
}

// Only a claim tells webhooks that the task is working. So a new task with a webhook goes through the queue.
func TestNewTaskWithAWebhookWaitsInTheQueue(t *testing.T) {
	t.Parallel()
	w := &freeWorker{}
	f := storetest.Open(t, withWorker(w))
	f.NewTaskWithWebhook("default")
	if len(w.asked) != 0 {
		t.Errorf("the store asked for a worker %d times, want never", len(w.asked))
	}
	if n := len(f.Claim(10)); n != 1 {
		t.Errorf("%d tasks wait, want 1", n)
	}
	f.Invariants()
}

// A task that a run calls starts at once, too. Its run gets what a claim would have given it.
func TestCalledTaskGoesToAWorkerAtOnce(t *testing.T) {
	t.Parallel()
	w := &freeWorker{}
	f := storetest.Open(t, withWorker(w))
	f.Submit(storetest.Submission("hello"))
	c := callerOf(f, &w.leases[0])
	calling := calls(1)
	c.mustReport(append([]a2a.Event{storetest.Status(a2a.StateWorking, "calls")}, calling...)...) // with an event
	c.mustReport(calls(2)...)                                                                     // and without
	if len(w.leases) != 3 || w.left != 0 {
		t.Fatalf("%d runs started, %d slots given back", len(w.leases), w.left)
	}
	f.Invariants()
	children := w.leases[1:]
	inputs, err := f.Tasks.Inputs(t.Context(), children)
	if err != nil {
		t.Fatal(err)
	}
	for i := range children {
		storetest.Same(t, "input", inputs[i], w.inputs[i+1])
		storetest.Same(t, "depth", 1, children[i].Depth)
		storetest.Same(t, "states", []a2a.State{a2a.StateSubmitted, a2a.StateWorking}, states(f, children[i].TaskID))
	}
	storetest.Same(t, "tasks in the queue", 0, len(f.Claim(10)))
	// The end of the last one ends the wait, as if they had been claimed.
	c.mustReport(&a2a.Wait{Key: "w", Tasks: keys(2)})
	for i := range children {
		end(f, &children[i], a2a.StateCompleted, "done")
	}
	storetest.Same(t, "waits that ended", 1, endWaits(f))
	f.Invariants()
}

// Whatever the connection loses, a called task runs once, and every slot is used or given back.
func TestCalledTaskWithALostAnswerRunsOnce(t *testing.T) {
	t.Parallel()
	for name, batch := range map[string]tasks.Batch{
		"a call":                       {},
		"a call and an event":          {Events: []a2a.Event{storetest.Chunk("a", "x")}},
		"a call and the id of a batch": {ID: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &freeWorker{}
			f := storetest.Open(t)
			p, url := storetest.NewProxy(t, f.URL)
			s := f.Replica("r1", withWorker(w), func(c *store.Config) { c.URL, c.PoolSize = url, 2 })
			for _, ft := range faults() {
				w.leases, w.sent, w.left = nil, nil, 0
				var lost time.Time
				batch.ContextID, batch.Steps = "ctx", []a2a.StepRecord{callStep()}
				l := f.RunningTask()
				ft.fault.Match, ft.fault.Then = storetest.IsCommit, func() { lost = time.Now() }
				fired := p.Arm(ft.fault)
				_, err := s.Tasks.Append(t.Context(), l, batch)
				storetest.WantFired(t, fired)
				if err != nil {
					t.Errorf("%s: %v", ft.name, err)
					continue
				}
				if len(w.leases) != 1 || w.left != 0 || w.leases[0].TaskID != batch.Steps[0].Child {
					t.Fatalf("%s: %d runs, %d slots given back", ft.name, len(w.leases), w.left)
				}
				if w.sent[0].Before(lost) != ft.fault.Answered { // the commit that was answered stored the lease
					t.Errorf("%s: the lease counts from %s after the fault", ft.name, w.sent[0].Sub(lost))
				}
				f.Append(&w.leases[0], storetest.Status(a2a.StateCompleted))
				f.Append(l, storetest.Status(a2a.StateCompleted))
				f.Invariants()
			}
		})
	}
}

// A run that has lost its lease calls nothing, and its slots are free again.
func TestCallOfALostLeaseGivesItsSlotBack(t *testing.T) {
	t.Parallel()
	w := &freeWorker{}
	f := storetest.Open(t, withWorker(w))
	f.Submit(storetest.Submission("hello"))
	lost := w.leases[0]
	lost.Epoch++
	for _, events := range [][]a2a.Event{calls(1), append(calls(1), storetest.Status(a2a.StateWorking))} {
		if err := callerOf(f, &lost).report(events...); !errors.Is(err, db.ErrLeaseLost) {
			t.Errorf("report = %v", err)
		}
	}
	if asked := len(w.asked) - 1; len(w.leases) != 1 || asked == 0 || w.left != asked {
		t.Errorf("%d runs, %d slots asked for and %d given back", len(w.leases), asked, w.left)
	}
	f.Invariants()
}
