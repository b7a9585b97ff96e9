package a2ad_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/sdk/go/a2ad"
	"github.com/a2ad/a2ad/sdk/go/a2ad/a2adtest"
)

// Calls at once outside Gather would get other keys in the next attempt. The second one is refused; the first one is
// recorded before the task waits for a corrected program.
func TestCallsAtOnceAreRefused(t *testing.T) {
	t.Parallel()
	sent := works(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
		begun := make(chan struct{})
		go func() {
			_ = a2ad.Do(ctx, t, "look", func(context.Context) error {
				close(begun)
				takes(5 * time.Second) // longer than the agent's function
				return nil
			})
		}()
		<-begun
		return nil, a2ad.Do(ctx, t, "look", func(context.Context) error { return nil })
	})
	look := strings.Index(sent, `{"step":{"key":"look#1"`)
	postponed := strings.Index(sent, `{"step":{"key":"postponed"`)
	if look < 0 || postponed < look || strings.Contains(sent, "look#2") ||
		!strings.Contains(sent, "gather_test.go:") || !strings.Contains(sent, "is still in progress") {
		t.Errorf("sent:\n%s", sent)
	}
}

// A failure that the agent has handled is recorded before what branches do.
func TestGatherAfterAFailureThatIsHandled(t *testing.T) {
	t.Parallel()
	agent := func(ctx context.Context, t *a2ad.Task) (any, error) {
		_ = a2ad.Do(ctx, t, "s", func(ctx context.Context) error {
			return errors.Join(t.Write(ctx, "<!"), errors.New("x"))
		})
		err := t.Gather(ctx, func(ctx context.Context) error {
			return a2ad.Do(ctx, t, "g", func(ctx context.Context) error { return t.Write(ctx, "[g]") })
		})
		return nil, errors.Join(err, a2ad.Do(ctx, t, "t", func(context.Context) error { return nil }))
	}
	for _, handler := range []bool{false, true} {
		r, err := a2adtest.CrashEverywhere(agent, "x", a2adtest.Client{Handler: handler}, shown)
		if err != nil || shown(r) != "<![g]" {
			t.Errorf("handler %t: %q, %v", handler, shown(r), err)
		}
	}
}

// Two branches may not write the same artifact. After Gather, the agent may.
func TestBranchesShareNoArtifact(t *testing.T) {
	t.Parallel()
	writes := func(t *a2ad.Task, to string) func(context.Context) error {
		return func(ctx context.Context) error {
			return a2ad.Do(ctx, t, "a", func(ctx context.Context) error { return t.Artifact(to).Write(ctx, to) })
		}
	}
	r := run(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
		err := t.Gather(ctx, writes(t, "x"), writes(t, "x"))
		var failed *a2ad.StepError
		want := `another branch of Gather writes the artifact "x"`
		if !errors.As(err, &failed) || !strings.Contains(failed.Text, want) {
			return nil, err
		}
		if err := t.Gather(ctx, writes(t, "y"), writes(t, "z")); err != nil {
			return nil, err
		}
		return "fine", writes(t, "y")(ctx)
	}, "x", a2adtest.Client{})
	if r.Text() != "fine" || r.Artifact("x") != "x" || r.Artifact("y") != "yy" {
		t.Errorf("%s: %q, %v", r.State, r.Text(), r.Artifacts)
	}
}

// A branch that drops the error of its call does nothing after it.
func TestBranchThatIgnoresItsWaitDoesNothing(t *testing.T) {
	t.Parallel()
	r := crashEverywhere(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
		text := ""
		err := t.Gather(ctx, func(ctx context.Context) error {
			if r, err := t.Call(ctx, "other", "go"); err == nil {
				text = r.Text()
			}
			_ = t.Status(ctx, "called") // only when the call is over
			return nil
		}, func(ctx context.Context) error {
			_, err := t.Call(ctx, "other", "again")
			return err
		})
		return text, err
	}, "x", a2adtest.Client{Calls: agents("other", "<$>")})
	if r.Text() != "<go>" || r.State != "completed" {
		t.Errorf("%s: %q", r.State, r.Text())
	}
}

func TestContextOfABranchEndsWithGather(t *testing.T) {
	t.Parallel()
	wrong := mistakeOf(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
		var inner context.Context
		if err := t.Gather(ctx, func(ctx context.Context) error { inner = ctx; return nil }); err != nil {
			return nil, err
		}
		return nil, t.Status(inner, "late")
	})
	if !strings.Contains(wrong.Error(), "the context of a branch of Gather that has ended") {
		t.Errorf("got %v", wrong)
	}
}

// A pause of a branch ends in the process while other branches work.
func TestPauseOfABranchWhileOthersWork(t *testing.T) {
	t.Parallel()
	tries := 0
	sent := works(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
		return "done", t.Gather(ctx, func(ctx context.Context) error {
			return a2ad.Do(ctx, t, "pay", func(context.Context) error {
				if tries++; tries == 1 {
					return errors.New("busy")
				}
				return nil
			}, a2ad.Retries(1), a2ad.Backoff(time.Minute))
		}, func(ctx context.Context) error {
			return a2ad.Do(ctx, t, "slow", func(context.Context) error {
				takes(2 * time.Minute)
				return nil
			})
		})
	})
	if tries != 2 || strings.Contains(sent, `"wait"`) || !strings.Contains(sent, `{"text":"done"}`) {
		t.Errorf("%d tries, sent:\n%s", tries, sent)
	}
}

// A branch that waits does nothing else, even if the context of its call has ended.
func TestBranchThatWaitsBeginsNothing(t *testing.T) {
	t.Parallel()
	var late error
	sent := works(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
		return nil, t.Gather(ctx, func(ctx context.Context) error {
			brief, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_, err := t.Call(brief, "other", "x")
			late = a2ad.Do(ctx, t, "instead", func(context.Context) error { return nil })
			return err
		}, func(ctx context.Context) error {
			return a2ad.Do(ctx, t, "slow", func(context.Context) error { takes(5 * time.Second); return nil })
		})
	})
	if !errors.Is(late, a2ad.ErrStopped) || strings.Contains(sent, "instead") || !strings.Contains(sent, `"wait"`) {
		t.Errorf("the late step returned %v, sent:\n%s", late, sent)
	}
}
