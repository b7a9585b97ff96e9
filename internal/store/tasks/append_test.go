package tasks_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/wake"
)

func TestAppendRecordsEventsInOrder(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	f.TakeCommitted(l.TaskID)
	events := []a2a.Event{
		storetest.Status(a2a.StateWorking, "first"),
		storetest.Artifact("a", "one", "two"),
		&a2a.ArtifactUpdate{
			Artifact: a2a.Artifact{ID: "a", Parts: storetest.Texts("three"), Extensions: []string{"x"}, Description: "d", Metadata: a2a.Raw(`{ "x":1.0 }`)},
			Append:   true, LastChunk: true, Metadata: a2a.Raw(`{"\u0000":[]}`),
		},
		&a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateWorking}, Metadata: a2a.Raw(`{}`)},
	}
	out := f.Append(l, events...)
	if out.Base != 2 || out.State != a2a.StateWorking || out.Requeued || l.LastSeq != 6 {
		t.Errorf("Append = %+v, lease at %d, want base 2, working, 6", out, l.LastSeq)
	}
	log := f.Log(l.TaskID)
	for i, e := range log[2:] {
		if e.Seq != int64(i+3) || e.UID.IsZero() || !e.Time.Equal(out.At) {
			t.Errorf("entry %d: seq %d, uid %s, time %s, want time %s", i, e.Seq, e.UID, e.Time, out.At)
		}
		if u, ok := events[i].(*a2a.StatusUpdate); ok {
			copied := *u
			copied.Status.Time = out.At
			events[i] = &copied
		}
		storetest.Same(t, fmt.Sprint("event ", i), events[i], e.Event)
	}
	storetest.Same(t, "events told of", [][]a2a.Entry{log[2:]}, f.TakeCommitted(l.TaskID))
	if got, want := l.Bytes, storetest.Value[int64](f, "SELECT bytes FROM a2a.tasks"); got != want {
		t.Errorf("the lease counts %d bytes, the task %d", got, want)
	}
	f.Invariants()
}

func TestAppendAfterLeaseLostWritesNothing(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		lose func(f *storetest.Fixture, l *tasks.Lease) error
	}{
		{"canceled", func(f *storetest.Fixture, l *tasks.Lease) error {
			_, err := f.Tasks.Cancel(t.Context(), storetest.Ann, storetest.Agent, l.TaskID)
			return err
		}},
		{"retried", func(f *storetest.Fixture, l *tasks.Lease) error {
			c := *l
			return f.Tasks.Retry(t.Context(), &c, "", 0)
		}},
		{"released", func(f *storetest.Fixture, l *tasks.Lease) error {
			return f.Tasks.Release(t.Context(), []*tasks.Lease{l})
		}},
		{"rescued", func(f *storetest.Fixture, l *tasks.Lease) error { f.Expire(l.TaskID); f.Rescue(1); return nil }},
		{"claimed by another", func(f *storetest.Fixture, l *tasks.Lease) error {
			f.Expire(l.TaskID)
			f.Rescue(1)
			f.ClaimTask(l.TaskID)
			return nil
		}},
		{"completed", func(f *storetest.Fixture, l *tasks.Lease) error {
			c := *l
			f.Append(&c, storetest.Status(a2a.StateCompleted))
			return nil
		}},
		{"waits for input", func(f *storetest.Fixture, l *tasks.Lease) error {
			c := *l
			f.Append(&c, storetest.Status(a2a.StateInputRequired))
			return nil
		}},
		{"went on to the next turn", func(f *storetest.Fixture, l *tasks.Lease) error {
			c := *l
			f.Say(l.TaskID, "more")
			f.Append(&c, storetest.Status(a2a.StateCompleted))
			return nil
		}},
	}
	f := storetest.Open(t)
	for _, tt := range tests {
		l := f.RunningTask()
		f.Append(l, storetest.Chunk("a", "one"))
		if err := tt.lose(f, l); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		before, log := f.Snapshot(l.TaskID), len(f.Log(l.TaskID))
		f.TakeCommitted(l.TaskID)
		for _, b := range []tasks.Batch{
			{Events: []a2a.Event{storetest.Status(a2a.StateWorking, "zombie")}},
			{Events: []a2a.Event{storetest.Chunk("a", "two"), storetest.Status(a2a.StateCompleted, "zombie")}, Error: "x"},
			{Checkpoint: a2a.Raw(`"zombie"`)},
		} {
			if out, err := f.Tasks.Append(t.Context(), l, b); !errors.Is(err, db.ErrLeaseLost) {
				t.Errorf("%s: Append = %+v, %v, want ErrLeaseLost", tt.name, out, err)
			}
		}
		if err := f.Tasks.Retry(t.Context(), l, "zombie", 0); !errors.Is(err, db.ErrLeaseLost) {
			t.Errorf("%s: Retry = %v, want ErrLeaseLost", tt.name, err)
		}
		storetest.Same(t, tt.name+": the task", before, f.Snapshot(l.TaskID))
		if n := len(f.Log(l.TaskID)); n != log {
			t.Errorf("%s: %d events, want %d", tt.name, n, log)
		}
		if told := f.TakeCommitted(l.TaskID); told != nil {
			t.Errorf("%s: told of %v", tt.name, told)
		}
		f.Invariants()
	}
}

// An expired lease that nobody has taken is still the worker's: its write saves the work.
func TestAppendUnderAnExpiredLeaseThatNobodyTook(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	f.Expire(l.TaskID)
	f.Append(l, storetest.Status(a2a.StateCompleted))
	f.Rescue(0)
	f.Invariants()
}

type result struct {
	out tasks.Appended
	err error
}

// together appends batches of several leases in one flush.
func together(f *storetest.Fixture, s *store.Store, leases []*tasks.Lease, batches []tasks.Batch) []result {
	f.T.Helper()
	queued, release := tasks.HoldAppends(s.Tasks)
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

func TestZombieAndSuccessorInOneBatch(t *testing.T) {
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
			{Events: []a2a.Event{storetest.Chunk("a", "zombie"), storetest.Status(a2a.StateCompleted, "zombie")}, Checkpoint: a2a.Raw(`"zombie"`)},
			{Events: []a2a.Event{storetest.Chunk("a", "two"), storetest.Status(a2a.StateWorking, "successor")}, Checkpoint: a2a.Raw(`"successor"`)},
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
			t.Errorf("status %+v", got.Status)
		}
		if cp := storetest.Value[string](f, "SELECT body::text FROM a2a.task_checkpoints"); cp != `"successor"` {
			t.Errorf("checkpoint %s", cp)
		}
		f.Invariants()
	}
}

func TestAppendsOfSeveralTasksShareACommit(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	leases, batches := batch(f, 8, func(i int) tasks.Batch {
		return tasks.Batch{Events: []a2a.Event{storetest.Status(a2a.StateWorking, fmt.Sprint("w", i)), storetest.Chunk("a", fmt.Sprint(i)), storetest.Status(a2a.StateCompleted, fmt.Sprint("c", i))}}
	})
	for i, r := range together(f, f.Store, leases, batches) {
		if r.err != nil {
			t.Fatalf("append %d: %v", i, r.err)
		}
		got := f.Snapshot(leases[i].TaskID)
		if r.out.Base != 2 || r.out.State != a2a.StateCompleted || got.LastSeq != 5 || got.Artifacts[0].Parts[0].Text != fmt.Sprint(i) || got.Status.Message.ID != fmt.Sprint("agent-c", i) {
			t.Errorf("append %d = %+v, task %+v", i, r.out, got)
		}
		storetest.Same(t, "attempts", []attempt{{1, 1, "r1", "completed", ""}}, attempts(f, leases[i].TaskID))
	}
	if n := storetest.Value[int](f, "SELECT count(DISTINCT xid)::int FROM a2a.task_events WHERE kind = 2 OR kind = 3"); n != 1 {
		t.Errorf("%d transactions, want 1", n)
	}
	f.Invariants()
}

// batch claims n tasks of one flusher and makes a batch for each.
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

// One caller's bad row must never fail another's, wherever it stands in the batch.
func TestPoisonedBatchFailsOnlyItsOwner(t *testing.T) {
	t.Parallel()
	poisons := []struct {
		name  string
		batch tasks.Batch
	}{
		{"invalid JSON", tasks.Batch{Events: []a2a.Event{&a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateWorking}, Metadata: a2a.Raw(`{"a":`)}}}},
		{"invalid checkpoint", tasks.Batch{Checkpoint: a2a.Raw(`{`)}},
		{"NUL in an artifact id", tasks.Batch{Events: []a2a.Event{storetest.Chunk("a\x00", "x")}}},
		{"invalid UTF-8", tasks.Batch{Events: []a2a.Event{storetest.Chunk("a", "\xff")}}},
		{"no artifact id", tasks.Batch{Events: []a2a.Event{storetest.Chunk("", "x")}}},
		{"a state that there is not", tasks.Batch{Events: []a2a.Event{storetest.Status(77)}}},
		{"invalid parts when the task is folded", tasks.Batch{Events: []a2a.Event{
			&a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: "a", Parts: []a2a.Part{{Kind: a2a.PartData, Data: a2a.Raw(`{]`)}}}}, storetest.Status(a2a.StateCompleted),
		}}},
		{"NUL in the error", tasks.Batch{Events: []a2a.Event{storetest.Status(a2a.StateFailed)}, Error: "\x00"}},
	}
	f := storetest.Open(t)
	for _, p := range poisons {
		leases, batches := batch(f, 5, func(i int) tasks.Batch {
			if i == 2 {
				return p.batch
			}
			return tasks.Batch{Events: []a2a.Event{storetest.Chunk("a", fmt.Sprint(i)), storetest.Status(a2a.StateCompleted)}}
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
		// Its owner still holds the task and can end it.
		f.Append(leases[2], storetest.Status(a2a.StateFailed))
		f.Invariants()
	}
}

// The same for submits: two clients' first messages in one flush.
func TestPoisonedSubmitFailsOnlyItsOwner(t *testing.T) {
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

func TestTurnGoesOnWhenTheClientHasSaidMore(t *testing.T) {
	t.Parallel()
	tests := []struct {
		asked, got a2a.State
		outcome    string
	}{
		{a2a.StateCompleted, a2a.StateWorking, "completed"},
		{a2a.StateInputRequired, a2a.StateWorking, "input"},
		{a2a.StateAuthRequired, a2a.StateWorking, "input"},
		{a2a.StateFailed, a2a.StateFailed, "failed"},
		{a2a.StateRejected, a2a.StateRejected, "rejected"},
	}
	f := storetest.Open(t)
	for i, tt := range slices.Concat(tests, tests) {
		l := f.RunningTask()
		task := l.TaskID
		before := 2
		if i >= len(tests) { // once more, with so many events that the artifacts are folded where the task ends
			for range 40 {
				f.Append(l, storetest.Chunk("a", "x"))
			}
			before += 40
		}
		f.Say(task, "more")
		f.TakeWakes()
		f.TakeCommitted(task)
		out := f.Append(l, storetest.Chunk("a", "x"), storetest.Status(tt.asked, "done"))
		requeued := tt.got == a2a.StateWorking
		if out.State != tt.got || out.Requeued != requeued {
			t.Errorf("%s: Append = %+v, want %s", tt.asked, out, tt.got)
		}
		got := f.Snapshot(task)
		if got.Status.State != tt.got || got.Status.Message == nil || got.Status.Message.ID != "agent-done" {
			t.Errorf("%s: status %+v", tt.asked, got.Status)
		}
		storetest.Same(t, tt.asked.String()+": attempts", []attempt{{1, 1, "r1", tt.outcome, ""}}, attempts(f, task))
		storetest.Same(t, tt.asked.String()+": told of", [][]a2a.Entry{f.Log(task)[before:]}, f.TakeCommitted(task))
		f.Invariants()
		if !requeued {
			storetest.Same(t, tt.asked.String()+": wakes", nil, f.TakeWakes())
			continue
		}
		storetest.Same(t, tt.asked.String()+": wakes", []string{wake.Ready(storetest.Agent)}, f.TakeWakes())
		next := f.ClaimTask(task)
		if next.Attempt != 1 || next.Epoch <= l.Epoch {
			t.Errorf("%s: the next lease is attempt %d, epoch %d", tt.asked, next.Attempt, next.Epoch)
		}
		in, err := f.Tasks.Inputs(t.Context(), []tasks.Lease{*next})
		if err != nil {
			t.Fatal(err)
		}
		storetest.Same(t, tt.asked.String()+": new messages", []a2a.Message{storetest.Message("m-more", "more")}, in[0].Messages)
		f.Append(next, storetest.Status(tt.asked))
		if s := f.Snapshot(task).Status.State; s != tt.asked {
			t.Errorf("%s: the next turn ended with %s", tt.asked, s)
		}
		f.Invariants()
	}
}

func TestFailedAttemptKeepsItsReason(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	if _, err := f.Tasks.Append(t.Context(), l, tasks.Batch{Events: []a2a.Event{storetest.Status(a2a.StateFailed, "sorry")}, Error: "because"}); err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "attempts", []attempt{{1, 1, "r1", "failed", "because"}}, attempts(f, l.TaskID))
}

func TestMessagesOfStatusesMoveIntoHistoryInOrder(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	task := l.TaskID
	history := func(want ...string) {
		t.Helper()
		var got []string
		snap := f.Snapshot(task)
		for _, m := range snap.History {
			got = append(got, m.Parts[0].Text)
		}
		if m := snap.Status.Message; m != nil {
			got = append(got, "["+m.Parts[0].Text+"]")
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("history %v, want %v", got, want)
		}
		for n := range len(snap.History) + 1 {
			part, err := f.Tasks.SnapshotOfAny(t.Context(), task, tasks.Want{History: &n})
			if err != nil {
				t.Fatal(err)
			}
			storetest.Same(t, fmt.Sprint("the last ", n), snap.History[len(snap.History)-n:], part.History)
			storetest.Same(t, "status message", snap.Status.Message, part.Status.Message)
		}
	}
	f.Append(l, storetest.Status(a2a.StateWorking, "one"))
	history("hello", "[one]")
	f.Append(l, storetest.Chunk("a", "x"))
	history("hello", "[one]")
	f.Say(task, "wait")
	history("hello", "wait", "[one]") // the status lasts, though the message is newer
	f.Append(l, storetest.Status(a2a.StateWorking, "two"), storetest.Chunk("a", "y"), storetest.Status(a2a.StateWorking, "three"), storetest.Chunk("a", "z"))
	history("hello", "one", "wait", "two", "[three]")
	f.Append(l, storetest.Status(a2a.StateWorking))
	history("hello", "one", "wait", "two", "three")
	f.Append(l, storetest.Status(a2a.StateInputRequired, "what?")) // more was said: the turn goes on
	history("hello", "one", "wait", "two", "three", "[what?]")
	l = f.ClaimTask(task)
	history("hello", "one", "wait", "two", "three", "what?")
	f.Append(l, storetest.Status(a2a.StateInputRequired, "who?"))
	f.Say(task, "me")
	history("hello", "one", "wait", "two", "three", "what?", "who?", "me")
	l = f.ClaimTask(task)
	f.Append(l, storetest.Status(a2a.StateWorking, "same id"), storetest.Status(a2a.StateCompleted, "same id"))
	history("hello", "one", "wait", "two", "three", "what?", "who?", "me", "same id", "[same id]")
	f.Invariants()
}

// A renewal holds leases in the order of ids, and so must whatever takes several.
func TestAppendLocksLeasesInOrder(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	leases, batches := batch(f, 12, func(int) tasks.Batch { return tasks.Batch{Events: []a2a.Event{storetest.Status(a2a.StateCompleted)}} })
	// Rows at the front of the table have the highest ids, so that a scan is not in order by chance.
	f.Exec(`WITH d AS (DELETE FROM a2a.task_leases RETURNING *) INSERT INTO a2a.task_leases SELECT * FROM d ORDER BY task_id DESC`)
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
	free := storetest.Value[int](f, "SELECT count(*)::int FROM (SELECT FROM a2a.task_leases WHERE task_id <> $1 FOR UPDATE SKIP LOCKED) x", first)
	release()
	for _, r := range <-done {
		if r.err != nil {
			t.Error(r.err)
		}
	}
	if free != len(leases)-1 {
		t.Errorf("the append waits for the first lease and has %d others", len(leases)-1-free)
	}
	f.Invariants()
}

func TestOneTerminalEventIsAConstraint(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	f.Append(l, storetest.Status(a2a.StateCompleted))
	_, err := f.SQL.Exec(t.Context(), `INSERT INTO a2a.task_events (task_id, seq, event_uid, kind, state, source, committed_at, body)
		VALUES ($1, 4, gen_random_uuid(), 1, 102, 2, now(), '{}')`, l.TaskID)
	if err == nil {
		t.Error("a second terminal event was stored")
	}
}

func TestEventUIDTellsWhetherALogHoldsAnEvent(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	log := f.Log(l.TaskID)
	uid, ok, err := f.Tasks.EventUID(t.Context(), l.TaskID, 2)
	if err != nil || !ok || uid != log[1].UID {
		t.Errorf("EventUID(2) = %s, %v, %v, want %s", uid, ok, err, log[1].UID)
	}
	for _, seq := range []int64{-1, 0, 3, 1 << 62} {
		if _, ok, err := f.Tasks.EventUID(t.Context(), l.TaskID, seq); ok || err != nil {
			t.Errorf("EventUID(%d) = %v, %v, want none", seq, ok, err)
		}
	}
	if _, ok, err := f.Tasks.EventUID(t.Context(), db.NewTaskID(), 1); ok || err != nil {
		t.Errorf("EventUID of no task = %v, %v", ok, err)
	}
}

func TestEventsAfterReadsAPage(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	f.Append(l, storetest.Chunk("a", "1"), storetest.Chunk("a", "2"), storetest.Status(a2a.StateCompleted))
	all := f.Log(l.TaskID)
	for after := range int64(7) {
		for limit := range 4 {
			got, err := f.Tasks.EventsAfter(t.Context(), l.TaskID, after, limit)
			if err != nil {
				t.Fatal(err)
			}
			from := min(int(after), len(all))
			storetest.Same(t, fmt.Sprintf("%d after %d", limit, after), all[from:min(from+limit, len(all))], got)
		}
	}
	if got, err := f.Tasks.EventsAfter(t.Context(), db.NewTaskID(), 0, 10); err != nil || len(got) != 0 {
		t.Errorf("events of no task = %v, %v", got, err)
	}
}

func TestAheadTellsWhichLogsHaveMore(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	a, b, none := f.RunningTask().TaskID, f.RunningTask().TaskID, db.NewTaskID()
	got, gone, err := f.Tasks.Ahead(t.Context(), []a2a.ID{a, b, none}, []int64{1, 2, 0})
	if err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "ahead", []a2a.ID{a}, got)
	storetest.Same(t, "gone", []a2a.ID{none}, gone)
}
