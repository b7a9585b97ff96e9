package a2ad

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime/debug"
	"strings"
	"time"
)

// AgentFunc does a task. What it returns is the last message of the task: a string, a []byte as a file, a [Part], a
// []Part, a [Message] or *Message, or another value, which becomes a data part. nil, a nil pointer, an empty string and
// an empty []Part mean no message. An error is no value: return it as the error.
//
// Its context ends when the run ends: the task waits or was canceled, the lease is lost, or the worker stops. The
// function must then return within 2 seconds: after that, the worker does not wait for it, and uses its slot for
// another task. The context has no deadline of its own: see [Task.Deadline].
//
// If the function returns an error that is made by [Fail] or [Reject], the task ends. A [StepError] that is recorded
// fails the task. Any other error, and a panic, ends the attempt, and the server starts another one, up to the agent's
// max_attempts.
type AgentFunc func(ctx context.Context, t *Task) (any, error)

// ending of a run: how it ended, which the server knows, unless the outcome is retry.
type runEnd struct {
	outcome outcome
	reason  string
	how     *ending // of a retry that the agent asked for
	wrong   error   // of a task that is postponed: the mistake
}

// execute calls the function of an agent, and records how its task ends. Code of the program that panics here, such as
// its Trace, ends only this attempt.
func (s *session) execute(ctx context.Context, fn AgentFunc) (end runEnd) {
	defer func() {
		if p := recover(); p != nil {
			err := &panicError{p, debug.Stack()}
			s.log(ctx, slog.LevelError, "attempt failed", failureAttrs(err)...)
			if end.outcome == "" {
				end = s.again(err.Error())
			}
		}
	}()
	inner, done := s.startSpan(ctx, Span{Kind: SpanRun, Name: s.run.Agent})
	called := s.called(inner, start(func() (any, error) { return fn(inner, &Task{s}) }))
	// The agent, or a framework between it and this package, may have dropped or replaced what ended the run.
	err := s.whyEnded(called.err)
	if err != nil {
		s.leave(inner)
	}
	end = s.conclude(inner, fn, called.value, err)
	s.stop(errAttemptEnded()) // for what the agent left running
	done(SpanEnd{Err: err, Outcome: string(end.outcome)})
	return end
}

// called returns what the agent's function returned. When the run has ended, it does not wait for ever.
func (s *session) called(ctx context.Context, running <-chan result) result {
	if s.eager {
		return <-running
	}
	select {
	case r := <-running:
		return r
	case <-s.done:
	}
	timer := time.NewTimer(endTimeout)
	defer timer.Stop()
	select {
	case r := <-running:
		return r
	case <-timer.C:
		s.log(ctx, slog.LevelWarn, "the agent's function ignores that its run has ended")
	}
	return result{}
}

// whyEnded returns the error that the agent's function should have returned.
func (s *session) whyEnded(err error) error {
	stop, mistake := s.check(), s.wrong()
	var refused *UsageError
	if errors.As(stop, &refused) && mistake != nil { // it has the line
		return mistake
	}
	return firstOf(stop, mistake, err)
}

// conclude records how the task ends.
func (s *session) conclude(ctx context.Context, fn AgentFunc, value any, err error) runEnd {
	var how *ending
	var failed *StepError
	var wrong *UsageError
	var changed *NondeterminismError
	switch {
	case err == nil:
		return s.complete(ctx, stateCompleted, value, fn)
	case stopOf(s.check()) != nil:
		return s.ended(s.check())
	case errors.As(err, &how):
		return s.endAs(ctx, how, fn)
	case errors.As(err, &failed):
		if failed.cause == nil { // it failed in an earlier attempt, whose log says where
			s.log(ctx, slog.LevelWarn, "step failed", slog.Any("err", err))
		}
		if failed.Recorded {
			return s.complete(ctx, stateFailed, clean(err.Error(), maxReason), fn)
		}
		return s.again(err.Error())
	case errors.As(err, &wrong):
		return s.postpone(ctx, err)
	case errors.As(err, &changed):
		s.log(ctx, slog.LevelError, "nondeterminism", slog.Any("err", err))
		return s.again("nondeterminism: " + changed.text()) // without the line, because a client may read it
	}
	s.log(ctx, slog.LevelError, "attempt failed", failureAttrs(err)...)
	return s.again(err.Error())
}

// endAs ends the task or the attempt as the agent has asked.
func (s *session) endAs(ctx context.Context, how *ending, fn AgentFunc) runEnd {
	switch {
	case errors.Is(how, ErrFail):
		return s.complete(ctx, stateFailed, clean(how.reason, maxReason), fn)
	case errors.Is(how, ErrReject):
		return s.complete(ctx, stateRejected, clean(how.reason, maxReason), fn)
	}
	end := s.again(how.reason)
	if end.how = how; how.reason == "" {
		end.reason = "the agent asked for another attempt"
	}
	return end
}

// complete records the state of the task, with its last message.
func (s *session) complete(ctx context.Context, state string, value any, fn AgentFunc) runEnd {
	if left := s.unused(); len(left) > 0 && !s.handler {
		s.log(ctx, slog.LevelWarn, "the function ended without these recorded steps; take the same path each time",
			slog.String("steps", abridged(left)))
	}
	st := status{State: state}
	if !isNothing(value) {
		parts, err := partsOf(value, "what the agent returned")
		if err != nil {
			var wrong *UsageError
			if errors.As(err, &wrong) {
				err = &UsageError{Text: wrong.Text, Line: lineOf(fn)}
			}
			return s.postpone(ctx, err)
		}
		st.Message = &sentMessage{parts}
	}
	s.endSegments()
	err := s.addLast(ctx, statusEvent{statusUpdate{st}})
	if err == nil {
		err = s.store(ctx)
	}
	switch {
	case err == nil:
		return runEnd{outcome: finished}
	case isMistake(err): // a call is in progress, or the server refuses the status
		return s.postpone(ctx, err)
	}
	return s.ended(err)
}

// isNothing reports whether a value stands for no message.
func isNothing(value any) bool {
	switch v := reflect.ValueOf(value); v.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer:
		return v.IsNil()
	case reflect.String:
		return v.Len() == 0
	}
	parts, ok := value.([]Part)
	return ok && len(parts) == 0
}

func abridged(keys []string) string {
	text := strings.Join(keys[:min(len(keys), 10)], ", ")
	if len(keys) > 10 {
		text += fmt.Sprintf(" and %d more", len(keys)-10)
	}
	return text
}

// again drops what was not sent, because the next attempt does it again.
func (s *session) again(reason string) runEnd {
	s.stop(errAttemptEnded())
	s.drop()
	return runEnd{outcome: retry, reason: clean(reason, maxReason)}
}

// log logs something about the run.
func (s *session) log(ctx context.Context, level slog.Level, text string, attrs ...slog.Attr) {
	run := s.run
	s.logger.LogAttrs(ctx, level, text, append([]slog.Attr{
		slog.String("task_id", run.TaskID), slog.String("agent", run.Agent), slog.Int64("epoch", run.Epoch),
		slog.Int("attempt", run.Attempt),
	}, attrs...)...)
}

func (s *session) logMistake(ctx context.Context, err error) {
	s.log(ctx, slog.LevelError, "mistake in the program", slog.Any("err", err))
}

// failureAttrs describes an error of the agent's code: a panic with its stack.
func failureAttrs(err error) []slog.Attr {
	attrs := []slog.Attr{slog.Any("err", err)}
	var p *panicError
	if errors.As(err, &p) {
		attrs = append(attrs, slog.String("stack", string(p.stack)))
	}
	return attrs
}
