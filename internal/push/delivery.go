package push

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/backoff"
	"github.com/a2ad/a2ad/internal/budget"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/tracing"
)

// A delivery has three stages: attempt makes at most one request, decide says what follows, and record writes that to
// the store. Only decide decides, and only record writes.

// delivery is one webhook that is due, with what its attempt needs. It belongs to one goroutine.
type delivery struct {
	due   *webhooks.Delivery
	lease *lease
	mem   *budget.Lease
	log   *slog.Logger
}

// deliver makes one attempt at a delivery whose claim was sent at claimed, and records the outcome.
func (d *Deliverer) deliver(ctx context.Context, due *webhooks.Delivery, claimed time.Time) {
	// Without a lease another process may make the same request, so its end cancels this one.
	leased, end := context.WithCancelCause(ctx)
	defer end(nil)
	v := &delivery{
		due:   due,
		lease: newLease(due, d.cfg.Now, claimed, d.cfg.Lease, func() { end(errLeaseExpired) }),
		mem:   d.cfg.Budget.Open(budget.Owner{Tenant: due.Tenant, Name: due.Owner}),
		log:   deliveryLog(d.cfg.Logger, due),
	}
	defer v.mem.Release()
	d.leases.add(v.lease)
	defer d.leases.remove(v.lease)
	a := d.attempt(ctx, leased, v)
	o := d.decide(due.Attempt+1, &a)
	if a.sent {
		v.logAttempt(ctx, &a, o.fate)
	}
	if err := errors.Join(a.err, d.record(ctx, v, &o)); err != nil {
		v.log.WarnContext(ctx, "webhook", "err", err)
	}
}

func deliveryLog(log *slog.Logger, due *webhooks.Delivery) *slog.Logger {
	log = log.With(
		"task_id", due.Task, "agent", due.Agent, "push_id", due.Row, "seq", due.Seq, "attempt", due.Attempt+1,
		"origin", due.Origin,
		slog.Group("principal", slog.String("tenant", due.Tenant), slog.String("owner", due.Owner)),
	)
	if id := due.Traceparent.TraceID(); id != "" {
		log = log.With("trace_id", id)
	}
	return log
}

// attempted is what an attempt came to.
type attempted struct {
	Result
	sent     bool  // a request was made, or begun
	terminal bool  // the delivery brings the receiver to the end of the task
	err      error // why no request was made, for the log
}

// attempt reads the task and makes the request. The request ends with leased; reading and recording do not.
func (d *Deliverer) attempt(ctx, leased context.Context, v *delivery) attempted {
	req, terminal, failed := d.prepare(ctx, v)
	if failed != nil {
		return *failed
	}
	v.mem.ShrinkTo(int64(len(req.Body))) // what remains of the task is the body
	if !v.lease.valid() {
		// This process was suspended: the webhook may be another's, or deleted.
		return attempted{Result: Result{Class: ClassCanceled}}
	}
	return attempted{Result: d.send(leased, v, req), sent: true, terminal: terminal}
}

// prepare reads the task of a delivery and makes its request, or says why it could not.
func (d *Deliverer) prepare(ctx context.Context, v *delivery) (req *Request, terminal bool, failed *attempted) {
	task, err := d.read(ctx, v.mem, v.due)
	if err != nil {
		res := Result{Class: ClassInternal, Reason: "the server could not read the task"}
		if code := a2a.CodeOf(err); code == a2a.CodeUnavailable || code == a2a.CodeRateLimited {
			res = Result{Class: classUnavailable}
		}
		return nil, false, &attempted{Result: res, err: err}
	}
	if req, err = d.request(v.due, task, v.lease.valid); err != nil {
		return nil, false, &attempted{Result: Result{Class: classSecret, Reason: err.Error()}, err: err}
	}
	return req, task.Status.State.Terminal(), nil
}

// send makes the request, with a span of its own.
func (d *Deliverer) send(ctx context.Context, v *delivery, req *Request) Result {
	due := v.due
	ctx, span := d.cfg.Tracer.Start(ctx, "webhook", tracing.Client, due.Traceparent)
	if span != nil {
		span.Set(
			tracing.Task(due.Task.String()), tracing.Agent(due.Agent), tracing.Push(due.Row.String()),
			tracing.Seq(due.Seq), tracing.Attempt(due.Attempt+1),
		)
		req.Traceparent = string(span.Traceparent())
		if due.Traceparent == "" { // the trace begins here
			v.log = v.log.With("trace_id", span.Traceparent().TraceID())
		}
	}
	res := d.cfg.Client.Attempt(ctx, *req)
	if span != nil {
		span.Set(tracing.Outcome(string(res.Class)), tracing.Status(res.Status))
		if res.Class != ClassDelivered {
			span.Fail(string(res.Class))
		}
		span.End()
	}
	d.count(res.Class)
	d.pace.answered(due.Origin, &res)
	return res
}

// outcome is what follows an attempt.
type outcome struct {
	fate     Fate
	delay    time.Duration     // FateRetry: until the next attempt; FateRelease: until the release
	try      webhooks.Try      // for the ledger; not used with FateRelease
	terminal bool              // the delivery brings the receiver to the end of the task
	breaker  *webhooks.Breaker // the circuit breaker that counts the failure; nil: none
}

// decide says what follows attempt number n.
func (d *Deliverer) decide(n int, a *attempted) outcome {
	o := outcome{terminal: a.terminal, try: webhooks.Try{
		Took: a.Took, RemoteIP: a.RemoteIP, Status: a.Status, Class: string(a.Class),
		Reason: a.Reason, Answer: a.Answer,
	}}
	switch a.Class {
	case ClassDelivered:
		o.fate, o.try.Class = FateDelivered, ""
		return o
	case classUnavailable:
		// If the webhook were released at once, it would be claimed again at once.
		o.fate, o.delay = FateRelease, backoff.Jitter(d.cfg.Poll, nil)
		return o
	}
	o.fate, o.delay = d.cfg.Schedule.Next(n, a.Result, nil)
	if a.Class.BlamesDestination() {
		o.breaker = &d.cfg.Breaker
	}
	if o.fate == FateDead && a.sent && !a.Class.Permanent() {
		o.try.Reason = fmt.Sprintf("%d tries failed, the last one with: %s", n, a.Reason)
	}
	return o
}

func (v *delivery) logAttempt(ctx context.Context, a *attempted, fate Fate) {
	if fate == FateDelivered {
		v.log.InfoContext(ctx, "webhook", "outcome", "delivered", "status", a.Status, "ms", a.Took.Milliseconds())
		return
	}
	v.log.InfoContext(ctx, "webhook", "outcome", "failed", "class", string(a.Class), "status", a.Status,
		"reason", a.Reason, "ms", a.Took.Milliseconds(), "fate", string(fate))
}

// record writes the outcome to the store.
func (d *Deliverer) record(ctx context.Context, v *delivery, o *outcome) error {
	switch o.fate {
	case FateDelivered:
		return d.recordDelivery(ctx, v.due, o)
	case FateSkip:
		return d.cfg.Store.Webhooks.RecordSkip(ctx, v.due, &o.try, o.terminal)
	case FateRelease:
		if o.delay > 0 {
			timer := time.NewTimer(o.delay)
			defer timer.Stop()
			<-timer.C // a poll at most, so a stop may wait for it
		}
		return d.cfg.Store.Webhooks.Release(ctx, v.due)
	}
	disabled, err := d.cfg.Store.Webhooks.RecordFailure(ctx, v.due, &o.try, webhooks.Failure{
		Delay: o.delay, Fate: string(o.fate), Breaker: o.breaker,
	})
	if disabled {
		v.log.WarnContext(ctx, "destination disabled: it has failed for too long", "tenant", v.due.Tenant)
	}
	return err
}

// recordDelivery records a delivery together with others, or alone if that was not possible.
func (d *Deliverer) recordDelivery(ctx context.Context, due *webhooks.Delivery, o *outcome) error {
	recorded, err := d.writes.do(ctx, webhooks.Delivered{Delivery: due, Try: &o.try, Terminal: o.terminal})
	if recorded || err != nil {
		return err
	}
	return d.cfg.Store.Webhooks.RecordDelivery(ctx, due, &o.try, o.terminal)
}
