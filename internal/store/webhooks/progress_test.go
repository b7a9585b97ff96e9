package webhooks_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/wake"
)

// deliveries returns the rows of audit.delivery for a webhook, one per event: "seq state tries reason".
func deliveries(f *storetest.Fixture, task a2a.ID, id string) (list []string) {
	f.T.Helper()
	rows, err := f.SQL.Query(f.T.Context(),
		`SELECT seq, state, tries, coalesce(reason, ''), delivered_at IS NOT NULL FROM audit.delivery
		WHERE task_id = $1 AND config_id = $2 ORDER BY seq`, task, id)
	if err != nil {
		f.T.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var seq int64
		var state, reason string
		var tries int
		var at bool
		if err := rows.Scan(&seq, &state, &tries, &reason, &at); err != nil {
			f.T.Fatal(err)
		}
		if at != (state == "delivered") {
			f.T.Errorf("event %d is %s, but has a time of delivery = %t", seq, state, at)
		}
		list = append(list, fmt.Sprintf("%d %s %d %s", seq, state, tries, reason))
	}
	if err := rows.Err(); err != nil {
		f.T.Fatal(err)
	}
	return list
}

// The transaction that writes an event also moves the head of the webhooks.
func TestEveryKindOfEventMovesTheHead(t *testing.T) {
	t.Parallel()
	head := func(f *storetest.Fixture, task a2a.ID, what string) {
		f.T.Helper()
		last := storetest.Value[int64](f, "SELECT last_seq FROM a2a.tasks WHERE id = $1", task)
		if p := f.Progress(task, "default"); p.Head != last || !p.Due {
			f.T.Errorf("%s: %+v, want the head at %d and due", what, p, last)
		}
		if !slices.Contains(f.TakeWakes(), wake.Webhooks) {
			f.T.Errorf("%s: the deliverers were not woken", what)
		}
	}
	t.Run("claim, question, answer, end", func(t *testing.T) {
		t.Parallel()
		f := storetest.Open(t)
		task := f.NewTask()
		f.SetWebhook(task, "default")
		f.TakeWakes()
		l := f.ClaimTask(task)
		head(f, task, "claim")
		f.Append(l, storetest.Status(a2a.StateInputRequired, "?"))
		head(f, task, "question")
		f.Say(task, "answer")
		head(f, task, "answer")
		l = f.ClaimTask(task)
		f.Append(l, storetest.Status(a2a.StateCompleted))
		head(f, task, "end")
		f.Invariants()
	})
	t.Run("cancel", func(t *testing.T) {
		t.Parallel()
		f := storetest.Open(t)
		task := f.NewTask()
		f.SetWebhook(task, "default")
		f.TakeWakes()
		if _, err := f.Tasks.Cancel(t.Context(), storetest.Ann, storetest.Agent, task); err != nil {
			t.Fatal(err)
		}
		head(f, task, "cancel")
	})
	t.Run("rescue", func(t *testing.T) {
		t.Parallel()
		f := storetest.Open(t)
		task := f.NewTask()
		f.SetWebhook(task, "default")
		f.ClaimTask(task)
		f.TakeWakes()
		f.Expire(task)
		f.Rescue(1, tasks.Policy{Agent: storetest.Agent, Fate: "fail", MaxAttempts: 5})
		head(f, task, "rescue")
	})
}

// A chunk waits until a status makes the webhook due, and no event ends a backoff.
func TestWebhookWaitsForAStatusAndForItsBackoff(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	f.SetWebhook(l.TaskID, "default")
	f.Append(l, storetest.Chunk("a", "x"))
	if p := f.Progress(l.TaskID, "default"); p.Head != 3 ||
		storetest.Value[bool](f, "SELECT next_attempt_at = 'infinity' FROM a2a.push_configs") {
		t.Errorf("after a chunk: %+v, want the head at 3 and nothing due", p)
	}
	f.Append(l, storetest.Status(a2a.StateWorking, "on it"))
	if p := f.Progress(l.TaskID, "default"); !p.Due {
		t.Errorf("after a status: %+v, want it due", p)
	}
	f.Failed(f.DueWebhook(), webhooks.Failure{Delay: time.Hour})
	f.Append(l, storetest.Status(a2a.StateCompleted))
	if p := f.Progress(l.TaskID, "default"); p.Due || p.Head != 5 {
		t.Errorf("while a retry waits: %+v, want the head at 5 and nothing due", p)
	}
}

// One delivery ends at each status that a client must see, even if there is more to deliver.
func TestDeliveryDoesNotSkipAQuestion(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	task := f.NewTaskWithWebhook("default") // 1
	l := f.ClaimTask(task)                  // 2
	f.Append(l, storetest.Chunk("a", "x"), storetest.Chunk("a", "y"))
	f.Append(l, storetest.Status(a2a.StateInputRequired, "?")) // 5
	f.Say(task, "answer")                                      // 6
	l = f.ClaimTask(task)                                      // 7
	d := f.DueWebhook()
	storetest.Same(t, "up to the question", []int64{0, 5}, []int64{d.Cursor, d.Seq})
	f.Failed(d, webhooks.Failure{})
	f.Append(l, storetest.Status(a2a.StateCompleted)) // 8
	d = f.DueWebhook()
	storetest.Same(t, "the same on the retry", []int64{0, 5, 1}, []int64{d.Cursor, d.Seq, int64(d.Attempt)})
	f.Delivered(d, false)
	d = f.DueWebhook()
	storetest.Same(t, "up to the end", []int64{5, 8, 0}, []int64{d.Cursor, d.Seq, int64(d.Attempt)})
	f.Delivered(d, true)
	storetest.Same(t, "progress", storetest.Progress{State: "done", From: 0, Cursor: 8, Head: 8},
		f.Progress(task, "default"))
	storetest.Same(t, "ledger", []string{
		"1 delivered 2 ", "2 delivered 2 ", "3 delivered 2 ", "4 delivered 2 ", "5 delivered 2 ", "6 delivered 1 ",
		"7 delivered 1 ", "8 delivered 1 ",
	}, deliveries(f, task, "default"))
}

func TestRetrySendsTheSameEventsWhileTheLogGrows(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	f.SetWebhook(l.TaskID, "default")
	f.Append(l, storetest.Chunk("a", "x"))
	d := f.DueWebhook()
	storetest.Same(t, "first", int64(3), d.Seq)
	f.Append(l, storetest.Chunk("a", "y"), storetest.Chunk("a", "z"))
	f.Failed(d, webhooks.Failure{})
	d = f.DueWebhook()
	storetest.Same(t, "retry", int64(3), d.Seq)
	f.Delivered(d, false)
	storetest.Same(t, "next", int64(5), f.DueWebhook().Seq)
}

// A deliverer that lost its lease changes nothing any more.
func TestLostLeaseRecordsNothing(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	task := f.NewTaskWithWebhook("default")
	old := f.DueWebhook()
	f.Exec("UPDATE a2a.push_configs SET lease_until = clock_timestamp() - interval '1 second'")
	successor := f.DueWebhook()
	if successor.Epoch <= old.Epoch || successor.Seq != old.Seq {
		t.Fatalf("epochs %d and %d, events %d and %d", old.Epoch, successor.Epoch, old.Seq, successor.Seq)
	}
	err := f.Webhooks.RecordDelivery(t.Context(), old, &webhooks.Try{Status: 200}, false)
	if !errors.Is(err, db.ErrLeaseLost) {
		t.Errorf("delivered: %v, want the lease lost", err)
	}
	if err := f.Webhooks.RecordSkip(t.Context(), old, &storetest.RefusedTry, false); !errors.Is(err, db.ErrLeaseLost) {
		t.Errorf("skipped: %v, want the lease lost", err)
	}
	if _, err := f.Webhooks.RecordFailure(t.Context(), old, &storetest.RefusedTry, webhooks.Failure{
		Fate: "dead",
	}); !errors.Is(err, db.ErrLeaseLost) {
		t.Errorf("failed: %v, want the lease lost", err)
	}
	if err := f.Webhooks.Release(t.Context(), old); err != nil {
		t.Error(err)
	}
	storetest.Same(t, "still held", 0, len(f.ClaimWebhooks(10)))
	storetest.Same(t, "ledger", []string{"1 pending 0 "}, deliveries(f, task, "default"))
	f.Delivered(successor, false)
	storetest.Same(t, "ledger", []string{"1 delivered 1 "}, deliveries(f, task, "default"))
}

func TestAuditShowsTheOutcomeOfEachEvent(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	task := f.NewTaskWithWebhook("a")
	refused := &webhooks.Try{Status: 400, Reason: "answered 400"}
	if err := f.Webhooks.RecordSkip(t.Context(), f.DueWebhook(), refused, false); err != nil {
		t.Fatal(err)
	}
	l := f.ClaimTask(task)
	storetest.Same(t, "pending", []string{"1 skipped 0 answered 400", "2 pending 0 "}, deliveries(f, task, "a"))
	if err := f.Webhooks.Delete(t.Context(), storetest.Ann, task, "a"); err != nil {
		t.Fatal(err)
	}
	f.Append(l, storetest.Status(a2a.StateCompleted))
	storetest.Same(t, "deleted", []string{"1 skipped 0 answered 400", "2 cancelled 0 "}, deliveries(f, task, "a"))
	const deletedAfter = "SELECT deleted_after_seq FROM audit.push_config WHERE task_id = $1 AND id = 'a'"
	if got := storetest.Value[int64](f, deletedAfter, task); got != 2 {
		t.Errorf("deleted after %d, want 2", got)
	}
}

func TestTraceparentStaysWithTheTask(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	const first, second = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"00-11111111111111111111111111111111-2222222222222222-00"
	in := storetest.Submission("hello")
	p := storetest.NewWebhook("default")
	in.Push, in.Traceparent = &p, first
	task := f.Submit(in).Task
	l := f.ClaimTask(task)
	storetest.Same(t, "the run's", a2a.Traceparent(first), l.Traceparent)
	d := f.DueWebhook()
	storetest.Same(t, "the webhook's", a2a.Traceparent(first), d.Traceparent)
	f.Delivered(d, false)
	f.Append(l, storetest.Status(a2a.StateInputRequired))
	f.Say(task, "without one")
	l = f.ClaimTask(task)
	storetest.Same(t, "the next run's", a2a.Traceparent(first), l.Traceparent)
	f.Append(l, storetest.Status(a2a.StateInputRequired))
	in = storetest.Submission("with one")
	in.Task, in.ContextID, in.Traceparent = task, "", second
	f.Submit(in)
	storetest.Same(t, "the last run's", a2a.Traceparent(second), f.ClaimTask(task).Traceparent)
	storetest.Same(t, "the last webhook's", a2a.Traceparent(second), f.DueWebhook().Traceparent)
	storetest.Same(t, "of a task without one", a2a.Traceparent(""), f.RunningTask().Traceparent)
}
