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
	f := newFixture(t)
	task := f.task()
	other := submission("for another agent")
	other.Agent = "other"
	f.submit(other)
	f.takeCommitted(task)
	leases := f.claim(10)
	if len(leases) != 1 {
		t.Fatalf("%d leases, want 1", len(leases))
	}
	l := leases[0]
	if l.Left <= 59*time.Minute || l.Left > time.Hour {
		t.Errorf("Left = %v, want an hour", l.Left)
	}
	l.Left = 0
	want := tasks.Lease{
		TaskID: task, Agent: agent, Tenant: "acme", Owner: "ann", Epoch: 1, Attempt: 1, Through: 1, LastSeq: 2,
		Bytes: value[int64](f, "SELECT bytes FROM a2a.tasks WHERE id = $1", task),
	}
	same(t, "lease", want, l)
	log := f.log(task)
	same(t, "events told of", [][]a2a.Entry{log[1:]}, f.takeCommitted(task))
	same(t, "states", []a2a.State{a2a.StateSubmitted, a2a.StateWorking}, f.states(task))
	same(t, "attempts", []attempt{{Epoch: 1, Attempt: 1, Worker: "r1"}}, f.attempts(task))
	in, err := f.Tasks.Inputs(f.ctx, leases)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "input", []tasks.Input{{Task: *f.snapshot(task), Messages: []a2a.Message{message("m-hello", "hello")}}}, in)
	f.invariants()
}

func TestClaimTakesTheOldestFirst(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var taskList []a2a.ID
	for range 5 {
		taskList = append(taskList, f.task())
	}
	// What was submitted first is not what waits longest: the third one does.
	f.exec("UPDATE a2a.tasks SET ready_at = ready_at - interval '1 hour' WHERE id = $1", taskList[2])
	f.exec("UPDATE a2a.task_ready SET run_at = run_at - interval '1 hour' WHERE task_id = $1", taskList[2])
	c := f.Tasks.NewClaimer()
	var got []a2a.ID
	for range 3 {
		leases, err := c.Claim(f.ctx, agent, 2, ttl, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, ids(leases)...)
	}
	same(t, "order", []a2a.ID{taskList[2], taskList[0], taskList[1], taskList[3], taskList[4]}, got)
	f.invariants()
}

func TestClaimersShareTheQueue(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	first, second := f.task(), f.task()
	// Another claimer holds the first row and has not committed.
	release := f.hold("SELECT FROM a2a.task_ready WHERE task_id = $1 FOR UPDATE", first)
	same(t, "while it is held", []a2a.ID{second}, ids(f.claim(10)))
	release()
	same(t, "when it is free again", []a2a.ID{first}, ids(f.claim(10)))
	f.invariants()
}

func TestClaimersNeverTakeATaskTwice(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const n = 300
	for i := range n / 100 {
		t.Log(i)
		f.submitMany(100)
	}
	claimers := []*tasks.Claimer{f.Tasks.NewClaimer(), f.replica("r2").Tasks.NewClaimer(), f.replica("r3").Tasks.NewClaimer()}
	got := make(chan []a2a.ID, len(claimers))
	for _, c := range claimers {
		go func() {
			var mine []a2a.ID
			for {
				leases, err := c.Claim(f.ctx, agent, 7, ttl, time.Hour)
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
	for _, id := range ids(f.claim(n)) {
		seen[id] = true
		total++
	}
	if total != n || len(seen) != n {
		t.Errorf("%d claims of %d tasks, want %d", total, len(seen), n)
	}
	f.invariants()
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
			f := newFixture(t)
			c := f.Tasks.NewClaimer()
			take := func() []a2a.ID {
				leases, err := c.Claim(f.ctx, agent, 10, ttl, time.Hour)
				if err != nil {
					t.Fatal(err)
				}
				return ids(leases)
			}
			f.task()
			take()          // sets the floor
			tasks.Looked(c) // as if it had scanned from the start just now
			late := f.task()
			f.exec("UPDATE a2a.tasks SET ready_at = ready_at - $2::interval WHERE id = $1", late, tt.late)
			f.exec("UPDATE a2a.task_ready SET run_at = run_at - $2::interval WHERE task_id = $1", late, tt.late)
			if got, want := len(take()), 1; !tt.rescan && got != want {
				t.Errorf("%d tasks claimed, want %d", got, want)
			} else if tt.rescan && got != 0 {
				t.Errorf("%d tasks claimed behind the floor: the floor does nothing", got)
			}
			tasks.LookDue(c)
			if got := take(); tt.rescan && !slices.Equal(got, []a2a.ID{late}) {
				t.Errorf("the scan from the start claimed %v, want %s", got, late)
			}
			f.invariants()
		})
	}
}

// A claim must not walk over what waits for a later time: there may be a million retries.
func TestClaimDoesNotReadWhatIsNotDue(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.exec(`INSERT INTO a2a.task_ready (queue, priority, run_at, task_id, tenant)
		SELECT $1, 0, clock_timestamp() + interval '1 hour', gen_random_uuid(), 'acme' FROM generate_series(1, 200)`, agent)
	due := f.task()
	s := f.replica("r2", func(c *store.Config) { c.PoolSize = 1 })
	leases, err := s.Tasks.NewClaimer().Claim(f.ctx, agent, 10, ttl, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "claimed", []a2a.ID{due}, ids(leases))
	if n := f.entriesRead(s, "task_ready"); n > 20 {
		t.Errorf("the claim of one task read %d index entries", n)
	}
}

// A look must not put the floor where a retry waits for its time: what comes until then would be behind it.
func TestLookDoesNotGoByWhatIsNotDue(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := f.running()
	if err := f.Tasks.Retry(f.ctx, l, "x", time.Hour); err != nil {
		t.Fatal(err)
	}
	c := f.Tasks.NewClaimer()
	if leases, err := c.Claim(f.ctx, agent, 10, ttl, time.Hour); err != nil || len(leases) != 0 {
		t.Fatalf("claimed %d, %v, want nothing that is due", len(leases), err)
	}
	tasks.Looked(c)
	task := f.task()
	leases, err := c.Claim(f.ctx, agent, 10, ttl, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "claimed", []a2a.ID{task}, ids(leases))
	f.invariants()
}

// A commit that took more than a second is seen in an empty queue at once. A clock that is put back, by a failover say, hides
// what is new only until the next look: it puts the floor back.
func TestLookPutsTheFloorBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := f.Tasks.NewClaimer()
	claim := func(want ...a2a.ID) {
		t.Helper()
		leases, err := c.Claim(f.ctx, agent, 10, ttl, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		same(t, "claimed", append([]a2a.ID{}, want...), ids(leases))
		tasks.Looked(c)
	}
	past := func(ago string) a2a.ID {
		id := f.task()
		f.exec("UPDATE a2a.tasks SET ready_at = ready_at - $2::interval WHERE id = $1", id, ago)
		f.exec("UPDATE a2a.task_ready SET run_at = run_at - $2::interval WHERE task_id = $1", id, ago)
		return id
	}
	claim()
	claim(past("1500 milliseconds"))
	claim(f.task())
	hidden := past("2 hours")
	claim()
	tasks.LookDue(c)
	claim(hidden)
	claim(past("1 hour"))
	f.invariants()
}

func TestClaimDropsATaskThatHasEnded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	task := f.task()
	// A claimer holds the row of the queue while the task is canceled: the cancel leaves it there.
	release := f.hold("SELECT FROM a2a.task_ready WHERE task_id = $1 FOR UPDATE", task)
	if _, err := f.Tasks.Cancel(f.ctx, ann, agent, task); err != nil {
		t.Fatal(err)
	}
	release()
	if n := value[int](f, "SELECT count(*)::int FROM a2a.task_ready"); n != 1 {
		t.Fatalf("%d rows in the queue, want the one that was held", n)
	}
	if leases := f.claim(10); len(leases) != 0 {
		t.Errorf("claimed %+v", leases)
	}
	same(t, "states", []a2a.State{a2a.StateSubmitted, a2a.StateCanceled}, f.states(task))
	f.invariants()
}

// The claim has the row of the queue and waits for the task that a cancel has locked.
func TestClaimThatWaitsForACancelDropsTheTask(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	task := f.task()
	tx, err := f.sql.Begin(f.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(f.ctx) //nolint:errcheck // committed below
	if _, err := tx.Exec(f.ctx, "SELECT FROM a2a.tasks WHERE id = $1 FOR UPDATE", task); err != nil {
		t.Fatal(err)
	}
	claimed := make(chan []tasks.Lease, 1)
	go func() { claimed <- f.claim(10) }()
	f.waitBlocked(1)
	canceled := make(chan error, 1)
	go func() { _, err := f.Tasks.Cancel(f.ctx, ann, agent, task); canceled <- err }()
	f.waitBlocked(2)
	// Whoever is first in line for the row gets it; both orders are legal, and each ends well.
	if err := tx.Commit(f.ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-canceled; err != nil {
		t.Fatal(err)
	}
	<-claimed
	if got := f.states(task); got[len(got)-1] != a2a.StateCanceled {
		t.Errorf("states %v, want canceled at the end", got)
	}
	f.invariants()
}

func TestDeadlineIsCarriedOverAttempts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := f.running()
	f.exec("UPDATE a2a.tasks SET deadline_at = deadline_at - interval '30 minutes' WHERE id = $1", l.TaskID)
	if err := f.Tasks.Retry(f.ctx, l, "x", 0); err != nil {
		t.Fatal(err)
	}
	second := f.claimTask(l.TaskID)
	if second.Left > 31*time.Minute || second.Left < 29*time.Minute {
		t.Errorf("the second attempt has %v left, want half an hour", second.Left)
	}
	f.exec("UPDATE a2a.tasks SET deadline_at = deadline_at - interval '2 hours' WHERE id = $1", l.TaskID)
	f.expire(l.TaskID)
	f.rescue(1)
	third := f.claimTask(l.TaskID)
	if third.Left <= 0 || third.Left > time.Millisecond {
		t.Errorf("an attempt behind the deadline has %v left, want next to nothing", third.Left)
	}
	f.append(third, status(a2a.StateInputRequired, "?"))
	f.say(l.TaskID, "go on")
	if next := f.claimTask(l.TaskID); next.Left < 59*time.Minute || next.Attempt != 1 {
		t.Errorf("the next turn has %v left and is attempt %d, want an hour and 1", next.Left, next.Attempt)
	}
	f.invariants()
}

func TestCheckpointIsHandedOver(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := f.running()
	save := func(l *tasks.Lease, body string, events ...a2a.Event) {
		t.Helper()
		if _, err := f.Tasks.Append(f.ctx, l, tasks.Batch{Events: events, Checkpoint: a2a.Raw(body)}); err != nil {
			t.Fatal(err)
		}
	}
	save(l, `{"n": 1.0}`)
	if got := value[int64](f, "SELECT last_seq FROM a2a.tasks"); got != 2 {
		t.Errorf("a checkpoint alone moved last_seq to %d", got)
	}
	save(l, `{"n": 2.0, "\u0000": 1e999}`, chunk("a", "x"))
	f.append(l, chunk("a", "y"))
	if err := f.Tasks.Retry(f.ctx, l, "x", 0); err != nil {
		t.Fatal(err)
	}
	next := f.claimTask(l.TaskID)
	if got, want := string(next.Checkpoint), `{"n": 2.0, "\u0000": 1e999}`; got != want {
		t.Errorf("checkpoint = %s, want %s", got, want)
	}
	if _, err := f.Tasks.Append(f.ctx, l, tasks.Batch{Checkpoint: a2a.Raw(`"zombie"`)}); !errors.Is(err, db.ErrLeaseLost) {
		t.Errorf("a zombie's checkpoint: error = %v, want ErrLeaseLost", err)
	}
	save(next, `3`, status(a2a.StateInputRequired))
	f.say(l.TaskID, "go on")
	next = f.claimTask(l.TaskID)
	if got := string(next.Checkpoint); got != "3" {
		t.Errorf("checkpoint of the next turn = %s, want 3", got)
	}
	save(next, `4`, status(a2a.StateCompleted))
	f.invariants() // an ended task has none
}

// Attempts have their reasons in the events that begin them.
func TestNewAttemptSaysWhy(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := f.running()
	task := l.TaskID
	f.takeCommitted(task)
	if err := f.Tasks.Retry(f.ctx, l, `it said "no"`, 0); err != nil {
		t.Fatal(err)
	}
	f.claimTask(task)
	told := f.takeCommitted(task)
	f.expire(task)
	f.rescue(1)
	l = f.claimTask(task)
	if err := f.Tasks.Release(f.ctx, []*tasks.Lease{l}); err != nil {
		t.Fatal(err)
	}
	f.claimTask(task)
	var got []string
	for _, e := range f.log(task)[2:] {
		got = append(got, string(e.Event.(*a2a.StatusUpdate).Metadata))
	}
	same(t, "metadata", []string{
		`{"a2ad/attempt" : 2, "a2ad/reason" : "it said \"no\""}`,
		`{"a2ad/attempt" : 3, "a2ad/reason" : "the worker was lost"}`,
		`{"a2ad/attempt" : 3, "a2ad/reason" : "the worker was shut down"}`,
	}, got)
	same(t, "the event that was told of", [][]a2a.Entry{f.log(task)[2:3]}, told)
	f.invariants()
}

func TestRenewKeepsOnlyWhatIsHeld(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	held, expired, canceled, taken := f.running(), f.running(), f.running(), f.running()
	f.expire(expired.TaskID)
	if _, err := f.Tasks.Cancel(f.ctx, ann, "", canceled.TaskID); err != nil {
		t.Fatal(err)
	}
	zombie := *taken
	if err := f.Tasks.Retry(f.ctx, taken, "x", 0); err != nil {
		t.Fatal(err)
	}
	taken = f.claimTask(taken.TaskID)
	got, err := f.Tasks.Renew(f.ctx, []*tasks.Lease{canceled, taken, expired, held, &zombie}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "held", []tasks.Renewal{tasks.Lost, tasks.Renewed, tasks.Lost, tasks.Renewed, tasks.Lost}, got)
	for _, tt := range []struct {
		name    string
		l       *tasks.Lease
		renewed bool
	}{{"held", held, true}, {"taken", taken, true}, {"expired", expired, false}} {
		until := value[bool](f, "SELECT lease_until > clock_timestamp() + interval '30 minutes' FROM a2a.task_leases WHERE task_id = $1", tt.l.TaskID)
		if until != tt.renewed {
			t.Errorf("%s: renewed = %v, want %v", tt.name, until, tt.renewed)
		}
	}
	if out, err := f.Tasks.Renew(f.ctx, nil, time.Hour); err != nil || len(out) != 0 {
		t.Errorf("Renew of nothing = %v, %v", out, err)
	}
}

// The zombie and its successor are runs of one process: only the successor's lease is renewed.
func TestRenewTellsAZombieFromItsSuccessor(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := f.running()
	zombie := *l
	f.expire(l.TaskID)
	f.rescue(1)
	l = f.claimTask(l.TaskID)
	until := func() time.Time {
		return value[time.Time](f, "SELECT lease_until FROM a2a.task_leases WHERE task_id = $1", l.TaskID)
	}
	before := until()
	got, err := f.Tasks.Renew(f.ctx, []*tasks.Lease{&zombie}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "held by the zombie", []tasks.Renewal{tasks.Lost}, got)
	if after := until(); !after.Equal(before) {
		t.Errorf("the zombie moved its successor's lease from %s to %s", before, after)
	}
	got, err = f.Tasks.Renew(f.ctx, []*tasks.Lease{&zombie, l}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "held", []tasks.Renewal{tasks.Lost, tasks.Renewed}, got)
}

func TestRetryGivesATaskBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, tt := range []struct {
		name  string
		delay time.Duration
		now   bool
	}{{"at once", 0, true}, {"in an hour", time.Hour, false}} {
		l := f.running()
		f.takeWakes()
		if err := f.Tasks.Retry(f.ctx, l, "reason", tt.delay); err != nil {
			t.Fatal(err)
		}
		if got := f.takeWakes(); (len(got) == 1) != tt.now {
			t.Errorf("%s: woke %v", tt.name, got)
		}
		same(t, tt.name+": attempts", []attempt{{1, 1, "r1", "retry", "reason"}}, f.attempts(l.TaskID))
		if err := f.Tasks.Retry(f.ctx, l, "again", 0); !errors.Is(err, db.ErrLeaseLost) {
			t.Errorf("%s: the second Retry = %v, want ErrLeaseLost", tt.name, err)
		}
		if got := len(f.claim(1)) == 1; got != tt.now {
			t.Errorf("%s: claimed = %v, want %v", tt.name, got, tt.now)
		}
		f.invariants()
	}
}

func TestReleaseDoesNotCountTheAttempt(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	first, second, lost := f.running(), f.running(), f.running()
	if _, err := f.Tasks.Cancel(f.ctx, ann, agent, lost.TaskID); err != nil {
		t.Fatal(err)
	}
	f.takeWakes()
	if err := f.Tasks.Release(f.ctx, []*tasks.Lease{second, lost, first}); err != nil {
		t.Fatal(err)
	}
	same(t, "wakes", []string{wake.Ready(agent)}, f.takeWakes())
	f.invariants()
	for _, l := range f.claim(10) {
		if l.Attempt != 1 || l.Epoch != 3 {
			t.Errorf("attempt %d, epoch %d, want 1 and 3", l.Attempt, l.Epoch)
		}
		same(t, "attempts", []attempt{{1, 1, "r1", "released", ""}, {3, 1, "r1", "", ""}}, f.attempts(l.TaskID))
	}
	// Once more: what is not held is left alone.
	if err := f.Tasks.Release(f.ctx, []*tasks.Lease{first, second, lost}); err != nil {
		t.Fatal(err)
	}
	same(t, "wakes", nil, f.takeWakes())
	f.invariants()
}

// rescue runs one rescue with the default policy and wants it to find n tasks.
func (f *fixture) rescue(n int, policies ...tasks.Policy) {
	f.t.Helper()
	got, err := f.Tasks.Rescue(f.ctx, policies, 5, 100)
	if err != nil {
		f.t.Fatalf("rescue: %v", err)
	}
	if got != n {
		f.t.Errorf("rescued %d tasks, want %d", got, n)
	}
}

func TestRescueFollowsTheAgentsPolicy(t *testing.T) {
	t.Parallel()
	policy := func(fate string, attempts int) []tasks.Policy {
		return []tasks.Policy{{Agent: "other", Fate: "fail", MaxAttempts: 9}, {Agent: agent, Fate: fate, MaxAttempts: attempts}}
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
	f := newFixture(t)
	for _, tt := range tests {
		l := f.running()
		task := l.TaskID
		f.append(l, chunk("a", "one"), status(a2a.StateWorking, "busy"))
		f.exec("UPDATE a2a.tasks SET attempt = $2 WHERE id = $1", task, tt.attempt)
		f.exec("UPDATE a2a.task_attempts SET attempt = $2 WHERE task_id = $1", task, tt.attempt)
		f.takeWakes()
		f.takeCommitted(task)
		f.rescue(0, tt.policies...) // its lease is in force
		f.expire(task)
		f.rescue(1, tt.policies...)
		f.rescue(0, tt.policies...)
		got := f.snapshot(task)
		if got.Status.State != tt.state {
			t.Errorf("%s: the task is %s, want %s", tt.name, got.Status.State, tt.state)
		}
		if _, err := f.Tasks.Append(f.ctx, l, tasks.Batch{Events: []a2a.Event{status(a2a.StateCompleted)}}); !errors.Is(err, db.ErrLeaseLost) {
			t.Errorf("%s: the lost worker's append = %v, want ErrLeaseLost", tt.name, err)
		}
		same(t, tt.name+": attempts", []attempt{{1, tt.attempt, "r1", "expired", ""}}, f.attempts(task))
		same(t, tt.name+": artifacts", []a2a.Artifact{chunk("a", "one").Artifact}, got.Artifacts)
		if tt.text == "" {
			same(t, tt.name+": wakes", []string{wake.Ready(agent)}, f.takeWakes())
			if next := f.claimTask(task); next.Attempt != tt.attempt+1 {
				t.Errorf("%s: the next attempt is %d, want %d", tt.name, next.Attempt, tt.attempt+1)
			}
			f.invariants()
			continue
		}
		if m := got.Status.Message; m == nil || m.Role != a2a.RoleAgent || m.ID == "" || !strings.Contains(m.Parts[0].Text, tt.text) {
			t.Errorf("%s: status message %+v, want it to say %q", tt.name, m, tt.text)
		}
		log := f.log(task)
		same(t, tt.name+": last event", *got.Status.Message, *log[len(log)-1].Event.(*a2a.StatusUpdate).Status.Message)
		if n := len(f.takeCommitted(task)); n != 1 {
			t.Errorf("%s: told of %d commits, want 1", tt.name, n)
		}
		f.invariants()
	}
}

func TestAnswerAfterALostWorkerStartsANewTurn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := f.running()
	f.expire(l.TaskID)
	f.rescue(1, tasks.Policy{Agent: agent, Fate: "input-required", MaxAttempts: 2})
	f.say(l.TaskID, "go on")
	next := f.claimTask(l.TaskID)
	if next.Attempt != 1 || next.Read != 0 || next.Through != 3 {
		t.Errorf("lease = %+v, want attempt 1 and both messages unread", next)
	}
	in, err := f.Tasks.Inputs(f.ctx, []tasks.Lease{*next})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "messages", []a2a.Message{message("m-hello", "hello"), message("m-go on", "go on")}, in[0].Messages)
	f.invariants()
}

func TestRescueWaitsForNobody(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	leaseHeld, taskHeld, free := f.running(), f.running(), f.running()
	for _, l := range []*tasks.Lease{leaseHeld, taskHeld, free} {
		f.expire(l.TaskID)
	}
	releaseLease := f.hold("SELECT FROM a2a.task_leases WHERE task_id = $1 FOR UPDATE", leaseHeld.TaskID)
	releaseTask := f.hold("SELECT FROM a2a.tasks WHERE id = $1 FOR UPDATE", taskHeld.TaskID)
	f.rescue(1)
	releaseLease()
	releaseTask()
	f.rescue(2)
	f.invariants()
}

func TestRescueIsDoneByOneProcessAtATime(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := f.running()
	f.expire(l.TaskID)
	release := f.hold("SELECT pg_advisory_xact_lock($1::int, 1)", 0x61326164)
	f.rescue(0)
	release()
	f.rescue(1)
}

func TestRescueTakesABatch(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.submitMany(7)
	for _, l := range f.claim(7) {
		f.expire(l.TaskID)
	}
	for _, want := range []int{3, 3, 1, 0} {
		if got, err := f.Tasks.Rescue(f.ctx, nil, 5, 3); err != nil || got != want {
			t.Errorf("Rescue = %d, %v, want %d", got, err, want)
		}
	}
	f.invariants()
}

func TestStatesForAWorkerThatLostTasks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	task := f.task()
	got, err := f.Tasks.States(f.ctx, []a2a.ID{task, db.NewTaskID()})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "states", map[a2a.ID]a2a.State{task: a2a.StateSubmitted}, got)
}

// A row that another transaction has locked is not waited for, and is not taken to be lost.
func TestRenewDoesNotWaitForLockedRows(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a, b := f.running(), f.running()
	tx, err := f.sql.Begin(f.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(f.ctx)) //nolint:errcheck // it only locks
	if _, err := tx.Exec(f.ctx, "SELECT FROM a2a.task_leases WHERE task_id = $1 FOR UPDATE", a.TaskID); err != nil {
		t.Fatal(err)
	}
	got, err := f.Tasks.Renew(f.ctx, []*tasks.Lease{a, b}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "renewals", []tasks.Renewal{tasks.Locked, tasks.Renewed}, got)
}

// A message that comes between the claim and the read of the input is for the next turn.
func TestInputEndsWhereTheClaimWas(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := f.running()
	f.append(l, status(a2a.StateInputRequired, "what?"))
	f.say(l.TaskID, "first")
	next := f.claimTask(l.TaskID)
	f.say(l.TaskID, "second")
	in, err := f.Tasks.Inputs(f.ctx, []tasks.Lease{*next})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "messages", []a2a.Message{message("m-first", "first")}, in[0].Messages)
	var said []string
	for _, m := range in[0].Task.History {
		said = append(said, m.Parts[0].Text)
	}
	same(t, "history", []string{"hello", "what?", "first"}, said)
}

func TestInputsOfSeveralTasksKeepTheirOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for i := range 5 {
		f.submit(submission(fmt.Sprint(i)))
	}
	leases := f.claim(5)
	slices.Reverse(leases)
	in, err := f.Tasks.Inputs(f.ctx, leases)
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
	_, err = f.Tasks.Inputs(f.ctx, []tasks.Lease{gone})
	wantCode(t, err, a2a.CodeTaskNotFound)
}
