package a2adtest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/sdk/go/a2ad"
	"github.com/a2ad/a2ad/sdk/go/a2ad/a2adtest"
)

func asks(ctx context.Context, t *a2ad.Task) (any, error) {
	answer, err := t.Ask(ctx, "Book it?", a2ad.Choices("yes", "no"))
	return answer, err
}

func TestStuckSaysWhatToAdd(t *testing.T) {
	t.Parallel()
	for want, fn := range map[string]a2ad.AgentFunc{
		`the agent asks "Book it?" (question 1): add its answer to Client.Answers`: asks,
		`the agent waits for the signal "paid": add it to Client.Signals`: func(
			ctx context.Context, t *a2ad.Task,
		) (any, error) {
			return a2ad.Signal[any](ctx, t, "paid", 0)
		},
		`the agent calls "other": add its answer to Client.Calls`: func(
			ctx context.Context, t *a2ad.Task,
		) (any, error) {
			return t.Call(ctx, "other", "x")
		},
	} {
		_, err := a2adtest.Run(fn, "x", a2adtest.Client{})
		if !errors.Is(err, a2adtest.ErrStuck) || !strings.Contains(err.Error(), want) ||
			!strings.HasPrefix(err.Error(), "a2adtest/a2adtest_test.go:") {
			t.Errorf("got %v, want the line and %s", err, want)
		}
	}
}

func TestWrongAnswersAreThoseThatTheServerRefuses(t *testing.T) {
	t.Parallel()
	type order struct {
		City  string   `json:"city"`
		Days  int      `json:"days"`
		Tags  []string `json:"tags,omitempty"`
		Price float64  `json:"price,omitempty"`
	}
	orders := func(ctx context.Context, t *a2ad.Task) (any, error) { return a2ad.AskFor[order](ctx, t, "What?") }
	limits := func(ctx context.Context, t *a2ad.Task) (any, error) {
		return a2ad.AskFor[any](ctx, t, "How many?", a2ad.Schema(json.RawMessage(`{
			"$defs": {"n": {"type": "integer", "minimum": 1}},
			"anyOf": [{"$ref": "#/$defs/n"}, {"enum": ["all", "none"]},
				{"type": "string", "pattern": "^x+$", "maxLength": 3}]
		}`)))
	}
	for _, c := range []struct {
		fn     a2ad.AgentFunc
		answer any
		want   string // empty: it fits
	}{
		{asks, "yes", ""},
		{asks, " no\n", ""},
		{asks, "perhaps", `the question expects one of ["yes" "no"]`},
		{orders, "Lyon", "the question expects data, and no text"},
		{orders, order{City: "Lyon", Days: 2, Tags: []string{"a"}}, ""},
		{orders, map[string]any{"city": "Lyon"}, `the answer needs "days"`},
		{orders, map[string]any{"city": "Lyon", "days": 1.5}, `the answer.days must be of the type "integer", not 1.5`},
		{orders, map[string]any{"city": 1, "days": 1}, `the answer.city must be of the type "string", not 1`},
		{orders, map[string]any{"city": "", "days": 1, "tags": []any{"a", 1}}, "the answer.tags[1] must be"},
		{limits, 1, ""},
		{limits, a2ad.Message{Parts: []a2ad.Part{a2ad.JSON("all")}}, ""},
		{limits, a2ad.Message{Parts: []a2ad.Part{a2ad.JSON("xx")}}, ""},
		{limits, a2ad.Message{Parts: []a2ad.Part{a2ad.JSON("xxxx")}}, "does not fit maxLength 3"},
		{limits, 0, "the answer does not fit minimum 1: 0 or "},
	} {
		_, err := a2adtest.Run(c.fn, "x", a2adtest.Client{Answers: []any{c.answer}})
		if c.want == "" && err != nil {
			t.Errorf("%v: %v", c.answer, err)
		}
		if c.want != "" && (!errors.Is(err, a2adtest.ErrWrongAnswer) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v: got %v, want %s", c.answer, err, c.want)
		}
	}
}

func TestDifferenceSaysWhatTheCrashChanged(t *testing.T) {
	t.Parallel()
	runs := 0
	_, err := a2adtest.CrashEverywhere(func(ctx context.Context, t *a2ad.Task) (any, error) {
		if runs++; runs == 1 {
			return "first", nil
		}
		return "other", a2ad.Do(ctx, t, "more", func(context.Context) error { return nil })
	}, "x", a2adtest.Client{}, nil)
	want := `a2adtest: a crash changed the outcome: a crash before the server stored request 1
The request: recording step "more#1"
  last message
    without the crash: [{"text":"first"}]
    with the crash:    [{"text":"other"}]
  steps
    without the crash: nothing
    with the crash:    more#1
Likely cause: code outside steps ran again and did something else than before.
Read the time, random numbers, files and other services inside a step.`
	if !errors.Is(err, a2adtest.ErrDifference) || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestResultsOfATask(t *testing.T) {
	t.Parallel()
	r, err := a2adtest.Run(func(ctx context.Context, t *a2ad.Task) (any, error) {
		if t.MessageNumber() != 1 || len(t.History()) != len(t.Messages()) {
			return nil, a2ad.Fail("the messages are wrong")
		}
		if err := t.Sleep(ctx, 90*time.Minute); err != nil {
			return nil, err
		}
		called, err := t.Call(ctx, "shop", "How much?")
		var failed *a2ad.CallError
		if !errors.As(err, &failed) {
			return called, err
		}
		return map[string]any{"state": failed.Result.State, "error": err.Error()}, t.Write(ctx, "text")
	}, map[string]any{"city": "Lyon"}, a2adtest.Client{Calls: map[string]func(string) any{
		"shop": func(text string) any { return fmt.Errorf("closed: %s", text) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	var data struct{ State, Error string }
	if err := r.Data(&data); err != nil || data.State != "failed" ||
		data.Error != `agent "shop" ended its task as failed: closed: How much?` {
		t.Errorf("the data is %+v, %v", data, err)
	}
	if r.Attempts != 3 || r.Elapsed != 90*time.Minute || r.Artifact("answer") != "text" {
		t.Errorf("%d attempts in %s, and the answer %q", r.Attempts, r.Elapsed, r.Artifact("answer"))
	}
}
