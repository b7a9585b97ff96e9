package webhooks_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/wake"
)

func TestDisablingADestinationIsRecordedOnce(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	breaker := &webhooks.Breaker{Fails: 1, FirstOpen: time.Second, MaxOpen: time.Minute, DisableAfter: time.Hour}
	for range 3 {
		in := storetest.Submission("hello")
		p := storetest.NewWebhook("default")
		in.Push = &p
		f.Submit(in)
	}
	due := f.ClaimWebhooks(3) // all under way at once
	storetest.Same(t, "claimed", 3, len(due))
	f.Failed(&due[0], webhooks.Failure{Breaker: breaker})
	storetest.Same(t, "before it is disabled", 0, len(f.Actions()))
	f.Exec("UPDATE a2a.push_destinations SET first_failure_at = first_failure_at - interval '2 hours'")
	for i := range due[1:] {
		if !f.Failed(&due[1+i], webhooks.Failure{Breaker: breaker}) {
			t.Errorf("failure %d: not disabled", i+2)
		}
	}
	storetest.Same(t, "actions", []string{`replica r1 push.disable acme/ {"destination":"` + storetest.WebhookOrigin + `"}`}, f.Actions())
}

func pushes(f *storetest.Fixture, task a2a.ID) []webhooks.Webhook {
	f.T.Helper()
	list, err := f.Webhooks.OfTask(f.T.Context(), storetest.Ann, task, "")
	if err != nil {
		f.T.Fatalf("list webhooks: %v", err)
	}
	return list
}

// deliveries returns, for each event of a webhook, what audit.delivery says of it.
func deliveries(f *storetest.Fixture, task a2a.ID, id string) (list []string) {
	f.T.Helper()
	rows, err := f.SQL.Query(f.T.Context(), `SELECT seq, state, tries, coalesce(reason, ''), delivered_at IS NOT NULL FROM audit.delivery
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
			f.T.Errorf("event %d is %s, and has a time of delivery: %t", seq, state, at)
		}
		list = append(list, fmt.Sprintf("%d %s %d %s", seq, state, tries, reason))
	}
	if err := rows.Err(); err != nil {
		f.T.Fatal(err)
	}
	return list
}

func TestWebhookIsSetReplacedAndLimited(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	task := f.NewTask()
	f.TakeWakes()
	f.SetWebhook(task, "default")
	f.SetWebhook(task, "other")
	list := pushes(f, task)
	if len(list) != 2 || list[0].ConfigID != "default" || list[1].ConfigID != "other" || list[0].URL != storetest.WebhookOrigin+"/default" {
		t.Fatalf("webhooks %+v, want default and other", list)
	}
	storetest.Same(t, "schemes", []string{"Bearer"}, list[0].Schemes)
	again := storetest.NewWebhook("default")
	again.URL, again.Origin, again.Schemes = "https://b.example/x", "https://b.example:443", nil
	if err := f.Tasks.SetWebhook(t.Context(), storetest.Ann, storetest.Agent, task, again, 2); err != nil {
		t.Fatalf("replace at the limit: %v", err)
	}
	now := pushes(f, task)
	if len(now) != 2 || now[0].Row != list[0].Row || now[0].URL != again.URL || len(now[0].Schemes) != 0 {
		t.Errorf("after the replacement: %+v", now)
	}
	if err := f.Tasks.SetWebhook(t.Context(), storetest.Ann, storetest.Agent, task, storetest.NewWebhook("third"), 2); a2a.CodeOf(err) != a2a.CodeInvalidParams {
		t.Errorf("one above the limit: %v, want invalid params", err)
	}
	one, err := f.Webhooks.OfTask(t.Context(), storetest.Ann, task, "other")
	if err != nil || len(one) != 1 || one[0].ConfigID != "other" {
		t.Errorf("the one by its id: %+v, %v", one, err)
	}
	if got := storetest.Value[string](f, "SELECT convert_from(token, 'UTF8') FROM a2a.push_configs WHERE id = $1", now[0].Row); got != "token of "+now[0].Row.String() {
		t.Errorf("the token was bound to %q", got)
	}
}

func TestWebhookOnAForeignTask(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	task := f.NewTask()
	f.SetWebhook(task, "default")
	for what, set := range map[string]func() error{
		"another owner": func() error {
			return f.Tasks.SetWebhook(t.Context(), db.Caller{Tenant: "acme", Owner: "bob"}, storetest.Agent, task, storetest.NewWebhook("x"), 10)
		},
		"another tenant": func() error {
			return f.Tasks.SetWebhook(t.Context(), db.Caller{Tenant: "b", Owner: "ann"}, storetest.Agent, task, storetest.NewWebhook("x"), 10)
		},
		"another agent": func() error {
			return f.Tasks.SetWebhook(t.Context(), storetest.Ann, "other", task, storetest.NewWebhook("x"), 10)
		},
		"no task": func() error {
			return f.Tasks.SetWebhook(t.Context(), storetest.Ann, storetest.Agent, db.NewTaskID(), storetest.NewWebhook("x"), 10)
		},
	} {
		storetest.WantCode(t, set(), a2a.CodeTaskNotFound)
		if t.Failed() {
			t.Fatal(what)
		}
	}
	bob := db.Caller{Tenant: "acme", Owner: "bob"}
	if list, err := f.Webhooks.OfTask(t.Context(), bob, task, ""); err != nil || len(list) != 0 {
		t.Errorf("bob sees %+v, %v", list, err)
	}
	if err := f.Webhooks.Delete(t.Context(), bob, task, "default"); err != nil || len(pushes(f, task)) != 1 {
		t.Errorf("bob's delete: %v, and %d webhooks are left", err, len(pushes(f, task)))
	}
}

func TestWebhookOfAMessage(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	in := storetest.Submission("hello")
	p := storetest.NewWebhook("default")
	in.Push, in.MaxPushes = &p, 10
	f.TakeWakes()
	task := f.Submit(in).Task
	storetest.Same(t, "with a new task", storetest.Progress{State: "active", From: 0, Cursor: 0, Head: 1, Due: true}, f.Progress(task, "default"))
	if !contains(f.TakeWakes(), wake.Webhooks) {
		t.Error("nobody was woken for the first event")
	}
	l := f.ClaimTask(task)
	f.Append(l, storetest.Status(a2a.StateInputRequired, "?"))
	storetest.Same(t, "behind a question", storetest.Progress{State: "active", From: 0, Cursor: 0, Head: 3, Due: true}, f.Progress(task, "default"))

	more := storetest.Submission("more")
	second := storetest.NewWebhook("second")
	more.Task, more.ContextID, more.Push, more.MaxPushes = task, "", &second, 10
	f.Submit(more)
	storetest.Same(t, "with a message that goes on", storetest.Progress{State: "active", From: 3, Cursor: 3, Head: 4, Due: true}, f.Progress(task, "second"))
	storetest.Same(t, "the first one", storetest.Progress{State: "active", From: 0, Cursor: 0, Head: 4, Due: true}, f.Progress(task, "default"))

	// A refused message leaves no webhook, and a refused webhook no message.
	broken := storetest.Submission("broken")
	bad := storetest.NewWebhook("bad")
	bad.Seal = func(a2a.ID) ([]byte, []byte, error) { return nil, nil, errors.New("no key") }
	broken.Push = &bad
	before := storetest.Value[int](f, "SELECT count(*)::int FROM a2a.tasks")
	if _, err := f.Tasks.Submit(t.Context(), broken); err == nil {
		t.Error("a message whose webhook cannot be stored was taken")
	}
	if after := storetest.Value[int](f, "SELECT count(*)::int FROM a2a.tasks"); after != before {
		t.Errorf("it left %d tasks", after-before)
	}
	f.Invariants()
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func TestWebhookOfAnEndedTask(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	f.Append(l, storetest.Status(a2a.StateCompleted))
	f.SetWebhook(l.TaskID, "default")
	storetest.Same(t, "place", storetest.Progress{State: "done", From: 3, Cursor: 3, Head: 3}, f.Progress(l.TaskID, "default"))
	if len(pushes(f, l.TaskID)) != 1 || len(f.ClaimWebhooks(10)) != 0 {
		t.Error("the webhook is not there, or has something to deliver")
	}
}

// TestHeadsFollowEveryKindOfEvent: whoever writes an event tells the webhooks in the same transaction.
func TestHeadsFollowEveryKindOfEvent(t *testing.T) {
	t.Parallel()
	head := func(f *storetest.Fixture, task a2a.ID, what string) {
		f.T.Helper()
		if p, last := f.Progress(task, "default"), storetest.Value[int64](f, "SELECT last_seq FROM a2a.tasks WHERE id = $1", task); p.Head != last || !p.Due {
			f.T.Errorf("%s: %+v, want the head at %d and due", what, p, last)
		}
		if !contains(f.TakeWakes(), wake.Webhooks) {
			f.T.Errorf("%s: nobody was woken", what)
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
		if _, err := f.Tasks.Rescue(t.Context(), []tasks.Policy{{Agent: storetest.Agent, Fate: "fail", MaxAttempts: 5}}, 5, 10); err != nil {
			t.Fatal(err)
		}
		head(f, task, "rescue")
	})
}

func TestChunksGatherAndABackoffIsNotCutShort(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	f.SetWebhook(l.TaskID, "default")
	f.Append(l, storetest.Chunk("a", "x"))
	if p := f.Progress(l.TaskID, "default"); p.Head != 3 || storetest.Value[bool](f, "SELECT next_attempt_at = 'infinity' FROM a2a.push_configs") {
		t.Errorf("behind a chunk: %+v", p)
	}
	f.Append(l, storetest.Status(a2a.StateWorking, "on it"))
	if p := f.Progress(l.TaskID, "default"); !p.Due {
		t.Errorf("behind a status: %+v, want it due", p)
	}
	f.Failed(f.DueWebhook(), webhooks.Failure{Delay: time.Hour})
	f.Append(l, storetest.Status(a2a.StateCompleted))
	if p := f.Progress(l.TaskID, "default"); p.Due || p.Head != 5 {
		t.Errorf("while a retry waits: %+v, want the head at 5 and nothing due", p)
	}
}

func TestTargetNeverSkipsWhatMatters(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	in := storetest.Submission("hello")
	p := storetest.NewWebhook("default")
	in.Push = &p
	task := f.Submit(in).Task // 1
	l := f.ClaimTask(task)    // 2
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
	storetest.Same(t, "place", storetest.Progress{State: "done", From: 0, Cursor: 8, Head: 8}, f.Progress(task, "default"))
	storetest.Same(t, "ledger", []string{
		"1 delivered 2 ", "2 delivered 2 ", "3 delivered 2 ", "4 delivered 2 ", "5 delivered 2 ", "6 delivered 1 ", "7 delivered 1 ", "8 delivered 1 ",
	}, deliveries(f, task, "default"))
}

// TestTargetStaysWhileTheLogGrows: what a try was made of is what its retry is made of.
func TestTargetStaysWhileTheLogGrows(t *testing.T) {
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

func TestDestinationsAreCappedOverReplicas(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	for range 6 {
		in := storetest.Submission("hello")
		p := storetest.NewWebhook("default")
		in.Push = &p
		f.Submit(in)
	}
	in := storetest.Submission("other")
	p := storetest.NewWebhook("default")
	p.Origin = "https://other.example:443"
	in.Push = &p
	f.Submit(in)
	r2 := f.Replica("r2")
	var mu sync.Mutex
	got := map[string]int{}
	var first *webhooks.Delivery
	var wg sync.WaitGroup
	for _, s := range []*store.Store{f.Store, r2, f.Store, r2} {
		wg.Go(func() {
			due, err := s.Webhooks.Claim(t.Context(), 10, 4, time.Minute)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			for i := range due {
				got[due[i].Origin]++
				if due[i].Origin == storetest.WebhookOrigin {
					first = &due[i]
				}
			}
		})
	}
	wg.Wait()
	storetest.Same(t, "claimed", map[string]int{storetest.WebhookOrigin: 4, "https://other.example:443": 1}, got)
	f.Delivered(first, false)
	for _, want := range []int{1, 0} { // one is free, and no more
		if due, err := r2.Webhooks.Claim(t.Context(), 10, 4, time.Minute); err != nil || len(due) != want {
			t.Errorf("%d more, %v, want %d", len(due), err, want)
		}
	}
	// A lease that ran out frees its place and its webhook.
	f.Exec("UPDATE a2a.push_configs SET lease_until = clock_timestamp() - interval '1 second' WHERE id <> $1 AND lease_until IS NOT NULL", first.Row)
	if due, err := r2.Webhooks.Claim(t.Context(), 10, 4, time.Minute); err != nil || len(due) != 5 {
		t.Errorf("when the leases ran out: %d, %v, want 4 and the other one", len(due), err)
	}
}

func TestBreakerOpensProbesAndCloses(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	breaker := &webhooks.Breaker{Fails: 3, FirstOpen: 30 * time.Second, MaxOpen: time.Minute, DisableAfter: 120 * time.Hour}
	for range 4 {
		in := storetest.Submission("hello")
		p := storetest.NewWebhook("default")
		in.Push = &p
		f.Submit(in)
	}
	due := f.ClaimWebhooks(10)
	storetest.Same(t, "claimed", 4, len(due))
	rests := func() float64 {
		return storetest.Value[float64](f, "SELECT coalesce(extract(epoch FROM open_until - clock_timestamp()), 0)::float8 FROM a2a.push_destinations")
	}
	f.Failed(&due[0], webhooks.Failure{Breaker: breaker})
	f.Failed(&due[1], webhooks.Failure{Breaker: breaker})
	storetest.Same(t, "after two", 0.0, rests())
	f.Failed(&due[2], webhooks.Failure{Breaker: breaker})
	if got := rests(); got < 20 || got > 30 {
		t.Errorf("after three it rests for %g s, want 30", got)
	}
	// What was under way when the breaker opened says nothing new.
	f.Failed(&due[3], webhooks.Failure{Breaker: breaker})
	if got := rests(); got < 20 || got > 30 {
		t.Errorf("after a failure that was under way it rests for %g s, want 30", got)
	}
	storetest.Same(t, "while it rests", 0, len(f.ClaimWebhooks(10)))
	probe := func() *webhooks.Delivery {
		t.Helper()
		f.Exec("UPDATE a2a.push_destinations SET open_until = clock_timestamp() - interval '1 second'")
		f.Exec("UPDATE a2a.push_parked SET look_at = clock_timestamp() - interval '1 second'")
		due := f.ClaimWebhooks(10)
		if len(due) != 1 {
			t.Fatalf("%d probes, want one", len(due))
		}
		storetest.Same(t, "beside the probe", 0, len(f.ClaimWebhooks(10)))
		return &due[0]
	}
	f.Failed(probe(), webhooks.Failure{Breaker: breaker})
	if got := rests(); got < 50 || got > 60 {
		t.Errorf("after a probe it rests for %g s, want 60", got)
	}
	f.Failed(probe(), webhooks.Failure{Breaker: breaker})
	if got := rests(); got < 50 || got > 60 {
		t.Errorf("after another one it rests for %g s, want 60: that is the most", got)
	}
	o, err := f.Operate.Overview(t.Context())
	if err != nil || len(o.Down) != 1 || o.Down[0].LastError != "answered 500" {
		t.Errorf("the overview has %+v, want the last error: %v", o.Down, err)
	}
	f.Delivered(probe(), false)
	storetest.Same(t, "after a success", 0.0, rests())
	storetest.Same(t, "then all are called", 3, len(f.ClaimWebhooks(10)))
}

// TestAnAnswerClosesTheBreaker: a server that refuses one webhook is up.
func TestAnAnswerClosesTheBreaker(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	breaker := &webhooks.Breaker{Fails: 2, FirstOpen: 30 * time.Second, MaxOpen: time.Minute, DisableAfter: 120 * time.Hour}
	for range 3 {
		in := storetest.Submission("hello")
		p := storetest.NewWebhook("default")
		in.Push = &p
		f.Submit(in)
	}
	due := f.ClaimWebhooks(2)
	f.Failed(&due[0], webhooks.Failure{Breaker: breaker})
	f.Failed(&due[1], webhooks.Failure{Breaker: breaker})
	f.Exec("UPDATE a2a.push_destinations SET open_until = clock_timestamp() - interval '1 second'")
	probe := f.ClaimWebhooks(10)
	if len(probe) != 1 {
		t.Fatalf("%d probes, want one", len(probe))
	}
	if _, err := f.Webhooks.RecordFailure(t.Context(), &probe[0], &webhooks.Try{Status: 404, Class: "client_error", Reason: "answered 404"}, webhooks.Failure{}); err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "claimed", 3, len(f.ClaimWebhooks(10)))
}

func TestDestinationIsDisabledAfterDays(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	breaker := &webhooks.Breaker{Fails: 1, FirstOpen: time.Second, MaxOpen: time.Minute, DisableAfter: time.Hour}
	in := storetest.Submission("hello")
	p := storetest.NewWebhook("default")
	in.Push = &p
	f.Submit(in)
	if f.Failed(f.DueWebhook(), webhooks.Failure{Breaker: breaker}) {
		t.Error("disabled at the first failure")
	}
	if !storetest.Value[bool](f, "SELECT openings = 1 AND open_until <= clock_timestamp() + interval '1 second' FROM a2a.push_destinations") {
		t.Error("the one failure that the breaker allows did not open it")
	}
	f.Exec("UPDATE a2a.push_destinations SET first_failure_at = first_failure_at - interval '2 hours', open_until = NULL")
	if !f.Failed(f.DueWebhook(), webhooks.Failure{Breaker: breaker}) {
		t.Error("not disabled after two hours of failures")
	}
	f.Exec("UPDATE a2a.push_destinations SET open_until = NULL")
	f.Exec("UPDATE a2a.push_configs SET next_attempt_at = clock_timestamp()")
	storetest.Same(t, "while it is disabled", 0, len(f.ClaimWebhooks(10)))
	list, err := f.Webhooks.List(t.Context(), webhooks.Filter{Limit: 10})
	if err != nil || len(list) != 1 || list[0].DisabledAt.IsZero() || list[0].Attempt != 2 {
		t.Errorf("the operator sees %+v, %v", list, err)
	}
	if done, err := f.Webhooks.EnableDestination(t.Context(), "acme", storetest.WebhookOrigin); !done || err != nil {
		t.Errorf("enable: %t, %v", done, err)
	}
	storetest.Same(t, "when it is enabled", 1, len(f.ClaimWebhooks(10)))
	if done, err := f.Webhooks.EnableDestination(t.Context(), "acme", "https://nobody:443"); done || err != nil {
		t.Errorf("enable what is not there: %t, %v", done, err)
	}
}

// TestLostLeaseRecordsNothing: the deliverer that was given up on is not heard any more.
func TestLostLeaseRecordsNothing(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	in := storetest.Submission("hello")
	p := storetest.NewWebhook("default")
	in.Push = &p
	task := f.Submit(in).Task
	old := f.DueWebhook()
	f.Exec("UPDATE a2a.push_configs SET lease_until = clock_timestamp() - interval '1 second'")
	heir := f.DueWebhook()
	if heir.Epoch <= old.Epoch || heir.Seq != old.Seq {
		t.Fatalf("epochs %d and %d, events %d and %d", old.Epoch, heir.Epoch, old.Seq, heir.Seq)
	}
	if err := f.Webhooks.RecordDelivery(t.Context(), old, &webhooks.Try{Status: 200}, false); !errors.Is(err, db.ErrLeaseLost) {
		t.Errorf("delivered: %v, want the lease lost", err)
	}
	if err := f.Webhooks.RecordSkip(t.Context(), old, &storetest.RefusedTry, false); !errors.Is(err, db.ErrLeaseLost) {
		t.Errorf("skipped: %v, want the lease lost", err)
	}
	if _, err := f.Webhooks.RecordFailure(t.Context(), old, &storetest.RefusedTry, webhooks.Failure{Fate: "dead"}); !errors.Is(err, db.ErrLeaseLost) {
		t.Errorf("failed: %v, want the lease lost", err)
	}
	if err := f.Webhooks.Release(t.Context(), old); err != nil {
		t.Error(err)
	}
	storetest.Same(t, "still held", 0, len(f.ClaimWebhooks(10)))
	storetest.Same(t, "ledger", []string{"1 pending 0 "}, deliveries(f, task, "default"))
	f.Delivered(heir, false)
	storetest.Same(t, "ledger", []string{"1 delivered 1 "}, deliveries(f, task, "default"))
}

// TestReplacedWhileARequestIsUnderWay: its answer is that of the former webhook.
func TestReplacedWhileARequestIsUnderWay(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"delivered", "disabled"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := storetest.Open(t)
			in := storetest.Submission("hello")
			p := storetest.NewWebhook("default")
			in.Push = &p
			task := f.Submit(in).Task
			d := f.DueWebhook()
			f.SetWebhook(task, "default")
			storetest.Same(t, "while it is held", 0, len(f.ClaimWebhooks(10)))
			var err error
			if what == "delivered" {
				err = f.Webhooks.RecordDelivery(t.Context(), d, &webhooks.Try{Status: 200}, false)
			} else {
				_, err = f.Webhooks.RecordFailure(t.Context(), d, &webhooks.Try{Status: 410, Reason: "gone"}, webhooks.Failure{Fate: "disabled"})
			}
			if !errors.Is(err, db.ErrLeaseLost) {
				t.Errorf("%v, want the lease lost", err)
			}
			storetest.Same(t, "place", storetest.Progress{State: "active", From: 0, Cursor: 0, Head: 1, Due: true}, f.Progress(task, "default"))
			storetest.Same(t, "claimed again", 1, len(f.ClaimWebhooks(10)))
		})
	}
}

func TestDeleteWaitsForARequestUnderWay(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	in := storetest.Submission("hello")
	p := storetest.NewWebhook("default")
	in.Push = &p
	task := f.Submit(in).Task
	d := f.DueWebhook()
	done := make(chan error, 1)
	go func() { done <- f.Webhooks.Delete(t.Context(), storetest.Ann, task, "default") }()
	for len(pushes(f, task)) > 0 { // it is gone for clients at once
		f.TakeWakes()
	}
	f.ClaimTask(task)
	select {
	case err := <-done:
		t.Fatalf("the delete did not wait: %v", err)
	default:
	}
	f.Delivered(d, false)
	if err := <-done; err != nil {
		t.Errorf("delete: %v", err)
	}
	storetest.Same(t, "place", storetest.Progress{State: "active", From: 0, Cursor: 1, Head: 1}, f.Progress(task, "default"))
	storetest.Same(t, "due", 0, len(f.ClaimWebhooks(10)))
	if err := f.Webhooks.Delete(t.Context(), storetest.Ann, task, "default"); err != nil {
		t.Errorf("delete again: %v", err)
	}
	// Its id is free for another one, which begins where the log is now.
	f.SetWebhook(task, "default")
	storetest.Same(t, "the next one", storetest.Progress{State: "active", From: 2, Cursor: 2, Head: 2}, f.Progress(task, "default"))
	storetest.Same(t, "ledger", []string{"1 delivered 1 "}, deliveries(f, task, "default"))
}

func TestReplay(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	in := storetest.Submission("hello")
	p := storetest.NewWebhook("default")
	in.Push = &p
	task := f.Submit(in).Task
	l := f.ClaimTask(task)
	f.Append(l, storetest.Status(a2a.StateCompleted))
	d := f.DueWebhook()
	f.Failed(d, webhooks.Failure{Fate: "dead"})
	storetest.Same(t, "dead", []string{"1 dead 1 answered 500", "2 dead 1 answered 500", "3 dead 1 answered 500"}, deliveries(f, task, "default"))
	if list, err := f.Webhooks.List(t.Context(), webhooks.Filter{Limit: 1}); err != nil || len(list) != 1 || !list[0].NextAttemptAt.IsZero() {
		t.Errorf("a webhook that was given up is tried again: %+v, %v", list, err)
	}
	if err := f.Webhooks.Replay(t.Context(), d.Row, 1<<62); err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "replayed", storetest.Progress{State: "active", From: 0, Cursor: 0, Head: 3, Due: true}, f.Progress(task, "default"))
	again := f.DueWebhook()
	storetest.Same(t, "the schedule begins anew", 0, again.Attempt)
	f.Delivered(again, true)
	storetest.Same(t, "done", storetest.Progress{State: "done", From: 0, Cursor: 3, Head: 3}, f.Progress(task, "default"))

	if err := f.Webhooks.Replay(t.Context(), d.Row, 1<<62); !errors.Is(err, webhooks.ErrNothingToReplay) {
		t.Fatalf("a replay of what is delivered: %v", err)
	}
	storetest.Same(t, "nothing to replay", storetest.Progress{State: "done", From: 0, Cursor: 3, Head: 3}, f.Progress(task, "default"))
	if err := f.Webhooks.Replay(t.Context(), d.Row, 2); err != nil {
		t.Fatal(err)
	}
	again = f.DueWebhook()
	storetest.Same(t, "behind 2", []int64{2, 3}, []int64{again.Cursor, again.Seq})
	f.Delivered(again, true)
	tries, err := f.Webhooks.Attempts(t.Context(), d.Row, 10)
	if err != nil || len(tries) != 3 || tries[0].From != 2 || tries[2].Outcome != "failed" || tries[2].Status != 500 {
		t.Errorf("ledger %+v, %v", tries, err)
	}
	for i, want := range []string{webhooks.TriggerManual, webhooks.TriggerManual, webhooks.TriggerAuto} {
		if tries[i].Trigger != want {
			t.Errorf("try %d was made by %s, want %s", i, tries[i].Trigger, want)
		}
	}
	storetest.Same(t, "manual tries", []int{1, 1, 2}, manualTries(f, task))
	if err := f.Webhooks.Replay(t.Context(), db.NewTaskID(), 0); !errors.Is(err, webhooks.ErrNotFound) {
		t.Errorf("replay of none: %v", err)
	}
	if _, err := f.Webhooks.Attempts(t.Context(), db.NewTaskID(), 10); !errors.Is(err, webhooks.ErrNotFound) {
		t.Errorf("the ledger of none: %v", err)
	}
	storetest.Same(t, "who was it", []string{
		fmt.Sprintf(`replica r1 push.replay acme/ann {"after":0,"webhook":"%s"}`, d.Row),
		fmt.Sprintf(`replica r1 push.replay acme/ann {"after":2,"webhook":"%s"}`, d.Row),
	}, f.Actions())
}

func TestAuditTellsWhatBecameOfEachEvent(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	in := storetest.Submission("hello")
	p := storetest.NewWebhook("a")
	in.Push = &p
	task := f.Submit(in).Task
	if err := f.Webhooks.RecordSkip(t.Context(), f.DueWebhook(), &webhooks.Try{Status: 400, Reason: "answered 400"}, false); err != nil {
		t.Fatal(err)
	}
	l := f.ClaimTask(task)
	storetest.Same(t, "pending", []string{"1 skipped 0 answered 400", "2 pending 0 "}, deliveries(f, task, "a"))
	if err := f.Webhooks.Delete(t.Context(), storetest.Ann, task, "a"); err != nil {
		t.Fatal(err)
	}
	f.Append(l, storetest.Status(a2a.StateCompleted))
	storetest.Same(t, "deleted", []string{"1 skipped 0 answered 400", "2 cancelled 0 "}, deliveries(f, task, "a"))
	if got := storetest.Value[int64](f, "SELECT deleted_after_seq FROM audit.push_config WHERE task_id = $1 AND id = 'a'", task); got != 2 {
		t.Errorf("deleted after %d, want 2", got)
	}
}

// manualTries returns, for each event of a task with one webhook, how often an operator asked for it.
func manualTries(f *storetest.Fixture, task a2a.ID) []int {
	f.T.Helper()
	return storetest.Value[[]int](f, "SELECT array_agg(manual_tries ORDER BY seq) FROM audit.delivery WHERE task_id = $1", task)
}

// What comes behind that which was there when the operator asked is the schedule's again.
func TestReplayMarksWhatItWasAskedFor(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	in := storetest.Submission("hello")
	p := storetest.NewWebhook("default")
	in.Push = &p
	task := f.Submit(in).Task
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
	storetest.Same(t, "what came since", []any{int64(2), false}, []any{d.Seq, d.Manual})
	f.Delivered(d, false)
	storetest.Same(t, "ledger", []string{"1 delivered 3 ", "2 delivered 1 "}, deliveries(f, task, "default"))
	storetest.Same(t, "manual tries", []int{2, 0}, manualTries(f, task))
}

// A replay must not free a webhook whose request is under way: the next request would overtake
// it, and a delete would not wait for it.
func TestReplayWaitsForARequestUnderWay(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	in := storetest.Submission("hello")
	p := storetest.NewWebhook("default")
	in.Push = &p
	task := f.Submit(in).Task
	d := f.DueWebhook()
	if err := f.Webhooks.Replay(t.Context(), d.Row, 0); err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "due beside it", 0, len(f.ClaimWebhooks(10)))
	f.TakeWakes()
	if err := f.Webhooks.RecordDelivery(t.Context(), d, &webhooks.Try{Status: 200}, false); !errors.Is(err, db.ErrLeaseLost) {
		t.Errorf("%v, want the lease lost: what was under way is not what was asked for", err)
	}
	storetest.Same(t, "wakes", []string{wake.Webhooks}, f.TakeWakes())
	storetest.Same(t, "due behind it", []any{int64(1), true}, []any{f.DueWebhook().Seq, true})
	if err := f.Webhooks.Replay(t.Context(), d.Row, 0); err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "busy", true, deleteWaits(f, task))
}

// deleteWaits deletes the webhook of a task for a client that waits for a moment, and reports
// whether that was too short.
func deleteWaits(f *storetest.Fixture, task a2a.ID) bool {
	f.T.Helper()
	ctx, cancel := context.WithTimeout(f.T.Context(), 100*time.Millisecond)
	defer cancel()
	err := f.Webhooks.Delete(ctx, storetest.Ann, task, "default")
	return errors.Is(err, context.DeadlineExceeded)
}

// A client whose delete was cut off repeats it. The request under way is still under way.
func TestRepeatedDeleteWaitsToo(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	in := storetest.Submission("hello")
	p := storetest.NewWebhook("default")
	in.Push = &p
	task := f.Submit(in).Task
	d := f.DueWebhook()
	storetest.Same(t, "the first one was cut off", true, deleteWaits(f, task))
	storetest.Same(t, "and so was the second", true, deleteWaits(f, task))
	if err := f.Webhooks.Delete(t.Context(), db.Caller{Tenant: "acme", Owner: "bob"}, task, "default"); err != nil {
		t.Errorf("somebody else waits: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- f.Webhooks.Delete(t.Context(), storetest.Ann, task, "default") }()
	f.Exec("UPDATE a2a.push_configs SET lease_until = clock_timestamp()") // its deliverer is dead
	if err := <-done; err != nil {
		t.Errorf("delete: %v", err)
	}
	if err := f.Webhooks.Release(t.Context(), d); err != nil {
		t.Error(err)
	}
}

// Neither a delete nor a sweep that finds nothing may read what was deleted and kept before.
func TestDeletesAndSweepsDoNotReadWhatIsKept(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	f.Exec(`INSERT INTO a2a.push_configs (id, task_id, config_id, tenant, owner, agent, url, origin, schemes, wire_version, from_seq, cursor_seq, head_seq, deleted_at)
		SELECT gen_random_uuid(), gen_random_uuid(), 'default', 'acme', 'ann', 'words', 'u', 'x', '{}', 3, 0, 1, 1, clock_timestamp() FROM generate_series(1, 2000)`)
	f.Exec(`INSERT INTO a2a.push_attempts (push_id, task_id, from_seq, seq, outcome, attempt, trigger, started_at)
		SELECT gen_random_uuid(), gen_random_uuid(), 0, 1, CASE n % 2 WHEN 0 THEN 'failed' ELSE 'delivered' END, 1, 'auto', clock_timestamp() FROM generate_series(1, 4000) n`)
	task := f.NewTask()
	f.SetWebhook(task, "default")
	s := f.Replica("r2")
	if err := s.Webhooks.Delete(t.Context(), storetest.Ann, task, "default"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Webhooks.Sweep(t.Context(), webhooks.SweepPolicy{Keep: time.Hour, Forget: time.Hour, Batch: 100}); err != nil {
		t.Fatal(err)
	}
	s.Close() // and its backends report what they read
	f.WaitDisconnected("a2ad-r2-worker")
	f.WaitDisconnected("a2ad-r2-api")
	n := storetest.Value[int64](f, `SELECT (SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE relname LIKE 'push%')::bigint
		+ (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname LIKE 'push%')::bigint`)
	if n < 1 || n > 50 {
		t.Errorf("%d rows and entries were read, want a few", n)
	}
}

func TestTraceparentStaysWithTheTask(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	const first, second = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-11111111111111111111111111111111-2222222222222222-00"
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

func TestSweepRemovesWhatIsOldAlone(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	in := storetest.Submission("hello")
	p := storetest.NewWebhook("kept")
	in.Push = &p
	task := f.Submit(in).Task
	f.SetWebhook(task, "deleted")
	f.Failed(f.DueWebhook(), webhooks.Failure{Breaker: &webhooks.Breaker{Fails: 100, FirstOpen: time.Second, MaxOpen: time.Second, DisableAfter: 240 * time.Hour}})
	if err := f.Webhooks.RecordDelivery(t.Context(), f.DueWebhook(), &webhooks.Try{Status: 200, Answer: []byte("thank you")}, false); err != nil {
		t.Fatal(err)
	}
	f.ClaimTask(task)
	d := f.ClaimWebhooks(10)
	for i := range d {
		f.Failed(&d[i], webhooks.Failure{})
	}
	if err := f.Webhooks.Delete(t.Context(), storetest.Ann, task, "deleted"); err != nil {
		t.Fatal(err)
	}
	sweep := func(keep, forget time.Duration, batch int) bool {
		t.Helper()
		more, err := f.Webhooks.Sweep(t.Context(), webhooks.SweepPolicy{Keep: keep, Forget: forget, Batch: batch})
		if err != nil {
			t.Fatal(err)
		}
		return more
	}
	count := func() []int64 {
		t.Helper()
		return []int64{
			storetest.Value[int64](f, "SELECT count(*) FROM a2a.push_configs"), storetest.Value[int64](f, "SELECT count(*) FROM a2a.push_attempts WHERE outcome = 'failed'"),
			storetest.Value[int64](f, "SELECT count(*) FROM a2a.push_attempts WHERE outcome = 'delivered'"), storetest.Value[int64](f, "SELECT count(*) FROM a2a.push_attempts WHERE answer IS NOT NULL"),
			storetest.Value[int64](f, "SELECT count(*) FROM a2a.push_destinations"),
		}
	}
	f.Exec("UPDATE a2a.push_destinations SET fails = 3, first_failure_at = clock_timestamp() - interval '1 day'")
	f.Exec("UPDATE a2a.push_attempts SET started_at = started_at - interval '1 day'")
	f.Exec("UPDATE a2a.push_configs SET deleted_at = deleted_at - interval '1 day'")
	before := count()
	storetest.Same(t, "rows", []int64{2, 3, 1, 1, 1}, before)
	sweep(48*time.Hour, 48*time.Hour, 10)
	storetest.Same(t, "when nothing is old", before, count())
	sweep(0, 48*time.Hour, 10)
	storetest.Same(t, "when all is kept", before, count())

	f.Exec("UPDATE a2a.push_configs SET lease_until = clock_timestamp() + interval '1 hour' WHERE deleted_at IS NOT NULL")
	storetest.Same(t, "more than a batch", true, sweep(time.Hour, 48*time.Hour, 2))
	storetest.Same(t, "more than two batches", true, sweep(time.Hour, 48*time.Hour, 2))
	storetest.Same(t, "the rest", false, sweep(time.Hour, 48*time.Hour, 2))
	storetest.Same(t, "without what is held", []int64{2, 0, 1, 0, 1}, count())
	f.Exec("UPDATE a2a.push_configs SET lease_until = NULL")
	sweep(time.Hour, time.Hour, 10)
	storetest.Same(t, "at last", []int64{1, 0, 1, 0, 0}, count())
	storetest.Same(t, "what was settled stays", "1 delivered 1 ", deliveries(f, task, "kept")[0])
}

// Breakers of destinations that are well are no use; one that is disabled is an operator's.
func TestSweepKeepsDestinationsThatAreDisabled(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	f.Exec(`INSERT INTO a2a.push_destinations (tenant, origin, fails, first_failure_at, open_until, disabled_at) VALUES
		('acme', 'well', 0, NULL, NULL, NULL), ('acme', 'failing', 3, clock_timestamp() - interval '1 hour', NULL, NULL),
		('acme', 'rests', 5, clock_timestamp() - interval '9 days', clock_timestamp() + interval '1 minute', NULL),
		('acme', 'forgotten', 5, clock_timestamp() - interval '9 days', clock_timestamp() - interval '8 days', NULL),
		('acme', 'disabled', 99, clock_timestamp() - interval '90 days', NULL, clock_timestamp() - interval '80 days')`)
	if _, err := f.Webhooks.Sweep(t.Context(), webhooks.SweepPolicy{Forget: 120 * time.Hour, Batch: 10}); err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "left", []string{"disabled", "failing", "rests"}, storetest.Value[[]string](f, "SELECT array_agg(origin ORDER BY origin) FROM a2a.push_destinations"))
}

// A task without webhooks pays for them with one boolean in a row that it reads anyway: from
// its submission to its end no table of webhooks is looked at.
func TestTaskWithoutWebhooksTouchesNoneOfTheirTables(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	s := f.Replica("r2")
	lives := func(push *webhooks.NewWebhook) {
		t.Helper()
		in := storetest.Submission("hello")
		in.Push = push
		out, err := s.Tasks.Submit(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		leases, err := s.Tasks.NewClaimer().Claim(t.Context(), storetest.Agent, 1, storetest.TTL, time.Hour)
		if err != nil || len(leases) != 1 || leases[0].TaskID != out.Task {
			t.Fatalf("claimed %v, %v", leases, err)
		}
		for _, e := range []a2a.Event{storetest.Chunk("a", "x"), storetest.Status(a2a.StateWorking), storetest.Status(a2a.StateCompleted)} {
			if _, err := s.Tasks.Append(t.Context(), &leases[0], tasks.Batch{Events: []a2a.Event{e}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	touched := func() int64 {
		t.Helper()
		s.Close() // and its backends report what they did
		f.WaitDisconnected("a2ad-r2-worker")
		f.WaitDisconnected("a2ad-r2-claim")
		return storetest.Value[int64](f, `SELECT coalesce(sum(seq_scan + coalesce(idx_scan, 0) + n_tup_ins + n_tup_upd), 0)::bigint FROM pg_stat_user_tables
			WHERE schemaname = 'a2a' AND relname LIKE 'push%'`)
	}
	for range 20 {
		lives(nil)
	}
	if n := touched(); n != 0 {
		t.Errorf("tables of webhooks were touched %d times", n)
	}
	if n := storetest.Value[int64](f, "SELECT n_tup_ins FROM pg_stat_user_tables WHERE relname = 'task_events'"); n != 20*5 {
		t.Errorf("%d events are in the statistics, want %d: they say nothing", n, 20*5)
	}
	s = f.Replica("r2")
	p := storetest.NewWebhook("default")
	lives(&p)
	if touched() == 0 {
		t.Error("a task with a webhook touched none either: the statistics say nothing")
	}
}
