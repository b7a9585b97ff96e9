package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/attempt"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/tracing"
)

// run is one attempt at one task.
type run struct {
	pool     *Pool
	queue    *queue
	lease    *tasks.Lease // what changes in it belongs to the goroutine of do
	input    tasks.Input
	cancel   context.CancelCauseFunc // ends the run, with one of the executor's causes
	timer    *leaseTimer
	freeSlot func() // frees the slot once the executor has ended; may be called again
	log      *slog.Logger
	span     *tracing.Span // nil: no traces; belongs to the goroutine of do

	// What was written, for the span. It belongs to the goroutine of do.
	state a2a.State   // the last one
	used  []a2a.Usage // by model; only with a span

	mu        sync.Mutex
	finishing bool // guarded by mu; its last write is under way, and removes the lease
	losing    bool // guarded by mu; a renewal found its lease lost and is about to end it
}

// beginLosing reports whether the caller must end the run because its lease is lost. It returns
// false if the last write of the run is in progress, which removes the lease itself. It also
// returns false if another goroutine already ends the run.
func (r *run) beginLosing() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.finishing || r.losing {
		return false
	}
	r.losing = true
	return true
}

// undoLosing undoes beginLosing.
func (r *run) undoLosing() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.losing = false
}

// beginFinishing notes that the last write begins.
func (r *run) beginFinishing() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.finishing = true
}

// do runs the executor to its end and records the end of the attempt.
func (r *run) do(ctx context.Context) {
	start := time.Now()
	ctx = r.trace(ctx)
	if r.lease.Left > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, r.lease.Left, executor.ErrDeadline)
		defer stop()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := r.readSteps(ctx); err != nil {
		r.endUnstarted(context.WithoutCancel(ctx), fmt.Errorf("read the steps: %w", err), start)
		return
	}
	items, unread := r.execute(ctx)
	reason := r.record(ctx, cancel, items)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(reason, errTurnEnded) && !errors.Is(reason, errWaiting) {
		reason = cause // an executor that is stopped may report any error
	}
	if errors.Is(reason, db.ErrLeaseLost) {
		reason = r.whyLost(context.WithoutCancel(ctx))
		cancel(reason)
	}
	cancel(nil)
	close(unread)
	abandoned := !r.executorEnds(items)
	if abandoned {
		r.pool.counters.count(func(s *Stats) { s.Abandoned++ })
	}
	r.tellBreaker(reason) // before the end is recorded, which takes a while: the slot is free already
	outcome, err := r.finish(context.WithoutCancel(ctx), reason)
	r.pool.noteEnd(r.lease.Agent, outcome, err)
	r.endTrace(outcome, err)
	r.logEnd(ctx, outcome, err, abandoned, time.Since(start))
}

// readSteps reads those recorded steps that did not fit into the input.
func (r *run) readSteps(ctx context.Context) error {
	for len(r.input.Steps) < r.lease.Steps {
		more, err := r.pool.store.Steps(ctx, r.lease.TaskID, tasks.StepsPage{
			After: len(r.input.Steps), Max: r.lease.Steps - len(r.input.Steps), Bytes: tasks.StepsFirst.Bytes,
		})
		if err != nil {
			return err
		}
		if len(more) == 0 {
			return errors.New("some are missing")
		}
		r.input.Steps = append(r.input.Steps, more...)
	}
	return nil
}

// endUnstarted ends a run whose executor was not started.
func (r *run) endUnstarted(ctx context.Context, reason error, start time.Time) {
	r.freeSlot()
	outcome, err := r.finish(ctx, reason)
	r.pool.noteEnd(r.lease.Agent, outcome, err)
	r.endTrace(outcome, err)
	r.logEnd(ctx, outcome, err, false, time.Since(start))
}

// tellBreaker tells the agent's circuit breaker what the end of the run says about the agent. A run that another cause
// ended says nothing.
func (r *run) tellBreaker(reason error) {
	switch {
	case isAgentError(reason) && executor.IsUnreachable(reason):
		r.queue.breaker.unreachable(attempt.Text(reason.Error()))
	case isAgentError(reason), errors.Is(reason, errTurnEnded), errors.Is(reason, errWaiting):
		r.queue.breaker.reached()
	}
}

// logEnd writes the log line of the run. An abandoned executor still runs although its context has ended.
func (r *run) logEnd(ctx context.Context, outcome string, err error, abandoned bool, took time.Duration) {
	level := slog.LevelInfo
	attrs := []slog.Attr{
		slog.String("outcome", outcome), slog.Int("attempt", r.lease.Attempt), slog.Int64("seq", r.lease.LastSeq),
		slog.Int64("ms", took.Milliseconds()),
		slog.Group("principal", slog.String("tenant", r.lease.Tenant), slog.String("owner", r.lease.Owner)),
	}
	if id := r.lease.Traceparent.TraceID(); id != "" {
		attrs = append(attrs, slog.String("trace_id", id))
	}
	if abandoned {
		level = slog.LevelError
		attrs = append(attrs, slog.Bool("abandoned", true))
	}
	if err != nil {
		attrs = append(attrs, slog.Any("err", err))
	}
	r.log.LogAttrs(ctx, level, "run", attrs...)
}

// trace begins the span of the run, below the span of the request that submitted the work, even if another
// process served it. Without one it begins a trace.
func (r *run) trace(ctx context.Context) context.Context {
	l := r.lease
	ctx, r.span = r.pool.cfg.Tracer.Start(ctx, "run", tracing.Consumer, l.Traceparent)
	if r.span != nil {
		r.span.Set(
			tracing.InvokeAgent(), tracing.Agent(l.Agent), tracing.Task(l.TaskID.String()),
			tracing.Context(r.input.Task.ContextID), tracing.Attempt(l.Attempt), tracing.Epoch(l.Epoch),
		)
		l.Traceparent = r.span.Traceparent()
	}
	return ctx
}

func (r *run) endTrace(outcome string, err error) {
	if r.span == nil {
		return
	}
	r.span.Set(tracing.Outcome(outcome))
	if r.state != a2a.StateNone {
		r.span.Set(tracing.State(r.state))
	}
	r.span.Set(tracing.Usage(r.used)...)
	if err != nil {
		r.span.Fail(outcome)
	}
	r.span.End()
}

// item is one step of an executor: an event that may be stored, or the reason why there are no more.
type item struct {
	n     int // the number of the event in its run, from 1
	event a2a.Event
	size  int // bytes, roughly
	err   error
}

// execute starts the executor, whose goroutine closes items at its end. The caller closes unread when it reads no
// more items, and then waits with executorEnds.
func (r *run) execute(ctx context.Context) (items chan item, unread chan struct{}) {
	items, unread = make(chan item, 16), make(chan struct{})
	ctx, span := r.pool.cfg.Tracer.Start(ctx, "execute", tracing.Client, "")
	traceparent := r.lease.Traceparent
	if span != nil {
		traceparent = span.Traceparent()
	}
	in := r.executorRun(traceparent)
	send := func(it item) bool {
		select {
		case items <- it:
			return true
		case <-unread:
			return false
		}
	}
	go func() {
		defer close(items)
		defer r.freeSlot()
		defer span.End()
		defer func() {
			if v := recover(); v != nil {
				r.log.ErrorContext(ctx, "agent panicked", "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
				send(item{err: errors.New("the agent panicked")})
			}
		}()
		n := 0
		for e, err := range r.queue.Executor.Execute(ctx, in) {
			it := item{err: err}
			if err != nil {
				span.Fail("failed")
			} else {
				n++
				if n == 1 {
					r.queue.breaker.reached()
				}
				it = prepare(n, e)
			}
			if !send(it) || it.err != nil {
				return
			}
		}
	}()
	return items, unread
}

// executorRun is what the executor is given.
func (r *run) executorRun(traceparent a2a.Traceparent) executor.Run {
	in := executor.Run{
		Task: r.input.Task, Messages: r.input.Messages,
		Agent: r.lease.Agent, Tenant: r.lease.Tenant, Owner: r.lease.Owner,
		Epoch: r.lease.Epoch, Attempt: r.lease.Attempt, Checkpoint: r.lease.Checkpoint, Steps: r.input.Steps,
		Traceparent: traceparent, MayReply: r.queue.DirectReply,
	}
	if r.lease.Left > 0 {
		in.Deadline = time.Now().Add(r.lease.Left)
	}
	return in
}

// executorEnds waits for the executor to end, whose context has ended. It returns false if the executor still runs
// when the time for that is over.
func (r *run) executorEnds(items <-chan item) bool {
	timer := time.NewTimer(r.pool.cfg.Abandon)
	defer timer.Stop()
	for {
		select {
		case _, open := <-items:
			if !open {
				return true
			}
		case <-timer.C:
			return false
		}
	}
}
