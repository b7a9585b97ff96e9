package tasks_test

import (
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

// ids returns the tasks of the leases.
func ids(leases []tasks.Lease) []a2a.ID {
	out := make([]a2a.ID, len(leases))
	for i, l := range leases {
		out[i] = l.TaskID
	}
	return out
}

func TestClaimReturnsALeaseAndItsInput(t *testing.T) {
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
		TaskID: task, Agent: storetest.Agent, Tenant: "acme", Owner: "ann",
		Epoch: 1, Attempt: 1, Through: 1, LastSeq: 2,
		Bytes: storetest.Value[int64](f, "SELECT bytes FROM a2a.tasks WHERE id = $1", task),
	}
	storetest.Same(t, "lease", want, l)
	log := f.Log(task)
	storetest.Same(t, "committed events", [][]a2a.Entry{log[1:]}, f.TakeCommitted(task))
	storetest.Same(t, "states", []a2a.State{a2a.StateSubmitted, a2a.StateWorking}, states(f, task))
	storetest.Same(t, "attempts", []attempt{{Epoch: 1, Attempt: 1, Worker: "r1"}}, attempts(f, task))
	in, err := f.Tasks.Inputs(t.Context(), leases)
	if err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "input",
		[]tasks.Input{{Task: *f.Snapshot(task), Messages: []a2a.Message{storetest.Message("m-hello", "hello")}}}, in)
	f.Invariants()
}

func TestClaimReturnsTheLongestWaitingFirst(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	var taskList []a2a.ID
	for range 5 {
		taskList = append(taskList, f.NewTask())
	}
	// The third task has waited longest, although it was not submitted first.
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
	// Another claimer has locked the first row and has not committed.
	release := f.Lock("SELECT FROM a2a.task_ready WHERE task_id = $1 FOR UPDATE", first)
	storetest.Same(t, "while it is locked", []a2a.ID{second}, ids(f.Claim(10)))
	release()
	storetest.Same(t, "after the lock", []a2a.ID{first}, ids(f.Claim(10)))
	f.Invariants()
}

func TestClaimersNeverClaimATaskTwice(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	const n = 300
	for range n / 100 {
		f.SubmitMany(100)
	}
	claimers := []*tasks.Claimer{
		f.Tasks.NewClaimer(), f.Replica("r2").Tasks.NewClaimer(), f.Replica("r3").Tasks.NewClaimer(),
	}
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
	// Claims skip rows that another claimer has locked. A last claim finds those that are left.
	for _, id := range ids(f.Claim(n)) {
		seen[id] = true
		total++
	}
	if total != n || len(seen) != n {
		t.Errorf("%d claims of %d tasks, want %d", total, len(seen), n)
	}
	f.Invariants()
}

// A submit that commits late has an older run_at than what was claimed since. The floor must not hide it for long.
func TestClaimFindsLateCommits(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		late   string
		repoll bool // only a poll from the start finds it
	}{
		{"within the margin", "200 milliseconds", false},
		{"before the floor", "1 hour", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := storetest.Open(t)
			c := f.Tasks.NewClaimer()
			claim := func() []a2a.ID {
				leases, err := c.Claim(t.Context(), storetest.Agent, 10, storetest.TTL, time.Hour)
				if err != nil {
					t.Fatal(err)
				}
				return ids(leases)
			}
			f.NewTask()
			claim() // sets the floor
			tasks.PollDone(c)
			late := f.NewTask()
			f.Exec("UPDATE a2a.tasks SET ready_at = ready_at - $2::interval WHERE id = $1", late, tt.late)
			f.Exec("UPDATE a2a.task_ready SET run_at = run_at - $2::interval WHERE task_id = $1", late, tt.late)
			if got, want := len(claim()), 1; !tt.repoll && got != want {
				t.Errorf("%d tasks claimed, want %d", got, want)
			} else if tt.repoll && got != 0 {
				t.Errorf("%d tasks claimed before the floor: the floor has no effect", got)
			}
			tasks.PollDue(c)
			if got := claim(); tt.repoll && !slices.Equal(got, []a2a.ID{late}) {
				t.Errorf("the poll from the start claimed %v, want %s", got, late)
			}
			f.Invariants()
		})
	}
}

// A claim must not read tasks that wait for a later time: there may be a million retries.
func TestClaimDoesNotReadWhatIsNotDue(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	f.Exec(`INSERT INTO a2a.task_ready (queue, priority, run_at, task_id, tenant)
		SELECT $1, 0, clock_timestamp() + interval '1 hour', gen_random_uuid(), 'acme' FROM generate_series(1, 200)`,
		storetest.Agent)
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

// A poll must not move the floor to a retry that is not due yet: it would hide what comes before.
func TestPollIgnoresWhatIsNotDue(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	if err := f.Tasks.Retry(t.Context(), l, "x", time.Hour); err != nil {
		t.Fatal(err)
	}
	c := f.Tasks.NewClaimer()
	leases, err := c.Claim(t.Context(), storetest.Agent, 10, storetest.TTL, time.Hour)
	if err != nil || len(leases) != 0 {
		t.Fatalf("claimed %d, %v, want nothing that is due", len(leases), err)
	}
	tasks.PollDone(c)
	task := f.NewTask()
	leases, err = c.Claim(t.Context(), storetest.Agent, 10, storetest.TTL, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "claimed", []a2a.ID{task}, ids(leases))
	f.Invariants()
}

// In an empty queue, a claim finds a task at once even if its commit took over a second. After the clock was set back,
// by a failover for example, new tasks are hidden only until the next poll, which moves the floor back.
func TestPollMovesTheFloorBack(t *testing.T) {
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
		tasks.PollDone(c)
	}
	addOlder := func(ago string) a2a.ID {
		id := f.NewTask()
		f.Exec("UPDATE a2a.tasks SET ready_at = ready_at - $2::interval WHERE id = $1", id, ago)
		f.Exec("UPDATE a2a.task_ready SET run_at = run_at - $2::interval WHERE task_id = $1", id, ago)
		return id
	}
	claim()
	claim(addOlder("1500 milliseconds"))
	claim(f.NewTask())
	hidden := addOlder("2 hours")
	claim()
	tasks.PollDue(c)
	claim(hidden)
	claim(addOlder("1 hour"))
	f.Invariants()
}

func TestClaimSkipsATaskThatHasEnded(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	task := f.NewTask()
	// A claimer has locked the row of the queue, so the cancel does not delete it.
	release := f.Lock("SELECT FROM a2a.task_ready WHERE task_id = $1 FOR UPDATE", task)
	if _, err := f.Tasks.Cancel(t.Context(), storetest.Ann, storetest.Agent, task); err != nil {
		t.Fatal(err)
	}
	release()
	if n := storetest.Value[int](f, "SELECT count(*)::int FROM a2a.task_ready"); n != 1 {
		t.Fatalf("%d rows in the queue, want the one that was locked", n)
	}
	if leases := f.Claim(10); len(leases) != 0 {
		t.Errorf("claimed %+v, want nothing", leases)
	}
	storetest.Same(t, "states", []a2a.State{a2a.StateSubmitted, a2a.StateCanceled}, states(f, task))
	f.Invariants()
}

// The claim has locked the row of the queue and waits for the row of the task, and so does a cancel.
func TestClaimAndCancelOfATaskEndInACancel(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	task := f.NewTask()
	release := f.Lock("SELECT FROM a2a.tasks WHERE id = $1 FOR UPDATE", task)
	claimed := make(chan []tasks.Lease, 1)
	go func() { claimed <- f.Claim(10) }()
	f.WaitBlocked(1)
	canceled := make(chan error, 1)
	go func() { _, err := f.Tasks.Cancel(t.Context(), storetest.Ann, storetest.Agent, task); canceled <- err }()
	f.WaitBlocked(2)
	// Either of the two may get the row first.
	release()
	if err := <-canceled; err != nil {
		t.Fatal(err)
	}
	<-claimed
	if got := states(f, task); got[len(got)-1] != a2a.StateCanceled {
		t.Errorf("states %v, want canceled at the end", got)
	}
	f.Invariants()
}

// A message that comes between the claim and the read of the input belongs to the next turn.
func TestInputEndsAtTheClaim(t *testing.T) {
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
	var got []string
	for _, m := range in[0].Task.History {
		got = append(got, m.Parts[0].Text)
	}
	storetest.Same(t, "history", []string{"hello", "what?", "first"}, got)
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
	unknown := leases[0]
	unknown.TaskID = db.NewTaskID()
	_, err = f.Tasks.Inputs(t.Context(), []tasks.Lease{unknown})
	storetest.WantCode(t, err, a2a.CodeTaskNotFound)
}

func TestClaimWithoutDeadlineHasNone(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	task := f.NewTask()
	leases, err := f.Tasks.NewClaimer().Claim(t.Context(), storetest.Agent, 10, storetest.TTL, 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(leases) != 1 || leases[0].TaskID != task || leases[0].Left != 0 {
		t.Errorf("leases %+v, want one of task %s with no deadline", leases, task)
	}
}
