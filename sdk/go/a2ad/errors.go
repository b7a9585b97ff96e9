package a2ad

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// Errors that an agent compares with [errors.Is].
var (
	// ErrStopped ends the agent's function: its task waits, was canceled, belongs to another worker, or returns to the
	// queue. The function must return it, wrapped or not. Each later call returns it again.
	ErrStopped = errors.New("a2ad: the run has ended")
	// ErrCanceled is the ErrStopped of a task that was canceled. It is the cause of the context, too.
	ErrCanceled = errors.New("a2ad: the task was canceled")
	// ErrTimeout means that no answer or signal came in time.
	ErrTimeout = errors.New("a2ad: not in time")

	// ErrRetry, ErrFail and ErrReject are the errors that Retry, Fail and Reject return.
	ErrRetry  = errors.New("a2ad: retry")
	ErrFail   = errors.New("a2ad: fail")
	ErrReject = errors.New("a2ad: reject")
)

// UsageError means that a call of this package has a wrong argument or is in the wrong place, or that the server
// refused it. Nothing of the call is sent.
//
// The task does not fail: it is retried later, so that a corrected program can continue it. If the agent handles the
// error, each later call returns it again, and the function ends with it. In a step, it fails the step instead: see
// [Step].
type UsageError struct {
	Text string
	// Line is the agent's line, such as agents/trip.go:17, or empty.
	Line string
	// Refused reports whether the server refused the call, such as one of an unknown agent.
	Refused bool
}

func (e *UsageError) Error() string { return at(e.Line) + e.Text }

func at(line string) string {
	if line == "" {
		return ""
	}
	return line + ": "
}

// misuse returns a UsageError with the agent's line that called this package.
func misuse(format string, args ...any) error {
	return &UsageError{Text: fmt.Sprintf(format, args...), Line: callers().line()}
}

// NondeterminismError means that the agent's code took another path than the recorded one. It ends the attempt. If the
// agent handles the error, each later call returns it again, and the attempt fails.
type NondeterminismError struct {
	Key      string // of the step
	Expected string // what is recorded
	Got      string // what the code does now
	Line     string // of the agent, such as agents/trip.go:17
}

func (e *NondeterminismError) Error() string { return at(e.Line) + e.text() }

// text leaves out the line, because a client may read it.
func (e *NondeterminismError) text() string {
	what, repair := "the code takes another path than the recorded one", "take the same path each time"
	kind, _, hashed := strings.Cut(e.Expected, " with ")
	if hashed && strings.HasPrefix(e.Got, kind+" with ") {
		kind = strings.TrimPrefix(kind, "a ")
		what = fmt.Sprintf("the arguments of %s %q differ from the recorded ones", kind, e.Key)
		repair = "read changing values inside a step"
	}
	return fmt.Sprintf("%s; %s (step %q is recorded as %s, but the code now does %s)",
		what, repair, e.Key, e.Expected, e.Got)
}

// StepError means that a step failed. If the failure is recorded, each later attempt returns it again.
//
// Only Type and Text are recorded, so it does not wrap the original error: compare these two. [errors.Is] finds
// [context.DeadlineExceeded] in the error of a step that took too long. To decide by more, let the function of the step
// return a value that says what happened.
type StepError struct {
	Step string // its name
	// Type is the Go type of the original error. It is TimeoutError for a step that took too long, panic for one that
	// panicked, and UsageError for a mistake that was found after the work.
	Type string
	Text string // of the original error
	// Recorded reports whether the failure was recorded when it was returned. If the agent does not handle it, the task
	// then fails.
	Recorded bool

	cause error // the original error, in the attempt in which the step failed
}

func (e *StepError) Error() string {
	if e.Text == "" {
		return e.Step + ": " + e.Type
	}
	return e.Step + ": " + e.Text
}

// timedOut is the type of the failure of a step that took too long.
const timedOut = "TimeoutError"

// Is reports whether target is [context.DeadlineExceeded] and the step took too long.
func (e *StepError) Is(target error) bool {
	return target == context.DeadlineExceeded && e.Type == timedOut
}

// CallError means that a called agent did not complete its task.
type CallError struct {
	Agent  string
	State  string // such as failed, rejected or canceled
	Text   string // of its last message or, if that has none, of its artifacts
	Result *CallResult
}

func (e *CallError) Error() string {
	s := fmt.Sprintf("agent %q ended its task as %s", e.Agent, e.State)
	if e.Text != "" {
		s += ": " + e.Text
	}
	return s
}

// ending is an error with which an agent says how its attempt ends.
type ending struct {
	kind   error // ErrRetry, ErrFail or ErrReject
	reason string
	after  time.Duration
}

func (e *ending) Error() string        { return e.reason }
func (e *ending) Is(target error) bool { return target == e.kind }

// maxRetry is the longest delay of another attempt.
const maxRetry = 7 * 24 * time.Hour

// Retry returns an error that ends this attempt. The server starts another one, if attempts are left.
//
// after is the delay, rounded up to whole seconds; at most seven days. 0 means the backoff of the agent on the server,
// and so does a negative duration, such as one of [time.Until]. If after is too long, the error is a [UsageError].
func Retry(reason string, after time.Duration) error {
	after = max(after, 0)
	if after > maxRetry {
		return misuse("after must be between 0 and 7 days, not %s", after)
	}
	return &ending{kind: ErrRetry, reason: reason, after: after}
}

// Fail returns an error that fails the task permanently. The client sees at most 4,000 characters of the reason.
func Fail(reason string) error { return &ending{kind: ErrFail, reason: reason} }

// Reject returns an error that rejects the task. The client sees at most 4,000 characters of the reason.
func Reject(reason string) error { return &ending{kind: ErrReject, reason: reason} }

// seconds rounds up to whole seconds.
func seconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }

// outcome says how a run ended.
type outcome string

const (
	finished  outcome = "finished"
	waiting   outcome = "waiting"
	canceled  outcome = "canceled"
	lost      outcome = "lost"
	released  outcome = "released"
	postponed outcome = "postponed" // the program is wrong: the task waits for a corrected one
	retry     outcome = "retry"     // the worker must tell the server, which starts another attempt
	ended     outcome = "ended"     // for calls that come after the end of the attempt or the step
)

// stopped is an ErrStopped with its reason. It does not change once it is returned.
type stopped struct {
	outcome outcome
	text    string
	line    string // of the agent's call that waits, or empty
}

func (e *stopped) Error() string { return "a2ad: " + e.text }

func (e *stopped) Is(target error) bool {
	return target == ErrStopped || target == ErrCanceled && e.outcome == canceled
}

// stopOf returns why a run was stopped; nil if the error says something else.
func stopOf(err error) *stopped {
	var s *stopped
	if errors.As(err, &s) {
		return s
	}
	return nil
}

// isMistake reports whether an error is about the agent's code, and not about a step that failed because of it.
func isMistake(err error) bool {
	var failed *StepError
	var wrong *UsageError
	var changed *NondeterminismError
	return !errors.As(err, &failed) && (errors.As(err, &wrong) || errors.As(err, &changed))
}
