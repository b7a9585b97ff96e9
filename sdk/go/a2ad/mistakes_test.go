package a2ad_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/sdk/go/a2ad"
	"github.com/a2ad/a2ad/sdk/go/a2ad/a2adtest"
)

// tooLong is longer than the ten years that a wait may take.
const tooLong = 11 * 365 * 24 * time.Hour

// A call that cannot work is refused before anything is sent, with the line of the agent that made it.
func TestMistakesAreRefusedInTheProcess(t *testing.T) {
	t.Parallel()
	none := func(context.Context) error { return nil }
	large := strings.Repeat("x", 1<<20+1)
	type self struct{ Next []self }
	for want, mistake := range map[string]func(ctx context.Context, t *a2ad.Task) error{
		`the name of a step must have 1 to 200 bytes and no NUL: ""`: func(ctx context.Context, t *a2ad.Task) error {
			return a2ad.Do(ctx, t, "", none)
		},
		`the name of a step has 201 bytes`: func(ctx context.Context, t *a2ad.Task) error {
			return a2ad.Do(ctx, t, strings.Repeat("n", 201), none)
		},
		`the name of a step is not valid UTF-8`: func(ctx context.Context, t *a2ad.Task) error {
			return a2ad.Do(ctx, t, "\xff", none)
		},
		`step "a" has no function`: func(ctx context.Context, t *a2ad.Task) error { return a2ad.Do(ctx, t, "a", nil) },
		"Retries must be between 0 and 1000": func(ctx context.Context, t *a2ad.Task) error {
			return a2ad.Do(ctx, t, "a", none, a2ad.Retries(-1))
		},
		"Backoff must be between": func(ctx context.Context, t *a2ad.Task) error {
			return a2ad.Do(ctx, t, "a", none, a2ad.Backoff(-1))
		},
		"Timeout must be between": func(ctx context.Context, t *a2ad.Task) error {
			return a2ad.Do(ctx, t, "a", none, a2ad.Timeout(tooLong))
		},
		"Timeout must not be 0": func(ctx context.Context, t *a2ad.Task) error {
			return a2ad.Do(ctx, t, "a", none, a2ad.Timeout(0))
		},
		"the duration must be between 0 and ten years": func(ctx context.Context, t *a2ad.Task) error {
			return t.Sleep(ctx, tooLong)
		},
		"the time must be between the years 1970 and 9998": func(ctx context.Context, t *a2ad.Task) error {
			return t.SleepUntil(ctx, time.Time{})
		},
		"Gather can contain steps and calls, but no other waits": func(ctx context.Context, t *a2ad.Task) error {
			return t.Gather(ctx, func(ctx context.Context) error { return t.Sleep(ctx, time.Hour) })
		},
		"Write inside Gather": func(ctx context.Context, t *a2ad.Task) error {
			return t.Gather(ctx, func(ctx context.Context) error { return t.Write(ctx, "x") })
		},
		"an artifact inside Gather": func(ctx context.Context, t *a2ad.Task) error {
			return t.Gather(ctx, func(ctx context.Context) error { return t.Artifact("a").Data(ctx, 1) })
		},
		"Checkpoint inside Gather": func(ctx context.Context, t *a2ad.Task) error {
			return t.Gather(ctx, func(ctx context.Context) error { return t.Checkpoint(ctx, 1) })
		},
		"is still in progress": func(ctx context.Context, t *a2ad.Task) error {
			return t.Gather(ctx, func(context.Context) error { return t.Status(ctx, "the context of the function") })
		},
		"the branch has returned, but this call is still in progress": func(ctx context.Context, t *a2ad.Task) error {
			return t.Gather(ctx, func(ctx context.Context) error {
				begun := make(chan struct{})
				go func() {
					_ = a2ad.Do(ctx, t, "a", func(context.Context) error {
						close(begun)
						takes(time.Second)
						return nil
					})
				}()
				<-begun
				return nil
			})
		},
		"function 2 of Gather is nil": func(ctx context.Context, t *a2ad.Task) error {
			return t.Gather(ctx, none, nil)
		},
		"the question has 1048577 bytes": func(ctx context.Context, t *a2ad.Task) error {
			_, err := t.Ask(ctx, large)
			return err
		},
		"Choices must have 1 to 100": func(ctx context.Context, t *a2ad.Task) error {
			_, err := t.Ask(ctx, "Go?", a2ad.Choices())
			return err
		},
		`text 1 of Choices must not be empty or have spaces around it: "yes "`: func(
			ctx context.Context, t *a2ad.Task,
		) error {
			_, err := t.Ask(ctx, "Go?", a2ad.Choices("yes "))
			return err
		},
		"Within must be between": func(ctx context.Context, t *a2ad.Task) error {
			_, err := t.Ask(ctx, "Go?", a2ad.Within(tooLong))
			return err
		},
		"Ask takes no Schema": func(ctx context.Context, t *a2ad.Task) error {
			_, err := t.Ask(ctx, "Go?", a2ad.Schema([]byte("{}")))
			return err
		},
		"AskFor takes no Choices": func(ctx context.Context, t *a2ad.Task) error {
			_, err := a2ad.AskFor[int](ctx, t, "Go?", a2ad.Choices("1"))
			return err
		},
		"Schema must be a JSON object": func(ctx context.Context, t *a2ad.Task) error {
			_, err := a2ad.AskFor[int](ctx, t, "Go?", a2ad.Schema([]byte("{")))
			return err
		},
		"contains itself": func(ctx context.Context, t *a2ad.Task) error {
			_, err := a2ad.AskFor[self](ctx, t, "Go?")
			return err
		},
		"chan int": func(ctx context.Context, t *a2ad.Task) error {
			_, err := a2ad.AskFor[chan int](ctx, t, "Go?")
			return err
		},
		"AuthRequired takes no Choices": func(ctx context.Context, t *a2ad.Task) error {
			_, err := t.AuthRequired(ctx, "Sign in", a2ad.Choices("done"))
			return err
		},
		"the name of a signal must have": func(ctx context.Context, t *a2ad.Task) error {
			_, err := a2ad.Signal[string](ctx, t, "", 0)
			return err
		},
		`begin with a letter or a digit: "my agent"`: func(ctx context.Context, t *a2ad.Task) error {
			_, err := t.Call(ctx, "my agent", "x")
			return err
		},
		"the message of a call must have 1 to 100 parts": func(ctx context.Context, t *a2ad.Task) error {
			_, err := t.Call(ctx, "other", []a2ad.Part{})
			return err
		},
		"the name of an artifact must have": func(ctx context.Context, t *a2ad.Task) error {
			return t.Artifact("").Write(ctx, "x")
		},
		"the id of an artifact must have": func(ctx context.Context, t *a2ad.Task) error {
			return t.Artifact("a").WithID("").Write(ctx, "x")
		},
		"part 1 of an artifact must have one of Text, Data, Raw and URL; it has 2": func(
			ctx context.Context, t *a2ad.Task,
		) error {
			return t.Artifact("a").Send(ctx, a2ad.Part{Raw: []byte("x"), URL: "https://example.com"})
		},
		"the file has 1048577 bytes; at most 786432": func(ctx context.Context, t *a2ad.Task) error {
			return t.Artifact("a").File(ctx, "x", "text/plain", []byte(large))
		},
		"part 1 of an artifact has 1048577 bytes": func(ctx context.Context, t *a2ad.Task) error {
			return t.Artifact("a").Replace(ctx, large)
		},
		"part 2 of an artifact has data that has no JSON form": func(ctx context.Context, t *a2ad.Task) error {
			return t.Artifact("a").Append(ctx, a2ad.Text("x"), a2ad.JSON(none))
		},
		"the data of an artifact cannot be recorded as JSON": func(ctx context.Context, t *a2ad.Task) error {
			return t.Artifact("a").Data(ctx, none)
		},
		"a number of Usage must be between": func(ctx context.Context, t *a2ad.Task) error {
			return t.Usage(ctx, a2ad.Usage{OutputTokens: -1})
		},
		"Usage needs a model or a number": func(ctx context.Context, t *a2ad.Task) error {
			return t.Usage(ctx, a2ad.Usage{})
		},
		"the checkpoint cannot be recorded as JSON": func(ctx context.Context, t *a2ad.Task) error {
			return t.Checkpoint(ctx, none)
		},
		"after must be between 0 and 7 days": func(context.Context, *a2ad.Task) error {
			return a2ad.Retry("busy", 8*24*time.Hour)
		},
	} {
		wrong := mistakeOf(t, func(ctx context.Context, t *a2ad.Task) (any, error) { return nil, mistake(ctx, t) })
		text, ok := strings.CutPrefix(wrong.Error(), "a2ad/mistakes_test.go:")
		if !ok || !strings.Contains(text, want) {
			t.Errorf("%q, want the line and %q", wrong, want)
		}
	}
}

// A mistake that is found after the function of a step was called fails the step for good, so that the work is not done
// again.
func TestMistakesAfterTheWorkFailTheStep(t *testing.T) {
	t.Parallel()
	none := func(context.Context) error { return nil }
	for want, mistake := range map[string]func(ctx context.Context, t *a2ad.Task) (any, error){
		`the result of step "a" cannot be recorded as JSON`: func(context.Context, *a2ad.Task) (any, error) {
			return make(chan int), nil
		},
		`the result of step "a" is 1048579 bytes of JSON; at most 1048576`: func(
			context.Context, *a2ad.Task,
		) (any, error) {
			return strings.Repeat("x", 1<<20+1), nil
		},
		`the result of step "a" is nested deeper than 56 levels`: func(context.Context, *a2ad.Task) (any, error) {
			return json.RawMessage(strings.Repeat("[", 57) + strings.Repeat("]", 57)), nil
		},
		`Step inside the step "a"`: func(ctx context.Context, t *a2ad.Task) (any, error) {
			return nil, a2ad.Do(ctx, t, "b", none)
		},
		`a wait inside the step "a"`: func(ctx context.Context, t *a2ad.Task) (any, error) {
			return nil, t.Sleep(ctx, time.Hour)
		},
		`step "a" writes to "answer" and "b"`: func(ctx context.Context, t *a2ad.Task) (any, error) {
			_ = t.Write(ctx, "x")
			_ = t.Artifact("b").Write(ctx, "x") // a mistake that the function ignores counts too
			return nil, nil
		},
	} {
		calls := 0
		agent := func(ctx context.Context, t *a2ad.Task) (any, error) {
			_, err := a2ad.Step(ctx, t, "a", func(ctx context.Context) (any, error) {
				calls++
				return mistake(ctx, t)
			}, a2ad.Retries(3))
			var failed *a2ad.StepError
			if !errors.As(err, &failed) {
				return nil, fmt.Errorf("got %w", err)
			}
			return failed.Type + ": " + failed.Text, t.Sleep(ctx, time.Hour)
		}
		r := run(t, agent, "x", a2adtest.Client{})
		text, ok := strings.CutSuffix(r.Text(), ". The step is not done again, because its function was called")
		if calls != 1 || !ok || !strings.HasPrefix(text, "UsageError: "+want) {
			t.Errorf("%d calls, and %q, want one and %q", calls, r.Text(), want)
		}
	}
}

// A mistake that the agent handles is not forgotten.
func TestHandledMistakesEndTheFunction(t *testing.T) {
	t.Parallel()
	wrong := mistakeOf(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
		_ = t.Sleep(ctx, tooLong)
		if err := a2ad.Do(ctx, t, "pay", func(context.Context) error { panic("it was called") }); err == nil {
			panic("a call after a mistake was done")
		}
		return "done", nil
	})
	if !strings.Contains(wrong.Error(), "the duration must be") {
		t.Errorf("got %v", wrong)
	}
}

func TestMistakesNameTheLine(t *testing.T) {
	t.Parallel()
	_, _, line, _ := runtime.Caller(0)
	wrong := mistakeOf(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
		return nil, t.Sleep(ctx, tooLong) // two lines below
	})
	want := fmt.Sprintf("a2ad/mistakes_test.go:%d: the duration must be between 0 and ten years, not %s", line+2,
		tooLong)
	if wrong.Error() != want {
		t.Errorf("got  %s\nwant %s", wrong, want)
	}
	wrong = mistakeOf(t, func(context.Context, *a2ad.Task) (any, error) { return make(chan int), nil })
	want = fmt.Sprintf("a2ad/mistakes_test.go:%d: what the agent returned cannot be recorded as JSON", line+9)
	if !strings.HasPrefix(wrong.Error(), want) {
		t.Errorf("got  %s\nwant %s", wrong, want)
	}
}

// mistakeOf runs an agent that is wrong, and returns the mistake.
func mistakeOf(t *testing.T, fn a2ad.AgentFunc) error {
	t.Helper()
	r, err := a2adtest.Run(fn, "x", a2adtest.Client{})
	var wrong *a2ad.UsageError
	if !errors.As(err, &wrong) {
		t.Fatalf("Run = %+v, %v, want a UsageError", r, err)
	}
	return wrong
}

// A panic, or runtime.Goexit, is an error of the function alone: of the agent, of a step, or of a branch.
func TestPanicsAreErrors(t *testing.T) {
	t.Parallel()
	ends := func(how string) error {
		switch how {
		case "nil":
			var task *a2ad.Task
			_ = task.ID()
		case "goexit":
			runtime.Goexit()
		}
		panic("oops")
	}
	step := func(ctx context.Context, t *a2ad.Task, how string) error {
		return a2ad.Do(ctx, t, "a", func(context.Context) error { return ends(how) })
	}
	for _, how := range []string{"panic", "nil", "goexit"} {
		for where, fails := range map[string]a2ad.AgentFunc{
			"agent": func(context.Context, *a2ad.Task) (any, error) { return nil, ends(how) },
			"step":  func(ctx context.Context, t *a2ad.Task) (any, error) { return nil, step(ctx, t, how) },
			"branch": func(ctx context.Context, t *a2ad.Task) (any, error) {
				return nil, t.Gather(ctx, func(context.Context) error { return ends(how) })
			},
		} {
			r := run(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
				if t.Attempt() == 1 {
					return fails(ctx, t)
				}
				return "fine", nil
			}, "x", a2adtest.Client{})
			if r.Text() != "fine" || r.Attempts != 2 {
				t.Errorf("%s in the %s: %q in %d attempts, want fine in 2", how, where, r.Text(), r.Attempts)
			}
		}
	}
	r := run(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
		var failed *a2ad.StepError
		if err := step(ctx, t, "panic"); !errors.As(err, &failed) {
			return nil, err
		}
		return failed.Type + "/" + failed.Text, nil
	}, "x", a2adtest.Client{})
	if r.Text() != "panic/panic: oops" {
		t.Errorf("got %q", r.Text())
	}
}

func TestWrongRegistrationsPanic(t *testing.T) {
	t.Parallel()
	does := func(context.Context, *a2ad.Task) (any, error) { return nil, nil }
	for want, register := range map[string]func(w *a2ad.Worker){
		"must have 1 to 64":                  func(w *a2ad.Worker) { w.Agent("my agent", does) },
		"has no function":                    func(w *a2ad.Worker) { w.Handler("a", nil) },
		"is already registered":              func(w *a2ad.Worker) { w.Agent("a", does); w.Handler("a", does) },
		"must be between 1 and 10000, not 0": func(w *a2ad.Worker) { w.Agent("a", does, a2ad.Concurrency(0)) },
	} {
		func() {
			defer func() {
				if p := fmt.Sprint(recover()); !strings.Contains(p, want) {
					t.Errorf("panic: %s, want %q", p, want)
				}
			}()
			register(a2ad.NewWorker(a2ad.Options{}))
		}()
	}
	for want, o := range map[string]a2ad.Options{
		"must be a URL such as": {URL: "localhost:8080"},
		"user name or password": {URL: "http://a:b@host"},
		"APIKey must be":        {APIKey: "a key"},
		"printable ASCII":       {Name: "my worker"},
		"Grace must be":         {Grace: -1},
	} {
		w := a2ad.NewWorker(o)
		w.Agent("a", does)
		if err := w.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Run = %v, want %q", err, want)
		}
	}
}
