package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/backoff"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

const (
	cancelSlots     = 4              // tries at once for each agent
	cancelRetention = 24 * time.Hour // then the work has ended elsewhere, or never will
	cancelPollEvery = 5              // polls of the pool; a wake-up announces cancels that can be delivered at once
)

// canceled is the cause with which the run of a canceled task ends.
func (p *Pool) canceled(ctx context.Context, task a2a.ID) error {
	metadata, err := p.store.CancelMetadata(ctx, task)
	if err != nil {
		p.cfg.Logger.WarnContext(ctx, "cancel without its metadata", "task_id", task, "err", err)
	}
	return executor.Canceled(metadata)
}

// cancels tells agents that do their work elsewhere about canceled tasks that have no run to tell them. Each agent
// has slots of its own, so that one that does not answer keeps no other waiting.
type cancels struct {
	store  *tasks.Store
	agents *roster
	poll   time.Duration
	log    *slog.Logger

	inFlight map[string]int // goroutine of run only; tries by agent
	ended    chan string    // the agent of a try that has ended; read by the goroutine of run
}

func newCancels(p *Pool) *cancels {
	return &cancels{
		store: p.store, agents: p.agents, poll: cancelPollEvery * p.cfg.Poll, log: p.cfg.Logger,
		inFlight: make(map[string]int), ended: make(chan string),
	}
}

// run delivers cancels until ctx is done. It returns when the tries in flight have ended.
func (c *cancels) run(ctx context.Context, wake <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	defer c.wait()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case agent := <-c.ended:
			if wasFull := c.free(agent); !wasFull {
				continue
			}
			err = c.claim(ctx)
		case <-wake:
			err = c.claim(ctx)
		case <-timer.C:
			err = errors.Join(c.deleteUnneeded(ctx), c.claim(ctx))
			timer.Reset(backoff.Jitter(c.poll, nil))
		}
		if err != nil && ctx.Err() == nil {
			c.log.WarnContext(ctx, "deliver cancels", "err", err)
		}
	}
}

// wait returns when the tries in flight have ended.
func (c *cancels) wait() {
	for len(c.inFlight) > 0 {
		c.free(<-c.ended)
	}
}

// free frees a slot of an agent. It reports whether that was the only one: more cancels may be due than there was
// room for.
func (c *cancels) free(agent string) (wasFull bool) {
	wasFull = c.inFlight[agent] == cancelSlots
	if c.inFlight[agent]--; c.inFlight[agent] == 0 {
		delete(c.inFlight, agent)
	}
	return wasFull
}

// deleteUnneeded deletes cancels that no agent needs to know about, or that are too old.
func (c *cancels) deleteUnneeded(ctx context.Context) error {
	undelivered, err := c.store.ExpireCancels(ctx, c.agents.withoutRemoteWork(), cancelRetention)
	for _, task := range undelivered {
		c.log.WarnContext(ctx, "cancel given up: it could not be delivered to the agent", "task_id", task)
	}
	return err
}

// claim claims cancels that are due, as far as there are slots, and delivers them.
func (c *cancels) claim(ctx context.Context) error {
	slots, agents := make(map[string]int), make(map[string]executor.Canceler)
	for _, q := range c.agents.current() {
		if agent, ok := q.Executor.(executor.Canceler); ok && c.inFlight[q.Name] < cancelSlots {
			slots[q.Name], agents[q.Name] = cancelSlots-c.inFlight[q.Name], agent
		}
	}
	if len(slots) == 0 {
		return nil
	}
	due, err := c.store.ClaimCancels(ctx, slots)
	if err != nil {
		return err
	}
	for i := range due {
		one := &due[i]
		c.inFlight[one.Agent]++
		go func() { // run and wait receive from ended
			defer func() { c.ended <- one.Agent }()
			c.deliver(ctx, agents[one.Agent], one)
		}()
	}
	return nil
}

func (c *cancels) deliver(ctx context.Context, agent executor.Canceler, one *tasks.PendingCancel) {
	// A try that has begun is not cut short: after its request it would be repeated for nothing.
	ctx = context.WithoutCancel(ctx)
	err := agent.Cancel(ctx, executor.Run{
		Task: a2a.Task{ID: one.Task, Agent: one.Agent}, Agent: one.Agent, Tenant: one.Tenant, Owner: one.Owner,
		Checkpoint: one.Checkpoint, Traceparent: one.Traceparent,
	}, one.Metadata)
	if err == nil {
		err = c.store.CancelDelivered(ctx, one.Task)
	}
	if err != nil {
		c.log.WarnContext(ctx, "deliver a cancel", "task_id", one.Task, "agent", one.Agent, "err", err)
	}
}
