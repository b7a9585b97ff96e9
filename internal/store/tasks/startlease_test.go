package tasks_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// A worker trusts a lease for a part of its length only. Waiting for a lock on the caller takes none of it.
func TestLeaseOfACalledTaskCountsFromTheEndOfALock(t *testing.T) {
	t.Parallel()
	for name, loseFirst := range map[string]bool{"in the first try": false, "after a lost connection": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &freeWorker{}
			f := storetest.Open(t)
			p, url := storetest.NewProxy(t, f.URL)
			s := f.Replica("r1", withWorker(w), func(c *store.Config) {
				c.URL, c.PoolSize, c.LockTimeout = url, 2, 20*time.Millisecond
			})
			l := f.RunningTask()
			var unlock func()
			lock := func() { unlock = f.Lock("SELECT FROM a2a.tasks WHERE id = $1 FOR UPDATE", l.TaskID) }
			var fired <-chan struct{}
			if loseFirst {
				fired = p.Arm(storetest.Fault{Match: storetest.IsCommit, Then: lock})
			} else {
				lock()
			}
			var appending sync.WaitGroup
			appending.Go(func() {
				b := tasks.Batch{ContextID: "ctx", Steps: []a2a.StepRecord{callStep()}}
				if _, err := s.Tasks.Append(t.Context(), l, b); err != nil {
					t.Error(err)
				}
			})
			if loseFirst {
				storetest.WantFired(t, fired)
			}
			f.WaitBlocked(1)
			blocked := time.Now()
			unlock()
			appending.Wait()
			w.wantLeaseFrom(t, blocked)
			f.Invariants()
		})
	}
}

// While another batch of the flush is blocked, and while the caller then waits for its turn, the lease has not begun.
func TestLeaseOfACalledTaskCountsFromItsTurn(t *testing.T) {
	t.Parallel()
	w := &freeWorker{}
	f := storetest.Open(t)
	s := f.Replica("r1", withWorker(w), func(c *store.Config) { c.LockTimeout = 20 * time.Millisecond })
	leases, batches := batch(f, 2, func(int) tasks.Batch {
		return tasks.Batch{ContextID: "ctx", Steps: []a2a.StepRecord{callStep()}}
	})
	f.Lock("SELECT FROM a2a.tasks WHERE id = $1 FOR UPDATE", leases[0].TaskID)
	queued, flush := tasks.HoldSteps(s.Tasks)
	beginTurns := tasks.HoldTurns(s.Tasks)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	refused := make(chan struct{})
	var appending sync.WaitGroup
	appending.Go(func() {
		defer close(refused) // it does not wait for a turn
		if _, err := s.Tasks.Append(gone, leases[0], batches[0]); !errors.Is(err, context.Canceled) {
			t.Errorf("append to the locked task = %v", err)
		}
	})
	appending.Go(func() {
		if _, err := s.Tasks.Append(t.Context(), leases[1], batches[1]); err != nil {
			t.Errorf("append to the other task: %v", err)
		}
	})
	queued(2)
	flush()
	<-refused
	waiting := time.Now()
	beginTurns()
	appending.Wait()
	w.wantLeaseFrom(t, waiting)
	f.Invariants()
}

// wantLeaseFrom wants one run, whose lease counts from a time after begin. All other slots were given back.
func (w *freeWorker) wantLeaseFrom(t *testing.T, begin time.Time) {
	t.Helper()
	if len(w.sent) != 1 || w.left != len(w.asked)-1 {
		t.Fatalf("%d runs, %d slots asked for and %d given back", len(w.sent), len(w.asked), w.left)
	}
	if w.sent[0].Before(begin) {
		t.Errorf("the lease counts from %s too early", begin.Sub(w.sent[0]))
	}
}
