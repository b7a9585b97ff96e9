package worker

import (
	"context"
	"errors"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/backoff"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/store"
)

const (
	cancelSlots  = 4              // tries at once for each agent
	cancelsFor   = 24 * time.Hour // then work elsewhere that nobody could be told of has ended, or never will
	cancelsEvery = 5              // polls; a wake brings those that can be told at once
)

// canceled is why the run of a canceled task ends.
func (p *Pool) canceled(ctx context.Context, task a2a.ID) error {
	metadata, err := p.store.CancelMetadata(ctx, task)
	if err != nil {
		p.cfg.Logger.WarnContext(ctx, "cancel without its metadata", "task_id", task, "err", err)
	}
	return executor.Canceled(metadata)
}

// cancelLoop tells agents with work elsewhere of canceled tasks that have no run to tell them. Each agent has slots of its own, so that
// one that does not answer keeps no other waiting. It returns when the tries under way have ended.
func (p *Pool) cancelLoop(ctx context.Context, wake <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	t := telling{pool: p, busy: make(map[string]int), ended: make(chan string)}
	defer t.wait()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case agent := <-t.ended:
			if full := t.free(agent); !full {
				continue
			}
			err = t.claim(ctx)
		case <-wake:
			err = t.claim(ctx)
		case <-timer.C:
			err = errors.Join(t.forget(ctx), t.claim(ctx))
			timer.Reset(backoff.Jitter(cancelsEvery*p.cfg.Poll, nil))
		}
		if err != nil && ctx.Err() == nil {
			p.cfg.Logger.WarnContext(ctx, "cancels", "err", err)
		}
	}
}

// telling is the state of cancelLoop.
type telling struct {
	pool  *Pool
	busy  map[string]int // tries under way, by agent
	ended chan string    // the agent of a try that has
}

// wait returns when the tries under way have ended.
func (t *telling) wait() {
	for len(t.busy) > 0 {
		t.free(<-t.ended)
	}
}

// free gives a slot back, and reports whether there was no other: more may be due than there was room for.
func (t *telling) free(agent string) (full bool) {
	full = t.busy[agent] == cancelSlots
	if t.busy[agent]--; t.busy[agent] == 0 {
		delete(t.busy, agent)
	}
	return full
}

// forget drops cancels that no agent is to hear of any more.
func (t *telling) forget(ctx context.Context) error {
	t.pool.mu.Lock()
	deaf := t.pool.deaf
	t.pool.mu.Unlock()
	inVain, err := t.pool.store.ForgetCancels(ctx, deaf, cancelsFor)
	for _, task := range inVain {
		t.pool.cfg.Logger.WarnContext(ctx, "cancel given up: the agent was never told", "task_id", task)
	}
	return err
}

// claim takes what is due, as far as there are slots, and has it told.
func (t *telling) claim(ctx context.Context) error {
	slots, hears := make(map[string]int), make(map[string]executor.Canceler)
	for _, q := range t.pool.current() {
		if c, ok := q.Executor.(executor.Canceler); ok && t.busy[q.Name] < cancelSlots {
			slots[q.Name], hears[q.Name] = cancelSlots-t.busy[q.Name], c
		}
	}
	if len(slots) == 0 {
		return nil
	}
	untold, err := t.pool.store.ClaimCancels(ctx, slots)
	if err != nil {
		return err
	}
	for i := range untold {
		u := &untold[i]
		t.busy[u.Agent]++
		go func() {
			defer func() { t.ended <- u.Agent }()
			t.pool.tellCancel(ctx, hears[u.Agent], u)
		}()
	}
	return nil
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
