package worker_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/worker"
)

func TestLimitsOfATask(t *testing.T) {
	t.Parallel()
	many := make([]a2a.Event, 50)
	for i := range many {
		many[i] = chunk("x"+strconv.Itoa(i), strings.Repeat("y", 100))
	}
	tests := []struct {
		name   string
		change func(*worker.Config)
		text   string
	}{
		{"events", func(c *worker.Config) { c.MaxSeq = 10 }, "the task would have more than 10 events"},
		{"bytes", func(c *worker.Config) { c.MaxBytes = 2000 }, "the task would be larger than 2000 bytes"},
		{
			"artifacts",
			func(c *worker.Config) { c.MaxArtifacts = 10 },
			"event 11: the task would have more than 10 artifacts",
		},
		{
			"steps",
			func(c *worker.Config) { c.MaxSteps = 4 },
			"invalid agent response: event 55: the task would have more than 4 steps",
		},
		{"steps by size", func(c *worker.Config) { c.MaxBytes = 20_000 }, "the task would be larger than 20000 bytes"},
	}
	for i := range 5 {
		many = append(many, &a2a.Step{Key: strconv.Itoa(i), Result: a2a.Raw(`"` + strings.Repeat("z", 5000) + `"`)})
	}
	many = slices.Clip(many) // the cases append to it at the same time
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			p := f.start(config(tt.change, agent("a", say(append(many, status(a2a.StateCompleted))...))))
			got := f.waitState(f.submit("a", "x"), a2a.StateFailed)
			if text := statusText(got); text != tt.text {
				t.Errorf("the client gets %q, want %q", text, tt.text)
			}
			p.stop()
		})
	}
}

func TestIdleTimeoutIsAFailedAttempt(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	g := newGate()
	p := f.start(
		config(
			func(c *worker.Config) { c.Limits.MaxAttempts = 2 },
			agent("a", g, a2a.Limits{IdleTimeout: 30 * time.Millisecond}),
		),
	)
	task := f.submit("a", "x")
	for range 2 {
		receive(t, "run", g.started)
		wantCause(t, executor.ErrIdle, receive(t, "end", g.ended))
	}
	got := f.waitState(task, a2a.StateFailed)
	if want := "attempt 2 of 2: " + executor.ErrIdle.Error(); statusText(got) != want {
		t.Errorf("the client gets %q, want %q", statusText(got), want)
	}
	same(t, "outcomes", []string{"retry", "failed"}, f.outcomes(task))
	p.stop()
}

// An agent that reports from time to time is not idle, however long it runs.
func TestEventsResetTheIdleTimeout(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const idle = 6 * time.Second // an event that is late on a busy machine is not late by this
	p := f.start(
		config(nil, agent("a", agentFunc(func(ctx context.Context, _ executor.Run, yield func(a2a.Event, error) bool) {
			tick := time.NewTicker(idle / 4)
			defer tick.Stop()
			for range 5 {
				select {
				case <-tick.C:
				case <-ctx.Done():
					return
				}
				if !yield(chunk("x", "y"), nil) {
					return
				}
			}
			yield(status(a2a.StateCompleted), nil)
		}), a2a.Limits{IdleTimeout: idle})),
	)
	f.waitState(f.submit("a", "x"), a2a.StateCompleted)
	p.stop()
}

func TestDeadlineFailsTheTask(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	g := newGate()
	p := f.start(config(nil, agent("a", g, a2a.Limits{Deadline: 50 * time.Millisecond})))
	task := f.submit("a", "x")
	receive(t, "run", g.started)
	wantCause(t, executor.ErrDeadline, receive(t, "end", g.ended))
	got := f.waitState(task, a2a.StateFailed)
	if statusText(got) != executor.ErrDeadline.Error() {
		t.Errorf("the client gets %q, want %q", statusText(got), executor.ErrDeadline)
	}
	same(t, "outcomes", []string{"failed"}, f.outcomes(task))
	p.stop()
}

// The deadline belongs to the turn: a retry does not extend it, and no attempt is made after it.
func TestDeadlineIsOverAllAttempts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var runs atomic.Int32
	left := make(chan time.Duration, 10)
	p := f.start(
		config(
			nil,
			agent("a", agentFunc(func(ctx context.Context, run executor.Run, yield func(a2a.Event, error) bool) {
				left <- time.Until(run.Deadline)
				if runs.Add(1) == 2 {
					<-ctx.Done()
					return
				}
				// As if the first attempt had used nearly all of the time.
				f.exec("UPDATE a2a.tasks SET deadline_at = clock_timestamp() + interval '5 seconds'")
				yield(nil, errors.New("again"))
			}), a2a.Limits{Deadline: time.Hour}),
		),
	)
	task := f.submit("a", "x")
	f.waitState(task, a2a.StateFailed)
	if first, second := receive(
		t,
		"first",
		left,
	), receive(
		t,
		"second",
		left,
	); first < 59*time.Minute ||
		second > 5*time.Second {
		t.Errorf("the attempts had %v and %v, want an hour and less than 5 s", first, second)
	}
	same(t, "outcomes", []string{"retry", "failed"}, f.outcomes(task))
	p.stop()
}
