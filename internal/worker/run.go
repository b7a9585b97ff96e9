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
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/tracing"
)

// run is one attempt at one task.
type run struct {
	pool   *Pool
	queue  *queue
	lease  *store.Lease // what moves in it belongs to the goroutine of do
	input  store.Input
	cancel context.CancelCauseFunc // ends the run, with one of the executor's causes
	log    *slog.Logger
	span   *tracing.Span // nil: there are no traces

	state a2a.State // the last one that was written; belongs to the goroutine of do

	idle bool // guarded by the pool's mu; the executor has ended, and the slot is free

	mu      sync.Mutex
	renewed time.Time   // guarded by mu; when the last good renewal was asked for, by the local clock
	timer   *time.Timer // guarded by mu; ends the run when its lease is no longer trusted
	ending  bool        // guarded by mu; its last write is on the way, and after it the lease is gone
	told    bool        // guarded by mu; somebody is about to end it because the lease is gone
}

// do runs the executor to its end and settles the task.
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
	items, left := r.execute(ctx)
	reason := r.record(ctx, cancel, items)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(reason, errTurnEnded) {
		reason = cause // an executor that is stopped may report any error
	}
	if errors.Is(reason, store.ErrLeaseLost) {
		reason = r.whyLost(context.WithoutCancel(ctx))
		cancel(reason)
	}
	cancel(nil)
	abandoned := !r.leave(items, left)
	outcome, err := r.settle(context.WithoutCancel(ctx), reason)
	r.pool.noteEnd(r.lease.Agent, outcome, err)
	level := slog.LevelInfo
	if abandoned {
		level = slog.LevelError
		r.pool.count(func(s *Stats) { s.Abandoned++ })
	}
	r.traced(outcome, err)
	attrs := []any{"outcome", outcome, "attempt", r.lease.Attempt, "seq", r.lease.LastSeq, "ms", time.Since(start).Milliseconds(), "principal", slog.GroupValue(slog.String("tenant", r.lease.Tenant), slog.String("owner", r.lease.Owner))}
	if id := r.lease.Traceparent.TraceID(); id != "" {
		attrs = append(attrs, "trace_id", id)
	}
	if abandoned {
		attrs = append(attrs, "abandoned", true) // its executor goes on although its context has ended
	}
	if err != nil {
		attrs = append(attrs, "err", err)
	}
	r.log.Log(ctx, level, "run", attrs...)
}

// trace begins the span of the run, below that of the request that brought it about, wherever
// that was. Without one it is a trace of its own.
func (r *run) trace(ctx context.Context) context.Context {
	l := r.lease
	ctx, r.span = r.pool.cfg.Tracer.Start(ctx, "run", tracing.Consumer, l.Traceparent)
	if r.span != nil {
		r.span.Set(tracing.Agent(l.Agent), tracing.Task(l.TaskID.String()), tracing.Context(r.input.Task.ContextID), tracing.Attempt(l.Attempt), tracing.Epoch(l.Epoch))
		l.Traceparent = r.span.Traceparent()
	}
	return ctx
}

func (r *run) traced(outcome string, err error) {
	if r.span == nil {
		return
	}
	r.span.Set(tracing.Outcome(outcome))
	if r.state != a2a.StateNone {
		r.span.Set(tracing.State(r.state))
	}
	if err != nil {
		r.span.Fail(outcome)
	}
	r.span.End()
}

// item is one step of an executor: an event that may be stored, or why there are no more.
type item struct {
	n     int // the number of the event in its run, from 1
	event a2a.Event
	size  int // bytes, roughly
	err   error
}

// execute starts the executor. items is closed when it has ended; closing left tells it that
// nobody reads items any more. It is not waited for if it ignores its context: see leave.
func (r *run) execute(ctx context.Context) (items chan item, left chan struct{}) {
	items, left = make(chan item, 16), make(chan struct{})
	ctx, span := r.pool.cfg.Tracer.Start(ctx, "execute", tracing.Client, "")
	at := r.lease.Traceparent
	if span != nil {
		at = span.Traceparent()
	}
	in := executor.Run{
		Task: r.input.Task, Messages: r.input.Messages, Agent: r.lease.Agent, Tenant: r.lease.Tenant, Owner: r.lease.Owner,
		Epoch: r.lease.Epoch, Attempt: r.lease.Attempt, Checkpoint: r.lease.Checkpoint,
		Traceparent: at, MayReply: r.queue.DirectReply,
	}
	if r.lease.Left > 0 {
		in.Deadline = time.Now().Add(r.lease.Left)
	}
	send := func(it item) bool {
		select {
		case items <- it:
			return true
		case <-left:
			return false
		}
	}
	go func() {
		defer close(items)
		defer r.pool.idle(r)
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
				it = prepare(n, e)
			}
			if !send(it) || it.err != nil {
				return
			}
		}
	}()
	return items, left
}

// agentError is an error of the executor. Whatever it wraps, it is not one of this package
// or of the store.
type agentError struct{ error }

func (e agentError) Unwrap() error { return e.error }

// leave waits for the executor to end, and reports whether it did in time.
func (r *run) leave(items <-chan item, left chan struct{}) bool {
	close(left)
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

// errTurnEnded says that the agent ended its turn and that this is written.
var errTurnEnded = errors.New("turn ended")

var errNoEnd = executor.Permanent(errors.New("invalid agent response: the agent ended without a final status"))

// record writes what the executor reports, as much at once as has gathered, until the turn
// ends or something goes wrong. It returns why it stopped.
func (r *run) record(ctx context.Context, cancel context.CancelCauseFunc, items <-chan item) error {
	limit := r.queue.limits.IdleTimeout
	if limit <= 0 {
		return r.recordUntil(ctx, cancel, items, nil, func() {})
	}
	idle := time.NewTimer(limit)
	defer idle.Stop()
	return r.recordUntil(ctx, cancel, items, idle.C, func() { idle.Reset(limit) })
}

func (r *run) recordUntil(ctx context.Context, cancel context.CancelCauseFunc, items <-chan item, silence <-chan time.Time, heard func()) error {
	b := batch{bounds: r.pool.bounds(), artifacts: make(map[string]bool), mayReply: r.queue.DirectReply}
	for i := range r.input.Task.Artifacts {
		b.artifacts[r.input.Task.Artifacts[i].ID] = true
	}
	for {
		var it item
		var open bool
		select {
		case it, open = <-items:
		case <-silence:
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
		heard()
	}
}

// write appends what the batch holds. It returns errTurnEnded behind the end of the turn.
func (r *run) write(ctx context.Context, b *batch) error {
	if len(b.events) == 0 && b.due == nil {
		return nil
	}
	if err := b.bounds.Admit(r.lease, len(b.events), b.bytes, b.ends); err != nil {
		return executor.Permanent(err)
	}
	if b.ends {
		r.end()
	}
	out, err := r.pool.store.Append(ctx, r.lease, store.Batch{Events: b.events, Checkpoint: b.due, Reply: b.reply})
	if a2a.CodeOf(err) == a2a.CodeInvalidAgentResponse && err != nil {
		r.log.WarnContext(ctx, "agent response refused by the database", "err", err)
		return executor.Permanent(fmt.Errorf("%sPostgreSQL cannot store %s", invalidResponse, b.place()))
	}
	if err != nil {
		return err
	}
	ended := b.ends
	if out.State != a2a.StateNone {
		r.state = out.State
	}
	b.written()
	if !ended {
		return nil
	}
	if out.Requeued {
		r.log.InfoContext(ctx, "turn goes on: the client has sent more")
	}
	return errTurnEnded
}
