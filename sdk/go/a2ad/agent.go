package a2ad

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/a2ad/a2ad/sdk/go/a2ad/internal/kit"
)

// AgentFunc does a task. What it returns is the last message of the task: nil, a string, a Part, a []Part, a *Message,
// or a value that becomes a data part. Unless the error is made by [Fail] or [Reject], it ends the attempt, and the
// server starts another one, up to the agent's max_attempts.
type AgentFunc func(ctx context.Context, t *Task) (any, error)

// runEnd is how a run ended.
type runEnd struct {
	outcome outcome
	reason  string
	after   time.Duration // of a retry: until the next attempt
	wrong   error         // of a task that is postponed: the mistake
}

func init() {
	kit.Execute = func(
		ctx context.Context, data json.RawMessage, server kit.Server, agent any, handler bool,
	) (kit.End, error) {
		var run runInput
		if err := json.Unmarshal(data, &run); err != nil {
			return kit.End{}, err
		}
		s, ctx := open(ctx, &run, settings{
			report: func(ctx context.Context, run *runInput, events []json.RawMessage) (bool, error) {
				return server.Report(ctx, run.Epoch, events)
			},
			clock: server, handler: handler, eager: true,
		})
		defer s.close()
		end := s.execute(ctx, agent.(AgentFunc), slog.New(slog.DiscardHandler))
		return kit.End{Retry: end.outcome == retry, Reason: end.reason, After: end.after, Wrong: end.wrong}, nil
	}
}

// execute calls the function of an agent, and records how its task ends.
func (s *session) execute(ctx context.Context, fn AgentFunc, log *slog.Logger) (end runEnd) {
	var failure error
	ctx, done := s.startSpan(ctx, Span{Kind: SpanRun, Name: s.run.Agent, Attempt: s.run.Attempt})
	defer func() { done(SpanEnd{Err: failure}) }()
	var value any
	err := guard(func() (err error) {
		value, err = fn(ctx, &Task{s})
		return err
	})
	if stop := s.ended(); stop != nil {
		return s.stoppedBy(ctx, stop, log)
	}
	failure = err
	var how *ending
	var failed *StepError
	var wrong *UsageError
	switch {
	case err == nil:
		end, failure = s.finish(ctx, stateCompleted, value, fn, log)
		return end
	case errors.As(err, &wrong):
		return s.postpone(ctx, wrong, log)
	case errors.As(err, &how) && how.state != "":
		end, _ = s.finish(ctx, how.state, how.reason, fn, log)
		return end
	case errors.As(err, &how):
		s.drop()
		return runEnd{outcome: retry, reason: how.reason, after: min(max(how.after, 0), maxRetry)}
	case errors.As(err, &failed) && failed.Final:
		end, _ = s.finish(ctx, stateFailed, failed.Error(), fn, log)
		return end
	}
	var p *panicked
	stack := ""
	if errors.As(err, &p) {
		stack = p.stack
	}
	log.WarnContext(ctx, "attempt failed", "agent", s.run.Agent, "task_id", s.run.TaskID, "attempt", s.run.Attempt,
		"err", err, "stack", stack)
	s.drop()
	return runEnd{outcome: retry, reason: err.Error()}
}

// stoppedBy returns how the run ended, by what has stopped its session.
func (s *session) stoppedBy(ctx context.Context, err error, log *slog.Logger) runEnd {
	var refused *UsageError
	if errors.As(err, &refused) {
		return s.postpone(ctx, refused, log)
	}
	var end *stopped
	if errors.As(err, &end) {
		return runEnd{outcome: end.outcome, reason: end.text}
	}
	if errors.Is(err, ErrStopped) { // of a test
		return runEnd{outcome: lost, reason: err.Error()}
	}
	s.drop()
	return runEnd{outcome: retry, reason: err.Error()}
}

// finish records the state of the task, with the last message.
func (s *session) finish(
	ctx context.Context, state string, value any, fn AgentFunc, log *slog.Logger,
) (runEnd, error) {
	parts, err := partsOf(value, "what the agent returned")
	if err == nil && len(parts) > 0 {
		err = checkParts("what the agent returned", parts)
	}
	if err != nil {
		var wrong *UsageError
		if errors.As(err, &wrong) {
			wrong.Line = functionSite(fn)
			return s.postpone(ctx, wrong, log), err
		}
		s.drop()
		return runEnd{outcome: retry, reason: err.Error()}, err
	}
	st := status{State: state}
	if len(parts) > 0 {
		st.Message = &Message{Parts: parts}
	}
	err = s.add(ctx, event{Status: &statusUpdate{st}})
	if err == nil {
		err = s.flush(ctx)
	}
	if err != nil {
		return s.stoppedBy(ctx, err, log), err
	}
	return runEnd{outcome: finished}, nil
}

// partsOf returns the parts of a message that the agent gives in one of several forms.
func partsOf(value any, what string) ([]Part, error) {
	switch v := value.(type) {
	case nil:
		return nil, nil
	case string:
		if v == "" {
			return nil, nil
		}
		return []Part{Text(v)}, nil
	case Part:
		return []Part{v}, nil
	case []Part:
		return v, nil
	case *Message:
		if v == nil {
			return nil, nil
		}
		return v.Parts, nil
	case *CallResult:
		if v == nil || v.Message == nil {
			return nil, nil
		}
		return v.Message.Parts, nil
	}
	data, err := encode(value, fmt.Sprintf("%s, a %T,", what, value))
	return []Part{{Data: data}}, err
}

// panicked is the error of a function that panics.
type panicked struct {
	value any
	stack string
}

func (p *panicked) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// guard makes an error of a panic.
func guard(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicked{p, string(debug.Stack())}
		}
	}()
	return do()
}
