package a2ad

import (
	"errors"
	"fmt"
	"time"
)

// ErrStopped ends the agent's function: its task waits, was canceled, or has another worker. The function must return
// it; all later calls return it too.
var ErrStopped = errors.New("a2ad: the run has ended")

// ErrCanceled is the ErrStopped of a task that was canceled. It is also the cause of the context.
var ErrCanceled = errors.New("a2ad: the task was canceled")

// outcome says how a run ended.
type outcome string

const (
	finished outcome = "finished"
	waiting  outcome = "waiting"
	canceled outcome = "canceled"
	lost     outcome = "lost"
	released outcome = "released"
	retry    outcome = "retry" // the server starts another attempt, if some are left

	postponed outcome = "postponed" // the program is wrong: the task waits for a corrected one
)

// stopped is an ErrStopped with its reason.
type stopped struct {
	outcome outcome
	text    string
}

func (e *stopped) Error() string { return "a2ad: " + e.text }

func (e *stopped) Is(target error) bool {
	return target == ErrStopped || target == ErrCanceled && e.outcome == canceled
}

// ErrTimeout means that what the agent waited for did not come in time.
var ErrTimeout = errors.New("a2ad: not in time")

// UsageError means that the agent's code calls the package in a way that cannot work, or that the server refuses what
// it has sent. Nothing of the call was stored. The task does not fail: it waits until a corrected program continues it.
type UsageError struct {
	Text string
	Line string // of the agent's code, such as agents/trip.go:17
}

func (e *UsageError) Error() string { return at(e.Line) + e.Text }

func at(line string) string {
	if line == "" {
		return "a2ad: "
	}
	return "a2ad: " + line + ": "
}

// misuse returns a UsageError of the agent's line that called this package.
func misuse(format string, args ...any) error {
	return &UsageError{fmt.Sprintf(format, args...), callSite()}
}

// NondeterminismError means that the agent's code has taken another path than the one that is recorded.
type NondeterminismError struct {
	Key      string // of the step
	Expected string // what is recorded
	Got      string // what the code did now
	Line     string // of the agent's code, such as agents/trip.go:17
}

func (e *NondeterminismError) Error() string {
	return fmt.Sprintf("%sstep %q is recorded as %s, but the code now does %s", at(e.Line), e.Key, e.Expected, e.Got)
}

// StepError means that a step failed. It has the same text when the agent runs again.
type StepError struct {
	Step string
	Text string // of the error of the step's function
	// Final means that the failure is recorded: another attempt would get it again.
	Final bool
	// Cause is the error of the step's function, in the attempt in which it failed.
	Cause error
}

func (e *StepError) Error() string { return e.Step + ": " + e.Text }
func (e *StepError) Unwrap() error { return e.Cause }

// CallError means that a called agent did not complete its task.
type CallError struct {
	Agent  string
	State  string      // such as failed
	Text   string      // of its last message
	Result *CallResult // all of what it did
}

func (e *CallError) Error() string {
	s := fmt.Sprintf("agent %q ended its task as %s", e.Agent, e.State)
	if e.Text != "" {
		s += ": " + e.Text
	}
	return s
}

// An ending is an error with which an agent says how its attempt ends.
type ending struct {
	state  string // of the task; empty: another attempt
	reason string
	after  time.Duration
}

func (e *ending) Error() string { return e.reason }

// Fail is the error of a task that fails for good. The client reads the reason.
func Fail(reason string) error { return &ending{state: stateFailed, reason: reason} }

// Reject is the error of a task that the agent rejects. The client reads the reason.
func Reject(reason string) error { return &ending{state: stateRejected, reason: reason} }

// Retry is the error of an attempt that ends so that the server starts another one, if attempts are left. after is the
// delay, at most a week; 0 means the server's backoff for the agent.
func Retry(reason string, after time.Duration) error { return &ending{reason: reason, after: after} }

const (
	stateWorking   = "TASK_STATE_WORKING"
	stateInput     = "TASK_STATE_INPUT_REQUIRED"
	stateAuth      = "TASK_STATE_AUTH_REQUIRED"
	stateCompleted = "TASK_STATE_COMPLETED"
	stateFailed    = "TASK_STATE_FAILED"
	stateRejected  = "TASK_STATE_REJECTED"
)
