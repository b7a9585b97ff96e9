package tasks_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// TestWebhookSetWhileAnAppendWaits is a trap of snapshots: a statement that waited for
// the row lock sees the row as it is now, and everything else as it was.
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
				if _, err := f.Tasks.Append(t.Context(), l, tasks.Batch{Events: []a2a.Event{storetest.Status(a2a.StateCompleted)}}); err != nil {
					t.Errorf("append: %v", err)
				}
			})
			f.WaitBlocked(2)
			gate()
			wg.Wait()
			// Either may be first: then the webhook begins behind the event, or its head is at it.
			if p := f.Progress(l.TaskID, "default"); p.Head != 3 || p.From == 2 && !p.Due {
				t.Errorf("place %+v, want the head at 3", p)
			}
			f.Invariants()
		})
	}
}

// TestWebhookSetInTheMiddleOfARun: the run's lease does not know of it yet.
func TestWebhookSetInTheMiddleOfARun(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l, other := f.RunningTask(), f.RunningTask()
	f.SetWebhook(l.TaskID, "default")
	if l.HasPush {
		t.Fatal("the lease knows already")
	}
	queued, release := tasks.HoldAppends(f.Store.Tasks)
	var wg sync.WaitGroup
	for _, x := range []*tasks.Lease{l, other} {
		wg.Go(func() {
			if _, err := f.Tasks.Append(t.Context(), x, tasks.Batch{Events: []a2a.Event{storetest.Chunk("a", "x")}}); err != nil {
				t.Errorf("append: %v", err)
			}
		})
	}
	queued(2)
	release()
	wg.Wait()
	storetest.Same(t, "place", int64(3), f.Progress(l.TaskID, "default").Head)
	if !l.HasPush || other.HasPush {
		t.Errorf("has webhooks: %t and %t, want the first to know", l.HasPush, other.HasPush)
	}
	storetest.Same(t, "events", 3, len(f.Log(l.TaskID)))
	storetest.Same(t, "events of the other", 3, len(f.Log(other.TaskID)))
	f.Append(l, storetest.Status(a2a.StateCompleted))
	storetest.Same(t, "at the end", int64(4), f.Progress(l.TaskID, "default").Head)
	f.Invariants()
}
