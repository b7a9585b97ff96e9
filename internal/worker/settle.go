package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/backoff"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/store"
)

const settleTimeout = 30 * time.Second

var errSettleTimeout = errors.New("database took too long to settle the run")

// settle ends the task or gives it back, as the reason for the end of the run demands. The
// outcome is for the log; so is err.
func (r *run) settle(ctx context.Context, reason error) (outcome string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, settleTimeout, errSettleTimeout)
	defer cancel()
	var failed agentError
	if errors.As(reason, &failed) {
		return r.failed(ctx, failed)
	}
	switch {
	case errors.Is(reason, errTurnEnded):
		r.pool.count(func(s *Stats) { s.Finished++ })
		return "finished", nil
	case errors.Is(reason, executor.ErrCanceled):
		return "canceled", nil
	case errors.Is(reason, executor.ErrLeaseLost), errors.Is(reason, store.ErrLeaseLost):
		return r.lost(ctx), nil
	case errors.Is(reason, executor.ErrShutdown):
		r.end()
		r.pool.release(ctx, []store.Lease{*r.lease})
		return "released", nil
	case a2a.CodeOf(reason) == a2a.CodeUnavailable:
		// What became of the last write is unknown while the database is away. The lease
		// runs out, and the next attempt starts from what is there.
		r.pool.count(func(s *Stats) { s.Lost++ })
		return "lost", reason
	case errors.Is(reason, executor.ErrDeadline):
		return "failed", r.fail(ctx, reason)
	}
	return r.failed(ctx, reason)
}

// failed tries again while attempts are left, unless the reason says that it is no use.
func (r *run) failed(ctx context.Context, reason error) (outcome string, err error) {
	if executor.IsPermanent(reason) || r.lease.Attempt >= r.queue.limits.MaxAttempts {
		return "failed", r.fail(ctx, reason)
	}
	return "retry", r.retry(ctx, reason)
}

// lost tells a cancel, of which this worker had not heard yet, from a loss.
func (r *run) lost(ctx context.Context) string {
	if state, err := r.pool.store.State(ctx, r.lease.TaskID); err == nil && state == a2a.StateCanceled {
		return "canceled"
	}
	r.pool.count(func(s *Stats) { s.Lost++ })
	return "lost"
}

// fail ends the task. It returns the reason, for the log.
func (r *run) fail(ctx context.Context, reason error) error {
	r.end()
	text := reasonText(reason)
	if !errors.Is(reason, executor.ErrDeadline) && !executor.IsPermanent(reason) {
		text = fmt.Sprintf("attempt %d of %d: %s", r.lease.Attempt, r.queue.limits.MaxAttempts, text)
	}
	status := &a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateFailed, Message: &a2a.Message{
		ID: store.NewUID().String(), Role: a2a.RoleAgent, Parts: []a2a.Part{{Kind: a2a.PartText, Text: text}},
	}}}
	_, err := r.pool.store.Append(ctx, r.lease, store.Batch{Events: []a2a.Event{status}, Error: text})
	switch {
	case errors.Is(err, store.ErrLeaseLost):
		return err
	case err != nil:
		return fmt.Errorf("%w, after: %w", err, reason)
	}
	r.pool.count(func(s *Stats) { s.Finished++ })
	return reason
}

// retry gives the task back for another attempt. It returns the reason, for the log.
func (r *run) retry(ctx context.Context, reason error) error {
	delay := executor.RetryDelay(reason)
	if delay == 0 {
		delay = backoff.Policy{Base: r.queue.limits.BackoffBase, Max: r.queue.limits.BackoffMax}.Delay(r.lease.Attempt, nil)
	}
	r.end()
	switch err := r.pool.store.Retry(ctx, r.lease, reasonText(reason), delay); {
	case errors.Is(err, store.ErrLeaseLost):
		return err
	case err != nil:
		return fmt.Errorf("%w, after: %w", err, reason)
	}
	r.pool.count(func(s *Stats) { s.Retried++ })
	// The poll would find the task too, but up to an interval late.
	key := "ready:" + r.lease.Agent
	time.AfterFunc(delay, func() { r.pool.hub.Wake(key) })
	return reason
}

// reasonText is what the record of attempts and the client are told: what the agent says and
// what this package says of it. The store's errors are for the log.
func reasonText(err error) string {
	const limit = 1 << 10
	var failed agentError
	if !errors.As(err, &failed) && !executor.IsPermanent(err) && !errors.Is(err, executor.ErrDeadline) && !errors.Is(err, executor.ErrIdle) {
		return "internal error"
	}
	text := cleanText(err.Error())
	if len(text) > limit {
		text = cleanText(text[:limit]) + "…"
	}
	return text
}

// cleanText makes text of a program fit to be stored: valid UTF-8 without NUL.
func cleanText(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
