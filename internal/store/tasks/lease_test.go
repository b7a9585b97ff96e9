package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/wake"
)

func ids(leases []tasks.Lease) []a2a.ID {
	out := make([]a2a.ID, len(leases))
	for i, l := range leases {
		out[i] = l.TaskID
	}
	return out
}

func TestClaimHandsOverATask(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	task := f.NewTask()
	other := storetest.Submission("for another agent")
	other.Agent = "other"
	f.Submit(other)
	f.TakeCommitted(task)
	leases := f.Claim(10)
	if len(leases) != 1 {
		t.Fatalf("%d leases, want 1", len(leases))
	}
	l := leases[0]
	if l.Left <= 59*time.Minute || l.Left > time.Hour {
		t.Errorf("Left = %v, want an hour", l.Left)
	}
	l.Left = 0
	want := tasks.Lease{
		TaskID: task, Agent: storetest.Agent, Tenant: "acme", Owner: "ann", Epoch: 1, Attempt: 1, Through: 1, LastSeq: 2,
		Bytes: storetest.Value[int64](f, "SELECT bytes FROM a2a.tasks WHERE id = $1", task),
	}
	storetest.Same(t, "lease", want, l)
	log := f.Log(task)
	storetest.Same(t, "events told of", [][]a2a.Entry{log[1:]}, f.TakeCommitted(task))
	storetest.Same(t, "states", []a2a.State{a2a.StateSubmitted, a2a.StateWorking}, states(f, task))
	storetest.Same(t, "attempts", []attempt{{Epoch: 1, Attempt: 1, Worker: "r1"}}, attempts(f, task))
	in, err := f.Tasks.Inputs(t.Context(), leases)
	if err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "input", []tasks.Input{{Task: *f.Snapshot(task), Messages: []a2a.Message{storetest.Message("m-hello", "hello")}}}, in)
	f.Invariants()
}

func TestClaimTakesTheOldestFirst(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	var taskList []a2a.ID
	for range 5 {
		taskList = append(taskList, f.NewTask())
	}
	// What was submitted first is not what waits longest: the third one does.
	f.Exec("UPDATE a2a.tasks SET ready_at = ready_at - interval '1 hour' WHERE id = $1", taskList[2])
	f.Exec("UPDATE a2a.task_ready SET run_at = run_at - interval '1 hour' WHERE task_id = $1", taskList[2])
	c := f.Tasks.NewClaimer()
	var got []a2a.ID
	for range 3 {
		leases, err := c.Claim(t.Context(), storetest.Agent, 2, storetest.TTL, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, ids(leases)...)
	}
	storetest.Same(t, "order", []a2a.ID{taskList[2], taskList[0], taskList[1], taskList[3], taskList[4]}, got)
	f.Invariants()
}

func TestClaimersShareTheQueue(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	first, second := f.NewTask(), f.NewTask()
	// Another claimer holds the first row and has not committed.
	release := f.Lock("SELECT FROM a2a.task_ready WHERE task_id = $1 FOR UPDATE", first)
	storetest.Same(t, "while it is held", []a2a.ID{second}, ids(f.Claim(10)))
	release()
	storetest.Same(t, "when it is free again", []a2a.ID{first}, ids(f.Claim(10)))
	f.Invariants()
}

func TestClaimersNeverTakeATaskTwice(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	const n = 300
	for i := range n / 100 {
		t.Log(i)
		f.SubmitMany(100)
	}
	claimers := []*tasks.Claimer{f.Tasks.NewClaimer(), f.Replica("r2").Tasks.NewClaimer(), f.Replica("r3").Tasks.NewClaimer()}
	got := make(chan []a2a.ID, len(claimers))
	for _, c := range claimers {
		go func() {
			var mine []a2a.ID
			for {
				leases, err := c.Claim(t.Context(), storetest.Agent, 7, storetest.TTL, time.Hour)
				if err != nil {
					t.Error(err)
				}
				if mine = append(mine, ids(leases)...); len(leases) == 0 {
					got <- mine
					return
				}
			}
		}()
	}
	seen := map[a2a.ID]bool{}
	total := 0
	for range claimers {
		for _, id := range <-got {
			seen[id] = true
			total++
		}
	}
	// Rows that another claimer held are skipped: a last look finds what is left of them.
	for _, id := range ids(f.Claim(n)) {
		seen[id] = true
		total++
	}
	if total != n || len(seen) != n {
		t.Errorf("%d claims of %d tasks, want %d", total, len(seen), n)
	}
	f.Invariants()
}

// A submit that commits late has a run_at behind what was claimed since. The floor must not hide it for long.
func TestClaimFindsLateCommitters(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		late   string
		rescan bool // found only by the scan from the start
	}{
		{"within the margin", "200 milliseconds", false},
		{"behind the floor", "1 hour", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := storetest.Open(t)
			c := f.Tasks.NewClaimer()
			take := func() []a2a.ID {
				leases, err := c.Claim(t.Context(), storetest.Agent, 10, storetest.TTL, time.Hour)
				if err != nil {
					t.Fatal(err)
				}
				return ids(leases)
			}
			f.NewTask()
			take()          // sets the floor
			tasks.Looked(c) // as if it had scanned from the start just now
			late := f.NewTask()
			f.Exec("UPDATE a2a.tasks SET ready_at = ready_at - $2::interval WHERE id = $1", late, tt.late)
			f.Exec("UPDATE a2a.task_ready SET run_at = run_at - $2::interval WHERE task_id = $1", late, tt.late)
			if got, want := len(take()), 1; !tt.rescan && got != want {
				t.Errorf("%d tasks claimed, want %d", got, want)
			} else if tt.rescan && got != 0 {
				t.Errorf("%d tasks claimed behind the floor: the floor does nothing", got)
			}
			tasks.LookDue(c)
			if got := take(); tt.rescan && !slices.Equal(got, []a2a.ID{late}) {
				t.Errorf("the scan from the start claimed %v, want %s", got, late)
			}
			f.Invariants()
		})
	}
}

// A claim must not walk over what waits for a later time: there may be a million retries.
func TestClaimDoesNotReadWhatIsNotDue(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	f.Exec(`INSERT INTO a2a.task_ready (queue, priority, run_at, task_id, tenant)
		SELECT $1, 0, clock_timestamp() + interval '1 hour', gen_random_uuid(), 'acme' FROM generate_series(1, 200)`, storetest.Agent)
	due := f.NewTask()
	s := f.Replica("r2", func(c *store.Config) { c.PoolSize = 1 })
	leases, err := s.Tasks.NewClaimer().Claim(t.Context(), storetest.Agent, 10, storetest.TTL, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "claimed", []a2a.ID{due}, ids(leases))
	if n := f.IndexEntriesRead(s, "task_ready"); n > 20 {
		t.Errorf("the claim of one task read %d index entries", n)
	}
}

// A look must not put the floor where a retry waits for its time: what comes until then would be behind it.
func TestLookDoesNotGoByWhatIsNotDue(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	if err := f.Tasks.Retry(t.Context(), l, "x", time.Hour); err != nil {
		t.Fatal(err)
	}
	c := f.Tasks.NewClaimer()
	if leases, err := c.Claim(t.Context(), storetest.Agent, 10, storetest.TTL, time.Hour); err != nil || len(leases) != 0 {
		t.Fatalf("claimed %d, %v, want nothing that is due", len(leases), err)
	}
	tasks.Looked(c)
	task := f.NewTask()
	leases, err := c.Claim(t.Context(), storetest.Agent, 10, storetest.TTL, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "claimed", []a2a.ID{task}, ids(leases))
	f.Invariants()
}

// A commit that took more than a second is seen in an empty queue at once. A clock that is put back, by a failover say, hides
// what is new only until the next look: it puts the floor back.
func TestLookPutsTheFloorBack(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	c := f.Tasks.NewClaimer()
	claim := func(want ...a2a.ID) {
		t.Helper()
		leases, err := c.Claim(t.Context(), storetest.Agent, 10, storetest.TTL, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		storetest.Same(t, "claimed", append([]a2a.ID{}, want...), ids(leases))
		tasks.Looked(c)
	}
	past := func(ago string) a2a.ID {
		id := f.NewTask()
		f.Exec("UPDATE a2a.tasks SET ready_at = ready_at - $2::interval WHERE id = $1", id, ago)
		f.Exec("UPDATE a2a.task_ready SET run_at = run_at - $2::interval WHERE task_id = $1", id, ago)
		return id
	}
	claim()
	claim(past("1500 milliseconds"))
	claim(f.NewTask())
	hidden := past("2 hours")
	claim()
	tasks.LookDue(c)
	claim(hidden)
	claim(past("1 hour"))
	f.Invariants()
}

func TestClaimDropsATaskThatHasEnded(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	task := f.NewTask()
	// A claimer holds the row of the queue while the task is canceled: the cancel leaves it there.
	release := f.Lock("SELECT FROM a2a.task_ready WHERE task_id = $1 FOR UPDATE", task)
	if _, err := f.Tasks.Cancel(t.Context(), storetest.Ann, storetest.Agent, task); err != nil {
		t.Fatal(err)
	}
	release()
	if n := storetest.Value[int](f, "SELECT count(*)::int FROM a2a.task_ready"); n != 1 {
		t.Fatalf("%d rows in the queue, want the one that was held", n)
	}
	if leases := f.Claim(10); len(leases) != 0 {
		t.Errorf("claimed %+v", leases)
	}
	storetest.Same(t, "states", []a2a.State{a2a.StateSubmitted, a2a.StateCanceled}, states(f, task))
	f.Invariants()
}

// The claim has the row of the queue and waits for the task that a cancel has locked.
func TestClaimThatWaitsForACancelDropsTheTask(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	task := f.NewTask()
	tx, err := f.SQL.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context()) //nolint:errcheck // committed below
	if _, err := tx.Exec(t.Context(), "SELECT FROM a2a.tasks WHERE id = $1 FOR UPDATE", task); err != nil {
		t.Fatal(err)
	}
	claimed := make(chan []tasks.Lease, 1)
	go func() { claimed <- f.Claim(10) }()
	f.WaitBlocked(1)
	canceled := make(chan error, 1)
	go func() { _, err := f.Tasks.Cancel(t.Context(), storetest.Ann, storetest.Agent, task); canceled <- err }()
	f.WaitBlocked(2)
	// Whoever is first in line for the row gets it; both orders are legal, and each ends well.
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-canceled; err != nil {
		t.Fatal(err)
	}
	<-claimed
	if got := states(f, task); got[len(got)-1] != a2a.StateCanceled {
		t.Errorf("states %v, want canceled at the end", got)
	}
	f.Invariants()
}

func TestDeadlineIsCarriedOverAttempts(t *testing.T) {
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
		t.Errorf("an attempt behind the deadline has %v left, want next to nothing", third.Left)
	}
	f.Append(third, storetest.Status(a2a.StateInputRequired, "?"))
	f.Say(l.TaskID, "go on")
	if next := f.ClaimTask(l.TaskID); next.Left < 59*time.Minute || next.Attempt != 1 {
		t.Errorf("the next turn has %v left and is attempt %d, want an hour and 1", next.Left, next.Attempt)
	}
	f.Invariants()
}

func TestCheckpointIsHandedOver(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	save := func(l *tasks.Lease, body string, events ...a2a.Event) {
		t.Helper()
		if _, err := f.Tasks.Append(t.Context(), l, tasks.Batch{Events: events, Checkpoint: a2a.Raw(body)}); err != nil {
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
	if _, err := f.Tasks.Append(t.Context(), l, tasks.Batch{Checkpoint: a2a.Raw(`"zombie"`)}); !errors.Is(err, db.ErrLeaseLost) {
		t.Errorf("a zombie's checkpoint: error = %v, want ErrLeaseLost", err)
	}
	save(next, `3`, storetest.Status(a2a.StateInputRequired))
	f.Say(l.TaskID, "go on")
	next = f.ClaimTask(l.TaskID)
	if got := string(next.Checkpoint); got != "3" {
		t.Errorf("checkpoint of the next turn = %s, want 3", got)
	}
	save(next, `4`, storetest.Status(a2a.StateCompleted))
	f.Invariants() // an ended task has none
}

// Attempts have their reasons in the events that begin them.
func TestNewAttemptSaysWhy(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	task := l.TaskID
	f.TakeCommitted(task)
	if err := f.Tasks.Retry(t.Context(), l, `it said "no"`, 0); err != nil {
		t.Fatal(err)
	}
	f.ClaimTask(task)
	told := f.TakeCommitted(task)
	f.Expire(task)
	f.Rescue(1)
	l = f.ClaimTask(task)
	if err := f.Tasks.Release(t.Context(), []*tasks.Lease{l}); err != nil {
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
		`{"a2ad/attempt" : 3, "a2ad/reason" : "the worker was shut down"}`,
	}, got)
	storetest.Same(t, "the event that was told of", [][]a2a.Entry{f.Log(task)[2:3]}, told)
	f.Invariants()
}

func TestRenewKeepsOnlyWhatIsHeld(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	held, expired, canceled, taken := f.RunningTask(), f.RunningTask(), f.RunningTask(), f.RunningTask()
	f.Expire(expired.TaskID)
	if _, err := f.Tasks.Cancel(t.Context(), storetest.Ann, "", canceled.TaskID); err != nil {
		t.Fatal(err)
	}
	zombie := *taken
	if err := f.Tasks.Retry(t.Context(), taken, "x", 0); err != nil {
		t.Fatal(err)
	}
	taken = f.ClaimTask(taken.TaskID)
	got, err := f.Tasks.Renew(t.Context(), []*tasks.Lease{canceled, taken, expired, held, &zombie}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "held", []tasks.Renewal{tasks.Lost, tasks.Renewed, tasks.Lost, tasks.Renewed, tasks.Lost}, got)
	for _, tt := range []struct {
		name    string
		l       *tasks.Lease
		renewed bool
	}{{"held", held, true}, {"taken", taken, true}, {"expired", expired, false}} {
		until := storetest.Value[bool](f, "SELECT lease_until > clock_timestamp() + interval '30 minutes' FROM a2a.task_leases WHERE task_id = $1", tt.l.TaskID)
		if until != tt.renewed {
			t.Errorf("%s: renewed = %v, want %v", tt.name, until, tt.renewed)
		}
	}
	if out, err := f.Tasks.Renew(t.Context(), nil, time.Hour); err != nil || len(out) != 0 {
		t.Errorf("Renew of nothing = %v, %v", out, err)
	}
}

// The zombie and its successor are runs of one process: only the successor's lease is renewed.
func TestRenewTellsAZombieFromItsSuccessor(t *testing.T) {
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
		t.Errorf("the zombie moved its successor's lease from %s to %s", before, after)
	}
	got, err = f.Tasks.Renew(t.Context(), []*tasks.Lease{&zombie, l}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "held", []tasks.Renewal{tasks.Lost, tasks.Renewed}, got)
}

func TestRetryGivesATaskBack(t *testing.T) {
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
	if err := f.Tasks.Release(t.Context(), []*tasks.Lease{second, lost, first}); err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "wakes", []string{wake.Ready(storetest.Agent)}, f.TakeWakes())
	f.Invariants()
	for _, l := range f.Claim(10) {
		if l.Attempt != 1 || l.Epoch != 3 {
			t.Errorf("attempt %d, epoch %d, want 1 and 3", l.Attempt, l.Epoch)
		}
		storetest.Same(t, "attempts", []attempt{{1, 1, "r1", "released", ""}, {3, 1, "r1", "", ""}}, attempts(f, l.TaskID))
	}
	// Once more: what is not held is left alone.
	if err := f.Tasks.Release(t.Context(), []*tasks.Lease{first, second, lost}); err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "wakes", nil, f.TakeWakes())
	f.Invariants()
}

func TestRescueFollowsTheAgentsPolicy(t *testing.T) {
	t.Parallel()
	policy := func(fate string, attempts int) []tasks.Policy {
		return []tasks.Policy{{Agent: "other", Fate: "fail", MaxAttempts: 9}, {Agent: storetest.Agent, Fate: fate, MaxAttempts: attempts}}
	}
	tests := []struct {
		name     string
		policies []tasks.Policy
		attempt  int
		state    a2a.State
		text     string
	}{
		{"retry", policy("retry", 3), 1, a2a.StateWorking, ""},
		{"retry, last attempt", policy("retry", 3), 3, a2a.StateFailed, "The worker was lost"},
		{"fail", policy("fail", 3), 1, a2a.StateFailed, "The worker was lost"},
		{"input-required", policy("input-required", 3), 1, a2a.StateInputRequired, "Send a message"},
		{"input-required, last attempt", policy("input-required", 1), 1, a2a.StateInputRequired, "Send a message"},
		{"unknown agent", policy("fail", 3)[:1], 1, a2a.StateWorking, ""},
		{"unknown agent, last attempt", nil, 5, a2a.StateFailed, "The worker was lost"},
	}
	f := storetest.Open(t)
	for _, tt := range tests {
		l := f.RunningTask()
		task := l.TaskID
		f.Append(l, storetest.Chunk("a", "one"), storetest.Status(a2a.StateWorking, "busy"))
		f.Exec("UPDATE a2a.tasks SET attempt = $2 WHERE id = $1", task, tt.attempt)
		f.Exec("UPDATE a2a.task_attempts SET attempt = $2 WHERE task_id = $1", task, tt.attempt)
		f.TakeWakes()
		f.TakeCommitted(task)
		f.Rescue(0, tt.policies...) // its lease is in force
		f.Expire(task)
		f.Rescue(1, tt.policies...)
		f.Rescue(0, tt.policies...)
		got := f.Snapshot(task)
		if got.Status.State != tt.state {
			t.Errorf("%s: the task is %s, want %s", tt.name, got.Status.State, tt.state)
		}
		if _, err := f.Tasks.Append(t.Context(), l, tasks.Batch{Events: []a2a.Event{storetest.Status(a2a.StateCompleted)}}); !errors.Is(err, db.ErrLeaseLost) {
			t.Errorf("%s: the lost worker's append = %v, want ErrLeaseLost", tt.name, err)
		}
		storetest.Same(t, tt.name+": attempts", []attempt{{1, tt.attempt, "r1", "expired", ""}}, attempts(f, task))
		storetest.Same(t, tt.name+": artifacts", []a2a.Artifact{storetest.Chunk("a", "one").Artifact}, got.Artifacts)
		if tt.text == "" {
			storetest.Same(t, tt.name+": wakes", []string{wake.Ready(storetest.Agent)}, f.TakeWakes())
			if next := f.ClaimTask(task); next.Attempt != tt.attempt+1 {
				t.Errorf("%s: the next attempt is %d, want %d", tt.name, next.Attempt, tt.attempt+1)
			}
			f.Invariants()
			continue
		}
		if m := got.Status.Message; m == nil || m.Role != a2a.RoleAgent || m.ID == "" || !strings.Contains(m.Parts[0].Text, tt.text) {
			t.Errorf("%s: status message %+v, want it to say %q", tt.name, m, tt.text)
		}
		log := f.Log(task)
		storetest.Same(t, tt.name+": last event", *got.Status.Message, *log[len(log)-1].Event.(*a2a.StatusUpdate).Status.Message)
		if n := len(f.TakeCommitted(task)); n != 1 {
			t.Errorf("%s: told of %d commits, want 1", tt.name, n)
		}
		f.Invariants()
	}
}

func TestAnswerAfterALostWorkerStartsANewTurn(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	f.Expire(l.TaskID)
	f.Rescue(1, tasks.Policy{Agent: storetest.Agent, Fate: "input-required", MaxAttempts: 2})
	f.Say(l.TaskID, "go on")
	next := f.ClaimTask(l.TaskID)
	if next.Attempt != 1 || next.Read != 0 || next.Through != 3 {
		t.Errorf("lease = %+v, want attempt 1 and both messages unread", next)
	}
	in, err := f.Tasks.Inputs(t.Context(), []tasks.Lease{*next})
	if err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "messages", []a2a.Message{storetest.Message("m-hello", "hello"), storetest.Message("m-go on", "go on")}, in[0].Messages)
	f.Invariants()
}

func TestRescueWaitsForNobody(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	leaseHeld, taskHeld, free := f.RunningTask(), f.RunningTask(), f.RunningTask()
	for _, l := range []*tasks.Lease{leaseHeld, taskHeld, free} {
		f.Expire(l.TaskID)
	}
	releaseLease := f.Lock("SELECT FROM a2a.task_leases WHERE task_id = $1 FOR UPDATE", leaseHeld.TaskID)
	releaseTask := f.Lock("SELECT FROM a2a.tasks WHERE id = $1 FOR UPDATE", taskHeld.TaskID)
	f.Rescue(1)
	releaseLease()
	releaseTask()
	f.Rescue(2)
	f.Invariants()
}

func TestRescueIsDoneByOneProcessAtATime(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	f.Expire(l.TaskID)
	release := f.Lock("SELECT pg_advisory_xact_lock($1::int, 1)", 0x61326164)
	f.Rescue(0)
	release()
	f.Rescue(1)
}

func TestRescueTakesABatch(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	f.SubmitMany(7)
	for _, l := range f.Claim(7) {
		f.Expire(l.TaskID)
	}
	for _, want := range []int{3, 3, 1, 0} {
		if got, err := f.Tasks.Rescue(t.Context(), nil, 5, 3); err != nil || got != want {
			t.Errorf("Rescue = %d, %v, want %d", got, err, want)
		}
	}
	f.Invariants()
}

func TestStatesForAWorkerThatLostTasks(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	task := f.NewTask()
	got, err := f.Tasks.States(t.Context(), []a2a.ID{task, db.NewTaskID()})
	if err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "states", map[a2a.ID]a2a.State{task: a2a.StateSubmitted}, got)
}

// A row that another transaction has locked is not waited for, and is not taken to be lost.
func TestRenewDoesNotWaitForLockedRows(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	a, b := f.RunningTask(), f.RunningTask()
	tx, err := f.SQL.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // it only locks
	if _, err := tx.Exec(t.Context(), "SELECT FROM a2a.task_leases WHERE task_id = $1 FOR UPDATE", a.TaskID); err != nil {
		t.Fatal(err)
	}
	got, err := f.Tasks.Renew(t.Context(), []*tasks.Lease{a, b}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "renewals", []tasks.Renewal{tasks.Locked, tasks.Renewed}, got)
}

// A message that comes between the claim and the read of the input is for the next turn.
func TestInputEndsWhereTheClaimWas(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	f.Append(l, storetest.Status(a2a.StateInputRequired, "what?"))
	f.Say(l.TaskID, "first")
	next := f.ClaimTask(l.TaskID)
	f.Say(l.TaskID, "second")
	in, err := f.Tasks.Inputs(t.Context(), []tasks.Lease{*next})
	if err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "messages", []a2a.Message{storetest.Message("m-first", "first")}, in[0].Messages)
	var said []string
	for _, m := range in[0].Task.History {
		said = append(said, m.Parts[0].Text)
	}
	storetest.Same(t, "history", []string{"hello", "what?", "first"}, said)
}

func TestInputsOfSeveralTasksKeepTheirOrder(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	for i := range 5 {
		f.Submit(storetest.Submission(fmt.Sprint(i)))
	}
	leases := f.Claim(5)
	slices.Reverse(leases)
	in, err := f.Tasks.Inputs(t.Context(), leases)
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range in {
		if x.Task.ID != leases[i].TaskID || x.Messages[0].Parts[0].Text != fmt.Sprint(4-i) {
			t.Errorf("input %d is of task %s: %q", i, x.Task.ID, x.Messages[0].Parts[0].Text)
		}
	}
	gone := leases[0]
	gone.TaskID = db.NewTaskID()
	_, err = f.Tasks.Inputs(t.Context(), []tasks.Lease{gone})
	storetest.WantCode(t, err, a2a.CodeTaskNotFound)
}
