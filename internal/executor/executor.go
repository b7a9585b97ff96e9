// Package executor defines the work of an agent: a Run goes in, events come out.
//
// The caller of Execute has the lease of the task, records the events and decides about retries. An executor knows
// neither leases nor storage nor the protocol's versions. The packages below this one are the executors: echo,
// script, exec and others.
package executor

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
)

// Run is one attempt at one turn of a task.
type Run struct {
	Task        a2a.Task      // as of the start of the run, history and artifacts included
	Messages    []a2a.Message // the client's messages that no finished turn has read, oldest first
	Agent       string
	Tenant      string
	Owner       string
	Epoch       int64            // rises with every run of the task
	Attempt     int              // 1 for the first attempt at this turn
	Checkpoint  a2a.Raw          // the last one saved, or nil
	Steps       []a2a.StepRecord // that earlier runs of the task have recorded, in order
	Deadline    time.Time        // zero if there is none
	Traceparent a2a.Traceparent  // of the client's newest request that had one; for what the agent calls
	MayReply    bool             // a message by itself, as the only event, is an answer
}

// Executor does an agent's work.
type Executor interface {
	// Execute yields events in order, and stops early when its caller stops reading or ctx is done. A status that ends
	// the turn, or a wait, is the last event. An error ends the run: an error made by Permanent fails the task, after
	// any other the run is retried while attempts are left, and after one made by Unreachable no attempt is counted.
	// After a crash Execute may be called again for the same task, with a higher Attempt, and must tolerate that. It is
	// called from several goroutines at once. An event may be reused when yield has returned, but the bytes of its
	// free-form values must not change.
	Execute(ctx context.Context, run Run) iter.Seq2[a2a.Event, error]
}

// Canceler is an Executor whose work happens elsewhere, and continues there when there is no run.
type Canceler interface {
	// Cancel forwards the cancel of a task, with its metadata. The run is not in progress: it has the task, its owner
	// and the last checkpoint, but neither messages nor history. If Cancel returns an error it is called again, for a
	// day. It may be called although Execute has forwarded the same cancel. It must return within seconds.
	Cancel(ctx context.Context, run Run, metadata a2a.Raw) error
}

// Causes with which the context of a run may end. Compare context.Cause by errors.Is.
var (
	ErrCanceled  = errors.New("task canceled")
	ErrLeaseLost = errors.New("lease lost")
	ErrShutdown  = errors.New("server is shutting down")
	ErrDeadline  = errors.New("deadline exceeded")
	ErrIdle      = errors.New("agent reported nothing for too long")
)

type canceledError struct{ metadata a2a.Raw }

func (canceledError) Error() string   { return ErrCanceled.Error() }
func (canceledError) Is(e error) bool { return e == ErrCanceled }

// Canceled returns ErrCanceled with the metadata of the client's cancel.
func Canceled(metadata a2a.Raw) error { return canceledError{metadata} }

// CancelMetadata returns the metadata of the cancel that ended ctx, or nil. It is for executors that forward a cancel.
func CancelMetadata(ctx context.Context) a2a.Raw {
	var c canceledError
	if errors.As(context.Cause(ctx), &c) {
		return c.metadata
	}
	return nil
}

type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// Permanent marks an error that another attempt would not fix.
func Permanent(err error) error { return permanentError{err} }

// IsPermanent reports whether err was marked by Permanent.
func IsPermanent(err error) bool {
	var p permanentError
	return errors.As(err, &p)
}

// InvalidResponse returns a permanent error with the code InvalidAgentResponse, for an agent that breaks the rules of
// its interface. The caller of Execute puts "invalid agent response: " in front of the text.
func InvalidResponse(format string, args ...any) error {
	return Permanent(a2a.Errorf(a2a.CodeInvalidAgentResponse, format, args...))
}

type unreachableError struct{ error }

func (e unreachableError) Unwrap() error { return e.error }

// Unreachable marks an error that says that the agent did not begin: it could not be reached or started, or something
// in front of it answered in its place. The run is retried until the agent is back, and no attempt is counted.
func Unreachable(err error) error { return unreachableError{err} }

// IsUnreachable reports whether err was marked by Unreachable.
func IsUnreachable(err error) bool {
	var u unreachableError
	return errors.As(err, &u)
}

type retryAfterError struct {
	error
	after time.Duration
}

func (e retryAfterError) Unwrap() error { return e.error }

// RetryAfter marks an error after which the run should be retried, but not before d has passed.
func RetryAfter(err error, d time.Duration) error { return retryAfterError{err, d} }

// RetryDelay returns the delay of RetryAfter, or 0.
func RetryDelay(err error) time.Duration {
	var r retryAfterError
	if errors.As(err, &r) {
		return r.after
	}
	return 0
}
