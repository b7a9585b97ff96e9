package worker

import (
	"context"
	"sync"
	"time"

	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// Reserve reserves a slot for a task of an agent that is being submitted, so that no claim is
// needed. It refuses while more tasks of the agent may wait than there was room for, because they
// came first. A task that enters the queue at the same time may be overtaken. Reserve also refuses
// for an agent with a concurrency limit, which only the claim can enforce over all replicas, and for
// one that is stopped.
func (p *Pool) Reserve(agent string) (tasks.Slot, bool) {
	if p.cfg.MayStart != nil && !p.cfg.MayStart(agent) {
		return tasks.Slot{}, false
	}
	q := p.agents.find(agent)
	if q == nil || q.limits.Concurrency > 0 || !q.breaker.isClosed() || !p.slots.reserveForSubmit(q) {
		return tasks.Slot{}, false
	}
	return tasks.Slot{
		TTL: q.limits.LeaseTTL, Deadline: q.limits.Deadline,
		Start: func(l tasks.Lease, in tasks.Input, sent time.Time) {
			p.counters.count(func(s *Stats) { s.Claimed++ })
			p.start(context.Background(), q, &l, in, sent) // the run outlives the request that submits the task
		},
		Release: func() { p.slots.release(q, 1) },
	}, true
}

// start starts a run in a slot that is reserved for it. sent is when the claim was sent: the lease may count
// from then on. ctx must outlive the run; the registry and the run's lease timer end the run.
func (p *Pool) start(ctx context.Context, q *queue, l *tasks.Lease, in tasks.Input, sent time.Time) {
	ctx, cancel := context.WithCancelCause(ctx)
	r := p.newRun(q, l, in, cancel, sent)
	if !r.timer.start() {
		// The commit, or the read of the input, took so long that the lease may be over. The rescue finds the task.
		cancel(nil)
		p.noteEnd(q.Name, "lost", nil)
		p.counters.count(func(s *Stats) { s.Lost++ })
		late := time.Since(sent)
		r.log.WarnContext(ctx, "run", "outcome", "lost", "attempt", l.Attempt, "late_ms", late.Milliseconds())
		p.slots.release(q, 1)
		return
	}
	bytes := l.Bytes
	p.slots.started(q, bytes)
	p.runs.add(r)
	p.renewals.add(q.limits.LeaseTTL, sent) // after runs.add: a renewer without runs ends
	go func() {
		defer p.slots.finished(bytes)
		defer p.unregister(r)
		r.do(ctx)
	}()
}

func (p *Pool) newRun(
	q *queue, l *tasks.Lease, in tasks.Input, cancel context.CancelCauseFunc, sent time.Time,
) *run {
	return &run{
		pool: p, queue: q, lease: l, input: in, cancel: cancel,
		log:      p.cfg.Logger.With("task_id", l.TaskID.String(), "agent", q.Name, "epoch", l.Epoch),
		timer:    newLeaseTimer(q.limits.LeaseTTL, sent, func() { cancel(executor.ErrLeaseLost) }),
		freeSlot: sync.OnceFunc(func() { p.slots.executorEnded(q) }),
	}
}

// unregister undoes start, but for the end of the run that slots.finished counts.
func (p *Pool) unregister(r *run) {
	r.cancel(nil)
	r.timer.stop()
	r.freeSlot() // of an executor that ignores its context
	p.runs.remove(r)
}
