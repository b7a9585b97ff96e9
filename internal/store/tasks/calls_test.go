package tasks_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// caller is the run of a task that calls others. It numbers its steps as package attempt does.
type caller struct {
	*storetest.Fixture
	lease *tasks.Lease
	seqs  map[string]int
}

func newCaller(f *storetest.Fixture) *caller { return callerOf(f, f.RunningTask()) }

func callerOf(f *storetest.Fixture, l *tasks.Lease) *caller {
	return &caller{f, l, make(map[string]int)}
}

// report appends events of the run. Calls that are known are left out.
func (c *caller) report(events ...a2a.Event) error {
	c.T.Helper()
	b := tasks.Batch{ContextID: "ctx"}
	record := func(key string, s a2a.StepRecord) {
		if c.seqs[key] == 0 {
			c.seqs[key] = len(c.seqs) + 1
			s.Key, s.Seq = key, c.seqs[key]
			b.Steps = append(b.Steps, s)
		}
	}
	for _, e := range events {
		switch e := e.(type) {
		case *a2a.Call:
			record(e.Key, a2a.StepRecord{
				Step: a2a.Step{Name: e.Agent}, Kind: a2a.StepCall, Child: db.NewTaskID(), Call: e,
			})
		case *a2a.Wait:
			s := a2a.StepRecord{Kind: a2a.StepWait}
			for _, key := range e.Tasks {
				s.Calls = append(s.Calls, c.seqs[key])
			}
			record(e.Key, s)
			b.Wait = e
		default:
			b.Events = append(b.Events, e)
		}
	}
	_, err := c.Tasks.Append(c.T.Context(), c.lease, b)
	return err
}

func (c *caller) mustReport(events ...a2a.Event) {
	c.T.Helper()
	if err := c.report(events...); err != nil {
		c.T.Fatal(err)
	}
}

// calls returns n calls, of the keys "c#1", "c#2" and so on.
func calls(n int, change ...func(*a2a.Call)) (list []a2a.Event) {
	for i := range n {
		call := &a2a.Call{
			Key: fmt.Sprintf("c#%d", i+1), Agent: storetest.Agent, Message: storetest.Message("", "look it up"),
		}
		for _, f := range change {
			f(call)
		}
		list = append(list, call)
	}
	return list
}

func keys(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("c#%d", i+1))
	}
	return list
}

// end completes a claimed task with a message.
func end(f *storetest.Fixture, l *tasks.Lease, state a2a.State, text string) {
	f.T.Helper()
	b := storetest.Batch(storetest.Artifact("a", text), storetest.Status(state, text))
	if _, err := f.Tasks.Append(f.T.Context(), l, b); err != nil {
		f.T.Error(err)
	}
}

// endWaits puts the tasks whose wait is over into the queue.
func endWaits(f *storetest.Fixture) int {
	f.T.Helper()
	n, err := f.Tasks.EndWaits(f.T.Context(), 100)
	if err != nil {
		f.T.Fatal(err)
	}
	return n
}

// The last of the called tasks wakes the task that waits for all of them. Its next run gets their results.
func TestLastCallEndsTheWait(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	c := newCaller(f)
	c.mustReport(append(calls(2), &a2a.Wait{Key: "w", Tasks: keys(2)})...)
	f.Invariants()
	children := f.Claim(10)
	if len(children) != 2 {
		t.Fatalf("%d tasks were called, want 2", len(children))
	}
	in, err := f.Tasks.Inputs(t.Context(), children[:1])
	if err != nil {
		t.Fatal(err)
	}
	m, parent := in[0].Messages[0], c.lease.TaskID.String()
	if got, _ := rawjson.String(rawjson.Get(m.Metadata, tasks.MetaParent)); got != parent {
		t.Errorf("the message names the parent %q, want %s", got, parent)
	}
	if len(m.ReferenceTaskIDs) != 1 || m.ReferenceTaskIDs[0] != parent {
		t.Errorf("the message refers to %v, want %s", m.ReferenceTaskIDs, parent)
	}
	end(f, &children[0], a2a.StateCompleted, "one")
	f.Invariants()
	if n := endWaits(f); n != 0 {
		t.Fatalf("the wait ended after one of two tasks")
	}
	f.Append(&children[1], storetest.Chunk("a", "in two batches"))
	end(f, &children[1], a2a.StateFailed, "two")
	f.Invariants()
	if n := endWaits(f); n != 1 {
		t.Fatalf("%d waits ended after the last task, want 1", n)
	}
	again := f.Claim(10)
	if len(again) != 1 || again[0].TaskID != c.lease.TaskID || again[0].Attempt != 1 {
		t.Fatalf("claimed %+v, want the first attempt of the task that waited", again)
	}
	in, err = f.Tasks.Inputs(t.Context(), again)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		`"state":"TASK_STATE_COMPLETED","message":{"messageId":`, `"state":"TASK_STATE_FAILED","message":{"messageId":`,
	} {
		s := in[0].Steps[i]
		if s.Kind != a2a.StepCall || !s.Ended || !strings.Contains(string(s.Result), want) ||
			!strings.Contains(string(s.Result), `"artifacts":[{"artifactId":"a","name":"name of a","parts":[{"text":`) {
			t.Errorf("step %d is %+v with the result %s, want %s", i+1, s, s.Result, want)
		}
	}
	if got := string(in[0].Steps[2].Result); got != `{"by":"tasks"}` {
		t.Errorf("the wait ended with %s", got)
	}
}

// The result of a large task has the ids of its artifacts, and not what they say.
func TestResultOfALargeCall(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	c := newCaller(f)
	c.mustReport(append(calls(1), &a2a.Wait{Key: "w", Tasks: keys(1)})...)
	child := f.Claim(1)[0]
	f.Append(&child, storetest.Artifact("large", strings.Repeat("x", 20<<10)))
	end(f, &child, a2a.StateCompleted, "done")
	const result = "SELECT result::text FROM a2a.task_steps WHERE kind = 3"
	got := storetest.Value[string](f, result)
	if !strings.Contains(got, `"message":{"messageId":"agent-done"`) ||
		!strings.Contains(got, `{"artifactId":"large"}`) || len(got) > 1000 {
		t.Errorf("the result is %.1000s", got)
	}
	f.Invariants()
}

// A parent gets the artifacts of a task that the server has failed, also if they were folded at its end.
func TestResultOfACallThatTheServerEnds(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	c := newCaller(f)
	c.mustReport(append(calls(1), &a2a.Wait{Key: "w", Tasks: keys(1)})...)
	child := f.Claim(1)[0]
	for range 40 { // enough for the store to fold the artifacts
		f.Append(&child, storetest.Chunk("a", "x"))
	}
	f.Expire(child.TaskID)
	f.Rescue(1, tasks.Policy{Agent: storetest.Agent, Fate: "fail", MaxAttempts: 5})
	const result = "SELECT result::text FROM a2a.task_steps WHERE kind = 3"
	got := storetest.Value[string](f, result)
	if !strings.Contains(got, `"state":"TASK_STATE_FAILED"`) || strings.Count(got, `{"text":"x"}`) != 40 {
		t.Errorf("the result is %.600s", got)
	}
	f.Invariants()
}

// A wait for any call ends with the first one. One for calls that have ended already ends at once.
func TestWaitForAnyCall(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	c := newCaller(f)
	c.mustReport(calls(2)...)
	children := f.Claim(10)
	c.mustReport(&a2a.Wait{Key: "w", Tasks: keys(2), Any: true})
	if n := endWaits(f); n != 0 {
		t.Fatal("the wait ended before any task")
	}
	end(f, &children[0], a2a.StateCompleted, "one")
	if n := endWaits(f); n != 1 {
		t.Fatalf("%d waits ended after the first task, want 1", n)
	}
	end(f, &children[1], a2a.StateCompleted, "two")
	c.lease = &f.Claim(1)[0]
	c.mustReport(&a2a.Wait{Key: "again", Tasks: keys(2)})
	if n := endWaits(f); n != 1 {
		t.Fatalf("%d waits for ended tasks ended, want 1", n)
	}
	f.Invariants()
}

// A call that is sent again, because its answer was lost, makes no second task.
func TestCallIsMadeOnce(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	c := newCaller(f)
	c.mustReport(calls(1)...)
	if n := storetest.Value[int](f, "SELECT count(*)::int FROM a2a.tasks WHERE depth = 1"); n != 1 {
		t.Errorf("%d tasks of one call", n)
	}
	f.Expire(c.lease.TaskID)
	f.Rescue(1)
	if err := c.report(&a2a.Call{Key: "x", Agent: storetest.Agent, Message: storetest.Message("", "x")}); err == nil {
		t.Error("a worker without a lease has called a task")
	}
	if n := storetest.Value[int](f, "SELECT count(*)::int FROM a2a.tasks WHERE depth = 1"); n != 1 {
		t.Errorf("%d tasks after the call of a worker without a lease", n)
	}
	f.Invariants()
}

// The end of a task cancels the tasks that it has called, and theirs, but not those that it has abandoned.
func TestEndOfATaskCancelsWhatItHasCalled(t *testing.T) {
	t.Parallel()
	for what, finish := range map[string]func(f *storetest.Fixture, c *caller){
		"cancel": func(f *storetest.Fixture, c *caller) {
			if _, err := f.Tasks.Cancel(f.T.Context(), storetest.Ann, "", c.lease.TaskID); err != nil {
				f.T.Fatal(err)
			}
		},
		"completion": func(_ *storetest.Fixture, c *caller) {
			c.mustReport(&a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateCompleted}})
		},
		"deadline": func(f *storetest.Fixture, c *caller) {
			c.mustReport(&a2a.Wait{Key: "d", For: time.Hour})
			f.Exec("UPDATE a2a.task_waits SET deadline_at = clock_timestamp() WHERE task_id = $1",
				db.PGID(c.lease.TaskID))
			if n, err := f.Tasks.FailWaits(f.T.Context(), 10); n != 1 || err != nil {
				f.T.Fatalf("FailWaits = %d, %v", n, err)
			}
		},
		"parked for too long": func(f *storetest.Fixture, c *caller) {
			if err := f.Tasks.Park(f.T.Context(), c.lease, "no attempt is left", time.Microsecond); err != nil {
				f.T.Fatal(err)
			}
			if n, err := f.Tasks.ExpireParked(f.T.Context(), 10); n != 1 || err != nil {
				f.T.Fatalf("ExpireParked = %d, %v", n, err)
			}
		},
		"rescue": func(f *storetest.Fixture, c *caller) {
			f.Expire(c.lease.TaskID)
			f.Rescue(1, tasks.Policy{Agent: storetest.Agent, Fate: "fail", MaxAttempts: 5})
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := storetest.Open(t)
			c := newCaller(f)
			c.mustReport(calls(1)...)
			child := f.Claim(1)[0]
			inner := callerOf(f, &child)
			inner.mustReport(append(calls(1), &a2a.Wait{Key: "w", Tasks: keys(1)})...)
			abandoned := calls(1, func(c *a2a.Call) { c.Key, c.Abandon = "left", true })
			c.mustReport(abandoned...)
			finish(f, c)
			f.Invariants()
			n := 0
			for more := true; more; {
				var err error
				if more, err = f.Tasks.CancelOrphan(t.Context()); err != nil {
					t.Fatal(err)
				}
				if more {
					n++
				}
			}
			if n != 2 {
				t.Errorf("%d tasks were canceled, want the called one and the one that it has called", n)
			}
			const states = `SELECT string_agg(state::text, ' ' ORDER BY id) FROM a2a.tasks WHERE depth > 0`
			if got := storetest.Value[string](f, states); got != "102 102 1" {
				t.Errorf("the states of the called tasks are %s", got)
			}
			f.Invariants()
		})
	}
}

// However the end of a called task and the begin of the wait for it overlap, the wait ends.
func TestEndAndWaitMeet(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	const rounds, width = 40, 3
	for range rounds {
		c := newCaller(f)
		c.mustReport(calls(width)...)
		children := f.Claim(width)
		var wg sync.WaitGroup
		for i := range children {
			wg.Go(func() { end(f, &children[i], a2a.StateCompleted, "x") })
		}
		wg.Go(func() { c.mustReport(&a2a.Wait{Key: "w", Tasks: keys(width), For: time.Hour}) })
		wg.Wait()
		f.Invariants()
		if n := endWaits(f); n != 1 {
			t.Fatalf("%d waits ended, want 1", n)
		}
		l := f.Claim(1)[0]
		end(f, &l, a2a.StateCompleted, "done")
	}
}

// A server of an earlier version ends tasks without telling those that have called them, and those that they have
// called. The sweep finds both, and calls whose task was removed.
func TestSweepRepairsCalls(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	c := newCaller(f)
	c.mustReport(append(calls(3), &a2a.Wait{Key: "w", Tasks: keys(3)})...)
	other := newCaller(f)
	other.mustReport(calls(1)...)
	sweep := func(want int) {
		t.Helper()
		var at tasks.CallPosition
		total := 0
		for {
			out, err := f.Tasks.SweepCalls(t.Context(), at, 2)
			if err != nil {
				t.Fatal(err)
			}
			if at, total = out.Next, total+out.Repaired; at == (tasks.CallPosition{}) {
				break
			}
		}
		if total != want {
			t.Errorf("%d calls repaired, want %d", total, want)
		}
	}
	sweep(0)
	f.Exec(`UPDATE a2a.tasks SET state = 100, ready_at = NULL WHERE parent_step = 1 AND parent_id = $1`,
		db.PGID(c.lease.TaskID))
	f.Exec(`UPDATE a2a.tasks SET state = 101, ready_at = NULL WHERE parent_step = 2 AND parent_id = $1`,
		db.PGID(c.lease.TaskID))
	f.Exec(`DELETE FROM a2a.tasks WHERE parent_step = 3 AND parent_id = $1`, db.PGID(c.lease.TaskID))
	f.Exec(`UPDATE a2a.tasks SET state = 100 WHERE id = $1`, db.PGID(other.lease.TaskID))
	sweep(4)
	if n := endWaits(f); n != 1 {
		t.Errorf("%d waits ended, want 1", n)
	}
	if more, err := f.Tasks.CancelOrphan(t.Context()); !more || err != nil {
		t.Errorf("CancelOrphan = %t, %v, want the task of the other call", more, err)
	}
	sweep(0)
}
