package tasks_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
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
		TTL: ttl, Deadline: time.Hour,
		Start: func(l tasks.Lease, in tasks.Input) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.leases, r.inputs = append(r.leases, l), append(r.inputs, in)
		},
		Leave: func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.left++
		},
	}, true
}

func withRoom(r *room) func(*store.Config) { return func(c *store.Config) { c.Take = r.take } }

// A task that is taken stands as if it had been claimed, and what its run is given is what a claim reads.
func TestNewTaskGoesToAWorkerAtOnce(t *testing.T) {
	t.Parallel()
	r := &room{}
	f := newFixture(t, withRoom(r))
	in := submission("hello")
	in.Message.ContextID, in.Message.Metadata = in.ContextID, a2a.Raw(`{"n":1.0}`)
	in.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	out := f.submit(in)
	if out.State != a2a.StateSubmitted || len(r.leases) != 1 || r.left != 0 {
		t.Fatalf("submitted as %s, %d runs started, %d slots left", out.State, len(r.leases), r.left)
	}
	log := f.log(out.Task)
	same(t, "states", []a2a.State{a2a.StateSubmitted, a2a.StateWorking}, f.states(out.Task))
	same(t, "told of", [][]a2a.Entry{log[1:]}, f.takeCommitted(out.Task))
	if log[0].UID != out.UID {
		t.Errorf("the first event is %s, and the answer said %s", log[0].UID, out.UID)
	}
	same(t, "wakes", nil, f.takeWakes())
	f.invariants()
	lease := &r.leases[0]
	inputs, err := f.Tasks.Inputs(f.ctx, r.leases)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "input", inputs[0], r.inputs[0])
	same(t, "attempts", 1, len(f.attempts(out.Task)))
	if got := value[bool](f, `SELECT deadline_at = created_at + interval '1 hour' FROM a2a.tasks WHERE id = $1`, out.Task.String()); !got {
		t.Error("the deadline is not the slot's")
	}
	// The same through the queue.
	plain := f.replica("r1")
	queued, err := plain.Tasks.Submit(f.ctx, in)
	if err != nil {
		t.Fatal(err)
	}
	claimed, err := plain.Tasks.NewClaimer().Claim(f.ctx, agent, 10, ttl, time.Hour)
	if err != nil || len(claimed) != 1 {
		t.Fatalf("claimed %d, %v", len(claimed), err)
	}
	got, want := *lease, claimed[0]
	if want.Left <= 0 || got.Left <= 0 {
		t.Errorf("left of the deadline: %s claimed, %s taken", want.Left, got.Left)
	}
	got.TaskID, got.Left = queued.Task, want.Left
	same(t, "lease", want, got)

	f.append(lease, chunk("a", "x"), status(a2a.StateCompleted))
	same(t, "state at the end", a2a.StateCompleted, f.snapshot(out.Task).Status.State)
	f.invariants()
}

// A key that is taken makes no task, and needs no worker.
func TestReplayLeavesItsSlot(t *testing.T) {
	t.Parallel()
	r := &room{}
	f := newFixture(t, withRoom(r))
	in := submission("hello")
	in.Key = "h:k"
	first := f.submit(in)
	again := f.submit(in)
	if !again.Replay || again.Task != first.Task || len(r.leases) != 1 || r.left != 1 {
		t.Errorf("replay %v, %d runs, %d slots left", again.Replay, len(r.leases), r.left)
	}
	f.invariants()
}

// One bad row fails neither the others nor their runs.
func TestBadRowsLeaveTheirSlots(t *testing.T) {
	t.Parallel()
	r := &room{}
	f := newFixture(t, withRoom(r))
	release := f.hold("LOCK TABLE a2a.messages IN EXCLUSIVE MODE")
	var wg sync.WaitGroup
	var mu sync.Mutex
	var made []a2a.ID
	failed := 0
	for n := range 6 {
		in := submission("hello")
		if n == 3 {
			in.Owner = "" // refused by a constraint
		}
		wg.Go(func() {
			out, err := f.Tasks.Submit(f.ctx, in)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed++
			} else {
				made = append(made, out.Task)
			}
		})
	}
	f.waitBlocked(1)
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
	f.invariants()
}

// Whatever the connection loses, a task that was made is run once, and no slot is kept.
func TestTakenTaskWithALostAnswerRunsOnce(t *testing.T) {
	t.Parallel()
	for _, ft := range faults {
		r := &room{}
		f := newFixture(t)
		p, url := newProxy(t, f.url)
		s := f.replica("r1", withRoom(r), func(c *store.Config) { c.URL, c.PoolSize = url, 2 })
		ft.fault.match = execute
		fired := p.arm(ft.fault)
		out, err := s.Tasks.Submit(f.ctx, submission("hello"))
		wantFired(t, fired)
		if err != nil {
			t.Errorf("%s: %v", ft.name, err)
			continue
		}
		if len(r.leases) != 1 || r.left != 0 || r.leases[0].TaskID != out.Task {
			t.Fatalf("%s: %d runs, %d slots left", ft.name, len(r.leases), r.left)
		}
		f.invariants()
		f.append(&r.leases[0], status(a2a.StateCompleted))
		f.invariants()
	}
}

// Webhooks are told of a claim, and a task with one takes the way on which they are.
func TestTaskWithAWebhookWaitsInTheQueue(t *testing.T) {
	t.Parallel()
	r := &room{}
	f := newFixture(t, withRoom(r))
	in := submission("hello")
	in.Push = &webhooks.NewWebhook{ConfigID: "default", URL: "https://example.com/hook", Origin: "https://example.com", Version: a2a.PushV03,
		Seal: func(a2a.ID) ([]byte, []byte, error) { return nil, nil, nil }}
	f.submit(in)
	if len(r.asked) != 0 {
		t.Errorf("asked for a worker %d times", len(r.asked))
	}
	if n := len(f.claim(10)); n != 1 {
		t.Errorf("%d tasks wait, want 1", n)
	}
	f.invariants()
}
