package workerapi

import (
	"context"
	"strconv"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/attempt"
	"github.com/a2ad/a2ad/internal/budget"
	"github.com/a2ad/a2ad/internal/executor/vocab"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/tracing"
)

// serveClaim answers with runs as soon as there are any, or with none when the wait is over.
func (a *API) serveClaim(ctx context.Context, r *request) ([]byte, error) {
	req, err := decodeClaim(r.body)
	if err != nil {
		return nil, err
	}
	agents, err := a.choose(&r.principal, req.agents)
	if err != nil {
		return nil, err
	}
	a.extendDeadlines(r.w, req.wait)
	c := &claim{
		worker: req.worker, tenant: r.principal.Tenant, userAgent: clip(attempt.CleanText(r.UserAgent())),
		agents: agents, max: req.max, noWait: req.wait == 0,
	}
	a.presence.noteClaim(c)
	if !a.dispatcher.add(c) {
		return nil, a2a.Errorf(a2a.CodeRateLimited, "too many claims are waiting here")
	}
	got := a.await(ctx, c, req.wait)
	if got.err != nil {
		return nil, got.err
	}
	return a.runs(ctx, r.mem, got)
}

// await waits until the claim is given tasks, its wait is over, or the server drains.
func (a *API) await(ctx context.Context, c *claim, wait time.Duration) claimResult {
	var timeout <-chan time.Time
	if !c.noWait { // a claim that does not wait is tried once, however long that takes
		timer := time.NewTimer(wait)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case r := <-c.got:
		return r
	case <-timeout:
	case <-ctx.Done():
	case <-a.cfg.Drain:
	}
	return a.dispatcher.cancel(c)
}

// maxClaimed bounds the size of the tasks in one answer. The first task may be larger.
const maxClaimed = 16 << 20

// runs reads the claimed tasks and returns the answer to the worker. It releases the leases if the
// worker is no longer there to receive them.
func (a *API) runs(ctx context.Context, mem *budget.Lease, got claimResult) ([]byte, error) {
	b, leases := []byte(`{"runs":[`), got.leases
	if len(leases) == 0 {
		return append(b, "]}"...), ctx.Err()
	}
	leases = a.limitSize(ctx, leases)
	// What is read, and the answer that is made of it.
	if err := mem.Grow(ctx, 2*memoryOf(leases)); err != nil {
		a.release(ctx, leases, "the memory of the server is full")
		return nil, err
	}
	work := context.WithoutCancel(ctx)
	inputs := a.readInputs(work, leases)
	n := 0
	for i := range leases {
		l, in := &leases[i], &inputs[i]
		switch {
		case in.err != nil && a2a.CodeOf(in.err) == a2a.CodeUnavailable:
			a.release(ctx, leases[i:], "the task could not be read")
			return nil, in.err
		case in.err != nil:
			a.cfg.Logger.ErrorContext(ctx, "read a claimed task",
				"task_id", l.TaskID, "agent", l.Agent, "epoch", l.Epoch, "err", in.err)
			a.fail(work, l, attempt.Failure{Text: "internal error"})
		case l.Left == 1: // the deadline passed before the task was claimed
			a.fail(work, l, deadlineExceeded)
		default:
			if n++; n > 1 {
				b = append(b, ',')
			}
			a.claims.Add(1)
			a.held.put(l.Remote(in.Task.ContextID, a.limitsOf(l.Agent).LeaseTTL), got.asked)
			b = a.appendRun(b, l, &in.Input)
		}
	}
	if ctx.Err() != nil {
		a.release(ctx, leases, workerGone)
		return nil, ctx.Err()
	}
	return append(b, "]}"...), nil
}

// limitSize releases the leases that do not fit into one answer, and returns the others.
func (a *API) limitSize(ctx context.Context, leases []tasks.Lease) []tasks.Lease {
	var size int64
	for i := range leases {
		if size += leases[i].Bytes; size > maxClaimed && i > 0 {
			a.release(ctx, leases[i:], "the answer to the worker was full")
			return leases[:i]
		}
	}
	return leases
}

// input is what a run starts with, or why it cannot be read.
type input struct {
	tasks.Input
	err error
}

// readInputs reads what the runs start with. If that fails it reads each task by itself, so that
// one unreadable task does not keep the others from running. It stops at the first task if the
// database is unreachable.
func (a *API) readInputs(ctx context.Context, leases []tasks.Lease) []input {
	inputs := make([]input, len(leases))
	all, err := a.store.Inputs(ctx, leases)
	for i := range leases {
		if err == nil {
			inputs[i].Input = all[i]
			continue
		}
		one, err := a.store.Inputs(ctx, leases[i:i+1])
		if inputs[i].err = err; err == nil {
			inputs[i].Input = one[0]
		} else if a2a.CodeOf(err) == a2a.CodeUnavailable {
			break
		}
	}
	return inputs
}

// memoryOf estimates how much memory the tasks of leases take once they are read.
func memoryOf(leases []tasks.Lease) (n int64) {
	for i := range leases {
		n += leases[i].Bytes + 512*leases[i].LastSeq + min(leases[i].StepBytes, tasks.StepsFirst.Bytes)
	}
	return n
}

// traceClaim makes a span of the claim, the parent of the worker's spans. The run has no span, as
// another replica may see its end.
func (a *API) traceClaim(l *tasks.Lease) {
	_, span := a.cfg.Tracer.Start(context.Background(), "claim", tracing.Consumer, l.Traceparent)
	if span == nil {
		return
	}
	span.Set(tracing.Agent(l.Agent), tracing.Task(l.TaskID.String()), tracing.Attempt(l.Attempt),
		tracing.Epoch(l.Epoch))
	l.Traceparent = span.Traceparent()
	span.End()
}

// appendRun appends the run object with the terms of its lease.
func (a *API) appendRun(b []byte, l *tasks.Lease, in *tasks.Input) []byte {
	a.traceClaim(l)
	run := vocab.Run{
		Task: &in.Task, Tenant: l.Tenant, Owner: l.Owner, Messages: in.Messages, Epoch: l.Epoch, Attempt: l.Attempt,
		Checkpoint: l.Checkpoint, Traceparent: l.Traceparent, Steps: in.Steps, StepCount: l.Steps,
	}
	if l.Left > 0 {
		run.Deadline = time.Now().Add(l.Left)
	}
	b = vocab.AppendRun(b, &run)
	b = append(b[:len(b)-1], `,"leaseExpiresAt":`...)
	b = appendTime(b, l.Until)
	b = append(b, `,"leaseSeconds":`...)
	return append(strconv.AppendFloat(b, a.limitsOf(l.Agent).LeaseTTL.Seconds(), 'f', -1, 64), '}')
}

// workerGone is why tasks are released whose worker does not learn of them.
const workerGone = "the worker did not wait for the answer"

// release gives leases back, so that the tasks can be claimed again at once.
func (a *API) release(ctx context.Context, leases []tasks.Lease, reason string) {
	held := make([]*tasks.Lease, len(leases))
	for i := range leases {
		held[i] = &leases[i]
	}
	if err := a.store.Release(context.WithoutCancel(ctx), held, reason); err != nil {
		a.cfg.Logger.WarnContext(ctx, "release leases", "err", err) // the leases expire
	}
}
