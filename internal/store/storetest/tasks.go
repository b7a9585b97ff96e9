package storetest

import (
	"fmt"
	"sync"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// TTL is how long the leases last that Claim acquires.
const TTL = time.Minute

// Message returns a client's message with one text.
func Message(id, text string) a2a.Message {
	return a2a.Message{ID: id, Role: a2a.RoleUser, Parts: Texts(text)}
}

// Texts returns one part per text.
func Texts(text ...string) []a2a.Part {
	parts := make([]a2a.Part, len(text))
	for i, s := range text {
		parts[i] = a2a.Part{Kind: a2a.PartText, Text: s}
	}
	return parts
}

// Submission returns a new task of Ann for Agent.
func Submission(text string) tasks.Submission {
	return tasks.Submission{Caller: Ann, Agent: Agent, ContextID: "ctx", Message: Message("m-"+text, text)}
}

// Status returns a status event. The texts, if there are any, are its message.
func Status(s a2a.State, text ...string) *a2a.StatusUpdate {
	u := &a2a.StatusUpdate{Status: a2a.Status{State: s}}
	if len(text) > 0 {
		u.Status.Message = &a2a.Message{ID: "agent-" + text[0], Role: a2a.RoleAgent, Parts: Texts(text...)}
	}
	return u
}

// Artifact returns the event that replaces an artifact.
func Artifact(id string, text ...string) *a2a.ArtifactUpdate {
	return &a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: id, Name: "name of " + id, Parts: Texts(text...)}}
}

// Chunk returns the event that appends to an artifact.
func Chunk(id string, text ...string) *a2a.ArtifactUpdate {
	u := Artifact(id, text...)
	u.Append = true
	return u
}

// Batch returns the batch of these events and nothing else.
func Batch(events ...a2a.Event) tasks.Batch { return tasks.Batch{Events: events} }

// Submit submits a new task or a message to a task.
func (f *Fixture) Submit(in tasks.Submission) tasks.Submitted {
	f.T.Helper()
	out, err := f.Tasks.Submit(f.T.Context(), in)
	if err != nil {
		f.T.Fatalf("submit: %v", err)
	}
	return out
}

// SubmitMany submits n new tasks at the same time.
func (f *Fixture) SubmitMany(n int) {
	f.T.Helper()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if _, err := f.Tasks.Submit(f.T.Context(), Submission("hello")); err != nil {
				f.T.Error(err)
			}
		})
	}
	wg.Wait()
}

// NewTask submits one new task.
func (f *Fixture) NewTask() a2a.ID {
	f.T.Helper()
	return f.Submit(Submission("hello")).Task
}

// Say adds a client's message to a task.
func (f *Fixture) Say(task a2a.ID, text string) tasks.Submitted {
	f.T.Helper()
	in := Submission(text)
	in.Task, in.ContextID = task, ""
	return f.Submit(in)
}

// Claim claims up to that many tasks of Agent, with a new claimer.
func (f *Fixture) Claim(slots int) []tasks.Lease {
	f.T.Helper()
	leases, err := f.Tasks.NewClaimer().Claim(f.T.Context(), Agent, slots, TTL, time.Hour)
	if err != nil {
		f.T.Fatalf("claim: %v", err)
	}
	return leases
}

// ClaimTask claims all waiting tasks, of which this must be one, and returns its lease.
func (f *Fixture) ClaimTask(task a2a.ID) *tasks.Lease {
	f.T.Helper()
	leases := f.Claim(1000)
	for i := range leases {
		if leases[i].TaskID == task {
			return &leases[i]
		}
	}
	f.T.Fatalf("task %s does not wait for a worker", task)
	return nil
}

// RunningTask submits a task and claims it.
func (f *Fixture) RunningTask() *tasks.Lease {
	f.T.Helper()
	return f.ClaimTask(f.NewTask())
}

// FullTask completes a task of Ann that has a row in every table that requests may read.
func (f *Fixture) FullTask() a2a.ID {
	f.T.Helper()
	in := tasks.Submission{Caller: Ann, Agent: Agent, ContextID: "talk", Key: "h:k", Message: Message("m", "x")}
	task := f.Submit(in).Task
	f.SetWebhook(task, "hook")
	l := f.ClaimTask(task)
	for i := range 40 { // enough for the store to fold the artifacts
		f.Append(l, Artifact("a", fmt.Sprint(i)))
	}
	f.Append(l, Status(a2a.StateCompleted, "done"))
	return task
}

// AddCompleted inserts n completed tasks that have no log.
func (f *Fixture) AddCompleted(n int, owner, agent string) {
	f.T.Helper()
	f.Exec(`
		INSERT INTO a2a.tasks (
		  id, tenant, owner, agent, context_id, state, status_at,
		  last_seq, last_at, last_message_seq, last_user_seq, created_at)
		SELECT gen_random_uuid(), 'acme', $2, $3, 'c', 100, x.at, 3, x.at, 1, 1, x.at
		FROM (SELECT clock_timestamp() - interval '1 day' + n * interval '1 ms' AS at
		      FROM generate_series(1, $1::int) n) x`, n, owner, agent)
}

// Append records events under a lease.
func (f *Fixture) Append(l *tasks.Lease, events ...a2a.Event) tasks.Appended {
	f.T.Helper()
	out, err := f.Tasks.Append(f.T.Context(), l, Batch(events...))
	if err != nil {
		f.T.Fatalf("append: %v", err)
	}
	return out
}

// Expire ends a lease: tests move time, they do not spend it.
func (f *Fixture) Expire(task a2a.ID) {
	f.T.Helper()
	n := f.Exec(`
		UPDATE a2a.task_leases SET lease_until = clock_timestamp() - interval '1 second'
		WHERE task_id = $1`, task)
	if n != 1 {
		f.T.Fatalf("task %s has %d leases, want 1", task, n)
	}
}

// Rescue runs the rescue once, with up to 5 attempts for agents without a policy, and wants it to find n tasks.
func (f *Fixture) Rescue(n int, policies ...tasks.Policy) {
	f.T.Helper()
	got, err := f.Tasks.Rescue(f.T.Context(), policies, tasks.Policy{MaxAttempts: 5}, 100)
	if err != nil {
		f.T.Fatalf("rescue: %v", err)
	}
	if got != n {
		f.T.Errorf("rescued %d tasks, want %d", got, n)
	}
}

// Snapshot returns a task with its artifacts, whoever owns it.
func (f *Fixture) Snapshot(task a2a.ID) *a2a.Task {
	f.T.Helper()
	t, err := f.Tasks.SnapshotOfAny(f.T.Context(), task, tasks.Want{Artifacts: true})
	if err != nil {
		f.T.Fatalf("snapshot: %v", err)
	}
	return t
}

// Log returns all events of a task.
func (f *Fixture) Log(task a2a.ID) []a2a.Entry {
	f.T.Helper()
	entries, err := f.Tasks.EventsAfter(f.T.Context(), task, 0, 100_000)
	if err != nil {
		f.T.Fatalf("read log: %v", err)
	}
	return entries
}
