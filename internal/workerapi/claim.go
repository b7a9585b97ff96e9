package workerapi

import (
	"context"
	"strconv"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/attempt"
	"github.com/a2ad/a2ad/internal/budget"
	"github.com/a2ad/a2ad/internal/executor/vocab"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/tracing"
)

// serveClaim answers with runs as soon as there is one, or with none when the wait is over.
func (a *API) serveClaim(ctx context.Context, r *request) ([]byte, error) {
	req, err := decodeClaim(r.body)
	if err != nil {
		return nil, err
	}
	agents, err := a.choose(&r.principal, req.agents)
	if err != nil {
		return nil, err
	}
	a.patient(r.w, req.wait)
	c := &claim{worker: req.worker, agents: agents, max: req.max, once: req.wait == 0}
	if !a.desk.enter(c) {
		return nil, a2a.Errorf(a2a.CodeRateLimited, "too many claims wait here")
	}
	got := a.await(ctx, c, req.wait)
	if got.err != nil {
		return nil, got.err
	}
	return a.runs(ctx, r.mem, got.leases)
}

// await returns what the claim is given, when it is, or when it waits no longer.
func (a *API) await(ctx context.Context, c *claim, wait time.Duration) result {
	var over <-chan time.Time
	if !c.once { // else one look is made, however long that takes
		timer := time.NewTimer(wait)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case r := <-c.got:
		return r
	case <-over:
	case <-ctx.Done():
	case <-a.cfg.Drain.Done():
	}
	return a.desk.leave(c)
}

// maxClaimed bounds what one answer holds: the first run, and more while tasks are small.
const maxClaimed = 16 << 20

// runs writes the runs of a claim. A worker that is gone by then does not keep them.
func (a *API) runs(ctx context.Context, mem *budget.Lease, leases []store.Lease) ([]byte, error) {
	b := []byte(`{"runs":[`)
	if len(leases) == 0 {
		return append(b, "]}"...), ctx.Err()
	}
	var size int64
	for i := range leases {
		if size += leases[i].Bytes; size > maxClaimed && i > 0 {
			a.giveBack(ctx, leases[i:])
			leases = leases[:i]
			break
		}
	}
	// What was read, and the answer that is made of it.
	if err := mem.Grow(ctx, 2*roomOf(leases)); err != nil {
		a.giveBack(ctx, leases)
		return nil, err
	}
	work := context.WithoutCancel(ctx)
	inputs, err := a.store.Inputs(work, leases)
	n := 0
	for i := range leases {
		l := &leases[i]
		in, fault := store.Input{}, err
		if err == nil {
			in = inputs[i]
		} else if one, e := a.store.Inputs(work, leases[i:i+1]); e == nil { // one that cannot be read does not keep the others from running
			in, fault = one[0], nil
		} else {
			fault = e
		}
		switch {
		case a2a.CodeOf(fault) == a2a.CodeUnavailable && fault != nil:
			a.giveBack(ctx, leases[i:])
			return nil, fault
		case fault != nil:
			a.cfg.Logger.ErrorContext(ctx, "read a claimed task", "task_id", l.TaskID, "agent", l.Agent, "epoch", l.Epoch, "err", fault)
			a.fail(work, l, attempt.Failure{Text: "internal error"})
		case l.Left == 1: // the deadline passed before it was claimed
			a.fail(work, l, overdue)
		default:
			if n++; n > 1 {
				b = append(b, ',')
			}
			a.claims.Add(1)
			b = a.appendRun(b, l, &in)
		}
	}
	if ctx.Err() != nil && len(leases) > 0 {
		a.giveBack(ctx, leases)
		return nil, ctx.Err()
	}
	return append(b, "]}"...), nil
}

// roomOf is about what the tasks of leases take when they are read.
func roomOf(leases []store.Lease) (n int64) {
	for i := range leases {
		n += leases[i].Bytes + 512*leases[i].LastSeq
	}
	return n
}

// traceClaim makes a span of the claim, below which the worker's are to be. The run may end in
// another process, and has none.
func (a *API) traceClaim(l *store.Lease) {
	_, span := a.cfg.Tracer.Start(context.Background(), "claim", tracing.Consumer, l.Traceparent)
	if span == nil {
		return
	}
	span.Set(tracing.Agent(l.Agent), tracing.Task(l.TaskID.String()), tracing.Attempt(l.Attempt), tracing.Epoch(l.Epoch))
	l.Traceparent = span.Traceparent()
	span.End()
}

// appendRun appends the run object, and how long its lease is.
func (a *API) appendRun(b []byte, l *store.Lease, in *store.Input) []byte {
	a.traceClaim(l)
	run := vocab.Run{Task: &in.Task, Tenant: l.Tenant, Owner: l.Owner, Messages: in.Messages, Epoch: l.Epoch, Attempt: l.Attempt, Checkpoint: l.Checkpoint, Traceparent: l.Traceparent}
	if l.Left > 0 {
		run.Deadline = time.Now().Add(l.Left)
	}
	b = vocab.AppendRun(b, &run)
	b = append(b[:len(b)-1], `,"leaseExpiresAt":`...)
	b = appendTime(b, l.Until)
	b = append(b, `,"leaseSeconds":`...)
	return append(strconv.AppendFloat(b, a.limitsOf(l.Agent).LeaseTTL.Seconds(), 'f', -1, 64), '}')
}

// giveBack makes leases available again at once, as if they had not been claimed.
func (a *API) giveBack(ctx context.Context, leases []store.Lease) {
	held := make([]*store.Lease, len(leases))
	for i := range leases {
		held[i] = &leases[i]
	}
	if err := a.store.Release(context.WithoutCancel(ctx), held); err != nil {
		a.cfg.Logger.WarnContext(ctx, "release", "err", err) // they run out
	}
}
