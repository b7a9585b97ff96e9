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
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// lowest returns the task of the lowest id.
func lowest(leases []*tasks.Lease) a2a.ID {
	return slices.MinFunc(leases, func(a, b *tasks.Lease) int { return bytes.Compare(a.TaskID[:], b.TaskID[:]) }).TaskID
}

// locked returns how many rows of tasks somebody holds, but for one.
func (f *fixture) locked(but a2a.ID) int {
	f.t.Helper()
	return value[int](f, "SELECT count(*)::int FROM a2a.tasks WHERE id <> $1", but) -
		value[int](f, "SELECT count(*)::int FROM (SELECT FROM a2a.tasks WHERE id <> $1 FOR UPDATE SKIP LOCKED) x", but)
}

func TestAppendLocksTasksInOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	leases, batches := f.batch(12, func(int) tasks.Batch { return tasks.Batch{Events: []a2a.Event{status(a2a.StateCompleted)}} })
	slices.SortFunc(leases, func(a, b *tasks.Lease) int { return -bytes.Compare(a.TaskID[:], b.TaskID[:]) }) // they come in another order
	first := lowest(leases)
	release := f.hold("SELECT FROM a2a.tasks WHERE id = $1 FOR UPDATE", first)
	done := make(chan []result, 1)
	go func() { done <- f.together(f.Store, leases, batches) }()
	f.waitBlocked(1)
	if n := f.locked(first); n != 0 {
		t.Errorf("the append waits for the first task and has %d others", n)
	}
	release()
	for _, r := range <-done {
		if r.err != nil {
			t.Error(r.err)
		}
	}
	f.invariants()
}

// A claim takes the oldest first, which is not always the lowest id, and waits for tasks in the
// order of their ids as everybody does.
func TestClaimLocksTasksInOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.submitMany(6)
	f.exec(`WITH n AS (SELECT id, row_number() OVER (ORDER BY id DESC) AS n FROM a2a.tasks),
		t AS (UPDATE a2a.tasks t SET ready_at = now() - interval '1 hour' + n.n * interval '1 second' FROM n WHERE n.id = t.id RETURNING t.id, t.ready_at)
		UPDATE a2a.task_ready r SET run_at = t.ready_at FROM t WHERE r.task_id = t.id`)
	var first a2a.ID
	if err := f.sql.QueryRow(f.ctx, "SELECT id FROM a2a.tasks ORDER BY id LIMIT 1").Scan(&first); err != nil {
		t.Fatal(err)
	}
	release := f.hold("SELECT FROM a2a.tasks WHERE id = $1 FOR UPDATE", first)
	done := make(chan []tasks.Lease, 1)
	go func() {
		leases, err := f.Tasks.NewClaimer().Claim(f.ctx, agent, 6, ttl, 0)
		if err != nil {
			t.Error(err)
		}
		done <- leases
	}()
	f.waitBlocked(1)
	if n := f.locked(first); n != 0 {
		t.Errorf("the claim waits for the lowest task and has %d others", n)
	}
	release()
	if leases := <-done; len(leases) != 6 || leases[5].TaskID != first {
		t.Errorf("%d were claimed, want 6, the youngest at the end", len(leases))
	}
	f.invariants()
}

// What an append decides on is the task as it is when it gets the row, not as it was when it began to wait.
func TestAppendDecidesOnWhatWasCommittedWhileItWaited(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		do   func(f *fixture, other *store.Store, l tasks.Lease) error
		err  error
		want a2a.State
		head int64
	}{
		{"a message", func(f *fixture, other *store.Store, l tasks.Lease) error {
			in := submission("more")
			in.Task = l.TaskID
			_, err := other.Tasks.Submit(f.ctx, in)
			return err
		}, nil, a2a.StateWorking, 0},
		{"a webhook", func(f *fixture, other *store.Store, l tasks.Lease) error {
			return other.Tasks.SetWebhook(f.ctx, ann, agent, l.TaskID, newPush("p"), 10)
		}, nil, a2a.StateCompleted, 4},
		{"a message with a webhook", func(f *fixture, other *store.Store, l tasks.Lease) error {
			in, p := submission("more"), newPush("p")
			in.Task, in.Push, in.MaxPushes = l.TaskID, &p, 10
			_, err := other.Tasks.Submit(f.ctx, in)
			return err
		}, nil, a2a.StateWorking, 4},
		{"a cancel", func(f *fixture, other *store.Store, l tasks.Lease) error {
			_, err := other.Tasks.Cancel(f.ctx, ann, agent, l.TaskID)
			return err
		}, db.ErrLeaseLost, a2a.StateCanceled, 0},
		{"a retry", func(f *fixture, other *store.Store, l tasks.Lease) error {
			return other.Tasks.Retry(f.ctx, &l, "again", time.Hour)
		}, db.ErrLeaseLost, a2a.StateWorking, 0},
		{"a release", func(f *fixture, other *store.Store, l tasks.Lease) error {
			return other.Tasks.Release(f.ctx, []*tasks.Lease{&l})
		}, db.ErrLeaseLost, a2a.StateWorking, 0},
		{"the same batch", func(f *fixture, other *store.Store, l tasks.Lease) error {
			l.Worker = "r1"
			_, err := other.Tasks.Append(f.ctx, &l, tasks.Batch{Events: []a2a.Event{chunk("a", "x"), status(a2a.StateWorking)}})
			return err
		}, db.ErrLeaseLost, a2a.StateWorking, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			other := f.replica("r2")
			leases, batches := f.batch(5, func(i int) tasks.Batch {
				return tasks.Batch{Events: []a2a.Event{chunk("a", fmt.Sprint(i)), status(a2a.StateCompleted)}}
			})
			held := leases[2]
			release := f.hold("SELECT FROM a2a.tasks WHERE id = $1 FOR UPDATE", held.TaskID)
			did, done := make(chan error, 1), make(chan []result, 1)
			go func() { did <- tt.do(f, other, *held) }()
			f.waitBlocked(1)
			go func() { done <- f.together(f.Store, leases, batches) }()
			f.waitBlocked(2)
			release() // who waits longest is the next one
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
				if got := f.snapshot(leases[i].TaskID).Status.State; got != state {
					t.Errorf("append %d: the task is %s, want %s", i, got, state)
				}
				if r.err == nil && r.out.Requeued != (state == a2a.StateWorking) {
					t.Errorf("append %d = %+v", i, r.out)
				}
			}
			if tt.head > 0 {
				if n := value[int64](f, "SELECT head_seq FROM a2a.push_configs"); n != tt.head {
					t.Errorf("the webhook's head is %d, want %d", n, tt.head)
				}
				if due := f.claimPushes(10); len(due) != 1 || due[0].Seq != tt.head {
					t.Errorf("to deliver: %+v", due)
				}
			}
			f.invariants()
		})
	}
}

// Appends of one lease must not overlap. Those that do, as of a request that was sent twice, do not both write.
func TestTwoBatchesOfALeaseInOneCall(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	leases, batches := f.batch(3, func(i int) tasks.Batch { return tasks.Batch{Events: []a2a.Event{chunk("a", fmt.Sprint(i))}} })
	again := *leases[1]
	res := f.together(f.Store, append(leases, &again), append(batches, tasks.Batch{Events: []a2a.Event{chunk("a", "again")}}))
	if one, two := res[1].err, res[3].err; (one == nil) == (two == nil) || one != nil && !errors.Is(one, db.ErrLeaseLost) || two != nil && !errors.Is(two, db.ErrLeaseLost) {
		t.Errorf("the two appends: %v and %v, want one that has lost", one, two)
	}
	for i, l := range leases {
		if n := len(f.log(l.TaskID)); n != 3 {
			t.Errorf("task %d has %d events, want 3", i, n)
		}
	}
	f.invariants()
}

// hooked claims six tasks of one flusher and makes a batch for each; three of them get a webhook that
// their runs do not know of.
func (f *fixture) hooked(batchOf func(i int) tasks.Batch) ([]*tasks.Lease, []tasks.Batch) {
	f.t.Helper()
	leases, batches := f.batch(6, batchOf)
	for i, l := range leases {
		if i%2 == 1 {
			f.setPush(l.TaskID, "p")
		}
	}
	return leases, batches
}

func (f *fixture) wantHeads(what string, want int) {
	f.t.Helper()
	if n := value[int](f, "SELECT count(*)::int FROM a2a.push_configs p JOIN a2a.tasks t ON t.id = p.task_id WHERE p.head_seq = t.last_seq AND t.last_seq > p.from_seq"); n != want {
		f.t.Errorf("%s: %d webhooks have all of it, want %d", what, n, want)
	}
}

// Batches of tasks with new webhooks are written by a second transaction, whose answer may be lost: those of the
// first one are there, and each is once.
func TestLostAnswerOfTheBatchesWithNewWebhooks(t *testing.T) {
	t.Parallel()
	for _, ft := range faults {
		t.Run(ft.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			s, p := f.behindProxy(t)
			leases, batches := f.hooked(func(i int) tasks.Batch {
				return tasks.Batch{Events: []a2a.Event{chunk("a", fmt.Sprint(i)), status(a2a.StateCompleted)}}
			})
			ft.fault.match = commit
			fired := p.arm(ft.fault)
			res := f.together(s, leases, batches)
			wantFired(t, fired)
			for i, r := range res {
				if n := len(f.log(leases[i].TaskID)); r.err != nil || r.out.Base != 2 || r.out.State != a2a.StateCompleted || n != 4 {
					t.Errorf("append %d = %+v, %v; %d events", i, r.out, r.err, n)
				}
			}
			f.wantHeads(ft.name, 3)
			f.invariants()
		})
	}
}

// A row that somebody has locked holds up its own run, which waits. The runs that share a statement with it go on, and
// neither is told of an error.
func TestLockedRowHoldsUpItsOwnRunAlone(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]string{
		"the task":    "SELECT FROM a2a.tasks WHERE id = $1 FOR UPDATE",
		"the webhook": "SELECT FROM a2a.push_configs WHERE task_id = $1 FOR UPDATE",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			s := f.replica("r1", func(c *store.Config) { c.LockTimeout = 100 * time.Millisecond })
			end := []a2a.Event{chunk("a", "x"), status(a2a.StateCompleted)}
			leases, batches := f.hooked(func(int) tasks.Batch { return tasks.Batch{Events: end} })
			const locked = 1
			release := f.hold(lock, leases[locked].TaskID)
			over := make(chan []result, 1)
			go func() { over <- f.together(s, leases, batches) }()
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for value[int](f, "SELECT count(*)::int FROM a2a.tasks WHERE state = 100") < len(leases)-1 {
				select {
				case <-tick.C:
				case <-f.ctx.Done():
					t.Fatal("the others wait too")
				}
			}
			if n := len(f.log(leases[locked].TaskID)); n != 2 {
				t.Errorf("the locked task has %d events, want 2", n)
			}
			select {
			case res := <-over:
				t.Errorf("an append gave up: %+v", res)
			default:
			}
			release()
			for i, r := range <-over {
				if n := len(f.log(leases[i].TaskID)); r.err != nil || n != 4 || leases[i].LastSeq != 4 {
					t.Errorf("append %d: %v; %d events, the lease is at %d", i, r.err, n, leases[i].LastSeq)
				}
			}
			f.wantHeads("in the end", 3)
			f.invariants()
		})
	}
}

// An append that waits for a row ends with its context, and nothing of it is written.
func TestAppendToALockedTaskEndsWithItsContext(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.replica("r1", func(c *store.Config) { c.LockTimeout = 50 * time.Millisecond })
	l := f.running()
	f.hold("SELECT FROM a2a.tasks WHERE id = $1 FOR UPDATE", l.TaskID)
	ctx, cancel := context.WithCancel(f.ctx)
	over := make(chan error, 1)
	go func() {
		_, err := s.Tasks.Append(ctx, l, tasks.Batch{Events: []a2a.Event{chunk("a", "x")}})
		over <- err
	}()
	f.waitBlocked(1)
	cancel()
	wantCode(t, <-over, a2a.CodeUnavailable)
	if n := len(f.log(l.TaskID)); n != 2 || l.LastSeq != 2 {
		t.Errorf("%d events, the lease is at %d, want 2", n, l.LastSeq)
	}
}

// What only the second transaction finds to be bad fails its owner alone, and what the first one wrote
// is not written again.
func TestPoisonAmongBatchesWithNewWebhooks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	leases, batches := f.hooked(func(i int) tasks.Batch {
		switch i {
		case 0:
			return tasks.Batch{Checkpoint: a2a.Raw(`1`)}
		case 3:
			return tasks.Batch{Events: []a2a.Event{status(77)}} // which breaks a rule of the table
		}
		return tasks.Batch{Events: []a2a.Event{chunk("a", fmt.Sprint(i)), status(a2a.StateCompleted)}}
	})
	for i, r := range f.together(f.Store, leases, batches) {
		want := 4
		switch i {
		case 0:
			want = 2
		case 3:
			want = 2
			wantCode(t, r.err, a2a.CodeInternal)
		}
		if i != 3 && r.err != nil {
			t.Errorf("append %d: %v", i, r.err)
		}
		if n := len(f.log(leases[i].TaskID)); n != want {
			t.Errorf("append %d: %d events, want %d", i, n, want)
		}
	}
	f.wantOneCheckpoint()
	f.append(leases[3], status(a2a.StateFailed))
	f.wantHeads("in the end", 3)
	f.invariants()
}

func TestWrittenBatchIsNotInTheSecondTransaction(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	leases, batches := f.hooked(func(i int) tasks.Batch {
		if i == 0 {
			return tasks.Batch{Checkpoint: a2a.Raw(`1`)}
		}
		return tasks.Batch{Events: []a2a.Event{chunk("a", "x")}}
	})
	for i, r := range f.together(f.Store, leases, batches) {
		if r.err != nil {
			t.Errorf("append %d: %v", i, r.err)
		}
	}
	f.wantOneCheckpoint()
	f.wantHeads("in the end", 3)
	f.invariants()
}

// wantOneCheckpoint wants that there is one checkpoint, which was saved once.
func (f *fixture) wantOneCheckpoint() {
	f.t.Helper()
	if got := value[string](f, "SELECT string_agg(body::text || CASE xmax::text WHEN '0' THEN '' ELSE ', written again' END, ';') FROM a2a.task_checkpoints"); got != "1" {
		f.t.Errorf("checkpoints: %s", got)
	}
}
