package tasks_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/slowtest"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// The commits of flushes of new tasks are lost: with and without webhooks, keys and slots. Every answer without an
// error is a stored task, and every run belongs to one. If another replica uses a key in the meantime, the answers are
// the same task.
func TestFailedCommitsOfFlushes(t *testing.T) {
	t.Parallel()
	slowtest.Only(t, slowtest.Crash)
	for _, keyed := range []bool{false, true} {
		for _, hooks := range []int{0, 1, 4} { // of four
			for _, hasSlots := range []bool{false, true} {
				for _, cf := range commitFaults {
					t.Run(fmt.Sprintf("keyed %t, %d hooks, claimed %t, %s", keyed, hooks, hasSlots, cf.name),
						func(t *testing.T) {
							t.Parallel()
							failGroup(t, cf, keyed, hooks, hasSlots)
						})
				}
			}
		}
	}
}

// failGroup submits a group of new tasks in one flush, whose commit is lost.
func failGroup(t *testing.T, cf commitFault, keyed bool, hooks int, hasSlots bool) {
	w := &witness{Fixture: storetest.Open(t), committed: map[a2a.ID][][]a2a.Entry{}, hasSlots: hasSlots}
	p, url := storetest.NewProxy(t, w.URL)
	s := w.Replica("r1", w.config, func(c *store.Config) { c.URL, c.PoolSize = url, 4 })
	const group = 4
	items := make([]tasks.Submission, group)
	for i := range items {
		items[i] = storetest.Submission(fmt.Sprint("item ", i))
		if keyed {
			items[i].Key = fmt.Sprint("h:", i)
		}
		if i < hooks {
			items[i].Push = webhook("h")
		}
	}
	unit := storetest.IsExecute
	if hooks > 0 {
		unit = storetest.IsCommit
	}
	hold := tasks.HoldSubmits
	if keyed {
		hold = tasks.HoldKeyed
	}
	queued, release := hold(s.Tasks)
	var others sync.Map // what another replica submitted in the meantime, by key
	submitElsewhere := func() {
		if !keyed {
			return
		}
		if out, err := w.Tasks.Submit(t.Context(), items[0]); err != nil {
			t.Errorf("the submission on another replica: %v", err)
		} else {
			others.Store(items[0].Key, out.Task)
		}
	}
	fired := p.Arm(storetest.Fault{
		Match: unit, Answered: cf.answered, Repeat: cf.always, Then: sync.OnceFunc(submitElsewhere),
	})
	type answer struct {
		tasks.Submitted
		err error
	}
	answers := make([]answer, group)
	var wg sync.WaitGroup
	for i := range items {
		wg.Go(func() {
			out, err := s.Tasks.Submit(t.Context(), items[i])
			answers[i] = answer{out, err}
		})
		queued(i + 1)
	}
	release()
	wg.Wait()
	storetest.WantFired(t, fired)
	p.Disarm()
	answered := map[a2a.ID]bool{}
	for i, a := range answers {
		if a.err != nil {
			storetest.WantCode(t, a.err, a2a.CodeUnavailable)
			if a.Submitted != (tasks.Submitted{}) {
				t.Errorf("item %d: with the error %v the call returned %+v", i, a.err, a.Submitted)
			}
			continue
		}
		answered[a.Task] = true
		if wrong := w.count(1, "a2a.tasks WHERE id = $1", a.Task); wrong != "" {
			t.Errorf("item %d: the answer is task %s: %s", i, a.Task, wrong)
		}
		if other, ok := others.Load(items[i].Key); ok && other != a.Task {
			t.Errorf("key %s: the answers are task %s and task %s", items[i].Key, a.Task, other)
		}
	}
	for _, wrong := range w.compare(tasks.Counts{}, tasks.Counts{}, nil, nil) {
		t.Error(wrong)
	}
	for _, l := range w.started {
		if !answered[l.TaskID] {
			t.Errorf("a run of task %s started, which is in no answer", l.TaskID)
		}
	}
	if hasSlots && w.unused+len(w.started) == 0 && hooks < group {
		t.Error("no slot was asked for: the test tests nothing")
	}
	w.mu.Lock()
	wakes := slices.Clone(w.woken)
	w.mu.Unlock()
	if len(answered) == 0 && len(wakes) > 0 {
		t.Errorf("no call succeeded, but %v were woken", wakes)
	}
	entered := s.Tasks.Counts().Entered
	made := 0
	for _, a := range answers {
		if a.err == nil && !a.Replay {
			made++
		}
	}
	if got := entered[a2a.StateSubmitted]; got != uint64(made) {
		t.Errorf("%d tasks were counted as submitted, but %d answers are new tasks", got, made)
	}
	w.Invariants()
}
