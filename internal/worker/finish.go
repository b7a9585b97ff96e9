package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/attempt"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/wake"
)

const (
	finishTimeout = 30 * time.Second
	releaseEvery  = 250 * time.Millisecond
)

var errFinishTimeout = errors.New("database took too long to finish the run")

// agentError is an error of the executor. Whatever it wraps, it is not an error of this package or of the store.
type agentError struct{ error }

func (e agentError) Unwrap() error { return e.error }

// isAgentError reports whether the error is one of the executor, whatever it wraps.
func isAgentError(err error) bool {
	var agent agentError
	return errors.As(err, &agent)
}

// finish records the end of the attempt, or releases the task, as the reason demands. The outcome and err are for
// the log and the counters.
func (r *run) finish(ctx context.Context, reason error) (outcome string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, finishTimeout, errFinishTimeout)
	defer cancel()
	switch {
	case isAgentError(reason) && executor.IsUnreachable(reason):
		return r.finishUnreachable(ctx, reason)
	case isAgentError(reason): // whatever it wraps
	case errors.Is(reason, errTurnEnded):
		r.pool.counters.count(func(s *Stats) { s.Finished++ })
		return "finished", nil
	case errors.Is(reason, errWaiting):
		r.pool.counters.count(func(s *Stats) { s.Finished++ })
		return "waiting", nil
	case errors.Is(reason, executor.ErrCanceled):
		return "canceled", nil
	case errors.Is(reason, executor.ErrLeaseLost):
		return r.finishLost(ctx)
	case errors.Is(reason, executor.ErrShutdown):
		r.beginFinishing()
		r.pool.release(ctx, []tasks.Lease{*r.lease}, "the worker was shut down")
		return "released", nil
	case a2a.CodeOf(reason) == a2a.CodeUnavailable:
		return r.finishUnwritten(ctx, reason)
	}
	return r.finishFailed(ctx, reason)
}

// finishUnwritten releases the task of a run that could not write. No attempt is charged, because the agent is not at
// fault. Whether the last write was committed is unknown; the next run continues with what is stored. If the
// database stays unreachable, the lease expires.
func (r *run) finishUnwritten(ctx context.Context, reason error) (outcome string, err error) {
	r.beginFinishing()
	switch released, err := r.release(ctx, "the database was unavailable"); {
	case released:
		r.pool.counters.count(func(s *Stats) { s.Released++ })
		return "released", reason
	case err != nil:
		reason = fmt.Errorf("%w, after: %w", err, reason)
	}
	r.pool.counters.count(func(s *Stats) { s.Lost++ })
	return "lost", reason
}

// release releases the task without charging an attempt, and repeats that while the database is not available. It
// returns true if the run has no lease any more: it was released now, or lost before.
func (r *run) release(ctx context.Context, reason string) (released bool, err error) {
	tick := time.NewTicker(releaseEvery)
	defer tick.Stop()
	for {
		err := r.pool.store.Release(ctx, []*tasks.Lease{r.lease}, reason)
		if err == nil {
			return true, nil
		}
		if a2a.CodeOf(err) != a2a.CodeUnavailable {
			return false, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false, nil
		}
	}
}

// whyLost distinguishes a cancel that this worker did not know about from a lost lease. The executor gets the same
// cause, because it may have to stop work elsewhere.
func (r *run) whyLost(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, finishTimeout, errFinishTimeout)
	defer cancel()
	states, err := r.pool.store.States(ctx, []a2a.ID{r.lease.TaskID})
	if err == nil && states[r.lease.TaskID] == a2a.StateCanceled {
		return r.pool.canceled(ctx, r.lease.TaskID)
	}
	return executor.ErrLeaseLost
}

// finishLost is the end of a run that has lost its lease, or could not renew it. In the second
// case, for instance because the database was unreachable, it releases the task before the rescue
// charges an attempt for it. If another worker has the lease, the release changes nothing.
func (r *run) finishLost(ctx context.Context) (outcome string, err error) {
	if errors.Is(r.whyLost(ctx), executor.ErrCanceled) {
		return "canceled", nil
	}
	_, err = r.release(ctx, "the lease was not renewed in time")
	r.pool.counters.count(func(s *Stats) { s.Lost++ })
	return "lost", err
}

// finishFailed fails or parks the task, or schedules another attempt. The error is the reason, for the log.
func (r *run) finishFailed(ctx context.Context, reason error) (outcome string, err error) {
	deadline := errors.Is(reason, executor.ErrDeadline) && !isAgentError(reason)
	return r.fail(ctx, reason, attempt.Failure{
		Text: reasonText(reason), Final: executor.IsPermanent(reason) || deadline, Delay: executor.RetryDelay(reason),
	})
}

func (r *run) fail(ctx context.Context, reason error, f attempt.Failure) (outcome string, err error) {
	r.beginFinishing()
	ended, err := attempt.Fail(ctx, r.pool.store, r.lease, r.queue.limits, f)
	outcome = "retry"
	switch {
	case ended.Failed:
		outcome = "failed"
	case ended.Parked:
		outcome = "parked"
	}
	switch {
	case errors.Is(err, db.ErrLeaseLost):
		return outcome, err
	case err != nil:
		return outcome, fmt.Errorf("%w, after: %w", err, reason)
	case ended.Failed, ended.Parked:
		r.pool.counters.count(func(s *Stats) { s.Finished++ })
		return outcome, reason
	}
	r.pool.counters.count(func(s *Stats) { s.Retried++ })
	// The poll would find the task too, but up to an interval late.
	key := wake.Ready(r.lease.Agent)
	r.pool.retries.After(ended.Again, func() { r.pool.hub.Wake(key) })
	return outcome, reason
}

// Delays of a task whose agent could not be reached.
const (
	minPostpone = time.Second
	maxPostpone = time.Minute
)

// finishUnreachable returns the task to the queue without counting the attempt, until the agent has been unreachable
// for too long.
func (r *run) finishUnreachable(ctx context.Context, reason error) (outcome string, err error) {
	r.beginFinishing()
	text := attempt.Text(reason.Error())
	limit := r.queue.limits.Unreachable
	delay, ok, err := r.pool.store.Postpone(ctx, r.lease, tasks.Postponement{
		Error: text, MinDelay: max(minPostpone, executor.RetryDelay(reason)), MaxDelay: maxPostpone, Limit: limit,
	})
	switch {
	case err != nil:
		return "unreachable", fmt.Errorf("%w, after: %w", err, reason)
	case !ok:
		text = fmt.Sprintf("the agent was unreachable for %s: %s", limit, text)
		return r.fail(ctx, errors.New(text), attempt.Failure{Text: text, Exhausted: true})
	}
	r.pool.counters.count(func(s *Stats) { s.Retried++ })
	key := wake.Ready(r.lease.Agent)
	r.pool.retries.After(delay, func() { r.pool.hub.Wake(key) })
	return "unreachable", reason
}

// reasonText is the text for the record of attempts and for the client: what the agent or this package says about the
// failure. Errors of the store are only for the log.
func reasonText(err error) string {
	switch {
	case a2a.CodeOf(err) == a2a.CodeInvalidAgentResponse && (isAgentError(err) || executor.IsPermanent(err)):
		return "invalid agent response: " + err.Error()
	case isAgentError(err), executor.IsPermanent(err),
		errors.Is(err, executor.ErrDeadline), errors.Is(err, executor.ErrIdle):
		return err.Error()
	}
	return "internal error"
}
