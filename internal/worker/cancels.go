package worker

import (
	"context"
	"sync"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/backoff"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/store"
)

const (
	cancelsAtOnce = 16
	cancelsFor    = 24 * time.Hour // then work elsewhere that nobody could be told of has ended, or never will
	cancelsEvery  = 5              // polls; a wake brings those that can be told at once
)

// canceled is why the run of a canceled task ends.
func (p *Pool) canceled(ctx context.Context, task a2a.ID) error {
	metadata, err := p.store.CancelMetadata(ctx, task)
	if err != nil {
		p.cfg.Logger.WarnContext(ctx, "cancel without its metadata", "task_id", task, "err", err)
	}
	return executor.Canceled(metadata)
}

// cancelLoop tells agents with work elsewhere of canceled tasks that have no run to tell them.
func (p *Pool) cancelLoop(ctx context.Context, wake <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-timer.C:
			timer.Reset(backoff.Jitter(cancelsEvery*p.cfg.Poll, nil))
		}
		for more := true; more && ctx.Err() == nil; {
			var err error
			if more, err = p.tellCancels(ctx); err != nil && ctx.Err() == nil {
				p.cfg.Logger.WarnContext(ctx, "cancels", "err", err)
			}
		}
	}
}

// tellCancels takes what is due and tells it. It reports whether there may be more.
func (p *Pool) tellCancels(ctx context.Context) (more bool, err error) {
	p.mu.Lock()
	queues, deaf := p.queues, p.deaf
	p.mu.Unlock()
	var names []string
	hears := make(map[string]executor.Canceler)
	for _, q := range queues {
		if c, ok := q.Executor.(executor.Canceler); ok {
			names, hears[q.Name] = append(names, q.Name), c
		}
	}
	inVain, err := p.store.ForgetCancels(ctx, deaf, cancelsFor)
	if err != nil {
		return false, err
	}
	for _, task := range inVain {
		p.cfg.Logger.WarnContext(ctx, "cancel given up: the agent was never told", "task_id", task)
	}
	if len(names) == 0 {
		return false, nil
	}
	untold, err := p.store.ClaimCancels(ctx, names, cancelsAtOnce)
	if err != nil {
		return false, err
	}
	var wg sync.WaitGroup
	for i := range untold {
		wg.Go(func() { p.tellCancel(ctx, hears[untold[i].Agent], &untold[i]) })
	}
	wg.Wait()
	return len(untold) == cancelsAtOnce, nil
}

func (p *Pool) tellCancel(ctx context.Context, c executor.Canceler, u *store.Untold) {
	// A try that has begun is not cut short: cut behind its request it would come again for nothing.
	ctx = context.WithoutCancel(ctx)
	err := c.Cancel(ctx, executor.Run{
		Task: a2a.Task{ID: u.Task, Agent: u.Agent}, Agent: u.Agent, Tenant: u.Tenant, Owner: u.Owner, Checkpoint: u.Checkpoint, Traceparent: u.Traceparent,
	}, u.Metadata)
	if err == nil {
		err = p.store.CancelTold(ctx, u.Task)
	}
	if err != nil {
		p.cfg.Logger.WarnContext(ctx, "cancel not passed on", "task_id", u.Task, "agent", u.Agent, "err", err)
	}
}
