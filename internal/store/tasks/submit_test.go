package tasks_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/wake"
)

func TestSubmitMakesATaskInTheQueue(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	in := storetest.Submission("hello")
	in.NewTask = db.NewTaskID()
	in.Message.Metadata = a2a.Raw(`{ "n": 1.00 }`)
	out := f.Submit(in)
	if out.Task != in.NewTask || out.ContextID != "ctx" || out.State != a2a.StateSubmitted || out.Replay ||
		out.After != 0 {
		t.Errorf("Submit = %+v", out)
	}
	got := f.Snapshot(out.Task)
	want := &a2a.Task{
		ID: in.NewTask, Agent: storetest.Agent, ContextID: "ctx",
		Status:  a2a.Status{State: a2a.StateSubmitted, Time: out.At},
		History: []a2a.Message{in.Message}, CreatedAt: out.At, LastSeq: 1, LastUID: out.UID,
	}
	storetest.Same(t, "task", want, got)
	wantLog := []a2a.Entry{
		{TaskID: out.Task, Seq: 1, UID: out.UID, Time: out.At, Event: storetest.Status(a2a.StateSubmitted)},
	}
	wantLog[0].Event.(*a2a.StatusUpdate).Status.Time = out.At
	storetest.Same(t, "log", wantLog, f.Log(out.Task))
	storetest.Same(t, "wakes", []string{wake.Ready(storetest.Agent)}, f.TakeWakes())
	f.Invariants()
}

func TestSubmitKeepsTheMessageByteForByte(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	in := storetest.Submission("x")
	in.Message = a2a.Message{
		ID: "id\u2028\"\\", Role: a2a.RoleUser, ReferenceTaskIDs: []string{"a", ""}, Extensions: []string{"https://x"},
		Metadata: a2a.Raw("{\"\\u0000\": 1e131071,\n \"\\ud83d\\ude00\" : [ ] }"),
		Parts: []a2a.Part{
			{Kind: a2a.PartText, Text: "nul \x00 and 😀", MediaType: "text/plain", Filename: "f"},
			{Kind: a2a.PartFile, Text: "AAEC", MediaType: "application/x", Metadata: a2a.Raw(`{}`)},
			{Kind: a2a.PartURL, Text: "https://example.org/?a=b&c"},
			{Kind: a2a.PartData, Data: a2a.Raw(`[12345678901234567890, 1.0, "\u0000", null]`)},
		},
	}
	out := f.Submit(in)
	storetest.Same(t, "history", []a2a.Message{in.Message}, f.Snapshot(out.Task).History)
}

func TestSubmitWithAKey(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	first := storetest.Submission("one")
	first.Key, first.Digest = "h:k", [32]byte{1}
	made := f.Submit(first)

	again := first
	again.NewTask = db.NewTaskID()
	got := f.Submit(again)
	if !got.Replay || got.Task != made.Task || got.ContextID != "ctx" || got.State != a2a.StateSubmitted {
		t.Errorf("same key, same digest = %+v, want a replay of %s", got, made.Task)
	}

	other := first
	other.Digest = [32]byte{2}
	_, err := f.Tasks.Submit(t.Context(), other)
	storetest.WantCode(t, err, a2a.CodeInvalidParams)
	elsewhere := first
	elsewhere.Agent = "other"
	_, err = f.Tasks.Submit(t.Context(), elsewhere)
	storetest.WantCode(t, err, a2a.CodeInvalidParams)

	for name, c := range map[string]db.Caller{
		"another owner": {Tenant: "acme", Owner: "bob"}, "another tenant": {Tenant: "corp", Owner: "ann"},
	} {
		in := other
		in.Caller = c
		if out := f.Submit(in); out.Replay || out.Task == made.Task {
			t.Errorf("%s, same key = %+v, want another task", name, out)
		}
	}
	unkeyed := f.Submit(storetest.Submission("one"))
	if unkeyed.Replay || unkeyed.Task == made.Task {
		t.Errorf("no key = %+v, want a new task", unkeyed)
	}
	byMessage := first
	byMessage.Key, byMessage.Digest = "m:k", [32]byte{3}
	if out := f.Submit(byMessage); out.Replay {
		t.Errorf("a message id equal to a key = %+v, want a new task", out)
	}
	if n := storetest.Value[int](f, "SELECT count(*)::int FROM a2a.messages"); n != 5 {
		t.Errorf("%d messages, want 5: a replay and a refusal write nothing", n)
	}
	const withKey = "SELECT count(*)::int FROM audit.message WHERE idem_key = 'k' AND NOT dedupe_mid"
	if n := storetest.Value[int](f, withKey); n != 3 {
		t.Errorf("%d messages carry the key in the audit view, want 3", n)
	}
	if n := storetest.Value[int](f, "SELECT count(*)::int FROM audit.message WHERE dedupe_mid"); n != 1 {
		t.Errorf("%d messages are deduplicated by id in the audit view, want 1", n)
	}
	f.Invariants()
}

func TestReplayOfAFollowUpReturnsThePresentState(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	f.Append(l, storetest.Status(a2a.StateInputRequired, "who?"))
	in := storetest.Submission("me")
	in.Task, in.ContextID, in.Key = l.TaskID, "", "h:k"
	made := f.Submit(in)
	if made.Replay || made.State != a2a.StateSubmitted || made.After != 4 {
		t.Fatalf("follow-up = %+v, want submitted with seq 4", made)
	}
	f.ClaimTask(l.TaskID)
	got := f.Submit(in)
	want := tasks.Submitted{Task: l.TaskID, ContextID: "ctx", After: 5, State: a2a.StateWorking, Replay: true}
	storetest.Same(t, "replay", want, got)
	if n := len(f.Snapshot(l.TaskID).History); n != 3 {
		t.Errorf("%d messages, want 3", n)
	}
	f.Invariants()
}

func TestConcurrentDuplicatesMakeOneTask(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	stores := []*store.Store{f.Store, f.Replica("r2")}
	const copies = 24
	outs := make([]tasks.Submitted, copies)
	var g errgroup.Group
	start := make(chan struct{})
	for i := range copies {
		g.Go(func() (err error) {
			in := storetest.Submission("same")
			in.Key = "h:same"
			<-start
			outs[i], err = stores[i%2].Tasks.Submit(t.Context(), in)
			return err
		})
	}
	close(start)
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	made := 0
	for _, o := range outs {
		if o.Task != outs[0].Task {
			t.Fatalf("the copies made two tasks: %s and %s", outs[0].Task, o.Task)
		}
		if !o.Replay {
			made++
		}
	}
	if made != 1 {
		t.Errorf("%d of the copies report a new task, want 1", made)
	}
	if n := storetest.Value[int](f, "SELECT count(*)::int FROM a2a.tasks"); n != 1 {
		t.Errorf("%d tasks, want 1", n)
	}
	f.Invariants()
}

// The first of two copies has not committed yet. The second must wait for it, and not make a task.
func TestDuplicateWaitsForTheFirstToCommit(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	release := f.Lock(`INSERT INTO a2a.idempotency_keys (tenant, owner, key, digest, task_id)
		VALUES ('acme', 'ann', 'h:k', 'x', gen_random_uuid())`)
	in := storetest.Submission("x")
	in.Key = "h:k"
	done := make(chan error, 1)
	go func() { _, err := f.Tasks.Submit(t.Context(), in); done <- err }()
	f.WaitBlocked(1)
	// A submission without a key does not wait.
	f.NewTask()
	release() // rolls back, so that the key may be used
	if err := <-done; err != nil {
		t.Fatalf("the second copy: %v", err)
	}
	if n := storetest.Value[int](f, "SELECT count(*)::int FROM a2a.tasks"); n != 2 {
		t.Errorf("%d tasks, want 2", n)
	}
}

func TestManySubmitsShareACommit(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	const n = 200
	var wg sync.WaitGroup
	ids := make([]a2a.ID, n)
	for i := range n {
		wg.Go(func() {
			in := storetest.Submission(fmt.Sprint(i))
			if i%3 == 0 {
				in.Key = "h:" + fmt.Sprint(i)
			}
			out, err := f.Tasks.Submit(t.Context(), in)
			if err != nil {
				t.Error(err)
			}
			ids[i] = out.Task
		})
	}
	wg.Wait()
	if got := storetest.Value[int](f, "SELECT count(*)::int FROM a2a.tasks"); got != n {
		t.Errorf("%d tasks, want %d", got, n)
	}
	if got := storetest.Value[int](f, "SELECT count(DISTINCT xid)::int FROM a2a.task_events"); got == n {
		t.Errorf("%d transactions for %d submits, want fewer", got, n)
	}
	for i, id := range ids {
		if got := f.Snapshot(id).History[0].Parts[0].Text; got != fmt.Sprint(i) {
			t.Errorf("task %d has the message %q", i, got)
		}
	}
	f.Invariants()
}

func TestSubmitToATask(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		before func(f *storetest.Fixture, l *tasks.Lease) // brings the claimed task into its state
		change func(in *tasks.Submission)
		code   a2a.ErrorCode // 0: accepted
		state  a2a.State     // of the answer
		wakes  bool
	}{
		{"waits for input", func(f *storetest.Fixture, l *tasks.Lease) {
			f.Append(l, storetest.Status(a2a.StateInputRequired, "?"))
		}, nil, 0, a2a.StateSubmitted, true},
		{"waits for authentication", func(f *storetest.Fixture, l *tasks.Lease) {
			f.Append(l, storetest.Status(a2a.StateAuthRequired))
		}, nil, 0, a2a.StateSubmitted, true},
		{"is worked on", nil, nil, 0, a2a.StateWorking, false},
		{"is worked on, with its own context", nil, func(in *tasks.Submission) {
			in.ContextID = "ctx"
		}, 0, a2a.StateWorking, false},
		{"is worked on, rejects", nil, func(in *tasks.Submission) {
			in.Reject = true
		}, a2a.CodeUnsupportedOperation, 0, false},
		{"waits for input, would reject if it worked", func(f *storetest.Fixture, l *tasks.Lease) {
			f.Append(l, storetest.Status(a2a.StateInputRequired))
		}, func(in *tasks.Submission) { in.Reject = true }, 0, a2a.StateSubmitted, true},
		{"waits for a retry, rejects", func(f *storetest.Fixture, l *tasks.Lease) {
			if err := f.Tasks.Retry(t.Context(), l, "x", time.Hour); err != nil {
				f.T.Fatal(err)
			}
		}, func(in *tasks.Submission) { in.Reject = true }, a2a.CodeUnsupportedOperation, 0, false},
		{"completed", func(f *storetest.Fixture, l *tasks.Lease) {
			f.Append(l, storetest.Status(a2a.StateCompleted))
		}, nil, a2a.CodeTaskTerminal, 0, false},
		{"failed", func(f *storetest.Fixture, l *tasks.Lease) {
			f.Append(l, storetest.Status(a2a.StateFailed))
		}, nil, a2a.CodeTaskTerminal, 0, false},
		{"another context", nil, func(in *tasks.Submission) {
			in.ContextID = "other"
		}, a2a.CodeInvalidParams, 0, false},
		{"another owner", nil, func(in *tasks.Submission) { in.Owner = "bob" }, a2a.CodeTaskNotFound, 0, false},
		{"another tenant", nil, func(in *tasks.Submission) { in.Tenant = "corp" }, a2a.CodeTaskNotFound, 0, false},
		{"another agent", nil, func(in *tasks.Submission) { in.Agent = "other" }, a2a.CodeTaskNotFound, 0, false},
		{"no such task", nil, func(in *tasks.Submission) { in.Task = db.NewTaskID() }, a2a.CodeTaskNotFound, 0, false},
		{"too large", nil, func(in *tasks.Submission) { in.MaxBytes = 100 }, a2a.CodeInvalidParams, 0, false},
		{"not too large", nil, func(in *tasks.Submission) { in.MaxBytes = 1000 }, 0, a2a.StateWorking, false},
		{"too many messages", nil, func(in *tasks.Submission) { in.MaxSeq = 1 }, a2a.CodeInvalidParams, 0, false},
		{"not too many messages", nil, func(in *tasks.Submission) { in.MaxSeq = 2 }, 0, a2a.StateWorking, false},
	}
	f := storetest.Open(t)
	for _, tt := range tests {
		l := f.RunningTask()
		if tt.before != nil {
			tt.before(f, l)
		}
		in := storetest.Submission("next")
		in.Task, in.ContextID, in.Key = l.TaskID, "", "h:"+tt.name
		if tt.change != nil {
			tt.change(&in)
		}
		before := f.Snapshot(l.TaskID)
		f.TakeWakes()
		out, err := f.Tasks.Submit(t.Context(), in)
		if tt.code != 0 {
			if a2a.CodeOf(err) != tt.code || err == nil {
				t.Errorf("%s: error = %v, want %s", tt.name, err, tt.code.Reason())
			}
			storetest.Same(t, tt.name+": the task", before, f.Snapshot(l.TaskID))
			if storetest.Value[bool](f, "SELECT EXISTS (SELECT FROM a2a.idempotency_keys WHERE key = $1)", in.Key) {
				t.Errorf("%s: a refused message stored its key", tt.name)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		after := f.Snapshot(l.TaskID)
		if out.State != tt.state || after.Status.State != tt.state || out.After != after.LastSeq ||
			out.ContextID != "ctx" {
			t.Errorf("%s: Submit = %+v, the task is %s at %d", tt.name, out, after.Status.State, after.LastSeq)
		}
		if wakes := f.TakeWakes(); tt.wakes != (len(wakes) == 1 && wakes[0] == wake.Ready(storetest.Agent)) {
			t.Errorf("%s: woke %v", tt.name, wakes)
		}
		if got := after.History[len(after.History)-1]; got.ID != "m-next" {
			t.Errorf("%s: the newest message is %s", tt.name, got.ID)
		}
		f.Invariants()
	}
}

func TestNewTaskBeyondTheLimitIsRefused(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	in := storetest.Submission(strings.Repeat("x", 500))
	in.MaxBytes, in.Key = 400, "h:k"
	_, err := f.Tasks.Submit(t.Context(), in)
	storetest.WantCode(t, err, a2a.CodeInvalidParams)
	const rows = "SELECT (SELECT count(*) FROM a2a.tasks)::int + (SELECT count(*) FROM a2a.idempotency_keys)::int"
	if n := storetest.Value[int](f, rows); n != 0 {
		t.Errorf("%d rows were written, want none", n)
	}
}

// A message comes while the append that ends the turn commits. Then the run reads it, or the task is requeued.
func TestMessageWaitsForTheAppendThatEndsTheTurn(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	release := f.Lock("SELECT FROM a2a.task_leases WHERE task_id = $1 FOR UPDATE", l.TaskID)
	ended := make(chan error, 1)
	go func() {
		_, err := f.Tasks.Append(t.Context(), l, storetest.Batch(storetest.Status(a2a.StateInputRequired, "?")))
		ended <- err
	}()
	f.WaitBlocked(1) // it has locked the row of the task, and waits for that of the lease
	said := make(chan error, 1)
	go func() {
		in := storetest.Submission("answer")
		in.Task, in.ContextID = l.TaskID, ""
		_, err := f.Tasks.Submit(t.Context(), in)
		said <- err
	}()
	f.WaitBlocked(2)
	release()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if err := <-said; err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "states",
		[]a2a.State{a2a.StateSubmitted, a2a.StateWorking, a2a.StateInputRequired, a2a.StateSubmitted},
		states(f, l.TaskID))
	f.Invariants()
}
