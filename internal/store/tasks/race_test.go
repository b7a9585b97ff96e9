package tasks_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// lowest returns the task with the lowest id.
func lowest(leases []*tasks.Lease) a2a.ID {
	return slices.MinFunc(leases, func(a, b *tasks.Lease) int { return bytes.Compare(a.TaskID[:], b.TaskID[:]) }).TaskID
}

// locked returns how many rows of tasks are locked, except for one task.
func locked(f *storetest.Fixture, but a2a.ID) int {
	f.T.Helper()
	const all = "SELECT count(*)::int FROM a2a.tasks WHERE id <> $1"
	const free = "SELECT count(*)::int FROM (SELECT FROM a2a.tasks WHERE id <> $1 FOR UPDATE SKIP LOCKED) x"
	return storetest.Value[int](f, all, but) - storetest.Value[int](f, free, but)
}

func TestAppendLocksTasksInOrder(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	leases, batches := batch(f, 12, func(int) tasks.Batch {
		return storetest.Batch(storetest.Status(a2a.StateCompleted))
	})
	// The appends come in the reverse order.
	slices.SortFunc(leases, func(a, b *tasks.Lease) int { return -bytes.Compare(a.TaskID[:], b.TaskID[:]) })
	first := lowest(leases)
	release := f.Lock("SELECT FROM a2a.tasks WHERE id = $1 FOR UPDATE", first)
	done := make(chan []result, 1)
	go func() { done <- together(f, f.Store, leases, batches) }()
	f.WaitBlocked(1)
	if n := locked(f, first); n != 0 {
		t.Errorf("the append waits for the first task and has locked %d others", n)
	}
	release()
	for _, r := range <-done {
		if r.err != nil {
			t.Error(r.err)
		}
	}
	f.Invariants()
}

// A claim returns the longest waiting first, which is not always the lowest id. It locks the tasks in the order of
// their ids, as every statement does.
func TestClaimLocksTasksInOrder(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	f.SubmitMany(6)
	f.Exec(`
		WITH n AS (SELECT id, row_number() OVER (ORDER BY id DESC) AS n FROM a2a.tasks),
		t AS (
		  UPDATE a2a.tasks t SET ready_at = now() - interval '1 hour' + n.n * interval '1 second'
		  FROM n WHERE n.id = t.id RETURNING t.id, t.ready_at)
		UPDATE a2a.task_ready r SET run_at = t.ready_at FROM t WHERE r.task_id = t.id`)
	first := storetest.Value[a2a.ID](f, "SELECT id FROM a2a.tasks ORDER BY id LIMIT 1")
	release := f.Lock("SELECT FROM a2a.tasks WHERE id = $1 FOR UPDATE", first)
	done := make(chan []tasks.Lease, 1)
	go func() {
		leases, err := f.Tasks.NewClaimer().Claim(t.Context(), storetest.Agent, 6, storetest.TTL, 0)
		if err != nil {
			t.Error(err)
		}
		done <- leases
	}()
	f.WaitBlocked(1)
	if n := locked(f, first); n != 0 {
		t.Errorf("the claim waits for the lowest task and has locked %d others", n)
	}
	release()
	if leases := <-done; len(leases) != 6 || leases[5].TaskID != first {
		t.Errorf("%d tasks claimed, want 6, the newest at the end", len(leases))
	}
	f.Invariants()
}

// An append that waits for the row of its task must decide on the task as it is after the wait.
func TestAppendSeesWhatWasCommittedWhileItWaited(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		do   func(other *store.Store, l tasks.Lease) error
		err  error
		want a2a.State
		head int64
	}{
		{"a message", func(other *store.Store, l tasks.Lease) error {
			in := storetest.Submission("more")
			in.Task = l.TaskID
			_, err := other.Tasks.Submit(t.Context(), in)
			return err
		}, nil, a2a.StateWorking, 0},
		{"a webhook", func(other *store.Store, l tasks.Lease) error {
			return other.Tasks.SetWebhook(t.Context(), storetest.Ann, storetest.Agent, l.TaskID,
				storetest.NewWebhook("p"), 10)
		}, nil, a2a.StateCompleted, 4},
		{"a message with a webhook", func(other *store.Store, l tasks.Lease) error {
			in, p := storetest.Submission("more"), storetest.NewWebhook("p")
			in.Task, in.Push, in.MaxPushes = l.TaskID, &p, 10
			_, err := other.Tasks.Submit(t.Context(), in)
			return err
		}, nil, a2a.StateWorking, 4},
		{"a cancel", func(other *store.Store, l tasks.Lease) error {
			_, err := other.Tasks.Cancel(t.Context(), storetest.Ann, storetest.Agent, l.TaskID)
			return err
		}, db.ErrLeaseLost, a2a.StateCanceled, 0},
		{"a retry", func(other *store.Store, l tasks.Lease) error {
			return other.Tasks.Retry(t.Context(), &l, "again", time.Hour)
		}, db.ErrLeaseLost, a2a.StateWorking, 0},
		{"a release", func(other *store.Store, l tasks.Lease) error {
			return other.Tasks.Release(t.Context(), []*tasks.Lease{&l}, "given back")
		}, db.ErrLeaseLost, a2a.StateWorking, 0},
		{"the same batch", func(other *store.Store, l tasks.Lease) error {
			l.Worker = "r1"
			_, err := other.Tasks.Append(t.Context(), &l,
				storetest.Batch(storetest.Chunk("a", "x"), storetest.Status(a2a.StateWorking)))
			return err
		}, db.ErrLeaseLost, a2a.StateWorking, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := storetest.Open(t)
			other := f.Replica("r2")
			leases, batches := batch(f, 5, func(i int) tasks.Batch {
				return storetest.Batch(storetest.Chunk("a", fmt.Sprint(i)), storetest.Status(a2a.StateCompleted))
			})
			waiting := leases[2]
			release := f.Lock("SELECT FROM a2a.tasks WHERE id = $1 FOR UPDATE", waiting.TaskID)
			did, done := make(chan error, 1), make(chan []result, 1)
			go func() { did <- tt.do(other, *waiting) }()
			f.WaitBlocked(1)
			go func() { done <- together(f, f.Store, leases, batches) }()
			f.WaitBlocked(2)
			release() // tt.do has waited longest, so it is next
			if err := <-did; err != nil {
				t.Fatal(err)
			}
			for i, r := range <-done {
				want, state := error(nil), a2a.StateCompleted
				if i == 2 {
					want, state = tt.err, tt.want
				}
				if !errors.Is(r.err, want) {
					t.Errorf("append %d: %v, want %v", i, r.err, want)
				}
				if got := f.Snapshot(leases[i].TaskID).Status.State; got != state {
					t.Errorf("append %d: the task is %s, want %s", i, got, state)
				}
				if r.err == nil && r.out.Requeued != (state == a2a.StateWorking) {
					t.Errorf("append %d = %+v", i, r.out)
				}
			}
			if tt.head > 0 {
				if n := storetest.Value[int64](f, "SELECT head_seq FROM a2a.push_configs"); n != tt.head {
					t.Errorf("the webhook's head is %d, want %d", n, tt.head)
				}
				if due := f.ClaimWebhooks(10); len(due) != 1 || due[0].Seq != tt.head {
					t.Errorf("due webhooks %+v, want one at event %d", due, tt.head)
				}
			}
			f.Invariants()
		})
	}
}

// Appends under one lease must not overlap. If they do, as when a request is sent twice, only one of them writes.
func TestTwoAppendsUnderALeaseInOneFlush(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	leases, batches := batch(f, 3, func(i int) tasks.Batch {
		return storetest.Batch(storetest.Chunk("a", fmt.Sprint(i)))
	})
	again := *leases[1]
	res := together(f, f.Store, append(leases, &again), append(batches, storetest.Batch(storetest.Chunk("a", "again"))))
	one, two := res[1].err, res[3].err
	if (one == nil) == (two == nil) || !errors.Is(errors.Join(one, two), db.ErrLeaseLost) {
		t.Errorf("the two appends: %v and %v, want one ErrLeaseLost", one, two)
	}
	for i, l := range leases {
		if n := len(f.Log(l.TaskID)); n != 3 {
			t.Errorf("task %d has %d events, want 3", i, n)
		}
	}
	f.Invariants()
}

// withNewWebhooks claims six tasks whose appends share a flush, and makes a batch for each. Three of the tasks get a
// webhook that their leases do not know.
func withNewWebhooks(f *storetest.Fixture, batchOf func(i int) tasks.Batch) ([]*tasks.Lease, []tasks.Batch) {
	f.T.Helper()
	leases, batches := batch(f, 6, batchOf)
	for i, l := range leases {
		if i%2 == 1 {
			f.SetWebhook(l.TaskID, "p")
		}
	}
	return leases, batches
}

// wantHeads wants that many webhooks whose head is the end of the log.
func wantHeads(f *storetest.Fixture, what string, want int) {
	f.T.Helper()
	n := storetest.Value[int](f, `
		SELECT count(*)::int FROM a2a.push_configs p JOIN a2a.tasks t ON t.id = p.task_id
		WHERE p.head_seq = t.last_seq AND t.last_seq > p.from_seq`)
	if n != want {
		f.T.Errorf("%s: %d webhooks have their head at the end of the log, want %d", what, n, want)
	}
}

// A second transaction writes the batches of tasks with new webhooks. If its answer is lost, every batch is still
// written once, including those of the first transaction.
func TestLostAnswerOfAppendsWithNewWebhooks(t *testing.T) {
	t.Parallel()
	for _, ft := range faults() {
		t.Run(ft.name, func(t *testing.T) {
			t.Parallel()
			f := storetest.Open(t)
			s, p := f.BehindProxy(t)
			leases, batches := withNewWebhooks(f, func(i int) tasks.Batch {
				return storetest.Batch(storetest.Chunk("a", fmt.Sprint(i)), storetest.Status(a2a.StateCompleted))
			})
			ft.fault.Match = storetest.IsCommit
			fired := p.Arm(ft.fault)
			res := together(f, s, leases, batches)
			storetest.WantFired(t, fired)
			for i, r := range res {
				if n := len(f.Log(leases[i].TaskID)); r.err != nil || r.out.Base != 2 ||
					r.out.State != a2a.StateCompleted || n != 4 {
					t.Errorf("append %d = %+v, %v; %d events", i, r.out, r.err, n)
				}
			}
			wantHeads(f, ft.name, 3)
			f.Invariants()
		})
	}
}

// A locked row delays only the append to its task. The others of the flush are written, and no append fails.
func TestLockedTaskDelaysOnlyItsOwnAppend(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]string{
		"the task":    "SELECT FROM a2a.tasks WHERE id = $1 FOR UPDATE",
		"the webhook": "SELECT FROM a2a.push_configs WHERE task_id = $1 FOR UPDATE",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := storetest.Open(t)
			s := f.Replica("r1", func(c *store.Config) { c.LockTimeout = 100 * time.Millisecond })
			end := []a2a.Event{storetest.Chunk("a", "x"), storetest.Status(a2a.StateCompleted)}
			leases, batches := withNewWebhooks(f, func(int) tasks.Batch { return tasks.Batch{Events: end} })
			const locked = 1
			release := f.Lock(lock, leases[locked].TaskID)
			over := make(chan []result, 1)
			go func() { over <- together(f, s, leases, batches) }()
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for storetest.Value[int](f, "SELECT count(*)::int FROM a2a.tasks WHERE state = 100") < len(leases)-1 {
				select {
				case <-tick.C:
				case <-t.Context().Done():
					t.Fatal("the others wait too")
				}
			}
			if n := len(f.Log(leases[locked].TaskID)); n != 2 {
				t.Errorf("the locked task has %d events, want 2", n)
			}
			select {
			case res := <-over:
				t.Errorf("an append failed during the wait: %+v", res)
			default:
			}
			release()
			for i, r := range <-over {
				if n := len(f.Log(leases[i].TaskID)); r.err != nil || n != 4 || leases[i].LastSeq != 4 {
					t.Errorf("append %d: %v; %d events, the lease is at %d", i, r.err, n, leases[i].LastSeq)
				}
			}
			wantHeads(f, "in the end", 3)
			f.Invariants()
		})
	}
}

// An append that waits for a row ends with its context, and writes nothing.
func TestAppendToALockedTaskEndsWithItsContext(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	s := f.Replica("r1", func(c *store.Config) { c.LockTimeout = 50 * time.Millisecond })
	l := f.RunningTask()
	f.Lock("SELECT FROM a2a.tasks WHERE id = $1 FOR UPDATE", l.TaskID)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() {
		_, err := s.Tasks.Append(ctx, l, storetest.Batch(storetest.Chunk("a", "x")))
		over <- err
	}()
	f.WaitBlocked(1)
	cancel()
	storetest.WantCode(t, <-over, a2a.CodeUnavailable)
	if n := len(f.Log(l.TaskID)); n != 2 || l.LastSeq != 2 {
		t.Errorf("%d events, the lease is at %d, want 2", n, l.LastSeq)
	}
}

// A batch that only the second transaction refuses fails alone, and what the first transaction wrote is not written
// again.
func TestInvalidAppendAmongThoseWithNewWebhooks(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	leases, batches := withNewWebhooks(f, func(i int) tasks.Batch {
		switch i {
		case 0:
			return tasks.Batch{Checkpoint: a2a.Raw(`1`)}
		case 3:
			return storetest.Batch(storetest.Status(77)) // which a constraint refuses
		}
		return storetest.Batch(storetest.Chunk("a", fmt.Sprint(i)), storetest.Status(a2a.StateCompleted))
	})
	for i, r := range together(f, f.Store, leases, batches) {
		want := 4
		switch i {
		case 0:
			want = 2
		case 3:
			want = 2
			storetest.WantCode(t, r.err, a2a.CodeInternal)
		}
		if i != 3 && r.err != nil {
			t.Errorf("append %d: %v", i, r.err)
		}
		if n := len(f.Log(leases[i].TaskID)); n != want {
			t.Errorf("append %d: %d events, want %d", i, n, want)
		}
	}
	wantOneCheckpoint(f)
	f.Append(leases[3], storetest.Status(a2a.StateFailed))
	wantHeads(f, "in the end", 3)
	f.Invariants()
}

func TestSecondTransactionDoesNotRepeatTheFirst(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	leases, batches := withNewWebhooks(f, func(i int) tasks.Batch {
		if i == 0 {
			return tasks.Batch{Checkpoint: a2a.Raw(`1`)}
		}
		return storetest.Batch(storetest.Chunk("a", "x"))
	})
	for i, r := range together(f, f.Store, leases, batches) {
		if r.err != nil {
			t.Errorf("append %d: %v", i, r.err)
		}
	}
	wantOneCheckpoint(f)
	wantHeads(f, "in the end", 3)
	f.Invariants()
}

// wantOneCheckpoint wants one checkpoint that was written once.
func wantOneCheckpoint(f *storetest.Fixture) {
	f.T.Helper()
	got := storetest.Value[string](f, `
		SELECT string_agg(body::text || CASE xmax::text WHEN '0' THEN '' ELSE ', written again' END, ';')
		FROM a2a.task_checkpoints`)
	if got != "1" {
		f.T.Errorf("checkpoints %s, want 1, written once", got)
	}
}
