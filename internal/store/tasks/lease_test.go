package tasks_test

import (
	"errors"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/wake"
)

func TestNextAttemptKeepsTheDeadline(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	f.Exec("UPDATE a2a.tasks SET deadline_at = deadline_at - interval '30 minutes' WHERE id = $1", l.TaskID)
	if err := f.Tasks.Retry(t.Context(), l, "x", 0); err != nil {
		t.Fatal(err)
	}
	second := f.ClaimTask(l.TaskID)
	if second.Left > 31*time.Minute || second.Left < 29*time.Minute {
		t.Errorf("the second attempt has %v left, want half an hour", second.Left)
	}
	f.Exec("UPDATE a2a.tasks SET deadline_at = deadline_at - interval '2 hours' WHERE id = $1", l.TaskID)
	f.Expire(l.TaskID)
	f.Rescue(1)
	third := f.ClaimTask(l.TaskID)
	if third.Left <= 0 || third.Left > time.Millisecond {
		t.Errorf("an attempt after the deadline has %v left, want at most a millisecond", third.Left)
	}
	f.Append(third, storetest.Status(a2a.StateInputRequired, "?"))
	f.Say(l.TaskID, "go on")
	if next := f.ClaimTask(l.TaskID); next.Left < 59*time.Minute || next.Attempt != 1 {
		t.Errorf("the next turn has %v left and is attempt %d, want an hour and 1", next.Left, next.Attempt)
	}
	f.Invariants()
}

func TestNextAttemptGetsTheCheckpoint(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	save := func(l *tasks.Lease, body string, events ...a2a.Event) {
		t.Helper()
		batch := tasks.Batch{Events: events, Checkpoint: a2a.Raw(body)}
		if _, err := f.Tasks.Append(t.Context(), l, batch); err != nil {
			t.Fatal(err)
		}
	}
	save(l, `{"n": 1.0}`)
	if got := storetest.Value[int64](f, "SELECT last_seq FROM a2a.tasks"); got != 2 {
		t.Errorf("a checkpoint alone moved last_seq to %d", got)
	}
	save(l, `{"n": 2.0, "\u0000": 1e999}`, storetest.Chunk("a", "x"))
	f.Append(l, storetest.Chunk("a", "y"))
	if err := f.Tasks.Retry(t.Context(), l, "x", 0); err != nil {
		t.Fatal(err)
	}
	next := f.ClaimTask(l.TaskID)
	if got, want := string(next.Checkpoint), `{"n": 2.0, "\u0000": 1e999}`; got != want {
		t.Errorf("checkpoint = %s, want %s", got, want)
	}
	zombie := tasks.Batch{Checkpoint: a2a.Raw(`"zombie"`)}
	if _, err := f.Tasks.Append(t.Context(), l, zombie); !errors.Is(err, db.ErrLeaseLost) {
		t.Errorf("a zombie's checkpoint: error = %v, want ErrLeaseLost", err)
	}
	save(next, `3`, storetest.Status(a2a.StateInputRequired))
	f.Say(l.TaskID, "go on")
	next = f.ClaimTask(l.TaskID)
	if got := string(next.Checkpoint); got != "3" {
		t.Errorf("checkpoint of the next turn = %s, want 3", got)
	}
	save(next, `4`, storetest.Status(a2a.StateCompleted))
	f.Invariants() // an ended task has no checkpoint
}

// The event that begins an attempt has its reason.
func TestNextAttemptHasAReason(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	task := l.TaskID
	f.TakeCommitted(task)
	if err := f.Tasks.Retry(t.Context(), l, `it said "no"`, 0); err != nil {
		t.Fatal(err)
	}
	f.ClaimTask(task)
	committed := f.TakeCommitted(task)
	f.Expire(task)
	f.Rescue(1)
	l = f.ClaimTask(task)
	if err := f.Tasks.Release(t.Context(), []*tasks.Lease{l}, `it is "full"`); err != nil {
		t.Fatal(err)
	}
	f.ClaimTask(task)
	var got []string
	for _, e := range f.Log(task)[2:] {
		got = append(got, string(e.Event.(*a2a.StatusUpdate).Metadata))
	}
	storetest.Same(t, "metadata", []string{
		`{"a2ad/attempt" : 2, "a2ad/reason" : "it said \"no\""}`,
		`{"a2ad/attempt" : 3, "a2ad/reason" : "the worker was lost"}`,
		`{"a2ad/attempt" : 3, "a2ad/reason" : "it is \"full\""}`,
	}, got)
	storetest.Same(t, "committed events", [][]a2a.Entry{f.Log(task)[2:3]}, committed)
	f.Invariants()
}

func TestRenewReportsLostLeases(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	held, expired, canceled, reclaimed := f.RunningTask(), f.RunningTask(), f.RunningTask(), f.RunningTask()
	f.Expire(expired.TaskID)
	if _, err := f.Tasks.Cancel(t.Context(), storetest.Ann, "", canceled.TaskID); err != nil {
		t.Fatal(err)
	}
	zombie := *reclaimed
	if err := f.Tasks.Retry(t.Context(), reclaimed, "x", 0); err != nil {
		t.Fatal(err)
	}
	reclaimed = f.ClaimTask(reclaimed.TaskID)
	got, err := f.Tasks.Renew(t.Context(), []*tasks.Lease{canceled, reclaimed, expired, held, &zombie}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "held", []tasks.Renewal{tasks.Lost, tasks.Renewed, tasks.Lost, tasks.Renewed, tasks.Lost}, got)
	for _, tt := range []struct {
		name    string
		l       *tasks.Lease
		renewed bool
	}{{"held", held, true}, {"reclaimed", reclaimed, true}, {"expired", expired, false}} {
		until := storetest.Value[bool](f,
			"SELECT lease_until > clock_timestamp() + interval '30 minutes' FROM a2a.task_leases WHERE task_id = $1",
			tt.l.TaskID)
		if until != tt.renewed {
			t.Errorf("%s: renewed = %v, want %v", tt.name, until, tt.renewed)
		}
	}
	if out, err := f.Tasks.Renew(t.Context(), nil, time.Hour); err != nil || len(out) != 0 {
		t.Errorf("Renew of no leases = %v, %v, want nothing", out, err)
	}
}

// The zombie and its successor are runs of one process. Only the lease of the successor is renewed.
func TestRenewDistinguishesAZombieFromItsSuccessor(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	zombie := *l
	f.Expire(l.TaskID)
	f.Rescue(1)
	l = f.ClaimTask(l.TaskID)
	until := func() time.Time {
		return storetest.Value[time.Time](f, "SELECT lease_until FROM a2a.task_leases WHERE task_id = $1", l.TaskID)
	}
	before := until()
	got, err := f.Tasks.Renew(t.Context(), []*tasks.Lease{&zombie}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "held by the zombie", []tasks.Renewal{tasks.Lost}, got)
	if after := until(); !after.Equal(before) {
		t.Errorf("the zombie changed its successor's lease from %s to %s", before, after)
	}
	got, err = f.Tasks.Renew(t.Context(), []*tasks.Lease{&zombie, l}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "held", []tasks.Renewal{tasks.Lost, tasks.Renewed}, got)
}

func TestRetryRequeuesTheTask(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	for _, tt := range []struct {
		name  string
		delay time.Duration
		now   bool
	}{{"at once", 0, true}, {"in an hour", time.Hour, false}} {
		l := f.RunningTask()
		f.TakeWakes()
		if err := f.Tasks.Retry(t.Context(), l, "reason", tt.delay); err != nil {
			t.Fatal(err)
		}
		if got := f.TakeWakes(); (len(got) == 1) != tt.now {
			t.Errorf("%s: woke %v", tt.name, got)
		}
		storetest.Same(t, tt.name+": attempts", []attempt{{1, 1, "r1", "retry", "reason"}}, attempts(f, l.TaskID))
		if err := f.Tasks.Retry(t.Context(), l, "again", 0); !errors.Is(err, db.ErrLeaseLost) {
			t.Errorf("%s: the second Retry = %v, want ErrLeaseLost", tt.name, err)
		}
		if got := len(f.Claim(1)) == 1; got != tt.now {
			t.Errorf("%s: claimed = %v, want %v", tt.name, got, tt.now)
		}
		f.Invariants()
	}
}

func TestReleaseDoesNotCountTheAttempt(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	first, second, lost := f.RunningTask(), f.RunningTask(), f.RunningTask()
	if _, err := f.Tasks.Cancel(t.Context(), storetest.Ann, storetest.Agent, lost.TaskID); err != nil {
		t.Fatal(err)
	}
	f.TakeWakes()
	if err := f.Tasks.Release(t.Context(), []*tasks.Lease{second, lost, first}, "given back"); err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "wakes", []string{wake.Ready(storetest.Agent)}, f.TakeWakes())
	f.Invariants()
	for _, l := range f.Claim(10) {
		if l.Attempt != 1 || l.Epoch != 3 {
			t.Errorf("attempt %d, epoch %d, want 1 and 3", l.Attempt, l.Epoch)
		}
		storetest.Same(t, "attempts", []attempt{{1, 1, "r1", "released", "given back"}, {3, 1, "r1", "", ""}},
			attempts(f, l.TaskID))
	}
	// Again: leases that are lost stay as they are.
	if err := f.Tasks.Release(t.Context(), []*tasks.Lease{first, second, lost}, "given back"); err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "wakes", nil, f.TakeWakes())
	f.Invariants()
}

// A renewal does not wait for a row that another transaction has locked, and does not report it as lost.
func TestRenewSkipsLockedRows(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	a, b := f.RunningTask(), f.RunningTask()
	f.Lock("SELECT FROM a2a.task_leases WHERE task_id = $1 FOR UPDATE", a.TaskID)
	got, err := f.Tasks.Renew(t.Context(), []*tasks.Lease{a, b}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "renewals", []tasks.Renewal{tasks.Locked, tasks.Renewed}, got)
}
