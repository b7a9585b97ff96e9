package a2ad_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a2ad/a2ad/sdk/go/a2ad"
)

// slowly lets each report take a time, as a distant server does. A request that is canceled is not answered.
func (s *server) slowly(d time.Duration) {
	s.answer = func(r request) (int, string) {
		if !strings.HasSuffix(r.path, "events") {
			return 0, ""
		}
		select {
		case <-time.After(d):
			return 0, ""
		case <-r.ctx.Done():
			return -1, ""
		}
	}
}

type brokenError struct{ text string }

func (e *brokenError) Error() string { return e.text }

// Code of the program that panics while the library calls it ends the attempt, and not the process.
func TestPanicAfterTheFunctionEndsTheAttempt(t *testing.T) {
	t.Parallel()
	var none *brokenError
	var failed *a2ad.StepError
	for want, c := range map[string]struct {
		err   error
		trace a2ad.Trace
	}{
		"(*a2ad_test.brokenError).Error: ": {err: none},
		"(*errors.joinError).Error: ":      {err: errors.Join(errors.New("busy"), none)},
		"nil pointer":                      {err: &brokenWrapper{failed}},
		"broken trace": {trace: func(context.Context, a2ad.Span) (context.Context, func(a2ad.SpanEnd)) {
			panic("broken trace")
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t)
			var logs bytes.Buffer
			o := a2ad.Options{Logger: slog.New(slog.NewTextHandler(&logs, nil)), Trace: c.trace}
			_, stop := s.work(o, func(context.Context, *a2ad.Task) (any, error) { return nil, c.err })
			s.add("t", nil)
			synctest.Wait()
			stop()
			sent := s.sent("finish")
			if len(sent) != 1 || !strings.Contains(sent[0].body, `"outcome":"retry"`) ||
				!strings.Contains(sent[0].body, want) || !strings.Contains(logs.String(), "goroutine ") {
				t.Errorf("%s: sent %v, and logged\n%s", want, sent, logs.String())
			}
		})
	}
}

// brokenWrapper is an error whose text can be read, but not what it wraps.
type brokenWrapper struct{ inner *a2ad.StepError }

func (*brokenWrapper) Error() string   { return "wrapped" }
func (e *brokenWrapper) Unwrap() error { return e.inner }

// A panic of the trace when the run has ended changes nothing.
func TestPanicOfTheTraceAfterTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		trace := func(ctx context.Context, _ a2ad.Span) (context.Context, func(a2ad.SpanEnd)) {
			return ctx, func(a2ad.SpanEnd) { panic("broken trace") }
		}
		o := a2ad.Options{Trace: trace}
		_, stop := s.work(o, func(context.Context, *a2ad.Task) (any, error) { return "ok", nil })
		s.add("t", nil)
		synctest.Wait()
		stop()
		if len(s.sent("events")) != 1 || len(s.sent("finish")) != 0 {
			t.Errorf("sent %v and %v", s.sent("events"), s.sent("finish"))
		}
	})
}

// The context of a call does not decide whether its record counts: work that is done is recorded, and the attempt ends
// only after that.
func TestStepOutlivesTheContextOfItsCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.slowly(5 * time.Second)
		paid := make(chan error, 1)
		_, stop := s.work(a2ad.Options{}, func(ctx context.Context, t *a2ad.Task) (any, error) {
			if err := t.Write(ctx, "x"); err != nil {
				return nil, err
			}
			time.Sleep(time.Millisecond) // now it is being sent
			brief, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			paid <- a2ad.Do(brief, t, "pay", func(context.Context) error { return nil })
			return nil, errors.New("later")
		})
		s.add("t", nil)
		err := <-paid
		time.Sleep(time.Minute)
		stop()
		if n := len(s.sent("events")); err != nil || n != 2 || !strings.Contains(s.sent("events")[1].body, `"pay#1"`) {
			t.Errorf("the step returned %v, sent %v", err, s.sent("events"))
		}
	})
}

func TestWaitOutlivesTheContextOfItsCall(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(ctx context.Context, t *a2ad.Task) error{
		"sleep": func(ctx context.Context, t *a2ad.Task) error { return t.Sleep(ctx, time.Hour) },
		"ask":   func(ctx context.Context, t *a2ad.Task) error { _, err := t.Ask(ctx, "Go?"); return err },
		"signal": func(ctx context.Context, t *a2ad.Task) error {
			_, err := a2ad.Signal[int](ctx, t, "paid", 0)
			return err
		},
		"call": func(ctx context.Context, t *a2ad.Task) error { _, err := t.Call(ctx, "other", "x"); return err },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t)
			s.slowly(5 * time.Second)
			got := make(chan error, 1)
			_, stop := s.work(a2ad.Options{}, func(ctx context.Context, t *a2ad.Task) (any, error) {
				brief, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				err := call(brief, t)
				got <- err
				return nil, err
			})
			s.add("t", nil)
			err := <-got
			time.Sleep(time.Minute)
			stop()
			if !errors.Is(err, a2ad.ErrStopped) || len(s.sent("finish")) != 0 {
				t.Errorf("%s returned %v, sent %v", name, err, s.sent("finish"))
			}
		})
	}
}

// What is being sent when an attempt fails is stored before the server hears of the failure.
func TestFailureWaitsForTheRequestInProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.slowly(5 * time.Second)
		_, stop := s.work(a2ad.Options{}, func(ctx context.Context, t *a2ad.Task) (any, error) {
			err := t.Write(ctx, "x")
			time.Sleep(time.Millisecond) // now it is being sent
			return nil, errors.Join(err, errors.New("busy"))
		})
		s.add("t", nil)
		time.Sleep(time.Minute)
		stop()
		if sent := s.sent("finish"); len(sent) != 1 || sent[0].at != 5*time.Second {
			t.Errorf("sent %v, want one at 5 s", sent)
		}
	})
}

// A function that ignores that its run has ended does not keep its slot.
func TestDeafFunctionFreesItsSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.answer = func(r request) (int, string) {
			if strings.HasSuffix(r.path, "heartbeat") {
				return 200, `{"cancelRequested": true}`
			}
			return 0, ""
		}
		var logs bytes.Buffer
		next, deaf := make(chan time.Duration, 1), make(chan struct{})
		o := a2ad.Options{Logger: slog.New(slog.NewTextHandler(&logs, nil))}
		_, stop := s.work(o, func(_ context.Context, t *a2ad.Task) (any, error) {
			if t.ID() == "next" {
				next <- time.Since(s.began)
				return nil, nil
			}
			defer close(deaf)
			time.Sleep(time.Minute) // it does not look at its context
			return "late", nil
		}, a2ad.Concurrency(1))
		s.add("deaf", nil)
		s.add("next", nil)
		if at := <-next; at != 12*time.Second {
			t.Errorf("the next run began after %s, want 10 s until the heartbeat and 2 s", at)
		}
		<-deaf
		stop()
		if !strings.Contains(logs.String(), "ignores that its run has ended") || len(s.sent("deaf/1/events")) != 0 {
			t.Errorf("sent %v, and logged\n%s", s.sent("deaf/1/events"), logs.String())
		}
	})
}

// A function must wait for the calls that it begins: otherwise their work may be lost.
func TestFunctionMustWaitForItsCalls(t *testing.T) {
	t.Parallel()
	sent := works(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
		begun := make(chan struct{})
		go func() {
			_ = a2ad.Do(ctx, t, "pay", func(context.Context) error {
				close(begun)
				time.Sleep(5 * time.Second)
				return nil
			})
		}()
		<-begun
		return "ok", nil
	})
	pay, postponed := strings.Index(sent, `{"key":"pay#1"`), strings.Index(sent, `{"key":"postponed"`)
	if pay < 0 || postponed < pay || strings.Contains(sent, "COMPLETED") || !strings.Contains(sent, "ends_test.go:") {
		t.Errorf("sent:\n%s", sent)
	}
}

// Nothing follows the state that ends a task: the server would refuse it.
func TestNothingFollowsTheEndOfTheTask(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.slowly(5 * time.Second)
		late := make(chan error, 3)
		_, stop := s.work(a2ad.Options{}, func(ctx context.Context, t *a2ad.Task) (any, error) {
			go func() {
				time.Sleep(time.Second)
				late <- t.Write(ctx, "x")
				late <- t.Status(ctx, "x")
				late <- a2ad.Do(ctx, t, "x", func(context.Context) error { panic("called") })
			}()
			return "ok", nil
		})
		s.add("t", nil)
		for range 3 {
			if err := <-late; !errors.Is(err, a2ad.ErrStopped) {
				t.Errorf("a late call returned %v", err)
			}
		}
		time.Sleep(time.Minute)
		stop()
		if sent := s.sent("runs/"); len(sent) != 1 {
			t.Errorf("sent %v", sent)
		}
	})
}

// The record of work that is done when the worker stops is still stored.
func TestStopWaitsForTheRequestInProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.slowly(2 * time.Second)
		begun := make(chan struct{})
		_, stop := s.work(a2ad.Options{Grace: 5 * time.Second}, func(ctx context.Context, t *a2ad.Task) (any, error) {
			close(begun)
			return nil, a2ad.Do(ctx, t, "pay", func(context.Context) error { time.Sleep(4 * time.Second); return nil })
		})
		s.add("t", nil)
		<-begun
		stop()
		events, finish := s.sent("events"), s.sent("finish")
		if len(events) != 1 || len(finish) != 1 || finish[0].at != 6*time.Second {
			t.Errorf("sent %v, then %v, want the release after the answer at 6 s", events, finish)
		}
	})
}
