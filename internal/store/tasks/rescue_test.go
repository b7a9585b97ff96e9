package tasks_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/wake"
)

func TestRescueFollowsThePolicyOfTheAgent(t *testing.T) {
	t.Parallel()
	policy := func(fate string, attempts int) []tasks.Policy {
		return []tasks.Policy{
			{Agent: "other", Fate: "fail", MaxAttempts: 9}, {Agent: storetest.Agent, Fate: fate, MaxAttempts: attempts},
		}
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
		f.Rescue(0, tt.policies...) // the lease has not expired yet
		f.Expire(task)
		f.Rescue(1, tt.policies...)
		f.Rescue(0, tt.policies...)
		got := f.Snapshot(task)
		if got.Status.State != tt.state {
			t.Errorf("%s: the task is %s, want %s", tt.name, got.Status.State, tt.state)
		}
		_, err := f.Tasks.Append(t.Context(), l, storetest.Batch(storetest.Status(a2a.StateCompleted)))
		if !errors.Is(err, db.ErrLeaseLost) {
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
		if m := got.Status.Message; m == nil || m.Role != a2a.RoleAgent || m.ID == "" ||
			!strings.Contains(m.Parts[0].Text, tt.text) {
			t.Errorf("%s: status message %+v, want it to say %q", tt.name, m, tt.text)
		}
		log := f.Log(task)
		storetest.Same(t, tt.name+": last event",
			*got.Status.Message, *log[len(log)-1].Event.(*a2a.StatusUpdate).Status.Message)
		if n := len(f.TakeCommitted(task)); n != 1 {
			t.Errorf("%s: %d commits were reported, want 1", tt.name, n)
		}
		f.Invariants()
	}
}

func TestAnswerAfterARescueStartsANewTurn(t *testing.T) {
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
	storetest.Same(t, "messages",
		[]a2a.Message{storetest.Message("m-hello", "hello"), storetest.Message("m-go on", "go on")}, in[0].Messages)
	f.Invariants()
}

func TestRescueSkipsLockedRows(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	leaseLocked, taskLocked, free := f.RunningTask(), f.RunningTask(), f.RunningTask()
	for _, l := range []*tasks.Lease{leaseLocked, taskLocked, free} {
		f.Expire(l.TaskID)
	}
	releaseLease := f.Lock("SELECT FROM a2a.task_leases WHERE task_id = $1 FOR UPDATE", leaseLocked.TaskID)
	releaseTask := f.Lock("SELECT FROM a2a.tasks WHERE id = $1 FOR UPDATE", taskLocked.TaskID)
	f.Rescue(1)
	releaseLease()
	releaseTask()
	f.Rescue(2)
	f.Invariants()
}

func TestOneReplicaRescuesAtATime(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	f.Expire(l.TaskID)
	release := f.Lock("SELECT pg_advisory_xact_lock($1::int, 1)", 0x61326164)
	f.Rescue(0)
	release()
	f.Rescue(1)
}

func TestRescueHandlesABatch(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	f.SubmitMany(7)
	for _, l := range f.Claim(7) {
		f.Expire(l.TaskID)
	}
	for _, want := range []int{3, 3, 1, 0} {
		if got, err := f.Tasks.Rescue(t.Context(), nil, tasks.Policy{MaxAttempts: 5}, 3); err != nil || got != want {
			t.Errorf("Rescue = %d, %v, want %d", got, err, want)
		}
	}
	f.Invariants()
}

func TestStatesLeavesOutUnknownTasks(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	task := f.NewTask()
	got, err := f.Tasks.States(t.Context(), []a2a.ID{task, db.NewTaskID()})
	if err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "states", map[a2a.ID]a2a.State{task: a2a.StateSubmitted}, got)
}
