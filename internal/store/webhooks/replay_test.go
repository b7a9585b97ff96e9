package webhooks_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/wake"
)

func TestReplay(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	task := f.NewTaskWithWebhook("default")
	l := f.ClaimTask(task)
	f.Append(l, storetest.Status(a2a.StateCompleted))
	d := f.DueWebhook()
	f.Failed(d, webhooks.Failure{Fate: "dead"})
	storetest.Same(t, "dead", []string{"1 dead 1 answered 500", "2 dead 1 answered 500", "3 dead 1 answered 500"},
		deliveries(f, task, "default"))
	if list, err := f.Webhooks.List(t.Context(), webhooks.Filter{Limit: 1}); err != nil || len(list) != 1 ||
		!list[0].NextAttemptAt.IsZero() {
		t.Errorf("a dead webhook has a next attempt: %+v, %v", list, err)
	}
	if err := f.Webhooks.Replay(t.Context(), d.Row, 1<<62); err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "replayed", storetest.Progress{State: "active", From: 0, Cursor: 0, Head: 3, Due: true},
		f.Progress(task, "default"))
	again := f.DueWebhook()
	storetest.Same(t, "attempts of the replay so far", 0, again.Attempt)
	f.Delivered(again, true)
	storetest.Same(t, "done", storetest.Progress{State: "done", From: 0, Cursor: 3, Head: 3},
		f.Progress(task, "default"))

	if err := f.Webhooks.Replay(t.Context(), d.Row, 1<<62); !errors.Is(err, webhooks.ErrNothingToReplay) {
		t.Fatalf("replay of delivered events: %v, want ErrNothingToReplay", err)
	}
	storetest.Same(t, "nothing to replay", storetest.Progress{State: "done", From: 0, Cursor: 3, Head: 3},
		f.Progress(task, "default"))
	if err := f.Webhooks.Replay(t.Context(), d.Row, 2); err != nil {
		t.Fatal(err)
	}
	again = f.DueWebhook()
	storetest.Same(t, "after event 2", []int64{2, 3}, []int64{again.Cursor, again.Seq})
	f.Delivered(again, true)
	tries, err := f.Webhooks.Attempts(t.Context(), d.Row, 10)
	if err != nil || len(tries) != 3 || tries[0].From != 2 || tries[2].Outcome != "failed" || tries[2].Status != 500 {
		t.Errorf("attempts %+v, %v", tries, err)
	}
	for i, want := range []string{webhooks.TriggerManual, webhooks.TriggerManual, webhooks.TriggerAuto} {
		if tries[i].Trigger != want {
			t.Errorf("try %d was made by %s, want %s", i, tries[i].Trigger, want)
		}
	}
	storetest.Same(t, "manual tries", []int{1, 1, 2}, manualTries(f, task))
	if err := f.Webhooks.Replay(t.Context(), db.NewTaskID(), 0); !errors.Is(err, webhooks.ErrNotFound) {
		t.Errorf("replay of no webhook: %v, want ErrNotFound", err)
	}
	if _, err := f.Webhooks.Attempts(t.Context(), db.NewTaskID(), 10); !errors.Is(err, webhooks.ErrNotFound) {
		t.Errorf("attempts of no webhook: %v, want ErrNotFound", err)
	}
	storetest.Same(t, "actions", []string{
		fmt.Sprintf(`replica r1 push.replay acme/ann {"after":0,"webhook":"%s"}`, d.Row),
		fmt.Sprintf(`replica r1 push.replay acme/ann {"after":2,"webhook":"%s"}`, d.Row),
	}, f.Actions())
}

// manualTries returns how often an operator asked for each event of a task with one webhook.
func manualTries(f *storetest.Fixture, task a2a.ID) []int {
	f.T.Helper()
	return storetest.Value[[]int](f,
		"SELECT array_agg(manual_tries ORDER BY seq) FROM audit.delivery WHERE task_id = $1", task)
}

// Events that come after the operator asked are delivered by the schedule again.
func TestReplayMarksOnlyTheEventsThatTheOperatorAskedFor(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	task := f.NewTaskWithWebhook("default")
	d := f.DueWebhook()
	f.Delivered(d, false)
	if err := f.Webhooks.Replay(t.Context(), d.Row, 0); err != nil {
		t.Fatal(err)
	}
	d = f.DueWebhook()
	storetest.Same(t, "manual", []any{int64(1), true}, []any{d.Seq, d.Manual})
	f.Failed(d, webhooks.Failure{})
	f.ClaimTask(task) // meanwhile the log grows
	d = f.DueWebhook()
	storetest.Same(t, "the retry", []any{int64(1), 1, true}, []any{d.Seq, d.Attempt, d.Manual})
	f.Delivered(d, false)
	d = f.DueWebhook()
	storetest.Same(t, "a later event", []any{int64(2), false}, []any{d.Seq, d.Manual})
	f.Delivered(d, false)
	storetest.Same(t, "ledger", []string{"1 delivered 3 ", "2 delivered 1 "}, deliveries(f, task, "default"))
	storetest.Same(t, "manual tries", []int{2, 0}, manualTries(f, task))
}

// A replay must not end the lease of a request in flight: the next request would overtake it, and a delete would not
// wait for it.
func TestReplayWaitsForTheRequestInFlight(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	task := f.NewTaskWithWebhook("default")
	d := f.DueWebhook()
	if err := f.Webhooks.Replay(t.Context(), d.Row, 0); err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "due during the request", 0, len(f.ClaimWebhooks(10)))
	f.TakeWakes()
	err := f.Webhooks.RecordDelivery(t.Context(), d, &webhooks.Try{Status: 200}, false)
	if !errors.Is(err, db.ErrLeaseLost) {
		t.Errorf("%v, want the lease lost: the request in flight is not the replay", err)
	}
	storetest.Same(t, "wakes", []string{wake.Webhooks}, f.TakeWakes())
	storetest.Same(t, "due after the request", []any{int64(1), true}, []any{f.DueWebhook().Seq, true})
	if err := f.Webhooks.Replay(t.Context(), d.Row, 0); err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "busy", true, deleteWaits(f, task))
}
