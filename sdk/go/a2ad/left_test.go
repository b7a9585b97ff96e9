package a2ad_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a2ad/a2ad/sdk/go/a2ad"
	"github.com/a2ad/a2ad/sdk/go/a2ad/a2adtest"
)

// A step that a function leaves in progress is recorded when the function returns an error, so it is not done again.
// Nothing else begins.
func TestStepInProgressIsRecorded(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{"too slow": errors.New("too slow"), "TASK_STATE_FAILED": a2ad.Fail("no")} {
		for _, gather := range []bool{false, true} {
			var mailed atomic.Bool
			sent, logs, _ := leaves(t, func(ctx context.Context, t *a2ad.Task) error {
				begun := make(chan struct{})
				pay := func(ctx context.Context) error {
					return a2ad.Do(ctx, t, "pay", func(context.Context) error {
						close(begun)
						takes(5 * time.Second)
						return nil
					})
				}
				go func() {
					if gather {
						_ = t.Gather(ctx, pay, func(ctx context.Context) error {
							_, err := t.Call(ctx, "b", "x")
							return err
						})
					} else {
						_ = pay(ctx)
					}
					_ = a2ad.Do(ctx, t, "mail", func(context.Context) error { mailed.Store(true); return nil })
				}()
				<-begun
				return err
			})
			paid := strings.Index(sent, `pay#1"`)
			if ended := strings.Index(sent, want); paid < 0 || ended < paid || mailed.Load() ||
				strings.Contains(sent, `"wait"`) {
				t.Errorf("%v: mailed: %t, sent:\n%s", err, mailed.Load(), sent)
			}
			if !strings.Contains(logs, "is still in progress: wait for it, or use Gather. The attempt ends") {
				t.Errorf("logs:\n%s", logs)
			}
		}
	}
}

// A step that a function leaves in progress is not tried again when the function returns an error, neither before the
// pause nor in it.
func TestStepInProgressIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	for _, backoff := range []time.Duration{5 * time.Second, time.Hour} {
		for _, returns := range []time.Duration{0, 7 * time.Second} {
			tries := 0
			sent, _, ended := leaves(t, func(ctx context.Context, t *a2ad.Task) error {
				begun := make(chan struct{})
				go func() {
					_ = a2ad.Do(ctx, t, "pay", func(context.Context) error {
						tries++
						close(begun)
						takes(5 * time.Second)
						return errors.New("reset")
					}, a2ad.Retries(3), a2ad.Backoff(backoff))
				}()
				<-begun
				takes(returns)
				return a2ad.Fail("no money")
			})
			if returns == 0 && ended > 8*time.Second {
				t.Errorf("%v: the end comes after %v", backoff, ended)
			}
			waits := returns > 0 && backoff == time.Hour // the task waits before the function returns
			if tries != 1 || waits != strings.Contains(sent, `"wait"`) || waits == strings.Contains(sent, "FAILED") {
				t.Errorf("%v, %v: %d tries, sent:\n%s", backoff, returns, tries, sent)
			}
		}
	}
}

// What a function leaves in its own goroutines begins no call after it has returned an error. Whether it would, differs
// by run.
func TestNothingBeginsAfterTheFunction(t *testing.T) {
	t.Parallel()
	for range 300 {
		var goroutines sync.WaitGroup
		r, err := a2adtest.Run(func(ctx context.Context, t *a2ad.Task) (any, error) {
			goroutines.Go(func() {
				_ = a2ad.Do(ctx, t, "mail", func(context.Context) error { return nil })
			})
			return nil, a2ad.Fail("no money")
		}, "x", a2adtest.Client{})
		goroutines.Wait()
		if err != nil || r.State != "failed" {
			t.Fatalf("%v, %v", r, err)
		}
	}
}

// The error of a branch counts more than a call that it has left in progress.
func TestErrorOfABranchWithACallInProgress(t *testing.T) {
	t.Parallel()
	sent, _, _ := leaves(t, func(ctx context.Context, t *a2ad.Task) error {
		return t.Gather(ctx, func(ctx context.Context) error {
			begun := make(chan struct{})
			go func() {
				_ = a2ad.Do(ctx, t, "pay", func(context.Context) error {
					close(begun)
					takes(5 * time.Second)
					return nil
				})
			}()
			<-begun
			return a2ad.Fail("no money")
		})
	})
	if !strings.Contains(sent, `pay#1"`) || !strings.Contains(sent, "no money") || strings.Contains(sent, "postponed") {
		t.Errorf("sent:\n%s", sent)
	}
}

// leaves calls a function once, with a server that takes a second for a report. It returns what was sent and logged,
// and when the last report was sent.
func leaves(t *testing.T, fn func(ctx context.Context, t *a2ad.Task) error) (sent, logs string, last time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.slowly(time.Second)
		var log bytes.Buffer
		o := a2ad.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}
		_, stop := s.work(o, func(ctx context.Context, t *a2ad.Task) (any, error) { return nil, fn(ctx, t) })
		s.add("t", nil)
		takes(20 * time.Second)
		stop()
		var bodies strings.Builder
		for _, r := range s.sent("runs/") {
			bodies.WriteString(r.body)
			if strings.HasSuffix(r.path, "events") {
				last = r.at
			}
		}
		sent, logs = bodies.String(), log.String()
	})
	return sent, logs, last
}
