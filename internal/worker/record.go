package worker

import (
	"context"
	"errors"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/attempt"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// The agent ended its run, and that is written: its turn has ended, or its task waits.
var (
	errTurnEnded = errors.New("turn ended")
	errWaiting   = errors.New("the task waits")
)

var errNoEnd = executor.InvalidResponse("the agent ended without a final status")

// record writes what the executor reports, as many events at once as have arrived, until the turn ends or an error
// occurs. It returns why it stopped.
func (r *run) record(ctx context.Context, cancel context.CancelCauseFunc, items <-chan item) error {
	limit := r.queue.limits.IdleTimeout
	if limit <= 0 {
		return r.recordUntil(ctx, cancel, items, nil, func() {})
	}
	idle := time.NewTimer(limit)
	defer idle.Stop()
	return r.recordUntil(ctx, cancel, items, idle.C, func() { idle.Reset(limit) })
}

// recordUntil is record with an idle timer, which it resets after each write.
func (r *run) recordUntil(
	ctx context.Context, cancel context.CancelCauseFunc, items <-chan item, idle <-chan time.Time, resetIdle func(),
) error {
	bounds := r.pool.bounds()
	b := batch{
		bounds: bounds, artifacts: make(map[string]bool), mayReply: r.queue.DirectReply, lease: r.lease,
		journal: bounds.Journal(r.lease.Steps, r.input.Steps),
		restored: func(pending []a2a.Event, s *a2a.StepRecord) (*a2a.ArtifactUpdate, int, error) {
			return attempt.Restored(ctx, r.pool.store, r.lease, pending, s)
		},
	}
	for i := range r.input.Task.Artifacts {
		b.artifacts[r.input.Task.Artifacts[i].ID] = true
	}
	for {
		var it item
		var open bool
		select {
		case it, open = <-items:
		case <-idle:
			cancel(executor.ErrIdle)
			return executor.ErrIdle
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		reason := b.gather(it, open, items)
		if err := r.write(ctx, &b); err != nil {
			return err
		}
		if reason != nil {
			return reason
		}
		resetIdle()
	}
}

// write appends the events of the batch. It returns errTurnEnded or errWaiting after the end of the run.
func (r *run) write(ctx context.Context, b *batch) error {
	if len(b.events) == 0 && len(b.steps) == 0 && len(b.usage) == 0 && b.due == nil {
		return nil
	}
	if err := b.bounds.Admit(r.lease, len(b.events), b.bytes, b.ends); err != nil {
		return executor.Permanent(err)
	}
	if b.ends {
		r.beginFinishing()
	}
	out, err := r.pool.store.Append(ctx, r.lease,
		tasks.Batch{Events: b.events, Steps: b.steps, Wait: b.wait, Usage: b.usage, Checkpoint: b.due, Reply: b.reply,
			ContextID: r.input.Task.ContextID})
	if err != nil && a2a.CodeOf(err) == a2a.CodeInvalidAgentResponse {
		r.log.WarnContext(ctx, "agent response refused by the database", "err", err)
		return executor.InvalidResponse("PostgreSQL cannot store %s", b.numbers())
	}
	if err != nil {
		return err
	}
	ended, waits := b.ends, b.wait != nil
	if out.State != a2a.StateNone {
		r.state = out.State
	}
	if r.span != nil && len(b.usage) > 0 {
		r.used = a2a.SumUsage(append(r.used, b.usage...))
	}
	b.written()
	if !ended {
		return nil
	}
	if out.Requeued {
		r.log.InfoContext(ctx, "turn continues: the client has sent more")
	}
	if waits {
		return errWaiting
	}
	return errTurnEnded
}
