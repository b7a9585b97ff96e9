package tasks_test

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
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/wake"
)

const hook = "https://hooks.example:443"

// newPush is a webhook of a client; its secrets are sealed as their row's id, so that a test
// sees what they were bound to.
func newPush(id string) webhooks.NewWebhook {
	return webhooks.NewWebhook{
		ConfigID: id, URL: hook + "/" + id, Origin: hook, Schemes: []string{"Bearer"}, Version: a2a.PushV03,
		Seal: func(row a2a.ID) (token, credentials []byte, err error) {
			return []byte("token of " + row.String()), []byte("credentials of " + row.String()), nil
		},
	}
}

func (f *fixture) setPush(task a2a.ID, id string) {
	f.t.Helper()
	if err := f.Tasks.SetWebhook(f.ctx, ann, agent, task, newPush(id), 10); err != nil {
		f.t.Fatalf("set webhook %s: %v", id, err)
	}
}

func (f *fixture) pushes(task a2a.ID) []webhooks.Webhook {
	f.t.Helper()
	list, err := f.Webhooks.OfTask(f.ctx, ann, task, "")
	if err != nil {
		f.t.Fatalf("list webhooks: %v", err)
	}
	return list
}

func (f *fixture) claimPushes(limit int) []webhooks.Delivery {
	f.t.Helper()
	due, err := f.Webhooks.Claim(f.ctx, limit, 8, time.Minute)
	if err != nil {
		f.t.Fatalf("claim webhooks: %v", err)
	}
	return due
}

// duePush claims the only webhook that is due, whatever it waits for.
func (f *fixture) duePush() *webhooks.Delivery {
	f.t.Helper()
	f.exec("UPDATE a2a.push_configs SET next_attempt_at = clock_timestamp() WHERE state = 'active' AND cursor_seq < head_seq")
	due := f.claimPushes(10)
	if len(due) != 1 {
		f.t.Fatalf("%d webhooks are due, want 1", len(due))
	}
	return &due[0]
}

func (f *fixture) delivered(d *webhooks.Delivery, terminal bool) {
	f.t.Helper()
	if err := f.Webhooks.Delivered(f.ctx, d, &webhooks.Try{Status: 200, Took: time.Millisecond}, terminal); err != nil {
		f.t.Fatalf("record delivery: %v", err)
	}
}

var refusedTry = webhooks.Try{Status: 500, Class: "server_error", Reason: "answered 500"}

func (f *fixture) failed(d *webhooks.Delivery, x webhooks.Failure) (disabled bool) {
	f.t.Helper()
	disabled, err := f.Webhooks.Failed(f.ctx, d, &refusedTry, x)
	if err != nil {
		f.t.Fatalf("record failure: %v", err)
	}
	return disabled
}

// place is where a webhook stands.
type place struct {
	State              string
	From, Cursor, Head int64
	Due                bool
}

func (f *fixture) place(task a2a.ID, id string) (p place) {
	f.t.Helper()
	err := f.sql.QueryRow(f.ctx, `SELECT state, from_seq, cursor_seq, head_seq, next_attempt_at <= clock_timestamp() AND cursor_seq < head_seq
		FROM a2a.push_configs WHERE task_id = $1 AND config_id = $2 ORDER BY deleted_at DESC NULLS FIRST LIMIT 1`, task, id).
		Scan(&p.State, &p.From, &p.Cursor, &p.Head, &p.Due)
	if err != nil {
		f.t.Fatalf("webhook %s: %v", id, err)
	}
	return p
}

// deliveries returns, for each event of a webhook, what audit.delivery says of it.
func (f *fixture) deliveries(task a2a.ID, id string) (list []string) {
	f.t.Helper()
	rows, err := f.sql.Query(f.ctx, `SELECT seq, state, tries, coalesce(reason, ''), delivered_at IS NOT NULL FROM audit.delivery
		WHERE task_id = $1 AND config_id = $2 ORDER BY seq`, task, id)
	if err != nil {
		f.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var seq int64
		var state, reason string
		var tries int
		var at bool
		if err := rows.Scan(&seq, &state, &tries, &reason, &at); err != nil {
			f.t.Fatal(err)
		}
		if at != (state == "delivered") {
			f.t.Errorf("event %d is %s, and has a time of delivery: %t", seq, state, at)
		}
		list = append(list, fmt.Sprintf("%d %s %d %s", seq, state, tries, reason))
	}
	if err := rows.Err(); err != nil {
		f.t.Fatal(err)
	}
	return list
}

func TestWebhookIsSetReplacedAndLimited(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	task := f.task()
	f.takeWakes()
	f.setPush(task, "default")
	f.setPush(task, "other")
	list := f.pushes(task)
	if len(list) != 2 || list[0].ConfigID != "default" || list[1].ConfigID != "other" || list[0].URL != hook+"/default" {
		t.Fatalf("webhooks %+v, want default and other", list)
	}
	same(t, "schemes", []string{"Bearer"}, list[0].Schemes)
	again := newPush("default")
	again.URL, again.Origin, again.Schemes = "https://b.example/x", "https://b.example:443", nil
	if err := f.Tasks.SetWebhook(f.ctx, ann, agent, task, again, 2); err != nil {
		t.Fatalf("replace at the limit: %v", err)
	}
	now := f.pushes(task)
	if len(now) != 2 || now[0].Row != list[0].Row || now[0].URL != again.URL || len(now[0].Schemes) != 0 {
		t.Errorf("after the replacement: %+v", now)
	}
	if err := f.Tasks.SetWebhook(f.ctx, ann, agent, task, newPush("third"), 2); a2a.CodeOf(err) != a2a.CodeInvalidParams {
		t.Errorf("one above the limit: %v, want invalid params", err)
	}
	one, err := f.Webhooks.OfTask(f.ctx, ann, task, "other")
	if err != nil || len(one) != 1 || one[0].ConfigID != "other" {
		t.Errorf("the one by its id: %+v, %v", one, err)
	}
	if got := value[string](f, "SELECT convert_from(token, 'UTF8') FROM a2a.push_configs WHERE id = $1", now[0].Row); got != "token of "+now[0].Row.String() {
		t.Errorf("the token was bound to %q", got)
	}
}

func TestWebhookOnAForeignTask(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	task := f.task()
	f.setPush(task, "default")
	for what, set := range map[string]func() error{
		"another owner": func() error {
			return f.Tasks.SetWebhook(f.ctx, db.Caller{Tenant: "acme", Owner: "bob"}, agent, task, newPush("x"), 10)
		},
		"another tenant": func() error {
			return f.Tasks.SetWebhook(f.ctx, db.Caller{Tenant: "b", Owner: "ann"}, agent, task, newPush("x"), 10)
		},
		"another agent": func() error { return f.Tasks.SetWebhook(f.ctx, ann, "other", task, newPush("x"), 10) },
		"no task":       func() error { return f.Tasks.SetWebhook(f.ctx, ann, agent, db.NewTaskID(), newPush("x"), 10) },
	} {
		wantCode(t, set(), a2a.CodeTaskNotFound)
		if t.Failed() {
			t.Fatal(what)
		}
	}
	bob := db.Caller{Tenant: "acme", Owner: "bob"}
	if list, err := f.Webhooks.OfTask(f.ctx, bob, task, ""); err != nil || len(list) != 0 {
		t.Errorf("bob sees %+v, %v", list, err)
	}
	if err := f.Webhooks.Delete(f.ctx, bob, task, "default"); err != nil || len(f.pushes(task)) != 1 {
		t.Errorf("bob's delete: %v, and %d webhooks are left", err, len(f.pushes(task)))
	}
}

func TestWebhookOfAMessage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	in := submission("hello")
	p := newPush("default")
	in.Push, in.MaxPushes = &p, 10
	f.takeWakes()
	task := f.submit(in).Task
	same(t, "with a new task", place{"active", 0, 0, 1, true}, f.place(task, "default"))
	if !contains(f.takeWakes(), wake.Webhooks) {
		t.Error("nobody was woken for the first event")
	}
	l := f.claimTask(task)
	f.append(l, status(a2a.StateInputRequired, "?"))
	same(t, "behind a question", place{"active", 0, 0, 3, true}, f.place(task, "default"))

	more := submission("more")
	second := newPush("second")
	more.Task, more.ContextID, more.Push, more.MaxPushes = task, "", &second, 10
	f.submit(more)
	same(t, "with a message that goes on", place{"active", 3, 3, 4, true}, f.place(task, "second"))
	same(t, "the first one", place{"active", 0, 0, 4, true}, f.place(task, "default"))

	// A refused message leaves no webhook, and a refused webhook no message.
	broken := submission("broken")
	bad := newPush("bad")
	bad.Seal = func(a2a.ID) ([]byte, []byte, error) { return nil, nil, errors.New("no key") }
	broken.Push = &bad
	before := value[int](f, "SELECT count(*)::int FROM a2a.tasks")
	if _, err := f.Tasks.Submit(f.ctx, broken); err == nil {
		t.Error("a message whose webhook cannot be stored was taken")
	}
	if after := value[int](f, "SELECT count(*)::int FROM a2a.tasks"); after != before {
		t.Errorf("it left %d tasks", after-before)
	}
	f.invariants()
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
	f := newFixture(t)
	l := f.running()
	f.append(l, status(a2a.StateCompleted))
	f.setPush(l.TaskID, "default")
	same(t, "place", place{"done", 3, 3, 3, false}, f.place(l.TaskID, "default"))
	if len(f.pushes(l.TaskID)) != 1 || len(f.claimPushes(10)) != 0 {
		t.Error("the webhook is not there, or has something to deliver")
	}
}

// TestHeadsFollowEveryKindOfEvent: whoever writes an event tells the webhooks in the same transaction.
func TestHeadsFollowEveryKindOfEvent(t *testing.T) {
	t.Parallel()
	head := func(f *fixture, task a2a.ID, what string) {
		f.t.Helper()
		if p, last := f.place(task, "default"), value[int64](f, "SELECT last_seq FROM a2a.tasks WHERE id = $1", task); p.Head != last || !p.Due {
			f.t.Errorf("%s: %+v, want the head at %d and due", what, p, last)
		}
		if !contains(f.takeWakes(), wake.Webhooks) {
			f.t.Errorf("%s: nobody was woken", what)
		}
	}
	t.Run("claim, question, answer, end", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		task := f.task()
		f.setPush(task, "default")
		f.takeWakes()
		l := f.claimTask(task)
		head(f, task, "claim")
		f.append(l, status(a2a.StateInputRequired, "?"))
		head(f, task, "question")
		f.say(task, "answer")
		head(f, task, "answer")
		l = f.claimTask(task)
		f.append(l, status(a2a.StateCompleted))
		head(f, task, "end")
		f.invariants()
	})
	t.Run("cancel", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		task := f.task()
		f.setPush(task, "default")
		f.takeWakes()
		if _, err := f.Tasks.Cancel(f.ctx, ann, agent, task); err != nil {
			t.Fatal(err)
		}
		head(f, task, "cancel")
	})
	t.Run("rescue", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		task := f.task()
		f.setPush(task, "default")
		f.claimTask(task)
		f.takeWakes()
		f.expire(task)
		if _, err := f.Tasks.Rescue(f.ctx, []tasks.Policy{{Agent: agent, Fate: "fail", MaxAttempts: 5}}, 5, 10); err != nil {
			t.Fatal(err)
		}
		head(f, task, "rescue")
	})
}

func TestChunksGatherAndABackoffIsNotCutShort(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := f.running()
	f.setPush(l.TaskID, "default")
	f.append(l, chunk("a", "x"))
	if p := f.place(l.TaskID, "default"); p.Head != 3 || value[bool](f, "SELECT next_attempt_at = 'infinity' FROM a2a.push_configs") {
		t.Errorf("behind a chunk: %+v", p)
	}
	f.append(l, status(a2a.StateWorking, "on it"))
	if p := f.place(l.TaskID, "default"); !p.Due {
		t.Errorf("behind a status: %+v, want it due", p)
	}
	f.failed(f.duePush(), webhooks.Failure{Delay: time.Hour})
	f.append(l, status(a2a.StateCompleted))
	if p := f.place(l.TaskID, "default"); p.Due || p.Head != 5 {
		t.Errorf("while a retry waits: %+v, want the head at 5 and nothing due", p)
	}
}

// TestWebhookSetInTheMiddleOfARun: the run's lease does not know of it yet.
func TestWebhookSetInTheMiddleOfARun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l, other := f.running(), f.running()
	f.setPush(l.TaskID, "default")
	if l.HasPush {
		t.Fatal("the lease knows already")
	}
	queued, release := tasks.HoldAppends(f.Store.Tasks)
	var wg sync.WaitGroup
	for _, x := range []*tasks.Lease{l, other} {
		wg.Go(func() {
			if _, err := f.Tasks.Append(f.ctx, x, tasks.Batch{Events: []a2a.Event{chunk("a", "x")}}); err != nil {
				t.Errorf("append: %v", err)
			}
		})
	}
	queued(2)
	release()
	wg.Wait()
	same(t, "place", int64(3), f.place(l.TaskID, "default").Head)
	if !l.HasPush || other.HasPush {
		t.Errorf("has webhooks: %t and %t, want the first to know", l.HasPush, other.HasPush)
	}
	same(t, "events", 3, len(f.log(l.TaskID)))
	same(t, "events of the other", 3, len(f.log(other.TaskID)))
	f.append(l, status(a2a.StateCompleted))
	same(t, "at the end", int64(4), f.place(l.TaskID, "default").Head)
	f.invariants()
}

// TestWebhookSetWhileAnAppendWaits is a trap of snapshots: a statement that waited for
// the row lock sees the row as it is now, and everything else as it was.
func TestWebhookSetWhileAnAppendWaits(t *testing.T) {
	t.Parallel()
	for _, known := range []bool{false, true} {
		t.Run(fmt.Sprintf("known=%t", known), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			l := f.running()
			l.HasPush = known
			gate := f.hold("SELECT FROM a2a.tasks WHERE id = $1 FOR UPDATE", l.TaskID)
			var wg sync.WaitGroup
			wg.Go(func() { f.setPush(l.TaskID, "default") })
			f.waitBlocked(1)
			wg.Go(func() {
				if _, err := f.Tasks.Append(f.ctx, l, tasks.Batch{Events: []a2a.Event{status(a2a.StateCompleted)}}); err != nil {
					t.Errorf("append: %v", err)
				}
			})
			f.waitBlocked(2)
			gate()
			wg.Wait()
			// Either may be first: then the webhook begins behind the event, or its head is at it.
			if p := f.place(l.TaskID, "default"); p.Head != 3 || p.From == 2 && !p.Due {
				t.Errorf("place %+v, want the head at 3", p)
			}
			f.invariants()
		})
	}
}

func TestTargetNeverSkipsWhatMatters(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	in := submission("hello")
	p := newPush("default")
	in.Push = &p
	task := f.submit(in).Task // 1
	l := f.claimTask(task)    // 2
	f.append(l, chunk("a", "x"), chunk("a", "y"))
	f.append(l, status(a2a.StateInputRequired, "?")) // 5
	f.say(task, "answer")                            // 6
	l = f.claimTask(task)                            // 7
	d := f.duePush()
	same(t, "up to the question", []int64{0, 5}, []int64{d.Cursor, d.Seq})
	f.failed(d, webhooks.Failure{})
	f.append(l, status(a2a.StateCompleted)) // 8
	d = f.duePush()
	same(t, "the same on the retry", []int64{0, 5, 1}, []int64{d.Cursor, d.Seq, int64(d.Attempt)})
	f.delivered(d, false)
	d = f.duePush()
	same(t, "up to the end", []int64{5, 8, 0}, []int64{d.Cursor, d.Seq, int64(d.Attempt)})
	f.delivered(d, true)
	same(t, "place", place{"done", 0, 8, 8, false}, f.place(task, "default"))
	same(t, "ledger", []string{
		"1 delivered 2 ", "2 delivered 2 ", "3 delivered 2 ", "4 delivered 2 ", "5 delivered 2 ", "6 delivered 1 ", "7 delivered 1 ", "8 delivered 1 ",
	}, f.deliveries(task, "default"))
}

// TestTargetStaysWhileTheLogGrows: what a try was made of is what its retry is made of.
func TestTargetStaysWhileTheLogGrows(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := f.running()
	f.setPush(l.TaskID, "default")
	f.append(l, chunk("a", "x"))
	d := f.duePush()
	same(t, "first", int64(3), d.Seq)
	f.append(l, chunk("a", "y"), chunk("a", "z"))
	f.failed(d, webhooks.Failure{})
	d = f.duePush()
	same(t, "retry", int64(3), d.Seq)
	f.delivered(d, false)
	same(t, "next", int64(5), f.duePush().Seq)
}

func TestDestinationsAreCappedOverReplicas(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for range 6 {
		in := submission("hello")
		p := newPush("default")
		in.Push = &p
		f.submit(in)
	}
	in := submission("other")
	p := newPush("default")
	p.Origin = "https://other.example:443"
	in.Push = &p
	f.submit(in)
	r2 := f.replica("r2")
	var mu sync.Mutex
	got := map[string]int{}
	var first *webhooks.Delivery
	var wg sync.WaitGroup
	for _, s := range []*store.Store{f.Store, r2, f.Store, r2} {
		wg.Go(func() {
			due, err := s.Webhooks.Claim(f.ctx, 10, 4, time.Minute)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			for i := range due {
				got[due[i].Origin]++
				if due[i].Origin == hook {
					first = &due[i]
				}
			}
		})
	}
	wg.Wait()
	same(t, "claimed", map[string]int{hook: 4, "https://other.example:443": 1}, got)
	f.delivered(first, false)
	for _, want := range []int{1, 0} { // one is free, and no more
		if due, err := r2.Webhooks.Claim(f.ctx, 10, 4, time.Minute); err != nil || len(due) != want {
			t.Errorf("%d more, %v, want %d", len(due), err, want)
		}
	}
	// A lease that ran out frees its place and its webhook.
	f.exec("UPDATE a2a.push_configs SET lease_until = clock_timestamp() - interval '1 second' WHERE id <> $1 AND lease_until IS NOT NULL", first.Row)
	if due, err := r2.Webhooks.Claim(f.ctx, 10, 4, time.Minute); err != nil || len(due) != 5 {
		t.Errorf("when the leases ran out: %d, %v, want 4 and the other one", len(due), err)
	}
}

func TestBreakerOpensProbesAndCloses(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	breaker := &webhooks.Breaker{Fails: 3, FirstOpen: 30 * time.Second, MaxOpen: time.Minute, DisableAfter: 120 * time.Hour}
	for range 4 {
		in := submission("hello")
		p := newPush("default")
		in.Push = &p
		f.submit(in)
	}
	due := f.claimPushes(10)
	same(t, "claimed", 4, len(due))
	rests := func() float64 {
		return value[float64](f, "SELECT coalesce(extract(epoch FROM open_until - clock_timestamp()), 0)::float8 FROM a2a.push_destinations")
	}
	f.failed(&due[0], webhooks.Failure{Breaker: breaker})
	f.failed(&due[1], webhooks.Failure{Breaker: breaker})
	same(t, "after two", 0.0, rests())
	f.failed(&due[2], webhooks.Failure{Breaker: breaker})
	if got := rests(); got < 20 || got > 30 {
		t.Errorf("after three it rests for %g s, want 30", got)
	}
	// What was under way when the breaker opened says nothing new.
	f.failed(&due[3], webhooks.Failure{Breaker: breaker})
	if got := rests(); got < 20 || got > 30 {
		t.Errorf("after a failure that was under way it rests for %g s, want 30", got)
	}
	same(t, "while it rests", 0, len(f.claimPushes(10)))
	probe := func() *webhooks.Delivery {
		t.Helper()
		f.exec("UPDATE a2a.push_destinations SET open_until = clock_timestamp() - interval '1 second'")
		f.exec("UPDATE a2a.push_parked SET look_at = clock_timestamp() - interval '1 second'")
		due := f.claimPushes(10)
		if len(due) != 1 {
			t.Fatalf("%d probes, want one", len(due))
		}
		same(t, "beside the probe", 0, len(f.claimPushes(10)))
		return &due[0]
	}
	f.failed(probe(), webhooks.Failure{Breaker: breaker})
	if got := rests(); got < 50 || got > 60 {
		t.Errorf("after a probe it rests for %g s, want 60", got)
	}
	f.failed(probe(), webhooks.Failure{Breaker: breaker})
	if got := rests(); got < 50 || got > 60 {
		t.Errorf("after another one it rests for %g s, want 60: that is the most", got)
	}
	o, err := f.Operate.Overview(f.ctx)
	if err != nil || len(o.Down) != 1 || o.Down[0].LastError != "answered 500" {
		t.Errorf("the overview has %+v, want the last error: %v", o.Down, err)
	}
	f.delivered(probe(), false)
	same(t, "after a success", 0.0, rests())
	same(t, "then all are called", 3, len(f.claimPushes(10)))
}

// TestAnAnswerClosesTheBreaker: a server that refuses one webhook is up.
func TestAnAnswerClosesTheBreaker(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	breaker := &webhooks.Breaker{Fails: 2, FirstOpen: 30 * time.Second, MaxOpen: time.Minute, DisableAfter: 120 * time.Hour}
	for range 3 {
		in := submission("hello")
		p := newPush("default")
		in.Push = &p
		f.submit(in)
	}
	due := f.claimPushes(2)
	f.failed(&due[0], webhooks.Failure{Breaker: breaker})
	f.failed(&due[1], webhooks.Failure{Breaker: breaker})
	f.exec("UPDATE a2a.push_destinations SET open_until = clock_timestamp() - interval '1 second'")
	probe := f.claimPushes(10)
	if len(probe) != 1 {
		t.Fatalf("%d probes, want one", len(probe))
	}
	if _, err := f.Webhooks.Failed(f.ctx, &probe[0], &webhooks.Try{Status: 404, Class: "client_error", Reason: "answered 404"}, webhooks.Failure{}); err != nil {
		t.Fatal(err)
	}
	same(t, "claimed", 3, len(f.claimPushes(10)))
}

func TestDestinationIsDisabledAfterDays(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	breaker := &webhooks.Breaker{Fails: 1, FirstOpen: time.Second, MaxOpen: time.Minute, DisableAfter: time.Hour}
	in := submission("hello")
	p := newPush("default")
	in.Push = &p
	f.submit(in)
	if f.failed(f.duePush(), webhooks.Failure{Breaker: breaker}) {
		t.Error("disabled at the first failure")
	}
	if !value[bool](f, "SELECT openings = 1 AND open_until <= clock_timestamp() + interval '1 second' FROM a2a.push_destinations") {
		t.Error("the one failure that the breaker allows did not open it")
	}
	f.exec("UPDATE a2a.push_destinations SET first_failure_at = first_failure_at - interval '2 hours', open_until = NULL")
	if !f.failed(f.duePush(), webhooks.Failure{Breaker: breaker}) {
		t.Error("not disabled after two hours of failures")
	}
	f.exec("UPDATE a2a.push_destinations SET open_until = NULL")
	f.exec("UPDATE a2a.push_configs SET next_attempt_at = clock_timestamp()")
	same(t, "while it is disabled", 0, len(f.claimPushes(10)))
	list, err := f.Webhooks.List(f.ctx, webhooks.Filter{Limit: 10})
	if err != nil || len(list) != 1 || list[0].DisabledAt.IsZero() || list[0].Attempt != 2 {
		t.Errorf("the operator sees %+v, %v", list, err)
	}
	if done, err := f.Webhooks.EnableDestination(f.ctx, "acme", hook); !done || err != nil {
		t.Errorf("enable: %t, %v", done, err)
	}
	same(t, "when it is enabled", 1, len(f.claimPushes(10)))
	if done, err := f.Webhooks.EnableDestination(f.ctx, "acme", "https://nobody:443"); done || err != nil {
		t.Errorf("enable what is not there: %t, %v", done, err)
	}
}

// TestLostLeaseRecordsNothing: the deliverer that was given up on is not heard any more.
func TestLostLeaseRecordsNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	in := submission("hello")
	p := newPush("default")
	in.Push = &p
	task := f.submit(in).Task
	old := f.duePush()
	f.exec("UPDATE a2a.push_configs SET lease_until = clock_timestamp() - interval '1 second'")
	heir := f.duePush()
	if heir.Epoch <= old.Epoch || heir.Seq != old.Seq {
		t.Fatalf("epochs %d and %d, events %d and %d", old.Epoch, heir.Epoch, old.Seq, heir.Seq)
	}
	if err := f.Webhooks.Delivered(f.ctx, old, &webhooks.Try{Status: 200}, false); !errors.Is(err, db.ErrLeaseLost) {
		t.Errorf("delivered: %v, want the lease lost", err)
	}
	if err := f.Webhooks.Skipped(f.ctx, old, &refusedTry, false); !errors.Is(err, db.ErrLeaseLost) {
		t.Errorf("skipped: %v, want the lease lost", err)
	}
	if _, err := f.Webhooks.Failed(f.ctx, old, &refusedTry, webhooks.Failure{Fate: "dead"}); !errors.Is(err, db.ErrLeaseLost) {
		t.Errorf("failed: %v, want the lease lost", err)
	}
	if err := f.Webhooks.Release(f.ctx, old); err != nil {
		t.Error(err)
	}
	same(t, "still held", 0, len(f.claimPushes(10)))
	same(t, "ledger", []string{"1 pending 0 "}, f.deliveries(task, "default"))
	f.delivered(heir, false)
	same(t, "ledger", []string{"1 delivered 1 "}, f.deliveries(task, "default"))
}

// TestReplacedWhileARequestIsUnderWay: its answer is that of the former webhook.
func TestReplacedWhileARequestIsUnderWay(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"delivered", "disabled"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			in := submission("hello")
			p := newPush("default")
			in.Push = &p
			task := f.submit(in).Task
			d := f.duePush()
			f.setPush(task, "default")
			same(t, "while it is held", 0, len(f.claimPushes(10)))
			var err error
			if what == "delivered" {
				err = f.Webhooks.Delivered(f.ctx, d, &webhooks.Try{Status: 200}, false)
			} else {
				_, err = f.Webhooks.Failed(f.ctx, d, &webhooks.Try{Status: 410, Reason: "gone"}, webhooks.Failure{Fate: "disabled"})
			}
			if !errors.Is(err, db.ErrLeaseLost) {
				t.Errorf("%v, want the lease lost", err)
			}
			same(t, "place", place{"active", 0, 0, 1, true}, f.place(task, "default"))
			same(t, "claimed again", 1, len(f.claimPushes(10)))
		})
	}
}

func TestDeleteWaitsForARequestUnderWay(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	in := submission("hello")
	p := newPush("default")
	in.Push = &p
	task := f.submit(in).Task
	d := f.duePush()
	done := make(chan error, 1)
	go func() { done <- f.Webhooks.Delete(f.ctx, ann, task, "default") }()
	for len(f.pushes(task)) > 0 { // it is gone for clients at once
		f.takeWakes()
	}
	f.claimTask(task)
	select {
	case err := <-done:
		t.Fatalf("the delete did not wait: %v", err)
	default:
	}
	f.delivered(d, false)
	if err := <-done; err != nil {
		t.Errorf("delete: %v", err)
	}
	same(t, "place", place{"active", 0, 1, 1, false}, f.place(task, "default"))
	same(t, "due", 0, len(f.claimPushes(10)))
	if err := f.Webhooks.Delete(f.ctx, ann, task, "default"); err != nil {
		t.Errorf("delete again: %v", err)
	}
	// Its id is free for another one, which begins where the log is now.
	f.setPush(task, "default")
	same(t, "the next one", place{"active", 2, 2, 2, false}, f.place(task, "default"))
	same(t, "ledger", []string{"1 delivered 1 "}, f.deliveries(task, "default"))
}

func TestReplay(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	in := submission("hello")
	p := newPush("default")
	in.Push = &p
	task := f.submit(in).Task
	l := f.claimTask(task)
	f.append(l, status(a2a.StateCompleted))
	d := f.duePush()
	f.failed(d, webhooks.Failure{Fate: "dead"})
	same(t, "dead", []string{"1 dead 1 answered 500", "2 dead 1 answered 500", "3 dead 1 answered 500"}, f.deliveries(task, "default"))
	if list, err := f.Webhooks.List(f.ctx, webhooks.Filter{Limit: 1}); err != nil || len(list) != 1 || !list[0].NextAttemptAt.IsZero() {
		t.Errorf("a webhook that was given up is tried again: %+v, %v", list, err)
	}
	if err := f.Webhooks.Replay(f.ctx, d.Row, 1<<62); err != nil {
		t.Fatal(err)
	}
	same(t, "replayed", place{"active", 0, 0, 3, true}, f.place(task, "default"))
	again := f.duePush()
	same(t, "the schedule begins anew", 0, again.Attempt)
	f.delivered(again, true)
	same(t, "done", place{"done", 0, 3, 3, false}, f.place(task, "default"))

	if err := f.Webhooks.Replay(f.ctx, d.Row, 1<<62); !errors.Is(err, webhooks.ErrNothingToReplay) {
		t.Fatalf("a replay of what is delivered: %v", err)
	}
	same(t, "nothing to replay", place{"done", 0, 3, 3, false}, f.place(task, "default"))
	if err := f.Webhooks.Replay(f.ctx, d.Row, 2); err != nil {
		t.Fatal(err)
	}
	again = f.duePush()
	same(t, "behind 2", []int64{2, 3}, []int64{again.Cursor, again.Seq})
	f.delivered(again, true)
	tries, err := f.Webhooks.Attempts(f.ctx, d.Row, 10)
	if err != nil || len(tries) != 3 || tries[0].From != 2 || tries[2].Outcome != "failed" || tries[2].Status != 500 {
		t.Errorf("ledger %+v, %v", tries, err)
	}
	for i, want := range []string{webhooks.TriggerManual, webhooks.TriggerManual, webhooks.TriggerAuto} {
		if tries[i].Trigger != want {
			t.Errorf("try %d was made by %s, want %s", i, tries[i].Trigger, want)
		}
	}
	same(t, "manual tries", []int{1, 1, 2}, f.manualTries(task))
	if err := f.Webhooks.Replay(f.ctx, db.NewTaskID(), 0); !errors.Is(err, webhooks.ErrNotFound) {
		t.Errorf("replay of none: %v", err)
	}
	if _, err := f.Webhooks.Attempts(f.ctx, db.NewTaskID(), 10); !errors.Is(err, webhooks.ErrNotFound) {
		t.Errorf("the ledger of none: %v", err)
	}
	same(t, "who was it", []string{
		fmt.Sprintf(`replica r1 push.replay acme/ann {"after":0,"webhook":"%s"}`, d.Row),
		fmt.Sprintf(`replica r1 push.replay acme/ann {"after":2,"webhook":"%s"}`, d.Row),
	}, f.actions())
}

func TestAuditTellsWhatBecameOfEachEvent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	in := submission("hello")
	p := newPush("a")
	in.Push = &p
	task := f.submit(in).Task
	if err := f.Webhooks.Skipped(f.ctx, f.duePush(), &webhooks.Try{Status: 400, Reason: "answered 400"}, false); err != nil {
		t.Fatal(err)
	}
	l := f.claimTask(task)
	same(t, "pending", []string{"1 skipped 0 answered 400", "2 pending 0 "}, f.deliveries(task, "a"))
	if err := f.Webhooks.Delete(f.ctx, ann, task, "a"); err != nil {
		t.Fatal(err)
	}
	f.append(l, status(a2a.StateCompleted))
	same(t, "deleted", []string{"1 skipped 0 answered 400", "2 cancelled 0 "}, f.deliveries(task, "a"))
	if got := value[int64](f, "SELECT deleted_after_seq FROM audit.push_config WHERE task_id = $1 AND id = 'a'", task); got != 2 {
		t.Errorf("deleted after %d, want 2", got)
	}
}

// manualTries returns, for each event of a task with one webhook, how often an operator asked for it.
func (f *fixture) manualTries(task a2a.ID) []int {
	f.t.Helper()
	return value[[]int](f, "SELECT array_agg(manual_tries ORDER BY seq) FROM audit.delivery WHERE task_id = $1", task)
}

// What comes behind that which was there when the operator asked is the schedule's again.
func TestReplayMarksWhatItWasAskedFor(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	in := submission("hello")
	p := newPush("default")
	in.Push = &p
	task := f.submit(in).Task
	d := f.duePush()
	f.delivered(d, false)
	if err := f.Webhooks.Replay(f.ctx, d.Row, 0); err != nil {
		t.Fatal(err)
	}
	d = f.duePush()
	same(t, "manual", []any{int64(1), true}, []any{d.Seq, d.Manual})
	f.failed(d, webhooks.Failure{})
	f.claimTask(task) // meanwhile the log grows
	d = f.duePush()
	same(t, "the retry", []any{int64(1), 1, true}, []any{d.Seq, d.Attempt, d.Manual})
	f.delivered(d, false)
	d = f.duePush()
	same(t, "what came since", []any{int64(2), false}, []any{d.Seq, d.Manual})
	f.delivered(d, false)
	same(t, "ledger", []string{"1 delivered 3 ", "2 delivered 1 "}, f.deliveries(task, "default"))
	same(t, "manual tries", []int{2, 0}, f.manualTries(task))
}

// A replay must not free a webhook whose request is under way: the next request would overtake
// it, and a delete would not wait for it.
func TestReplayWaitsForARequestUnderWay(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	in := submission("hello")
	p := newPush("default")
	in.Push = &p
	task := f.submit(in).Task
	d := f.duePush()
	if err := f.Webhooks.Replay(f.ctx, d.Row, 0); err != nil {
		t.Fatal(err)
	}
	same(t, "due beside it", 0, len(f.claimPushes(10)))
	f.takeWakes()
	if err := f.Webhooks.Delivered(f.ctx, d, &webhooks.Try{Status: 200}, false); !errors.Is(err, db.ErrLeaseLost) {
		t.Errorf("%v, want the lease lost: what was under way is not what was asked for", err)
	}
	same(t, "wakes", []string{wake.Webhooks}, f.takeWakes())
	same(t, "due behind it", []any{int64(1), true}, []any{f.duePush().Seq, true})
	if err := f.Webhooks.Replay(f.ctx, d.Row, 0); err != nil {
		t.Fatal(err)
	}
	same(t, "busy", true, f.deleteWaits(task))
}

// deleteWaits deletes the webhook of a task for a client that waits for a moment, and reports
// whether that was too short.
func (f *fixture) deleteWaits(task a2a.ID) bool {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.ctx, 100*time.Millisecond)
	defer cancel()
	err := f.Webhooks.Delete(ctx, ann, task, "default")
	return errors.Is(err, context.DeadlineExceeded)
}

// A client whose delete was cut off repeats it. The request under way is still under way.
func TestRepeatedDeleteWaitsToo(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	in := submission("hello")
	p := newPush("default")
	in.Push = &p
	task := f.submit(in).Task
	d := f.duePush()
	same(t, "the first one was cut off", true, f.deleteWaits(task))
	same(t, "and so was the second", true, f.deleteWaits(task))
	if err := f.Webhooks.Delete(f.ctx, db.Caller{Tenant: "acme", Owner: "bob"}, task, "default"); err != nil {
		t.Errorf("somebody else waits: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- f.Webhooks.Delete(f.ctx, ann, task, "default") }()
	f.exec("UPDATE a2a.push_configs SET lease_until = clock_timestamp()") // its deliverer is dead
	if err := <-done; err != nil {
		t.Errorf("delete: %v", err)
	}
	if err := f.Webhooks.Release(f.ctx, d); err != nil {
		t.Error(err)
	}
}

// Neither a delete nor a sweep that finds nothing may read what was deleted and kept before.
func TestDeletesAndSweepsDoNotReadWhatIsKept(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.exec(`INSERT INTO a2a.push_configs (id, task_id, config_id, tenant, owner, agent, url, origin, schemes, wire_version, from_seq, cursor_seq, head_seq, deleted_at)
		SELECT gen_random_uuid(), gen_random_uuid(), 'default', 'acme', 'ann', 'words', 'u', 'x', '{}', 3, 0, 1, 1, clock_timestamp() FROM generate_series(1, 2000)`)
	f.exec(`INSERT INTO a2a.push_attempts (push_id, task_id, from_seq, seq, outcome, attempt, trigger, started_at)
		SELECT gen_random_uuid(), gen_random_uuid(), 0, 1, CASE n % 2 WHEN 0 THEN 'failed' ELSE 'delivered' END, 1, 'auto', clock_timestamp() FROM generate_series(1, 4000) n`)
	task := f.task()
	f.setPush(task, "default")
	s := f.replica("r2")
	if err := s.Webhooks.Delete(f.ctx, ann, task, "default"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Webhooks.Sweep(f.ctx, webhooks.SweepPolicy{Keep: time.Hour, Forget: time.Hour, Batch: 100}); err != nil {
		t.Fatal(err)
	}
	s.Close() // and its backends report what they read
	f.waitGone("a2ad-r2-worker")
	f.waitGone("a2ad-r2-api")
	n := value[int64](f, `SELECT (SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE relname LIKE 'push%')::bigint
		+ (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname LIKE 'push%')::bigint`)
	if n < 1 || n > 50 {
		t.Errorf("%d rows and entries were read, want a few", n)
	}
}

func TestTraceparentStaysWithTheTask(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const first, second = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-11111111111111111111111111111111-2222222222222222-00"
	in := submission("hello")
	p := newPush("default")
	in.Push, in.Traceparent = &p, first
	task := f.submit(in).Task
	l := f.claimTask(task)
	same(t, "the run's", a2a.Traceparent(first), l.Traceparent)
	d := f.duePush()
	same(t, "the webhook's", a2a.Traceparent(first), d.Traceparent)
	f.delivered(d, false)
	f.append(l, status(a2a.StateInputRequired))
	f.say(task, "without one")
	l = f.claimTask(task)
	same(t, "the next run's", a2a.Traceparent(first), l.Traceparent)
	f.append(l, status(a2a.StateInputRequired))
	in = submission("with one")
	in.Task, in.ContextID, in.Traceparent = task, "", second
	f.submit(in)
	same(t, "the last run's", a2a.Traceparent(second), f.claimTask(task).Traceparent)
	same(t, "the last webhook's", a2a.Traceparent(second), f.duePush().Traceparent)
	same(t, "of a task without one", a2a.Traceparent(""), f.running().Traceparent)
}

func TestSweepRemovesWhatIsOldAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	in := submission("hello")
	p := newPush("kept")
	in.Push = &p
	task := f.submit(in).Task
	f.setPush(task, "deleted")
	f.failed(f.duePush(), webhooks.Failure{Breaker: &webhooks.Breaker{Fails: 100, FirstOpen: time.Second, MaxOpen: time.Second, DisableAfter: 240 * time.Hour}})
	if err := f.Webhooks.Delivered(f.ctx, f.duePush(), &webhooks.Try{Status: 200, Answer: []byte("thank you")}, false); err != nil {
		t.Fatal(err)
	}
	f.claimTask(task)
	d := f.claimPushes(10)
	for i := range d {
		f.failed(&d[i], webhooks.Failure{})
	}
	if err := f.Webhooks.Delete(f.ctx, ann, task, "deleted"); err != nil {
		t.Fatal(err)
	}
	sweep := func(keep, forget time.Duration, batch int) bool {
		t.Helper()
		more, err := f.Webhooks.Sweep(f.ctx, webhooks.SweepPolicy{Keep: keep, Forget: forget, Batch: batch})
		if err != nil {
			t.Fatal(err)
		}
		return more
	}
	count := func() []int64 {
		t.Helper()
		return []int64{
			value[int64](f, "SELECT count(*) FROM a2a.push_configs"), value[int64](f, "SELECT count(*) FROM a2a.push_attempts WHERE outcome = 'failed'"),
			value[int64](f, "SELECT count(*) FROM a2a.push_attempts WHERE outcome = 'delivered'"), value[int64](f, "SELECT count(*) FROM a2a.push_attempts WHERE answer IS NOT NULL"),
			value[int64](f, "SELECT count(*) FROM a2a.push_destinations"),
		}
	}
	f.exec("UPDATE a2a.push_destinations SET fails = 3, first_failure_at = clock_timestamp() - interval '1 day'")
	f.exec("UPDATE a2a.push_attempts SET started_at = started_at - interval '1 day'")
	f.exec("UPDATE a2a.push_configs SET deleted_at = deleted_at - interval '1 day'")
	before := count()
	same(t, "rows", []int64{2, 3, 1, 1, 1}, before)
	sweep(48*time.Hour, 48*time.Hour, 10)
	same(t, "when nothing is old", before, count())
	sweep(0, 48*time.Hour, 10)
	same(t, "when all is kept", before, count())

	f.exec("UPDATE a2a.push_configs SET lease_until = clock_timestamp() + interval '1 hour' WHERE deleted_at IS NOT NULL")
	same(t, "more than a batch", true, sweep(time.Hour, 48*time.Hour, 2))
	same(t, "more than two batches", true, sweep(time.Hour, 48*time.Hour, 2))
	same(t, "the rest", false, sweep(time.Hour, 48*time.Hour, 2))
	same(t, "without what is held", []int64{2, 0, 1, 0, 1}, count())
	f.exec("UPDATE a2a.push_configs SET lease_until = NULL")
	sweep(time.Hour, time.Hour, 10)
	same(t, "at last", []int64{1, 0, 1, 0, 0}, count())
	same(t, "what was settled stays", "1 delivered 1 ", f.deliveries(task, "kept")[0])
}

// Breakers of destinations that are well are no use; one that is disabled is an operator's.
func TestSweepKeepsDestinationsThatAreDisabled(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.exec(`INSERT INTO a2a.push_destinations (tenant, origin, fails, first_failure_at, open_until, disabled_at) VALUES
		('acme', 'well', 0, NULL, NULL, NULL), ('acme', 'failing', 3, clock_timestamp() - interval '1 hour', NULL, NULL),
		('acme', 'rests', 5, clock_timestamp() - interval '9 days', clock_timestamp() + interval '1 minute', NULL),
		('acme', 'forgotten', 5, clock_timestamp() - interval '9 days', clock_timestamp() - interval '8 days', NULL),
		('acme', 'disabled', 99, clock_timestamp() - interval '90 days', NULL, clock_timestamp() - interval '80 days')`)
	if _, err := f.Webhooks.Sweep(f.ctx, webhooks.SweepPolicy{Forget: 120 * time.Hour, Batch: 10}); err != nil {
		t.Fatal(err)
	}
	same(t, "left", []string{"disabled", "failing", "rests"}, value[[]string](f, "SELECT array_agg(origin ORDER BY origin) FROM a2a.push_destinations"))
}

// A task without webhooks pays for them with one boolean in a row that it reads anyway: from
// its submission to its end no table of webhooks is looked at.
func TestTaskWithoutWebhooksTouchesNoneOfTheirTables(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.replica("r2")
	lives := func(push *webhooks.NewWebhook) {
		t.Helper()
		in := submission("hello")
		in.Push = push
		out, err := s.Tasks.Submit(f.ctx, in)
		if err != nil {
			t.Fatal(err)
		}
		leases, err := s.Tasks.NewClaimer().Claim(f.ctx, agent, 1, ttl, time.Hour)
		if err != nil || len(leases) != 1 || leases[0].TaskID != out.Task {
			t.Fatalf("claimed %v, %v", leases, err)
		}
		for _, e := range []a2a.Event{chunk("a", "x"), status(a2a.StateWorking), status(a2a.StateCompleted)} {
			if _, err := s.Tasks.Append(f.ctx, &leases[0], tasks.Batch{Events: []a2a.Event{e}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	touched := func() int64 {
		t.Helper()
		s.Close() // and its backends report what they did
		f.waitGone("a2ad-r2-worker")
		f.waitGone("a2ad-r2-claim")
		return value[int64](f, `SELECT coalesce(sum(seq_scan + coalesce(idx_scan, 0) + n_tup_ins + n_tup_upd), 0)::bigint FROM pg_stat_user_tables
			WHERE schemaname = 'a2a' AND relname LIKE 'push%'`)
	}
	for range 20 {
		lives(nil)
	}
	if n := touched(); n != 0 {
		t.Errorf("tables of webhooks were touched %d times", n)
	}
	if n := value[int64](f, "SELECT n_tup_ins FROM pg_stat_user_tables WHERE relname = 'task_events'"); n != 20*5 {
		t.Errorf("%d events are in the statistics, want %d: they say nothing", n, 20*5)
	}
	s = f.replica("r2")
	p := newPush("default")
	lives(&p)
	if touched() == 0 {
		t.Error("a task with a webhook touched none either: the statistics say nothing")
	}
}
