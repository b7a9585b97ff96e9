package e2e_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
)

// reply returns a message to a task.
func reply(task, text string) a2a.Message {
	m := say(text)
	m.TaskID = task
	return m
}

// send makes a blocking send that must return a task.
func send(t *testing.T, cl *client.Client, m a2a.Message) client.Result {
	t.Helper()
	got, err := cl.Send(bounded(t), client.SendParams{Message: m})
	if err != nil {
		t.Fatalf("send: %v", err)
	}
	return got
}

// A question is answered after all servers were stopped and others started.
func TestTurnsOutliveEveryReplica(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	const script = `{"op":"artifact","id":"x","text":"1"},{"op":"input","text":"what?"},` +
		`{"op":"artifact","id":"y","text":"2"},{"op":"auth","text":"who?"},{"op":"artifact","id":"z","text":"3"}`
	asked := send(t, c.client(a, "script"), play(script))
	if asked.State != a2a.StateInputRequired || client.Text(asked.Parts) != "what?" {
		t.Fatalf("got %s", asked.Raw)
	}
	task := asked.TaskID
	a.stop()
	b.stop()
	d := c.start("d")

	// A client that only watches stays connected over the turns.
	ctx := bounded(t)
	watched := make(chan []client.Event, 1)
	began := make(chan struct{})
	watcher := c.client(d, "script")
	go func() {
		events, err := collect(watcher.Resubscribe(ctx, task, client.StreamOptions{}), func(ev client.Event) bool {
			if ev.Kind == client.KindTask {
				close(began)
			}
			return false
		})
		if err != nil {
			t.Errorf("watch: %v", err)
		}
		watched <- events
	}()
	<-began

	answered := send(t, c.client(d, "script"), reply(task, "that"))
	if answered.State != a2a.StateAuthRequired || client.Text(answered.Parts) != "who?" {
		t.Errorf("got %s", answered.Raw)
	}
	e := c.start("e")
	last := follow(t, c.client(e, "script").Stream(ctx, client.SendParams{Message: reply(task, "me")},
		client.StreamOptions{}), nil)
	endsWith(t, last, a2a.StateCompleted)
	events := <-watched
	endsWith(t, events, a2a.StateCompleted)
	var states []string
	for _, ev := range events {
		if ev.Kind != client.KindArtifact {
			states = append(states, ev.State.String())
		}
	}
	want := []string{"input-required", "submitted", "working", "auth-required", "submitted", "working", "completed"}
	if diff := cmp.Diff(want, states); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
	c.checkScript(e, "script", task, 5, "["+script+"]", "", "")
	if n := one[int](c, `SELECT count(*) FROM audit.attempt WHERE attempt > 1`); n != 0 {
		t.Errorf("%d attempts of a turn were further ones, want none", n)
	}
	if diff := cmp.Diff([]string{"input", "input", "completed"},
		column[string](c, `SELECT outcome FROM audit.attempt ORDER BY token`)); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}

	answer, err := c.client(d, "script").Send(ctx, client.SendParams{Message: reply(task, "too late")})
	if err == nil {
		t.Errorf("a message to a finished task: %s, want an error", answer.Raw)
	}
}

// The answer is sent before the question is asked, from the other replica.
func TestMessageToAWorkingTaskIsItsNextTurn(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	g := newGate(t)
	ops := g.op() + `,{"op":"input","text":"what?"},{"op":"artifact","id":"x","text":"1"}`
	task := submit(t, c.client(a, "script"), play(ops))
	g.await(0)
	early := reply(task, "that")
	got, err := c.client(b, "script").Send(bounded(t), client.SendParams{Message: early, NoWait: true})
	if err != nil || got.State != a2a.StateWorking {
		t.Errorf("got %s, %v, want the working task", got.Raw, err)
	}
	g.open()
	events := follow(t, c.client(b, "script").Resubscribe(bounded(t), task, client.StreamOptions{}), nil)
	endsWith(t, events, a2a.StateCompleted)
	for _, ev := range events {
		if ev.State == a2a.StateInputRequired {
			t.Errorf("the task asks for what was already answered: %s", ev.Raw)
		}
	}
}

func TestBusyAgentRefusesMessages(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	g := newGate(t)
	task := submit(t, c.client(a, "busy"), play(g.op()+`,{"op":"input"},{"op":"complete"}`))
	g.await(0)
	before := one[int](c, `SELECT count(*) FROM audit.message`)
	if _, err := c.client(b, "busy").Send(bounded(t),
		client.SendParams{Message: reply(task, "now?"), NoWait: true}); !refused(err, -32004) {
		t.Errorf("a message to a busy agent: %v, want -32004", err)
	}
	if after := one[int](c, `SELECT count(*) FROM audit.message`); after != before {
		t.Errorf("the refused message left %d rows", after-before)
	}
	g.open()
	c.awaitState(task, "INPUT_REQUIRED")
	if got := send(t, c.client(b, "busy"), reply(task, "now.")); got.State != a2a.StateCompleted {
		t.Errorf("got %s", got.Raw)
	}
}

// A cancel ends queued work, running work, and work that does not want to end.
func TestCancelFromTheOtherReplica(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	// Leases are renewed every 20 minutes, so that only the wake-up comes before the end of the test's patience.
	a := c.start("a", "A2AD_LEASE_TTL=1h")
	b := c.start("b", "A2AD_WORKERS=0")
	onB := c.client(b, "script")
	ctx := bounded(t)

	t.Run("running", func(t *testing.T) {
		task := submit(t, onB, play(`{"op":"chunk","id":"a","n":2},{"op":"hang"}`))
		var canceled time.Time
		events := follow(t, c.client(a, "script").Resubscribe(ctx, task, client.StreamOptions{}),
			func(ev client.Event) bool {
				if len(chunks([]client.Event{ev}, "a")) > 0 && atLast(ev, "a", 1) {
					got, err := onB.Cancel(ctx, task)
					if err != nil || got.State != a2a.StateCanceled {
						t.Errorf("cancel: %s, %v", got.State, err)
					}
					canceled = time.Now()
				}
				return false
			})
		endsWith(t, events, a2a.StateCanceled)
		a.awaitLog("run", func(l logLine) bool { return l.str("task_id") == task && l.str("outcome") == "canceled" })
		logTook(t, "the end of the agent", time.Since(canceled))
		if diff := cmp.Diff([]string{"a canceled"}, c.attempts(task)); diff != "" {
			t.Errorf("attempts (-want +got):\n%s", diff)
		}
		if _, err := onB.Cancel(ctx, task); !refused(err, -32002) {
			t.Errorf("a second cancel: %v, want -32002", err)
		}
		if _, err := c.client(a, "script").Send(ctx, client.SendParams{Message: reply(task, "go on")}); err == nil {
			t.Error("a canceled task accepts messages")
		}
	})

	t.Run("ignoring", func(t *testing.T) {
		task := submit(t, onB,
			play(`{"op":"chunk","id":"a","n":2},{"op":"ignore_cancel","ms":1500},{"op":"chunk","id":"late","n":5},`+
				`{"op":"complete"}`))
		until(t, "the agent is running",
			func() bool { return one[int](c, `SELECT last_seq FROM audit.task WHERE id::text = $1`, task) >= 4 })
		if _, err := onB.Cancel(ctx, task); err != nil {
			t.Fatal(err)
		}
		events := follow(t, c.client(a, "script").Resubscribe(ctx, task, client.StreamOptions{}), nil)
		endsWith(t, events, a2a.StateCanceled)
		a.awaitLog("run", func(l logLine) bool { return l.str("task_id") == task })
		if n := one[int](c,
			`SELECT count(*) FROM audit.event WHERE task_id::text = $1 AND seq > (SELECT seq FROM audit.event
				WHERE task_id::text = $1 AND state = 'CANCELED')`, task); n != 0 {
			t.Errorf("%d events after the cancel", n)
		}
	})

	t.Run("queued", func(t *testing.T) {
		g := newGate(t)
		held := submit(t, c.client(b, "single"), play(g.op()))
		g.await(0)
		task := submit(t, c.client(b, "single"), play(`{"op":"complete"}`)) // queued after the other one
		got, err := c.client(b, "single").Cancel(ctx, task)
		if err != nil || got.State != a2a.StateCanceled {
			t.Errorf("cancel: %s, %v", got.State, err)
		}
		g.open()
		c.awaitState(held, "COMPLETED")
		if got := send(t, c.client(b, "single"), play(`{"op":"complete"}`)); got.State != a2a.StateCompleted {
			t.Errorf("the agent is %s after a canceled task", got.State)
		}
		if got := c.attempts(task); len(got) != 0 {
			t.Errorf("a task that was canceled in the queue was attempted: %v", got)
		}
	})

	t.Run("waiting", func(t *testing.T) {
		asked := send(t, onB, play(`{"op":"input"}`))
		got, err := c.client(a, "script").Cancel(ctx, asked.TaskID)
		if err != nil || got.State != a2a.StateCanceled {
			t.Errorf("cancel: %s, %v", got.State, err)
		}
	})
}

// Tasks are canceled at the moment they complete: exactly one of the two wins.
func TestCancelRacesWithTheEnd(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	canceled := 0
	for i := range 40 {
		cl := c.client([]*replica{a, b}[i%2], "script")
		task := submit(t, cl, play(`{"op":"sleep","ms":`+itoa(i%8)+`},{"op":"artifact","id":"x"},{"op":"complete"}`))
		got, err := c.client([]*replica{b, a}[i%2], "script").Cancel(bounded(t), task)
		switch {
		case err == nil && got.State == a2a.StateCanceled:
			canceled++
		case !refused(err, -32002):
			t.Errorf("cancel: %s, %v", got.State, err)
		}
		c.awaitState(task, map[bool]string{true: "CANCELED", false: "COMPLETED"}[err == nil])
	}
	t.Logf("%d of 40 canceled", canceled)
}

func statusText(t *testing.T, r client.Result) string {
	t.Helper()
	return client.Text(r.Parts)
}

// Agents time out, say nothing, panic or fail. Each task ends failed with a reason, and frees its slot.
func TestFailedRunsEndWithAReasonAndFreeTheirSlot(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a", "A2AD_WORKERS=2")
	for _, tc := range []struct {
		name, agent, ops, text string
		outcomes               []string
	}{
		{"deadline", "brief", `{"op":"chunk","id":"a","n":1000,"every_ms":100}`, "deadline", []string{"a failed"}},
		{"silence", "quiet", `{"op":"hang"}`, "nothing for too long", []string{"a retry", "a failed"}},
		{"panic", "quiet", `{"op":"panic"}`, "panicked", []string{"a retry", "a failed"}},
		{"error", "quiet", `{"op":"error","text":"out of luck","times":9}`, "out of luck",
			[]string{"a retry", "a failed"}},
		{"bad script", "quiet", `{"op":"dance"}`, "dance", []string{"a failed"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := send(t, c.client(a, tc.agent), play(tc.ops))
			if got.State != a2a.StateFailed || !strings.Contains(statusText(t, got), tc.text) {
				t.Errorf("the task is %s: %s", got.State, got.Raw)
			}
			if diff := cmp.Diff(tc.outcomes, c.attempts(got.TaskID)); diff != "" {
				t.Errorf("attempts (-want +got):\n%s", diff)
			}
			errors := column[string](c, `SELECT error FROM audit.attempt WHERE task_id::text = $1`, got.TaskID)
			for _, e := range errors {
				if !strings.Contains(e, tc.text) {
					t.Errorf("an attempt is recorded with %q, want its reason", e)
				}
			}
		})
	}
	for range 4 { // more than there are slots
		if got := send(t, c.client(a, "script"), play(`{"op":"complete"}`)); got.State != a2a.StateCompleted {
			t.Errorf("an agent after the failed ones is %s", got.State)
		}
	}
}

// The agent recovers after some errors.
func TestErrorsAreRetriedWithBackoff(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a", "A2AD_RETRY_BACKOFF_BASE=200ms", "A2AD_RETRY_BACKOFF_MAX=2s")
	const ops = `{"op":"chunk","id":"a","n":3},{"op":"error","text":"not yet","times":3},{"op":"chunk","id":"b","n":3}`
	events := follow(t, c.client(a, "script").Stream(bounded(t), client.SendParams{Message: play(ops)},
		client.StreamOptions{}), nil)
	endsWith(t, events, a2a.StateCompleted)
	task := events[0].TaskID
	if n := c.checkScript(a, "script", task, 5, "["+ops+"]"); n != 4 {
		t.Errorf("%d attempts, want 4", n)
	}
	for _, raw := range retries(events) {
		if !strings.Contains(raw, "not yet") {
			t.Errorf("a further attempt does not say why: %s", raw)
		}
	}
	gaps := column[float64](c, `
		SELECT extract(epoch FROM claimed_at - lag(ended_at) OVER (ORDER BY token))::float8 AS gap FROM audit.attempt
		ORDER BY token OFFSET 1`)
	// Full jitter starts at zero; only the sum grows reliably.
	if len(gaps) != 3 {
		t.Fatalf("%d waits, want 3", len(gaps))
	}
	t.Logf("waits before the attempts: %v s", gaps)
	if sum := gaps[0] + gaps[1] + gaps[2]; sum < 0.1 {
		t.Errorf("three attempts in a row after %.3f s, want a backoff", sum)
	}
}

// The agent must not silently run twice.
func TestLostLeaseAsksTheClient(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a")
	g := newGate(t)
	task := submit(t, c.client(a, "asks"),
		play(`{"op":"chunk","id":"a","n":3},`+g.op()+`,{"op":"chunk","id":"b","n":3}`))
	g.await(0)
	c.runner(task)
	a.kill()
	g.open()
	b := c.start("b")
	c.awaitState(task, "INPUT_REQUIRED")
	got := send(t, c.client(b, "asks"), reply(task, "go on"))
	if got.State != a2a.StateCompleted {
		t.Errorf("got %s", got.Raw)
	}
	if diff := cmp.Diff([]string{"a expired", "b completed"}, c.attempts(task)); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
}
