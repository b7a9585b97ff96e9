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
