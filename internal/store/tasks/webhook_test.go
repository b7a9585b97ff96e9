package tasks_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// A statement that waited for a row lock sees the new version of that row, and the old state of everything else. The
// append must find the webhook all the same.
func TestWebhookSetWhileAnAppendWaits(t *testing.T) {
	t.Parallel()
	for _, known := range []bool{false, true} {
		t.Run(fmt.Sprintf("known=%t", known), func(t *testing.T) {
			t.Parallel()
			f := storetest.Open(t)
			l := f.RunningTask()
			l.HasPush = known
			gate := f.Lock("SELECT FROM a2a.tasks WHERE id = $1 FOR UPDATE", l.TaskID)
			var wg sync.WaitGroup
			wg.Go(func() { f.SetWebhook(l.TaskID, "default") })
			f.WaitBlocked(1)
			wg.Go(func() {
				end := storetest.Batch(storetest.Status(a2a.StateCompleted))
				if _, err := f.Tasks.Append(t.Context(), l, end); err != nil {
					t.Errorf("append: %v", err)
				}
			})
			f.WaitBlocked(2)
			gate()
			wg.Wait()
			// Either may be first: the webhook begins after the event, or its head is at the event.
			if p := f.Progress(l.TaskID, "default"); p.Head != 3 || p.From == 2 && !p.Due {
				t.Errorf("progress %+v, want the head at 3", p)
			}
			f.Invariants()
		})
	}
}

// The lease of the run does not know the webhook yet.
func TestAppendReachesAWebhookSetDuringTheRun(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l, other := f.RunningTask(), f.RunningTask()
	f.SetWebhook(l.TaskID, "default")
	if l.HasPush {
		t.Fatal("the lease knows the webhook already")
	}
	queued, release := tasks.HoldAppends(f.Store.Tasks)
	var wg sync.WaitGroup
	for _, x := range []*tasks.Lease{l, other} {
		wg.Go(func() {
			if _, err := f.Tasks.Append(t.Context(), x, storetest.Batch(storetest.Chunk("a", "x"))); err != nil {
				t.Errorf("append: %v", err)
			}
		})
	}
	queued(2)
	release()
	wg.Wait()
	storetest.Same(t, "head", int64(3), f.Progress(l.TaskID, "default").Head)
	if !l.HasPush || other.HasPush {
		t.Errorf("HasPush = %t and %t, want true and false", l.HasPush, other.HasPush)
	}
	storetest.Same(t, "events", 3, len(f.Log(l.TaskID)))
	storetest.Same(t, "events of the other", 3, len(f.Log(other.TaskID)))
	f.Append(l, storetest.Status(a2a.StateCompleted))
	storetest.Same(t, "head at the end", int64(4), f.Progress(l.TaskID, "default").Head)
	f.Invariants()
}
