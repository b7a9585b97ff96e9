package a2ad_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/sdk/go/a2ad"
	"github.com/a2ad/a2ad/sdk/go/a2ad/a2adtest"
)

// A call that cannot work is refused before anything is sent, with the line of the agent that made it.
func TestMistakesAreRefusedInTheProcess(t *testing.T) {
	t.Parallel()
	none := func(context.Context) error { return nil }
	large := strings.Repeat("x", 1<<20+1)
	type self struct{ Next []self }
	for want, mistake := range map[string]func(ctx context.Context, t *a2ad.Task) error{
		"the result of step a has no form in JSON": func(ctx context.Context, t *a2ad.Task) error {
			_, err := a2ad.Step(ctx, t, "a", func(context.Context) (chan int, error) { return make(chan int), nil })
			return err
		},
		"the result of step a is 1048579 bytes of JSON": func(ctx context.Context, t *a2ad.Task) error {
			_, err := a2ad.Step(ctx, t, "a", func(context.Context) (string, error) { return large, nil })
			return err
		},
		"the input of step a has no form": func(ctx context.Context, t *a2ad.Task) error {
			return a2ad.Do(ctx, t, "a", none, a2ad.Input(func() {}))
		},
		`the name must have 1 to 200 bytes of text: ""`: func(ctx context.Context, t *a2ad.Task) error {
			return a2ad.Do(ctx, t, "", none)
		},
		`the name must have 1 to 200 bytes of text: "nn`: func(ctx context.Context, t *a2ad.Task) error {
			return a2ad.Do(ctx, t, strings.Repeat("n", 201), none)
		},
		`step "a" has no function`: func(ctx context.Context, t *a2ad.Task) error { return a2ad.Do(ctx, t, "a", nil) },
		"Retries must not be negative": func(ctx context.Context, t *a2ad.Task) error {
			return a2ad.Do(ctx, t, "a", none, a2ad.Retries(-1))
		},
		"Backoff must be positive": func(ctx context.Context, t *a2ad.Task) error {
			return a2ad.Do(ctx, t, "a", none, a2ad.Backoff(0))
		},
		"Timeout must not be negative": func(ctx context.Context, t *a2ad.Task) error {
			return a2ad.Do(ctx, t, "a", none, a2ad.Timeout(-time.Second))
		},
		"Sleep must be between 0 and ten years": func(ctx context.Context, t *a2ad.Task) error {
			return t.Sleep(ctx, -1)
		},
		"SleepUntil: the server has no such time": func(ctx context.Context, t *a2ad.Task) error {
			return t.SleepUntil(ctx, time.Time{})
		},
		`Step inside the step "a"`: func(ctx context.Context, t *a2ad.Task) error {
			return a2ad.Do(ctx, t, "a", func(ctx context.Context) error { return a2ad.Do(ctx, t, "b", none) })
		},
		"inside Gather there can be steps and calls": func(ctx context.Context, t *a2ad.Task) error {
			return t.Gather(ctx, func(ctx context.Context) error { return t.Sleep(ctx, time.Hour) })
		},
		"inside Gather, write in a step": func(ctx context.Context, t *a2ad.Task) error {
			return t.Gather(ctx, func(ctx context.Context) error { return t.Write(ctx, "x") })
		},
		"Gather: function 2 is nil": func(ctx context.Context, t *a2ad.Task) error { return t.Gather(ctx, none, nil) },
		"a step writes one artifact": func(ctx context.Context, t *a2ad.Task) error {
			return a2ad.Do(ctx, t, "a", func(ctx context.Context) error {
				return errors.Join(t.Write(ctx, "x"), t.Artifact("b").Write(ctx, "x"))
			})
		},
		"a question must have 1 to": func(ctx context.Context, t *a2ad.Task) error {
			_, err := t.Ask(ctx, "")
			return err
		},
		"Choices must have 1 to 100": func(ctx context.Context, t *a2ad.Task) error {
			_, err := t.Ask(ctx, "Go?", a2ad.Choices())
			return err
		},
		`Choices: "yes " must be a text without spaces`: func(ctx context.Context, t *a2ad.Task) error {
			_, err := t.Ask(ctx, "Go?", a2ad.Choices("yes "))
			return err
		},
		`Choices: "yes" is there twice`: func(ctx context.Context, t *a2ad.Task) error {
			_, err := t.Ask(ctx, "Go?", a2ad.Choices("yes", "yes"))
			return err
		},
		"Within must be positive": func(ctx context.Context, t *a2ad.Task) error {
			_, err := t.Ask(ctx, "Go?", a2ad.Within(-time.Hour))
			return err
		},
		"Ask has no schema": func(ctx context.Context, t *a2ad.Task) error {
			_, err := t.Ask(ctx, "Go?", a2ad.Schema([]byte("{}")))
			return err
		},
		"Schema: it is not a JSON object": func(ctx context.Context, t *a2ad.Task) error {
			_, err := a2ad.AskFor[int](ctx, t, "Go?", a2ad.Schema([]byte("{")))
			return err
		},
		"a question for a type that contains itself": func(ctx context.Context, t *a2ad.Task) error {
			_, err := a2ad.AskFor[self](ctx, t, "Go?")
			return err
		},
		"a question for a chan int": func(ctx context.Context, t *a2ad.Task) error {
			_, err := a2ad.AskFor[chan int](ctx, t, "Go?")
			return err
		},
		"AuthRequired has no choices": func(ctx context.Context, t *a2ad.Task) error {
			_, err := t.AuthRequired(ctx, "Sign in", a2ad.Choices("done"))
			return err
		},
		"Signal: the name must have": func(ctx context.Context, t *a2ad.Task) error {
			_, err := a2ad.Signal[string](ctx, t, "", 0)
			return err
		},
		`Call: "my agent" cannot be the name`: func(ctx context.Context, t *a2ad.Task) error {
			_, err := t.Call(ctx, "my agent", "x")
			return err
		},
		"the message of a call must have 1 to 100 parts": func(ctx context.Context, t *a2ad.Task) error {
			_, err := t.Call(ctx, "other", "")
			return err
		},
		"a status must have": func(ctx context.Context, t *a2ad.Task) error { return t.Status(ctx, "") },
		"the name of an artifact must have": func(ctx context.Context, t *a2ad.Task) error {
			return t.Artifact("").Write(ctx, "x")
		},
		"artifact a: part 1 must have one of Text, Data, Raw and URL; it has 2": func(
			ctx context.Context, t *a2ad.Task,
		) error {
			return t.Artifact("a").Send(ctx, a2ad.Part{Raw: []byte("x"), URL: "https://example.com"})
		},
		`artifact a: part 1 has no absolute URL`: func(ctx context.Context, t *a2ad.Task) error {
			return t.Artifact("a").Send(ctx, a2ad.Part{URL: "report.pdf"})
		},
		"artifact a: part 1 is a file of 1048577 bytes": func(ctx context.Context, t *a2ad.Task) error {
			return t.Artifact("a").File(ctx, "x", "text/plain", []byte(large))
		},
		"artifact a: part 2 has data that is not JSON": func(ctx context.Context, t *a2ad.Task) error {
			return t.Artifact("a").Append(ctx, a2ad.Text("x"), a2ad.JSON(none))
		},
		"Usage: a number is not between": func(ctx context.Context, t *a2ad.Task) error {
			return t.Usage(ctx, a2ad.Usage{OutputTokens: -1})
		},
		"the checkpoint has no form": func(ctx context.Context, t *a2ad.Task) error { return t.Checkpoint(ctx, none) },
	} {
		wrong := mistakeOf(t, func(ctx context.Context, t *a2ad.Task) (any, error) { return nil, mistake(ctx, t) })
		text, ok := strings.CutPrefix(wrong.Error(), "a2ad: a2ad/mistakes_test.go:")
		if !ok || !strings.Contains(text, want) {
			t.Errorf("%q, want the line and %q", wrong, want)
		}
	}
}

func TestMistakesNameTheLine(t *testing.T) {
	t.Parallel()
	_, _, line, _ := runtime.Caller(0)
	wrong := mistakeOf(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
		return nil, t.Sleep(ctx, -time.Second) // two lines below
	})
	want := fmt.Sprintf("a2ad: a2ad/mistakes_test.go:%d: Sleep must be between 0 and ten years, not -1s", line+2)
	if wrong.Error() != want {
		t.Errorf("got  %s\nwant %s", wrong, want)
	}
	wrong = mistakeOf(t, func(context.Context, *a2ad.Task) (any, error) { return make(chan int), nil })
	want = fmt.Sprintf("a2ad: a2ad/mistakes_test.go:%d: what the agent returned, a chan int, has no form", line+8)
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

func TestPanicsFailTheAttempt(t *testing.T) {
	t.Parallel()
	r := run(t, func(_ context.Context, t *a2ad.Task) (any, error) {
		if t.Attempt() == 1 {
			panic("oops")
		}
		return "fine", nil
	}, "x", a2adtest.Client{})
	if r.Text() != "fine" || r.Attempts != 2 {
		t.Errorf("%q in %d attempts, want fine in 2", r.Text(), r.Attempts)
	}
}

func TestWrongRegistrationsPanic(t *testing.T) {
	t.Parallel()
	does := func(context.Context, *a2ad.Task) (any, error) { return nil, nil }
	for want, register := range map[string]func(w *a2ad.Worker){
		"cannot be the name":      func(w *a2ad.Worker) { w.Agent("my agent", does) },
		"has no function":         func(w *a2ad.Worker) { w.Handler("a", nil) },
		"is registered twice":     func(w *a2ad.Worker) { w.Agent("a", does); w.Handler("a", does) },
		"Concurrency(0): must be": func(w *a2ad.Worker) { w.Agent("a", does, a2ad.Concurrency(0)) },
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
		"is not the URL of a server": {URL: "localhost:8080"},
		"printable ASCII":            {Name: "my worker"},
		"grace time":                 {Grace: -1},
	} {
		w := a2ad.NewWorker(o)
		w.Agent("a", does)
		if err := w.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Run = %v, want %q", err, want)
		}
	}
}
