package a2ad_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/sdk/go/a2ad"
	"github.com/a2ad/a2ad/sdk/go/a2ad/a2adtest"
)

// effects counts what agents do to the world.
type effects struct {
	mu   sync.Mutex
	done []string // guarded by mu
}

func (e *effects) do(what string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.done = append(e.done, what)
		return what + "!", nil
	}
}

func (e *effects) trip(ctx context.Context, t *a2ad.Task) (any, error) {
	city := t.Message().Text()
	plan, err := a2ad.Step(ctx, t, "plan", e.do(city), a2ad.Input(city))
	if err != nil {
		return nil, err
	}
	for _, word := range []string{"We ", "go ", "by ", plan, "."} {
		if err := t.Write(ctx, word); err != nil {
			return nil, err
		}
	}
	if answer, err := t.Ask(ctx, "Book it?", a2ad.Choices("yes", "no")); err != nil || answer != "yes" {
		return nil, err
	}
	ref, err := a2ad.Step(ctx, t, "pay", e.do("pay"), a2ad.Retries(5))
	if err != nil {
		return nil, err
	}
	if err := t.Sleep(ctx, 24*time.Hour); err != nil {
		return nil, err
	}
	review, err := t.Call(ctx, "reviewer", a2ad.Text("Check "+ref))
	if err != nil {
		return nil, err
	}
	return review.Text(), nil
}

func agents(name, answer string) map[string]func(string) any {
	return map[string]func(string) any{name: func(text string) any {
		return strings.ReplaceAll(answer, "$", text)
	}}
}

func run(t *testing.T, fn a2ad.AgentFunc, message any, c a2adtest.Client) *a2adtest.Result {
	t.Helper()
	r, err := a2adtest.Run(fn, message, c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func crashEverywhere(t *testing.T, fn a2ad.AgentFunc, message any, c a2adtest.Client) *a2adtest.Result {
	t.Helper()
	r, err := a2adtest.CrashEverywhere(fn, message, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAgentFromBeginningToEnd(t *testing.T) {
	t.Parallel()
	var e effects
	r := run(t, e.trip, "train", a2adtest.Client{Answers: []any{"yes"}, Calls: agents("reviewer", "$: fine")})
	got := fmt.Sprint(r.State, " ", r.Text(), " ", r.Artifact("answer"), " ", r.Elapsed, " ", r.Questions, e.done)
	if want := "completed Check pay!: fine We go by train!. 24h0m0s [Book it?] [train pay]"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	keys := []string{
		"plan#1", "write:answer#1", "ask#1", "pay#1", "sleep#1", "call:reviewer#1", "call:reviewer#1/wait",
	}
	if !slices.Equal(r.Keys(), keys) {
		t.Errorf("the steps are %v, want %v", r.Keys(), keys)
	}
}

func TestCrashesChangeNothing(t *testing.T) {
	t.Parallel()
	var e effects
	crashEverywhere(t, e.trip, "train", a2adtest.Client{Answers: []any{"yes"}, Calls: agents("reviewer", "fine")})
}

func TestCrashEverywhereFindsWhatIsNotRecorded(t *testing.T) {
	t.Parallel()
	runs := 0
	_, err := a2adtest.CrashEverywhere(func(ctx context.Context, t *a2ad.Task) (any, error) {
		runs++
		return fmt.Sprint(runs), a2ad.Do(ctx, t, "a", func(context.Context) error { return nil })
	}, "x", a2adtest.Client{}, nil)
	if !errors.Is(err, a2adtest.ErrDifference) {
		t.Errorf("CrashEverywhere = %v, want ErrDifference", err)
	}
}

func TestStreams(t *testing.T) {
	t.Parallel()
	r := crashEverywhere(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
		log := t.Artifact("log")
		for _, word := range []string{"one ", "two ", "three "} {
			if err := log.Write(ctx, word); err != nil {
				return nil, err
			}
		}
		text, err := a2ad.Step(ctx, t, "model", func(ctx context.Context) (string, error) {
			for _, word := range []string{"whole ", "sentence."} {
				if err := t.Write(ctx, word); err != nil {
					return "", err
				}
			}
			return "whole sentence.", nil
		})
		if err != nil {
			return nil, err
		}
		if err := t.Sleep(ctx, time.Hour); err != nil {
			return nil, err
		}
		return text, log.Write(ctx, strings.Repeat("ä", 300<<10))
	}, "x", a2adtest.Client{})
	if got := r.Artifact("log"); got != "one two three "+strings.Repeat("ä", 300<<10) {
		t.Errorf("the log is %.40q, %d bytes", got, len(got))
	}
	if got := r.Artifact("answer"); got != "whole sentence." {
		t.Errorf("the answer is %q", got)
	}
}

func TestQuestionsAndSignals(t *testing.T) {
	t.Parallel()
	type plan struct {
		City string `json:"city"`
		Days int    `json:"days,omitempty"`
	}
	r := crashEverywhere(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
		first, err := t.Ask(ctx, "First?")
		if err != nil {
			return nil, err
		}
		p, err := a2ad.AskFor[plan](ctx, t, "Second?")
		if err != nil {
			return nil, err
		}
		by, err := a2ad.Signal[string](ctx, t, "approved", time.Hour)
		if err != nil {
			return nil, err
		}
		_, err = t.Ask(ctx, "Now?", a2ad.Within(2*time.Hour))
		if !errors.Is(err, a2ad.ErrTimeout) {
			return nil, err
		}
		return fmt.Sprintf("%s %s %+v %s", t.Message().Text(), first, p, by), nil
	}, "a", a2adtest.Client{Answers: []any{"b", plan{"Lyon", 2}}, Signals: map[string]any{"approved": "Ann"}})
	if want := "a b {City:Lyon Days:2} Ann"; r.Text() != want || r.Elapsed != 2*time.Hour {
		t.Errorf("got %q after %s, want %q after 2h", r.Text(), r.Elapsed, want)
	}
}

func TestFailuresOfSteps(t *testing.T) {
	t.Parallel()
	tries := 0
	flaky := func(failures int) func(context.Context) (string, error) {
		return func(context.Context) (string, error) {
			if tries++; tries <= failures {
				return "", errors.New("reset")
			}
			return "ok", nil
		}
	}
	// 4 s and 8 s in the process, 16 s and 32 s as waits
	r := run(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
		return a2ad.Step(ctx, t, "get", flaky(4), a2ad.Retries(4), a2ad.Backoff(4*time.Second))
	}, "x", a2adtest.Client{})
	if r.Text() != "ok" || tries != 5 || r.Attempts != 3 || r.Elapsed != time.Minute {
		t.Errorf("%q after %d tries in %d attempts and %s", r.Text(), tries, r.Attempts, r.Elapsed)
	}
	tries = 0
	r = run(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
		return a2ad.Step(ctx, t, "get", flaky(9), a2ad.Retries(2))
	}, "x", a2adtest.Client{})
	if r.State != "failed" || r.Text() != "get: reset" || tries != 3 || r.Attempts != 1 {
		t.Errorf("%s: %q after %d tries in %d attempts", r.State, r.Text(), tries, r.Attempts)
	}
	tries = 0
	r = run(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
		return a2ad.Step(ctx, t, "get", flaky(2))
	}, "x", a2adtest.Client{})
	if r.Text() != "ok" || r.Attempts != 3 {
		t.Errorf("%q in %d attempts, want ok in 3", r.Text(), r.Attempts)
	}
}

func TestHandledFailureIsRecorded(t *testing.T) {
	t.Parallel()
	tries := 0
	orders := func(ctx context.Context, t *a2ad.Task) (any, error) {
		err := a2ad.Do(ctx, t, "reserve", func(context.Context) error { tries++; return errors.New("no stock") })
		var failed *a2ad.StepError
		if !errors.As(err, &failed) {
			return nil, err
		}
		other, err := a2ad.Step(ctx, t, "other", func(context.Context) (string, error) { return "another shop", nil })
		if err != nil {
			return nil, err
		}
		if err := t.Sleep(ctx, time.Hour); err != nil {
			return nil, err
		}
		return failed.Text + ", so " + other, nil
	}
	if r := run(t, orders, "x", a2adtest.Client{}); r.Text() != "no stock, so another shop" || tries != 1 {
		t.Errorf("%q after %d tries", r.Text(), tries)
	}
	crashEverywhere(t, orders, "x", a2adtest.Client{})
}

// Each branch has its own failures: what one branch does next says nothing about those of another.
func TestFailuresOfBranchesAreRecorded(t *testing.T) {
	t.Parallel()
	agent := func(ctx context.Context, t *a2ad.Task) (any, error) {
		var failures [2]string
		branch := func(i int) func(context.Context) error {
			return func(ctx context.Context) error {
				err := a2ad.Do(ctx, t, "get", func(context.Context) error { return fmt.Errorf("broken %d", i) })
				var failed *a2ad.StepError
				if !errors.As(err, &failed) {
					return err
				}
				failures[i] = failed.Text
				return nil
			}
		}
		if err := t.Gather(ctx, branch(0), branch(1)); err != nil {
			return nil, err
		}
		return strings.Join(failures[:], ", "), t.Sleep(ctx, time.Hour)
	}
	r := run(t, agent, "x", a2adtest.Client{})
	keys := slices.Sorted(slices.Values(r.Keys()))
	if want := []string{"gather#1.1/get#1", "gather#1.2/get#1", "sleep#1"}; !slices.Equal(keys, want) {
		t.Errorf("the steps are %v, want %v", keys, want)
	}
	if r.Text() != "broken 0, broken 1" {
		t.Errorf("got %q", r.Text())
	}
}

func TestGather(t *testing.T) {
	t.Parallel()
	var e effects
	compares := func(ctx context.Context, t *a2ad.Task) (any, error) {
		prices := make([]string, 3)
		shop := func(i int, name string) func(context.Context) error {
			return func(ctx context.Context) error {
				price, err := t.Call(ctx, "prices", a2ad.Text(name))
				if err != nil {
					return err
				}
				again, err := t.Call(ctx, "prices", a2ad.Text(name+" "+price.Text()))
				if err != nil {
					return err
				}
				prices[i], err = a2ad.Step(ctx, t, "note", e.do(again.Text()))
				return err
			}
		}
		err := t.Gather(ctx, shop(0, "a"), shop(1, "b"), func(ctx context.Context) (err error) {
			prices[2], err = a2ad.Step(ctx, t, "own", func(context.Context) (string, error) { return "c", nil })
			return err
		})
		return strings.Join(prices, ", "), err
	}
	client := a2adtest.Client{Calls: agents("prices", "<$>")}
	if got := run(t, compares, "x", client).Text(); got != "<a <a>>!, <b <b>>!, c" {
		t.Errorf("got %q", got)
	}
	if _, err := a2adtest.CrashEverywhere(compares, "x", client, func(r *a2adtest.Result) string {
		return fmt.Sprint(r.State, r.Text(), slices.Sorted(slices.Values(r.Keys())))
	}); err != nil {
		t.Error(err)
	}
	r := run(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
		fails := func(name string) func(context.Context) error {
			return func(ctx context.Context) error {
				return a2ad.Do(ctx, t, name, func(context.Context) error { return errors.New("no") })
			}
		}
		return t.Gather(ctx, fails("x"), fails("y")).Error(), nil
	}, "x", a2adtest.Client{})
	if r.Text() != "x: no" {
		t.Errorf("Gather failed with %q, want the first failure", r.Text())
	}
}

func TestChangedProgramIsNamed(t *testing.T) {
	t.Parallel()
	runs := 0
	r := run(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
		runs++
		err := a2ad.Do(ctx, t, "a", func(context.Context) error { return nil }, a2ad.Input(min(runs, 2)))
		if err != nil {
			return nil, err
		}
		return nil, t.Sleep(ctx, time.Hour)
	}, "x", a2adtest.Client{MaxAttempts: 2})
	want := `nondeterminism: the arguments of step "a#1" differ from the recorded ones; read changing values inside ` +
		`a step (step "a#1" is recorded as a step with the input hash bf804c8a712c, but the code now does a step ` +
		`with the input hash bcbf693a50b5)`
	if r.Text() != want {
		t.Errorf("failed with %q, want %q", r.Text(), want)
	}
}

func TestEndings(t *testing.T) {
	t.Parallel()
	ends := func(_ context.Context, t *a2ad.Task) (any, error) {
		switch text := t.Message().Text(); {
		case text == "fail":
			return nil, a2ad.Fail("broken")
		case text == "reject":
			return nil, fmt.Errorf("wrapped: %w", a2ad.Reject("not mine"))
		case t.Attempt() == 1:
			return nil, a2ad.Retry("busy", time.Minute)
		}
		return []int{1}, nil
	}
	for message, want := range map[string]string{
		"fail": "failed broken 1 0s", "reject": "rejected not mine 1 0s", "retry": "completed  2 1m0s",
	} {
		r := run(t, ends, message, a2adtest.Client{})
		if got := fmt.Sprint(r.State, " ", r.Text(), " ", r.Attempts, " ", r.Elapsed); got != want {
			t.Errorf("%s: %s, want %s", message, got, want)
		}
	}
}

func TestOutputIsSentOnce(t *testing.T) {
	t.Parallel()
	r := crashEverywhere(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
		return nil, errors.Join(
			t.Status(ctx, "working on it"),
			t.Artifact("table").Data(ctx, []int{1, 2}),
			t.Artifact("picture").Send(ctx, a2ad.Part{Raw: []byte("png"), Filename: "p.png"}),
			t.Artifact("table").Replace(ctx, "3"),
			t.Sleep(ctx, time.Second),
		)
	}, "x", a2adtest.Client{})
	if r.Artifact("table") != "3" || string(r.Artifacts["picture"].Parts[0].Raw) != "png" {
		t.Errorf("the artifacts are %+v", r.Artifacts)
	}
	if n := strings.Count(fmt.Sprintf("%s", r.Events), "working on it"); n != 1 {
		t.Errorf("the status was sent %d times", n)
	}
}

func TestHandlerContinuesFromItsCheckpoint(t *testing.T) {
	t.Parallel()
	r := run(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
		n := 0
		if _, err := t.Saved(&n); err != nil {
			return nil, err
		}
		for ; n < 5; n++ {
			if err := errors.Join(t.Write(ctx, fmt.Sprint(n, " ")), t.Checkpoint(ctx, n+1)); err != nil {
				return nil, err
			}
			if n == 2 && t.Attempt() == 1 {
				return nil, errors.New("crash")
			}
		}
		return "done", nil
	}, "x", a2adtest.Client{Handler: true})
	if got := r.Text() + " " + r.Artifact("answer"); got != "done 0 1 2 3 4 " {
		t.Errorf("got %q", got)
	}
}
