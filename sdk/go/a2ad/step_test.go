package a2ad_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a2ad/a2ad/sdk/go/a2ad"
	"github.com/a2ad/a2ad/sdk/go/a2ad/a2adtest"
)

// works runs an agent in the bubble of a test, and returns the bodies of its requests.
func works(t *testing.T, fn a2ad.AgentFunc) (sent string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		ended := make(chan struct{})
		_, stop := s.work(a2ad.Options{}, func(ctx context.Context, t *a2ad.Task) (any, error) {
			defer close(ended)
			return fn(ctx, t)
		})
		s.add("t", nil)
		<-ended
		time.Sleep(time.Minute) // what it has left running ends
		stop()
		for _, r := range s.sent("runs/") {
			sent += r.body + "\n"
		}
	})
	return sent
}

func TestStepTimeout(t *testing.T) {
	t.Parallel()
	calls := 0
	sent := works(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
		err := a2ad.Do(ctx, t, "slow", func(ctx context.Context) error {
			calls++
			<-ctx.Done()
			return fmt.Errorf("wrapped: %w", ctx.Err())
		}, a2ad.Timeout(time.Second), a2ad.Retries(1))
		if !errors.Is(err, context.DeadlineExceeded) || err.Error() != "slow: TimeoutError" {
			return nil, fmt.Errorf("got %w", err)
		}
		return "late", nil
	})
	if calls != 2 || !strings.Contains(sent, `"error":{"type":"TimeoutError","message":""},"attempts":2`) ||
		!strings.Contains(sent, `{"text":"late"}`) {
		t.Errorf("%d calls, sent:\n%s", calls, sent)
	}
}

// A result that comes too late does not count, as it does not if the function takes even longer.
func TestLateResultOfAStep(t *testing.T) {
	t.Parallel()
	sent := works(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
		_, err := a2ad.Step(ctx, t, "slow", func(context.Context) (string, error) {
			time.Sleep(2 * time.Second)
			return "late", nil
		}, a2ad.Timeout(time.Second))
		if !errors.Is(err, context.DeadlineExceeded) {
			return nil, fmt.Errorf("got %w", err)
		}
		return "failed", nil
	})
	if !strings.Contains(sent, `"error":{"type":"TimeoutError"`) || strings.Contains(sent, "late") {
		t.Errorf("sent:\n%s", sent)
	}
}

// A function that ignores its timeout is left alone. What it writes later would be text of another try.
func TestTryThatIgnoresItsTimeoutWritesNothing(t *testing.T) {
	t.Parallel()
	var late error
	sent := works(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
		deaf := make(chan struct{})
		var tries atomic.Int32
		err := a2ad.Do(ctx, t, "model", func(ctx context.Context) error {
			if tries.Add(1) == 2 {
				return t.Write(ctx, "whole")
			}
			defer close(deaf)
			time.Sleep(10 * time.Second)
			late = t.Write(context.WithoutCancel(ctx), "half")
			return late
		}, a2ad.Timeout(time.Second), a2ad.Retries(1), a2ad.Backoff(time.Millisecond))
		<-deaf
		return nil, err
	})
	if strings.Contains(sent, "half") || !strings.Contains(sent, "whole") || !errors.Is(late, a2ad.ErrStopped) {
		t.Errorf("the late write returned %v, sent:\n%s", late, sent)
	}
}

// What runs on after a step that has succeeded is a mistake: its text would be recorded nowhere.
func TestStepMustWaitForWhatItStarts(t *testing.T) {
	t.Parallel()
	wrong := mistakeOf(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
		var inner context.Context
		if err := a2ad.Do(ctx, t, "a", func(ctx context.Context) error { inner = ctx; return nil }); err != nil {
			return nil, err
		}
		return nil, t.Write(inner, "late")
	})
	if !strings.Contains(wrong.Error(), `the step "a" has ended`) {
		t.Errorf("got %v", wrong)
	}
}

func TestStepWritesFromSeveralGoroutines(t *testing.T) {
	t.Parallel()
	r := run(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
		return nil, a2ad.Do(ctx, t, "a", func(ctx context.Context) error {
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					for range 10 {
						_ = t.Write(ctx, "x")
						_ = t.Usage(ctx, a2ad.Usage{Model: "m", Requests: 1})
					}
				})
			}
			wg.Wait()
			return nil
		})
	}, "x", a2adtest.Client{})
	if r.Artifact("answer") != strings.Repeat("x", 100) || r.Usage["m"].Requests != 100 {
		t.Errorf("the answer is %q, the usage %+v", r.Artifact("answer"), r.Usage)
	}
}

// The sums of a step fit into the request with its record. Its usage counts even if the failure is not recorded.
func TestUsageOfAFailedStep(t *testing.T) {
	t.Parallel()
	sent := works(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
		return nil, a2ad.Do(ctx, t, "model", func(ctx context.Context) error {
			for _, model := range []string{"a", "b", "a"} {
				if err := t.Usage(ctx, a2ad.Usage{Model: model, Requests: 1}); err != nil {
					return err
				}
			}
			return errors.New("busy")
		})
	})
	want := `{"events":[{"usage":{"model":"a","requests":2}},{"usage":{"model":"b","requests":1}}],"batchId":"usage"}`
	if !strings.Contains(sent, want) || strings.Contains(sent, `"step"`) {
		t.Errorf("sent:\n%s", sent)
	}
}

// The agent's own context ends a step without recording a failure.
func TestCanceledStepIsNotAFailure(t *testing.T) {
	t.Parallel()
	sent := works(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
		brief, cancel := context.WithCancel(ctx)
		err := a2ad.Do(brief, t, "a", func(ctx context.Context) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, context.Canceled) {
			return nil, fmt.Errorf("got %w", err)
		}
		return "done", nil
	})
	if strings.Contains(sent, `"step"`) || !strings.Contains(sent, "done") {
		t.Errorf("sent:\n%s", sent)
	}
}

// A value is returned as it will be read in a later attempt.
func TestResultIsReadBack(t *testing.T) {
	t.Parallel()
	type kept struct {
		Public  string `json:"public"`
		Dropped string `json:"-"`
	}
	crashEverywhere(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
		v, err := a2ad.Step(ctx, t, "a", func(context.Context) (kept, error) { return kept{"p", "d"}, nil })
		if v.Dropped != "" {
			return nil, a2ad.Fail("the result is not that of a later attempt")
		}
		return v.Public, err
	}, "x", a2adtest.Client{})
}

func TestStepThatEndsTheTask(t *testing.T) {
	t.Parallel()
	calls := 0
	agent := func(ctx context.Context, t *a2ad.Task) (any, error) {
		err := a2ad.Do(ctx, t, "pay", func(context.Context) error {
			calls++
			return fmt.Errorf("wrapped: %w", a2ad.Fail("no money"))
		}, a2ad.Retries(3))
		if !errors.Is(err, a2ad.ErrFail) {
			return nil, err
		}
		return "handled", t.Sleep(ctx, time.Hour)
	}
	if r := run(t, agent, "x", a2adtest.Client{}); r.Text() != "handled" || calls != 1 {
		t.Errorf("%q after %d calls", r.Text(), calls)
	}
}

func TestPausesOfAStep(t *testing.T) {
	t.Parallel()
	var times []time.Duration
	sent := works(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
		began := time.Now()
		return nil, a2ad.Do(ctx, t, "get", func(context.Context) error {
			times = append(times, time.Since(began))
			return errors.New("busy")
		}, a2ad.Retries(9), a2ad.Backoff(2*time.Second))
	})
	// 2, 4 and 8 s in the process, and then 16 s without a worker
	want := []time.Duration{0, 2 * time.Second, 6 * time.Second, 14 * time.Second}
	wait := `{"wait":{"key":"get#1/pause#4","for":"16.000s","input":{}}}`
	if !slices.Equal(times, want) || !strings.Contains(sent, wait) {
		t.Errorf("tries at %v, want %v, sent:\n%s", times, want, sent)
	}
}

// Text is cut only between characters, at most 256 KiB in a piece.
func TestTextIsCutBetweenCharacters(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("a🚆🚆", 60000)
	sent := works(t, func(ctx context.Context, t *a2ad.Task) (any, error) { return nil, t.Write(ctx, text) })
	if strings.Contains(sent, "\uFFFD") || strings.Count(sent, "🚆") != 120000 ||
		strings.Count(sent, `{"artifactUpdate":`) != 3 {
		t.Errorf("%d characters in %d pieces", strings.Count(sent, "🚆"), strings.Count(sent, `{"artifactUpdate":`))
	}
}

// takes is work that lasts for a time, in the bubble of [works].
func takes(d time.Duration) { time.Sleep(d) }
