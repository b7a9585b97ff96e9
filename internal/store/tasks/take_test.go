package tasks_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// room is a worker that takes every new task, and keeps count.
type room struct {
	mu     sync.Mutex
	asked  []string      // guarded by mu; agents
	leases []tasks.Lease // guarded by mu
	inputs []tasks.Input // guarded by mu
	left   int           // guarded by mu
}

func (r *room) take(agent string) (tasks.Slot, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, agent)
	return tasks.Slot{
		TTL: storetest.TTL, Deadline: time.Hour,
		Start: func(l tasks.Lease, in tasks.Input) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.leases, r.inputs = append(r.leases, l), append(r.inputs, in)
		},
		Release: func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.left++
		},
	}, true
}

func withRoom(r *room) func(*store.Config) { return func(c *store.Config) { c.Reserve = r.take } }

// A task that is taken stands as if it had been claimed, and what its run is given is what a claim reads.
func TestNewTaskGoesToAWorkerAtOnce(t *testing.T) {
	t.Parallel()
	r := &room{}
	f := storetest.Open(t, withRoom(r))
	in := storetest.Submission("hello")
	in.Message.ContextID, in.Message.Metadata = in.ContextID, a2a.Raw(`{"n":1.0}`)
	in.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	out := f.Submit(in)
	if out.State != a2a.StateSubmitted || len(r.leases) != 1 || r.left != 0 {
		t.Fatalf("submitted as %s, %d runs started, %d slots left", out.State, len(r.leases), r.left)
	}
	log := f.Log(out.Task)
	storetest.Same(t, "states", []a2a.State{a2a.StateSubmitted, a2a.StateWorking}, states(f, out.Task))
	storetest.Same(t, "told of", [][]a2a.Entry{log[1:]}, f.TakeCommitted(out.Task))
	if log[0].UID != out.UID {
		t.Errorf("the first event is %s, and the answer said %s", log[0].UID, out.UID)
	}
	storetest.Same(t, "wakes", nil, f.TakeWakes())
	f.Invariants()
	lease := &r.leases[0]
	inputs, err := f.Tasks.Inputs(t.Context(), r.leases)
	if err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "input", inputs[0], r.inputs[0])
	storetest.Same(t, "attempts", 1, len(attempts(f, out.Task)))
	if got := storetest.Value[bool](f, `SELECT deadline_at = created_at + interval '1 hour' FROM a2a.tasks WHERE id = $1`, out.Task.String()); !got {
		t.Error("the deadline is not the slot's")
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
		t.Errorf("left of the deadline: %s claimed, %s taken", want.Left, got.Left)
	}
	got.TaskID, got.Left = queued.Task, want.Left
	storetest.Same(t, "lease", want, got)

	f.Append(lease, storetest.Chunk("a", "x"), storetest.Status(a2a.StateCompleted))
	storetest.Same(t, "state at the end", a2a.StateCompleted, f.Snapshot(out.Task).Status.State)
	f.Invariants()
}

// A key that is taken makes no task, and needs no worker.
func TestReplayLeavesItsSlot(t *testing.T) {
	t.Parallel()
	r := &room{}
	f := storetest.Open(t, withRoom(r))
	in := storetest.Submission("hello")
	in.Key = "h:k"
	first := f.Submit(in)
	again := f.Submit(in)
	if !again.Replay || again.Task != first.Task || len(r.leases) != 1 || r.left != 1 {
		t.Errorf("replay %v, %d runs, %d slots left", again.Replay, len(r.leases), r.left)
	}
	f.Invariants()
}

// One bad row fails neither the others nor their runs.
func TestBadRowsLeaveTheirSlots(t *testing.T) {
	t.Parallel()
	r := &room{}
	f := storetest.Open(t, withRoom(r))
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
	if failed != 1 || len(made) != 5 || len(r.leases) != 5 {
		t.Errorf("%d failed, %d made, %d runs", failed, len(made), len(r.leases))
	}
	if got := len(r.asked) - len(r.leases); got != r.left {
		t.Errorf("%d slots left, want %d", r.left, got)
	}
	for _, l := range r.leases {
		if !slices.Contains(made, l.TaskID) {
			t.Errorf("task %s runs and was not made", l.TaskID)
		}
	}
	f.Invariants()
}

// Whatever the connection loses, a task that was made is run once, and no slot is kept.
func TestTakenTaskWithALostAnswerRunsOnce(t *testing.T) {
	t.Parallel()
	for _, ft := range faults {
		r := &room{}
		f := storetest.Open(t)
		p, url := storetest.NewProxy(t, f.URL)
		s := f.Replica("r1", withRoom(r), func(c *store.Config) { c.URL, c.PoolSize = url, 2 })
		ft.fault.Match = storetest.IsExecute
		fired := p.Arm(ft.fault)
		out, err := s.Tasks.Submit(t.Context(), storetest.Submission("hello"))
		storetest.WantFired(t, fired)
		if err != nil {
			t.Errorf("%s: %v", ft.name, err)
			continue
		}
		if len(r.leases) != 1 || r.left != 0 || r.leases[0].TaskID != out.Task {
			t.Fatalf("%s: %d runs, %d slots left", ft.name, len(r.leases), r.left)
		}
		f.Invariants()
		f.Append(&r.leases[0], storetest.Status(a2a.StateCompleted))
		f.Invariants()
	}
}

// Webhooks are told of a claim, and a task with one takes the way on which they are.
func TestTaskWithAWebhookWaitsInTheQueue(t *testing.T) {
	t.Parallel()
	r := &room{}
	f := storetest.Open(t, withRoom(r))
	in := storetest.Submission("hello")
	in.Push = &webhooks.NewWebhook{ConfigID: "default", URL: "https://example.com/hook", Origin: "https://example.com", Version: a2a.PushV03,
		Seal: func(a2a.ID) ([]byte, []byte, error) { return nil, nil, nil }}
	f.Submit(in)
	if len(r.asked) != 0 {
		t.Errorf("asked for a worker %d times", len(r.asked))
	}
	if n := len(f.Claim(10)); n != 1 {
		t.Errorf("%d tasks wait, want 1", n)
	}
	f.Invariants()
}
