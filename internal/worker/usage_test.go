package worker_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
)

const usageOf = `SELECT string_agg(concat_ws(' ', model, input_tokens, output_tokens, requests), ', ' ORDER BY model)
	FROM audit.usage WHERE task_id = $1`

// Usage is recorded whatever surrounds it, and that of an attempt that fails counts too: the tokens were used.
func TestUsageOfRunsIsRecorded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	use := func(model string, input int64) *a2a.Usage {
		return &a2a.Usage{Model: model, Input: input, Output: 1, Requests: 1}
	}
	f.start(config(nil,
		agent("events", say(use("m", 1), chunk("x", "y"), use("m", 2), status(a2a.StateCompleted))),
		agent("steps", say(&a2a.Step{Key: "k", Result: a2a.Raw(`1`)}, use("m", 3), status(a2a.StateCompleted))),
		agent("checkpoint", say(&a2a.Checkpoint{Body: a2a.Raw(`1`)}, use("m", 4), status(a2a.StateCompleted))),
		agent("fails", failing(errors.New("overloaded"), use("m", 5), use("n", 6))),
	))
	for name, want := range map[string]string{
		"events": "m 3 2 2", "steps": "m 3 1 1", "checkpoint": "m 4 1 1",
		"fails": "m 15 3 3, n 18 3 3", // three attempts
	} {
		task := f.submit(name, "x")
		state := a2a.StateCompleted
		if name == "fails" {
			state = a2a.StateFailed
		}
		f.waitState(task, state)
		if got := value[string](f, usageOf, task); got != want {
			t.Errorf("%s: recorded %s, want %s", name, got, want)
		}
	}
}

func TestInvalidUsageFailsTheTask(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.start(config(nil,
		agent("model", say(&a2a.Usage{Model: "a\x00b"})), agent("negative", say(&a2a.Usage{Input: -1})),
		agent("much", say(&a2a.Usage{Reasoning: a2a.MaxUsage + 1}))))
	for name, want := range map[string]string{
		"model":    "event 1: usage.model is longer than 256 bytes, not UTF-8 or has a NUL",
		"negative": "event 1: usage has a number that is not between 0 and 1000000000",
		"much":     "event 1: usage has a number that is not between 0 and 1000000000",
	} {
		failed := f.waitState(f.submit(name, "x"), a2a.StateFailed)
		if got := statusText(failed); !strings.Contains(got, want) {
			t.Errorf("%s: failed with %q, want %q", name, got, want)
		}
	}
	if n := value[int](f, "SELECT count(*)::int FROM audit.usage_day"); n != 0 {
		t.Errorf("%d sums were recorded", n)
	}
}

// A direct reply may follow usage, which clients do not see.
func TestUsageBeforeADirectReply(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	task := f.ask("hello")
	f.start(config(nil, talker(say(&a2a.Usage{Model: "m", Input: 1}, reply("hi")))))
	if got := f.waitState(task, a2a.StateCompleted); !got.Replied {
		t.Errorf("the record is %+v, want a reply", got)
	}
	if got := value[string](f, usageOf, task); got != "m 1 0 0" {
		t.Errorf("recorded %s, want m 1 0 0", got)
	}
}
