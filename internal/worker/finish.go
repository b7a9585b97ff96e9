package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/attempt"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/store"
)

const (
	settleTimeout = 30 * time.Second
	giveBackEvery = 250 * time.Millisecond
)

var errSettleTimeout = errors.New("database took too long to settle the run")

// settle ends the task or gives it back, as the reason for the end of the run demands. The
// outcome is for the log; so is err.
func (r *run) settle(ctx context.Context, reason error) (outcome string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, settleTimeout, errSettleTimeout)
	defer cancel()
	switch {
	case isAgents(reason): // whatever it wraps
	case errors.Is(reason, errTurnEnded):
		r.pool.count(func(s *Stats) { s.Finished++ })
		return "finished", nil
	case errors.Is(reason, executor.ErrCanceled):
		return "canceled", nil
	case errors.Is(reason, executor.ErrLeaseLost):
		return r.lost(ctx)
	case errors.Is(reason, executor.ErrShutdown):
		r.end()
		r.pool.release(ctx, []store.Lease{*r.lease})
		return "released", nil
	case a2a.CodeOf(reason) == a2a.CodeUnavailable:
		return r.giveBack(ctx, reason)
	}
	return r.failed(ctx, reason)
}

// giveBack returns the task of a run that could not write: the agent has done nothing wrong, and no attempt is charged. What became of the
// last write is unknown; the next run starts from what is there. If the database stays away, the lease runs out.
func (r *run) giveBack(ctx context.Context, reason error) (outcome string, err error) {
	r.end()
	switch given, err := r.release(ctx); {
	case given:
		r.pool.count(func(s *Stats) { s.Released++ })
		return "released", reason
	case err != nil:
		reason = fmt.Errorf("%w, after: %w", err, reason)
	}
	r.pool.count(func(s *Stats) { s.Lost++ })
	return "lost", reason
}

// release gives the task back without counting the attempt, as often as the database is not available. It reports whether
// the lease is gone: released, or another's before.
func (r *run) release(ctx context.Context) (given bool, err error) {
	tick := time.NewTicker(giveBackEvery)
	defer tick.Stop()
	for {
		err := r.pool.store.Release(ctx, []*store.Lease{r.lease})
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

// whyLost tells a cancel, of which this worker had not heard yet, from a loss. The executor is
// told the same: it may have something to stop elsewhere.
func (r *run) whyLost(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, settleTimeout, errSettleTimeout)
	defer cancel()
	states, err := r.pool.store.States(ctx, []a2a.ID{r.lease.TaskID})
	if err == nil && states[r.lease.TaskID] == a2a.StateCanceled {
		return r.pool.canceled(ctx, r.lease.TaskID)
	}
	return executor.ErrLeaseLost
}

// lost is the end of a run whose lease is another's, or could not be renewed. In the second case, as when the database was away
// for longer than a lease, the task is given back before the rescue charges an attempt for it; in the first that does nothing.
func (r *run) lost(ctx context.Context) (outcome string, err error) {
	if errors.Is(r.whyLost(ctx), executor.ErrCanceled) {
		return "canceled", nil
	}
	_, err = r.release(ctx)
	r.pool.count(func(s *Stats) { s.Lost++ })
	return "lost", err
}

// failed ends the task or has it tried again. The error is the reason, for the log.
func (r *run) failed(ctx context.Context, reason error) (outcome string, err error) {
	r.end()
	deadline := errors.Is(reason, executor.ErrDeadline) && !isAgents(reason)
	ended, err := attempt.Fail(ctx, r.pool.store, r.lease, r.queue.limits, attempt.Failure{
		Text: reasonText(reason), Final: executor.IsPermanent(reason) || deadline, Delay: executor.RetryDelay(reason),
	})
	outcome = "retry"
	if ended.Failed {
		outcome = "failed"
	}
	switch {
	case errors.Is(err, store.ErrLeaseLost):
		return outcome, err
	case err != nil:
		return outcome, fmt.Errorf("%w, after: %w", err, reason)
	case ended.Failed:
		r.pool.count(func(s *Stats) { s.Finished++ })
		return outcome, reason
	}
	r.pool.count(func(s *Stats) { s.Retried++ })
	// The poll would find the task too, but up to an interval late.
	key := "ready:" + r.lease.Agent
	time.AfterFunc(ended.Again, func() { r.pool.hub.Wake(key) })
	return outcome, reason
}

// isAgents reports whether the error is one of the executor, whatever it wraps.
func isAgents(err error) bool {
	var failed agentError
	return errors.As(err, &failed)
}

const invalidResponse = "invalid agent response: "

// reasonText is what the record of attempts and the client are told: what the agent says and
// what this package says of it. The store's errors are for the log.
func reasonText(err error) string {
	if !isAgents(err) && !executor.IsPermanent(err) && !errors.Is(err, executor.ErrDeadline) && !errors.Is(err, executor.ErrIdle) {
		return "internal error"
	}
	text := err.Error()
	if a2a.CodeOf(err) == a2a.CodeInvalidAgentResponse && !strings.HasPrefix(text, invalidResponse) {
		text = invalidResponse + text
	}
	return text
}
