package worker_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/attempt"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/wake"
)

func TestRecordedStepIsNotDoneAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var charged, failed atomic.Int64
	f.start(config(nil, agent("a", programs(func(p *program) {
		first, ok := p.step("charge#1", func() string { charged.Add(1); return "paid" })
		if !ok {
			return
		}
		if failed.Add(1) <= 2 {
			p.yield(nil, errors.New("crashed after the step"))
			return
		}
		p.complete(first)
	}))))
	task := f.submit("a", "x")
	done := f.waitState(task, a2a.StateCompleted)
	if got := done.Status.Message.Parts[0].Text; got != `"paid"` {
		t.Errorf("the agent got the result %s", got)
	}
	if n := charged.Load(); n != 1 {
		t.Errorf("the step ran %d times, want once", n)
	}
	const row = `SELECT concat_ws(' ', seq, key, kind, name, result, attempts, epoch, worker, ended_at IS NOT NULL)
		FROM a2a.task_steps WHERE task_id = $1`
	if got, want := value[string](f, row, task), `1 charge#1 1 work "paid" 1 1 r1 t`; got != want {
		t.Errorf("recorded %s, want %s", got, want)
	}
}

func TestManyStepsReachTheNextAttempt(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const steps = 2500 // more than the page that a run starts with
	var done atomic.Int64
	var attempts atomic.Int64
	f.start(config(nil, agent("a", programs(func(p *program) {
		for i := range steps {
			work := func() string { done.Add(1); return strings.Repeat("x", 500) }
			if _, ok := p.step(fmt.Sprintf("s#%d", i), work); !ok {
				return
			}
		}
		if attempts.Add(1) == 1 {
			p.yield(nil, errors.New("again"))
			return
		}
		p.complete(strconv.Itoa(len(p.run.Steps)))
	}))))
	task := f.submit("a", "x")
	if got := f.waitState(task, a2a.StateCompleted).Status.Message.Parts[0].Text; got != strconv.Itoa(steps) {
		t.Errorf("the second attempt knew %s steps, want %d", got, steps)
	}
	if n := done.Load(); n != steps {
		t.Errorf("%d steps ran, want %d", n, steps)
	}
}

func TestStepsAreRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	one := &a2a.Step{Key: "k", Name: "n", Input: []byte{1}, Result: a2a.Raw(`1`)}
	cases := map[string]struct {
		again a2a.Event
		want  string
	}{
		"result": {&a2a.Step{Key: "k", Name: "n", Input: []byte{1}, Result: a2a.Raw(`2`)},
			`event 2: a step has the key "k" already, with another result`},
		"name": {&a2a.Step{Key: "k", Name: "m", Input: []byte{1}, Result: a2a.Raw(`1`)},
			`nondeterministic step "k": recorded with the name "n", now "m"`},
		"input": {&a2a.Step{Key: "k", Name: "n", Input: []byte{2}, Result: a2a.Raw(`1`)},
			`nondeterministic step "k": its input differs from the recorded one (01, now 02)`},
		"kind": {&a2a.Wait{Key: "k", For: time.Hour}, `nondeterministic step "k": recorded as a step, now a wait`},
		"size": {&a2a.Step{Key: "l", Result: a2a.Raw(`"` + strings.Repeat("x", 1<<20) + `"`)},
			"larger than 1048576 bytes"},
		"empty": {&a2a.Wait{Key: "l"}, "a wait needs until, for, message, signal or tasks"},
	}
	var agents []string
	cfg := config(nil)
	for name, c := range cases {
		agents = append(agents, name)
		cfg.Agents = append(cfg.Agents, agent(name, say(one, c.again, status(a2a.StateCompleted))))
	}
	f.start(cfg)
	for _, name := range agents {
		task := f.submit(name, "x")
		got := f.waitState(task, a2a.StateFailed).Status.Message.Parts[0].Text
		if !strings.Contains(got, cases[name].want) {
			t.Errorf("%s: failed with %q, want %q", name, got, cases[name].want)
		}
	}
}

func TestStepThatFailedIsRecordedAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	at := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	const row = `SELECT concat_ws(' ', seq, result, error, attempts, next_at IS NOT NULL, ended_at IS NOT NULL, epoch)
		FROM a2a.task_steps WHERE task_id = $1`
	f.start(config(nil, agent("a", programs(func(p *program) {
		if len(p.known) == 0 {
			p.yield(&a2a.Step{Key: "k", Error: a2a.Raw(`"down"`), Attempts: 1, NextAt: at}, nil)
			p.yield(&a2a.Step{Key: "k", Error: a2a.Raw(`"busy"`), Attempts: 2, NextAt: at}, nil)
			p.yield(nil, errors.New("crashed"))
			return
		}
		if got, want := value[string](f, row, p.run.Task.ID), `1 "busy" 2 t f 1`; got != want {
			t.Errorf("the first attempt recorded %s, want %s", got, want)
		}
		for range 2 {
			p.yield(&a2a.Step{Key: "k", Result: a2a.Raw(`"ok"`), Attempts: 3}, nil)
		}
		p.complete("done")
	}))))
	task := f.submit("a", "x")
	f.waitState(task, a2a.StateCompleted)
	if got, want := value[string](f, row, task), `1 "ok" 3 f t 3`; got != want {
		t.Errorf("recorded %s, want %s", got, want)
	}
	if n := value[int](f, "SELECT steps FROM a2a.tasks WHERE id = $1", task); n != 1 {
		t.Errorf("the task counts %d steps, want 1", n)
	}
}

func TestWaitEndsTheRunAndContinuesInTime(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.waits()
	p := f.start(config(nil, agent("a", programs(func(p *program) {
		by, over := p.wait(a2a.Wait{Key: "pause#1", For: 50 * time.Millisecond})
		if over {
			p.complete(by)
		}
	}))))
	task := f.submit("a", "x")
	if got := f.waitState(task, a2a.StateCompleted).Status.Message.Parts[0].Text; got != `{"by":"time"}` {
		t.Errorf("the wait ended by %s", got)
	}
	p.stop()
	if got := fmt.Sprint(f.outcomes(task)); got != "[waiting completed]" {
		t.Errorf("the attempts ended with %s", got)
	}
	if ends := p.Attempts(); ends[attempt.End{Agent: "a", Outcome: "waiting"}] != 1 ||
		ends[attempt.End{Agent: "a", Outcome: "finished"}] != 1 {
		t.Errorf("the attempts are counted as %v", ends)
	}
	// The client sees nothing of it: one claim, and the end.
	if n := f.snapshot(task).LastSeq; n != 3 {
		t.Errorf("the log has %d events, want 3", n)
	}
}

// A message ends a wait, with or without a question, also if it comes before the wait. The result of the wait names it.
func TestMessageEndsAWait(t *testing.T) {
	t.Parallel()
	ask := status(a2a.StateInputRequired, "which?").Status
	for name, c := range map[string]struct {
		early    bool // the message comes before the wait
		question *a2a.Status
	}{
		"wait": {false, nil}, "early": {true, nil}, "question": {false, &ask}, "early answer": {true, &ask},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.waits()
			begun, begin := make(chan struct{}, 10), make(chan struct{})
			f.start(config(nil, agent("a", programs(func(p *program) {
				if len(p.known) == 0 {
					begun <- struct{}{}
					<-begin
				}
				w := a2a.Wait{Key: "reply#1", Message: true, For: time.Hour, Status: c.question}
				by, over := p.wait(w)
				if !over {
					return
				}
				named := "no message"
				for i := range p.run.Messages {
					if m := &p.run.Messages[i]; strings.Contains(by, strconv.Quote(m.ID)) {
						named = m.Parts[0].Text
					}
				}
				p.complete(fmt.Sprintf("%t %s after %d", strings.HasPrefix(by, `{"by" : "message"`), named,
					len(p.run.Messages)))
			}))))
			task := f.submit("a", "x")
			receive(t, "run", begun)
			if !c.early {
				close(begin)
				f.waitWaiting(1)
			}
			f.followUp("a", task, "y")
			if c.early {
				close(begin)
			}
			if got := f.waitState(task, a2a.StateCompleted).Status.Message.Parts[0].Text; got != "true y after 2" {
				t.Errorf("got %s", got)
			}
			if n := value[int](f, "SELECT count(*)::int FROM a2a.task_waits"); n != 0 {
				t.Errorf("%d waits are left", n)
			}
		})
	}
}

func TestQuestionWithoutAnAnswerEndsByTime(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	asked := make(chan struct{}, 10)
	f.start(config(nil, agent("a", programs(func(p *program) {
		ask := status(a2a.StateInputRequired, "which?").Status
		by, over := p.wait(a2a.Wait{Key: "ask#1", For: time.Hour, Message: true, Status: &ask})
		if !over {
			asked <- struct{}{}
			return
		}
		p.complete(by)
	}))))
	task := f.submit("a", "x")
	receive(t, "question", asked)
	f.waitState(task, a2a.StateInputRequired)
	f.exec("UPDATE a2a.task_waits SET due_at = clock_timestamp()")
	if n, err := f.Tasks.EndWaits(t.Context(), 10); n != 1 || err != nil {
		t.Fatalf("EndWaits = %d, %v, want 1", n, err)
	}
	if got := f.waitState(task, a2a.StateCompleted).Status.Message.Parts[0].Text; got != `{"by":"time"}` {
		t.Errorf("the wait ended by %s", got)
	}
	const states = `SELECT string_agg(state::text, ' ' ORDER BY seq) FROM a2a.task_events WHERE task_id = $1`
	if got := value[string](f, states, task); got != "1 2 3 2 100" {
		t.Errorf("the states were %s", got)
	}
}

func TestSignalEndsAWait(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.waits()
	f.start(config(nil, agent("a", programs(func(p *program) {
		if p.run.Messages[0].Parts[0].Text == "early" { // the first signal comes before its wait
			signal := tasks.Signal{Task: p.run.Task.ID, Name: "approved", Value: a2a.Raw(`"one"`), Key: "1"}
			for range 2 {
				if err := f.Tasks.SendSignal(t.Context(), signal); err != nil {
					t.Error(err)
				}
			}
		}
		first, over := p.wait(a2a.Wait{Key: "w#1", Signal: "approved"})
		if !over {
			return
		}
		if second, over := p.wait(a2a.Wait{Key: "w#2", Signal: "approved"}); over {
			p.complete(first + second)
		}
	}))))
	task := f.submit("a", "early")
	signal := tasks.Signal{Task: task, Name: "approved", Value: a2a.Raw(`"two"`), Key: "2"}
	if err := f.Tasks.SendSignal(t.Context(), tasks.Signal{Task: task, Name: "other"}); err != nil {
		t.Error(err)
	}
	f.waitOver("a", task, "w#1")
	if err := f.Tasks.SendSignal(t.Context(), signal); err != nil {
		t.Error(err)
	}
	got := f.waitState(task, a2a.StateCompleted).Status.Message.Parts[0].Text
	const by = `{"by" : "signal", "name" : "approved", "value" : "one"}` +
		`{"by" : "signal", "name" : "approved", "value" : "two"}`
	if got != by {
		t.Errorf("the waits ended by %s", got)
	}
	if err := f.Tasks.SendSignal(t.Context(), signal); err != nil {
		t.Errorf("the signal again: %v", err)
	}
	signal.Value = a2a.Raw(`"three"`)
	if err := f.Tasks.SendSignal(t.Context(), signal); a2a.CodeOf(err) != a2a.CodeInvalidParams {
		t.Errorf("another signal with the key: %v", err)
	}
	signal.Key = "3"
	if err := f.Tasks.SendSignal(t.Context(), signal); a2a.CodeOf(err) != a2a.CodeTaskTerminal {
		t.Errorf("a signal for a task that has ended: %v", err)
	}
}

// waitOver waits until a wait of a task of the agent is over. Its task then becomes ready.
func (f *fixture) waitOver(agent string, task a2a.ID, key string) {
	f.t.Helper()
	ready, stop := f.hub.Wait(wake.Ready(agent))
	defer stop()
	const over = "SELECT count(*) = 1 FROM a2a.task_steps WHERE task_id = $1 AND key = $2 AND ended_at IS NOT NULL"
	for !value[bool](f, over, task, key) {
		receive(f.t, "end of the wait", ready)
	}
}

func TestCancelAndDeadlineReachATaskThatWaits(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	began := make(chan struct{}, 10)
	f.start(config(nil, agent("a", programs(func(p *program) {
		p.wait(a2a.Wait{Key: "w", For: time.Hour})
		began <- struct{}{}
	}), a2a.Limits{Deadline: time.Hour})))
	canceled, late := f.submit("a", "x"), f.submit("a", "y")
	receive(t, "wait", began)
	receive(t, "wait", began)
	f.waitWaiting(2)
	if _, err := f.Tasks.Cancel(t.Context(), ann, "a", canceled); err != nil {
		t.Fatal(err)
	}
	f.exec("UPDATE a2a.task_waits SET deadline_at = clock_timestamp()")
	if n, err := f.Tasks.FailWaits(t.Context(), 10); n != 1 || err != nil {
		t.Fatalf("FailWaits = %d, %v, want 1", n, err)
	}
	if got := f.snapshot(canceled).Status.State; got != a2a.StateCanceled {
		t.Errorf("the canceled task is %s", got)
	}
	failed := f.snapshot(late)
	if failed.Status.State != a2a.StateFailed || failed.Status.Message.Parts[0].Text != "deadline exceeded" {
		t.Errorf("the task whose deadline passed is %+v", failed.Status)
	}
	if n := value[int](f, "SELECT count(*)::int FROM a2a.task_waits"); n != 0 {
		t.Errorf("%d waits are left", n)
	}
}

// waitWaiting waits until n tasks wait for a time.
func (f *fixture) waitWaiting(n int) {
	f.t.Helper()
	begun, stop := f.hub.Wait(wake.Waits)
	defer stop()
	for value[int](f, "SELECT count(*)::int FROM a2a.task_waits") < n {
		receive(f.t, "wait", begun)
	}
}
