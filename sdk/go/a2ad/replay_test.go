package a2ad_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a2ad/a2ad/sdk/go/a2ad"
	"github.com/a2ad/a2ad/sdk/go/a2ad/a2adtest"
)

// What an agent can see of a failed step is the same in the attempt in which it fails and in later ones.
func TestErrorOfAStepIsThatOfALaterAttempt(t *testing.T) {
	t.Parallel()
	for want, fails := range map[string]func(ctx context.Context) error{
		"pay: gone EOF; EOF false, late false, fail false": func(context.Context) error {
			return fmt.Errorf("gone %w", io.EOF)
		},
		"pay: TimeoutError; EOF false, late true, fail false": func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		},
		"no money; EOF false, late false, fail true": func(context.Context) error {
			return errors.Join(io.EOF, a2ad.Fail("no money"))
		},
		"pay: after must be between 0 and 7 days, not 240h0m0s. The step is not done again, because its function was " +
			"called; EOF false, late false, fail false": func(context.Context) error {
			return errors.Join(a2ad.Fail("no money"), a2ad.Retry("later", 240*time.Hour))
		},
		strings.Repeat("x", 4000) + "; EOF false, late false, fail true": func(context.Context) error {
			return a2ad.Fail(strings.Repeat("x", 5000))
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := crashEverywhere(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
				err := a2ad.Do(ctx, t, "pay", fails, a2ad.Timeout(time.Second))
				seen := fmt.Sprintf("%v; EOF %t, late %t, fail %t", err, errors.Is(err, io.EOF),
					errors.Is(err, context.DeadlineExceeded), errors.Is(err, a2ad.ErrFail))
				return seen, errors.Join(t.Status(ctx, seen), t.Sleep(ctx, time.Hour))
			}, "x", a2adtest.Client{})
			if r.Text() != want {
				t.Errorf("got  %s\nwant %s", r.Text(), want)
			}
		})
	}
}

// time.Until is negative when the agent runs again, and must not keep it from reading the record.
func TestDurationsUntilATimeThatIsOver(t *testing.T) {
	t.Parallel()
	at := time.Now().Add(-time.Hour)
	for want, agent := range map[string]a2ad.AgentFunc{
		"slept": func(ctx context.Context, t *a2ad.Task) (any, error) {
			return "slept", t.Sleep(ctx, time.Until(at))
		},
		"no signal": func(ctx context.Context, t *a2ad.Task) (any, error) {
			if _, err := a2ad.Signal[any](ctx, t, "paid", time.Until(at)); !errors.Is(err, a2ad.ErrTimeout) {
				return nil, err
			}
			return "no signal", nil
		},
		"no answer": func(ctx context.Context, t *a2ad.Task) (any, error) {
			if _, err := t.Ask(ctx, "Go?", a2ad.Within(time.Until(at))); !errors.Is(err, a2ad.ErrTimeout) {
				return nil, err
			}
			return "no answer", nil
		},
		"late": func(ctx context.Context, t *a2ad.Task) (any, error) {
			err := a2ad.Do(ctx, t, "a", func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			}, a2ad.Timeout(time.Until(at)))
			if !errors.Is(err, context.DeadlineExceeded) {
				return nil, err
			}
			return "late", nil
		},
		"again": func(_ context.Context, t *a2ad.Task) (any, error) {
			if t.Attempt() == 1 {
				return nil, a2ad.Retry("later", time.Until(at))
			}
			return "again", nil
		},
	} {
		if r := run(t, agent, "x", a2adtest.Client{}); r.Text() != want {
			t.Errorf("got %q, want %q", r.Text(), want)
		}
	}
}

// The agent computes the duration anew in each attempt.
func TestSleepUntilATimeThatIsOverInTheNextAttempt(t *testing.T) {
	t.Parallel()
	runs := 0
	r := run(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
		runs++
		return "awake", t.Sleep(ctx, time.Duration(2-runs)*2*time.Hour-time.Second)
	}, "x", a2adtest.Client{})
	if r.Text() != "awake" || runs != 2 {
		t.Errorf("%q in %d runs", r.Text(), runs)
	}
}
