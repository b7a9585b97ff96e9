package tasks_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// result is what one append returned.
type result struct {
	out tasks.Appended
	err error
}

// together appends one batch under each lease, all in one flush.
func together(f *storetest.Fixture, s *store.Store, leases []*tasks.Lease, batches []tasks.Batch) []result {
	f.T.Helper()
	return flushed(f, s, tasks.HoldAppends, leases, batches)
}

// flushed is together for the batches that hold makes wait.
func flushed(
	f *storetest.Fixture, s *store.Store, hold func(*tasks.Store) (func(n int), func()), leases []*tasks.Lease,
	batches []tasks.Batch,
) []result {
	f.T.Helper()
	queued, release := hold(s.Tasks)
	results := make([]result, len(leases))
	var wg sync.WaitGroup
	started := 0
	for i := range leases {
		wg.Go(func() { results[i].out, results[i].err = s.Tasks.Append(f.T.Context(), leases[i], batches[i]) })
		started++
		queued(started) // in this order
	}
	release()
	wg.Wait()
	return results
}

// A worker that lost its lease and its successor append in the same flush.
func TestZombieAndSuccessorInOneFlush(t *testing.T) {
	t.Parallel()
	for _, zombieFirst := range []bool{true, false} {
		f := storetest.Open(t)
		zombie := f.RunningTask()
		f.Append(zombie, storetest.Chunk("a", "one"))
		f.Expire(zombie.TaskID)
		f.Rescue(1)
		l := f.ClaimTask(zombie.TaskID)
		leases := []*tasks.Lease{zombie, l}
		batches := []tasks.Batch{
			{
				Events:     []a2a.Event{storetest.Chunk("a", "zombie"), storetest.Status(a2a.StateCompleted, "zombie")},
				Checkpoint: a2a.Raw(`"zombie"`),
			},
			{
				Events:     []a2a.Event{storetest.Chunk("a", "two"), storetest.Status(a2a.StateWorking, "successor")},
				Checkpoint: a2a.Raw(`"successor"`),
			},
		}
		at := 1
		if !zombieFirst {
			leases[0], leases[1], batches[0], batches[1], at = leases[1], leases[0], batches[1], batches[0], 0
		}
		res := together(f, f.Store, leases, batches)
		if err := res[1-at].err; !errors.Is(err, db.ErrLeaseLost) {
			t.Errorf("the zombie's append = %v, want ErrLeaseLost", err)
		}
		if err := res[at].err; err != nil {
			t.Errorf("the successor's append: %v", err)
		}
		got := f.Snapshot(l.TaskID)
		storetest.Same(t, "artifacts", []a2a.Artifact{storetest.Chunk("a", "one", "two").Artifact}, got.Artifacts)
		if got.Status.State != a2a.StateWorking || got.Status.Message.ID != "agent-successor" {
			t.Errorf("status %+v, want that of the successor", got.Status)
		}
		if cp := storetest.Value[string](f, "SELECT body::text FROM a2a.task_checkpoints"); cp != `"successor"` {
			t.Errorf("checkpoint %s, want that of the successor", cp)
		}
		f.Invariants()
	}
}

func TestAppendsOfSeveralTasksShareACommit(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	leases, batches := batch(f, 8, func(i int) tasks.Batch {
		return storetest.Batch(storetest.Status(a2a.StateWorking, fmt.Sprint("w", i)),
			storetest.Chunk("a", fmt.Sprint(i)), storetest.Status(a2a.StateCompleted, fmt.Sprint("c", i)))
	})
	for i, r := range together(f, f.Store, leases, batches) {
		if r.err != nil {
			t.Fatalf("append %d: %v", i, r.err)
		}
		got := f.Snapshot(leases[i].TaskID)
		if r.out.Base != 2 || r.out.State != a2a.StateCompleted || got.LastSeq != 5 ||
			got.Artifacts[0].Parts[0].Text != fmt.Sprint(i) || got.Status.Message.ID != fmt.Sprint("agent-c", i) {
			t.Errorf("append %d = %+v, task %+v", i, r.out, got)
		}
		storetest.Same(t, "attempts", []attempt{{1, 1, "r1", "completed", ""}}, attempts(f, leases[i].TaskID))
	}
	const transactions = "SELECT count(DISTINCT xid)::int FROM a2a.task_events WHERE kind = 2 OR kind = 3"
	if n := storetest.Value[int](f, transactions); n != 1 {
		t.Errorf("%d transactions, want 1", n)
	}
	f.Invariants()
}

// batch claims n tasks whose appends share a flush, and makes a batch for each.
func batch(f *storetest.Fixture, n int, batchOf func(i int) tasks.Batch) ([]*tasks.Lease, []tasks.Batch) {
	f.T.Helper()
	var leases []*tasks.Lease
	var batches []tasks.Batch
	for len(leases) < n {
		in := storetest.Submission("hello")
		in.NewTask = db.NewTaskID()
		in.NewTask[15] &^= 1
		f.Submit(in)
		leases = append(leases, f.ClaimTask(in.NewTask))
		batches = append(batches, batchOf(len(batches)))
	}
	return leases, batches
}

// A batch that PostgreSQL refuses must not fail the others of its flush.
func TestInvalidAppendFailsAlone(t *testing.T) {
	t.Parallel()
	invalid := []struct {
		name  string
		batch tasks.Batch
	}{
		{
			"invalid JSON",
			storetest.Batch(&a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateWorking}, Metadata: a2a.Raw(`{"a":`)}),
		},
		{"invalid checkpoint", tasks.Batch{Checkpoint: a2a.Raw(`{`)}},
		{"NUL in an artifact id", storetest.Batch(storetest.Chunk("a\x00", "x"))},
		{"invalid UTF-8", storetest.Batch(storetest.Chunk("a", "\xff"))},
		{"no artifact id", storetest.Batch(storetest.Chunk("", "x"))},
		{"an unknown state", storetest.Batch(storetest.Status(77))},
		{
			"invalid parts when the task is folded",
			storetest.Batch(&a2a.ArtifactUpdate{
				Artifact: a2a.Artifact{ID: "a", Parts: []a2a.Part{{Kind: a2a.PartData, Data: a2a.Raw(`{]`)}}},
			}, storetest.Status(a2a.StateCompleted)),
		},
		{"NUL in the error", tasks.Batch{Events: []a2a.Event{storetest.Status(a2a.StateFailed)}, Error: "\x00"}},
	}
	f := storetest.Open(t)
	for _, p := range invalid {
		leases, batches := batch(f, 5, func(i int) tasks.Batch {
			if i == 2 {
				return p.batch
			}
			return storetest.Batch(storetest.Chunk("a", fmt.Sprint(i)), storetest.Status(a2a.StateCompleted))
		})
		for i, r := range together(f, f.Store, leases, batches) {
			if i == 2 {
				if r.err == nil || errors.Is(r.err, db.ErrLeaseLost) || a2a.CodeOf(r.err) == a2a.CodeUnavailable {
					t.Errorf("%s: the bad append = %v, want an error of its own", p.name, r.err)
				}
				if n := len(f.Log(leases[i].TaskID)); n != 2 {
					t.Errorf("%s: the bad append left %d events", p.name, n-2)
				}
				continue
			}
			if r.err != nil || f.Snapshot(leases[i].TaskID).Status.State != a2a.StateCompleted {
				t.Errorf("%s: append %d = %v", p.name, i, r.err)
			}
		}
		// Its worker still has the lease and can end the task.
		f.Append(leases[2], storetest.Status(a2a.StateFailed))
		f.Invariants()
	}
}

// A submission that PostgreSQL refuses must not fail the others of its flush.
func TestInvalidSubmitFailsAlone(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	queued, release := tasks.HoldSubmits(f.Store.Tasks)
	errs := make([]error, 5)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			in := storetest.Submission(fmt.Sprint(i))
			if i == 2 {
				in.Message.Metadata = a2a.Raw(`{`)
			}
			_, errs[i] = f.Tasks.Submit(t.Context(), in)
		})
		queued(i + 1)
	}
	release()
	wg.Wait()
	for i, err := range errs {
		if (err != nil) != (i == 2) {
			t.Errorf("submit %d: %v", i, err)
		}
	}
	if n := storetest.Value[int](f, "SELECT count(*)::int FROM a2a.tasks"); n != 4 {
		t.Errorf("%d tasks, want 4", n)
	}
	f.Invariants()
}

// A renewal locks leases in the order of their ids. Everything else that locks several must do the same, or there are
// deadlocks.
func TestAppendLocksLeasesInOrder(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	leases, batches := batch(f, 12, func(int) tasks.Batch {
		return storetest.Batch(storetest.Status(a2a.StateCompleted))
	})
	// The rows are stored in the reverse order, so that a scan is not in order by chance.
	f.Exec(`WITH d AS (DELETE FROM a2a.task_leases RETURNING *)
		INSERT INTO a2a.task_leases SELECT * FROM d ORDER BY task_id DESC`)
	first := leases[0].TaskID
	for _, l := range leases {
		if l.TaskID.String() < first.String() {
			first = l.TaskID
		}
	}
	release := f.Lock("SELECT FROM a2a.task_leases WHERE task_id = $1 FOR UPDATE", first)
	done := make(chan []result, 1)
	go func() { done <- together(f, f.Store, leases, batches) }()
	f.WaitBlocked(1)
	free := storetest.Value[int](f,
		"SELECT count(*)::int FROM (SELECT FROM a2a.task_leases WHERE task_id <> $1 FOR UPDATE SKIP LOCKED) x", first)
	release()
	for _, r := range <-done {
		if r.err != nil {
			t.Error(r.err)
		}
	}
	if free != len(leases)-1 {
		t.Errorf("the append waits for the first lease and has locked %d others", len(leases)-1-free)
	}
	f.Invariants()
}
