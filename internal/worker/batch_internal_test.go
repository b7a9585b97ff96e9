package worker

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/attempt"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

func newBatch() *batch {
	bounds := attempt.Bounds{MayCall: func(string, *a2a.Message) error { return nil }}
	return &batch{
		lease: &tasks.Lease{}, bounds: bounds, journal: bounds.Journal(0, nil), artifacts: make(map[string]bool),
	}
}

func callItem(n int) item {
	return item{n: n, event: &a2a.Call{Key: fmt.Sprintf("call#%d", n), Agent: "other"}}
}

// gathered is what one batch gathers, and how long that took.
type gathered struct {
	steps, events int
	took          time.Duration
}

// gatherAll gathers items that arrive with a pause before each.
func gatherAll(t *testing.T, pause time.Duration, list ...item) (batches []gathered) {
	synctest.Test(t, func(t *testing.T) {
		items := make(chan item)
		go func() {
			defer close(items)
			for _, it := range list {
				time.Sleep(pause)
				items <- it
			}
		}()
		b := newBatch()
		for it := range items {
			start := time.Now()
			if err := b.gather(it, true, items); err != nil && err.Error() != errNoEnd.Error() {
				t.Fatal(err)
			}
			batches = append(batches, gathered{len(b.steps), len(b.events), time.Since(start)})
			b.written()
		}
	})
	return batches
}

func TestBatchGathersCallsThatFollowEachOther(t *testing.T) {
	t.Parallel()
	var calls []item
	for n := range batchSteps + 10 {
		calls = append(calls, callItem(n+1))
	}
	const pause = callWait / (2 * batchSteps)
	got := gatherAll(t, pause, calls...)
	want := []gathered{{steps: batchSteps, took: (batchSteps - 1) * pause}, {steps: 10, took: 9 * pause}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("gathered %+v, want %+v", got, want)
	}
}

// A batch waits for callWait from its first call on, and only while a call is the newest.
func TestBatchWaitsOnlyAfterACall(t *testing.T) {
	t.Parallel()
	text := func(n int) item {
		return item{n: n, event: &a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateWorking}}}
	}
	got := gatherAll(t, callWait/2, callItem(1), text(2), text(3))
	want := []gathered{{steps: 1, events: 1, took: callWait / 2}, {events: 1}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("after a status: gathered %+v, want %+v", got, want)
	}
	got = gatherAll(t, 3*callWait/5, callItem(1), callItem(2), callItem(3))
	want = []gathered{{steps: 2, took: callWait}, {steps: 1}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("from the first call on: gathered %+v, want %+v", got, want)
	}
	checkpoint := item{n: 2, event: &a2a.Checkpoint{Body: a2a.Raw(`1`)}}
	got = gatherAll(t, callWait/4, callItem(1), checkpoint, checkpoint)
	want = []gathered{{steps: 1, took: callWait / 4}, {}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("after a checkpoint: gathered %+v, want %+v", got, want)
	}
	got = gatherAll(t, 2*callWait, callItem(1), callItem(2), text(3))
	want = []gathered{{steps: 1, took: callWait}, {steps: 1, took: callWait}, {events: 1}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("after a pause: gathered %+v, want %+v", got, want)
	}
}
