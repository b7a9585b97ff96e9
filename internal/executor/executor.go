// Package executor says what agent work is: a Run goes in, events come out.
//
// Who calls Execute holds the lease of the task, writes the events down and decides
// about retries; an executor knows neither leases nor storage nor the protocol's
// versions. The packages below this one are the plugs: echo, script, exec and others.
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
	Messages    []a2a.Message // what the client sent and no finished turn has read, oldest first
	Agent       string
	Tenant      string
	Owner       string
	Epoch       int64           // rises with every run of the task
	Attempt     int             // 1 for the first attempt at this turn
	Checkpoint  a2a.Raw         // the last one saved, or nil
	Deadline    time.Time       // zero if there is none
	Traceparent a2a.Traceparent // of the client's newest request that had one; for what the agent calls
	MayReply    bool            // a message by itself, as the only event, is an answer
}

// Executor does an agent's work.
type Executor interface {
	// Execute yields events in order and stops early when its caller stops reading or
	// ctx is done. A status that ends the turn is the last event. An error ends the run:
	// one made by Permanent fails the task, any other is tried again while attempts are
	// left. It may run again for the same task with a higher Attempt after a crash, and
	// must tolerate that. It is called from several goroutines at once. An event may be used
	// again when yield has returned, but the bytes of its free-form values must not change.
	Execute(ctx context.Context, run Run) iter.Seq2[a2a.Event, error]
}

// Canceler is an Executor whose work is elsewhere and goes on there without a run.
type Canceler interface {
	// Cancel says to where the work is that the task was canceled, with the metadata of the cancel. The
	// run is not one that is under way: it has who, what and the last checkpoint, neither messages nor
	// history. Without an error it is not called again for the task, else it is, for a day. It may be called
	// although Execute has passed the same cancel on. It must return within seconds.
	Cancel(ctx context.Context, run Run, metadata a2a.Raw) error
}

// Causes with which the context of a run may end: errors.Is of context.Cause.
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

// Canceled is ErrCanceled with the metadata that the client gave with its cancel.
func Canceled(metadata a2a.Raw) error { return canceledError{metadata} }

// CancelMetadata returns the metadata of the cancel that ended ctx, or nil: for executors
// that pass a cancel on.
func CancelMetadata(ctx context.Context) a2a.Raw {
	var c canceledError
	if errors.As(context.Cause(ctx), &c) {
		return c.metadata
	}
	return nil
}

type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// Permanent marks an error that another attempt would not mend.
func Permanent(err error) error { return permanentError{err} }

// IsPermanent reports whether err was marked by Permanent.
func IsPermanent(err error) bool {
	var p permanentError
	return errors.As(err, &p)
}

type retryAfterError struct {
	error
	after time.Duration
}

func (e retryAfterError) Unwrap() error { return e.error }

// RetryAfter marks an error that should be tried again, but not before d has passed.
func RetryAfter(err error, d time.Duration) error { return retryAfterError{err, d} }

// RetryDelay returns the wait that RetryAfter asked for, or 0.
func RetryDelay(err error) time.Duration {
	var r retryAfterError
	if errors.As(err, &r) {
		return r.after
	}
	return 0
}
