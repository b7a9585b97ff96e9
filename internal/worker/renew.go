package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/store"
)

// renewLoop keeps the leases of all runs, and ends runs whose lease it could not keep.
func (p *Pool) renewLoop(ctx context.Context, canceled <-chan struct{}) {
	every := p.renewEvery()
	timer := time.NewTimer(every)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-canceled: // a task that runs here was canceled: the renewal tells which
			p.mu.Lock()
			p.wished = time.Now()
			p.mu.Unlock()
		case <-p.recheck:
		case <-p.retimed: // an agent may have a shorter lease now
			every = p.renewEvery()
			timer.Reset(every)
		case <-timer.C:
			every = p.renewEvery()
			timer.Reset(every)
		}
		p.renewAll(ctx, every)
	}
}

// renewEvery is a third of the shortest lease that there is or may be before it is asked again.
func (p *Pool) renewEvery() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	shortest := p.cfg.Limits.LeaseTTL
	for _, q := range p.queues {
		shortest = min(shortest, q.limits.LeaseTTL)
	}
	for _, r := range p.running { // also of agents that are gone
		shortest = min(shortest, r.queue.limits.LeaseTTL)
	}
	return shortest / 3
}

// staleAfter is how long a lease is trusted without a renewal: who has not renewed for two
// thirds of the time stops by its own clock, while the lease still keeps others out.
func staleAfter(ttl time.Duration) time.Duration { return ttl * 2 / 3 }

func (p *Pool) renewAll(ctx context.Context, limit time.Duration) {
	byTTL := make(map[time.Duration][]*run)
	p.mu.Lock()
	for _, r := range p.running {
		ttl := r.queue.limits.LeaseTTL
		byTTL[ttl] = append(byTTL[ttl], r)
	}
	p.mu.Unlock()
	for _, ttl := range slices.Sorted(maps.Keys(byTTL)) {
		runs := byTTL[ttl]
		if err := p.renew(ctx, runs, ttl, limit); err != nil && ctx.Err() == nil {
			p.cfg.Logger.WarnContext(ctx, "renew leases", "runs", len(runs), "err", err)
		}
		for _, r := range runs {
			if r.stale(staleAfter(ttl)) {
				r.cancel(executor.ErrLeaseLost)
			}
		}
	}
}

var errRenewTimeout = errors.New("renewal took too long")

func (p *Pool) renew(ctx context.Context, runs []*run, ttl, limit time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errRenewTimeout)
	defer cancel()
	leases := make([]*store.Lease, len(runs))
	for i, r := range runs {
		leases[i] = r.lease
	}
	asked := time.Now()
	held, err := p.store.Renew(ctx, leases, ttl)
	if err != nil {
		return err
	}
	for i, r := range runs {
		if held[i] {
			r.renew(asked)
			continue
		}
		if r.ended() {
			continue
		}
		state, err := p.store.State(ctx, r.lease.TaskID)
		if err != nil && a2a.CodeOf(err) != a2a.CodeTaskNotFound {
			return fmt.Errorf("task %s: %w", r.lease.TaskID, err)
		}
		if state == a2a.StateCanceled {
			r.cancel(p.canceled(ctx, r.lease.TaskID))
		} else {
			r.cancel(executor.ErrLeaseLost)
		}
	}
	return nil
}
