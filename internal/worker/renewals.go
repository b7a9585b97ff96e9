package worker

import (
	"context"
	"errors"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/store"
)

// staleAfter is how long a lease is trusted without a renewal: a run that was not renewed for two
// thirds of the time stops by its own clock, while the lease still keeps others out.
func staleAfter(ttl time.Duration) time.Duration { return ttl * 2 / 3 }

// keeper renews the leases of one length. Each length has its own, so that renewals that are slow, stuck or cut off
// take no time from those of other agents.
type keeper struct {
	ttl  time.Duration
	kick chan struct{} // capacity 1: renew now
}

// keepers starts and ends keepers as runs come and go.
type keepers struct {
	pool  *Pool
	start func(*keeper)             // has it run until the pool's runs have ended
	byTTL map[time.Duration]*keeper // guarded by the pool's mu
}

// keep has a lease of this length renewed from now on. The caller holds mu and has put the run into running; the
// slot of the run keeps the pool from waiting for keepers already.
func (k *keepers) keep(ttl time.Duration) *keeper {
	one := k.byTTL[ttl]
	if one == nil {
		one = &keeper{ttl: ttl, kick: make(chan struct{}, 1)}
		k.byTTL[ttl] = one
		k.start(one)
	}
	return one
}

// all has every lease renewed now.
func (k *keepers) all() {
	k.pool.mu.Lock()
	defer k.pool.mu.Unlock()
	for _, one := range k.byTTL {
		signal(one.kick)
	}
}

// run renews leases of one length until no run has one.
func (k *keepers) run(ctx context.Context, one *keeper) {
	every := one.ttl / 3
	timer := time.NewTimer(every)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-one.kick:
		case <-timer.C:
		}
		timer.Reset(every)
		runs := k.runs(one)
		if len(runs) == 0 {
			return
		}
		busy, err := k.pool.renew(ctx, runs, one.ttl)
		if err != nil && ctx.Err() == nil {
			k.pool.cfg.Logger.WarnContext(ctx, "renew leases", "runs", len(runs), "err", err)
		}
		if busy || err != nil {
			timer.Reset(every / againShare)
		}
	}
}

const (
	// againShare: a lease that could not be renewed is tried again after so small a part of the interval.
	againShare = 8
	// renewShare: a renewal may take so small a part of the lease. One that gets no answer leaves time for another before the
	// runs end, which is another third of the lease later.
	renewShare = 5
	// leastRenewal is what a renewal gets in any case, up to a third of the lease: a database that is busy, and works, needs
	// some hundred milliseconds, and a lease of a second has no time for two such tries.
	leastRenewal = 500 * time.Millisecond
)

// renewLimit is how long a renewal may take.
func renewLimit(ttl time.Duration) time.Duration {
	return max(ttl/renewShare, min(ttl/3, leastRenewal))
}

// runs returns the runs with leases of this length. When there are none the keeper is gone.
func (k *keepers) runs(one *keeper) (runs []*run) {
	k.pool.mu.Lock()
	defer k.pool.mu.Unlock()
	for _, r := range k.pool.running {
		if r.queue.limits.LeaseTTL == one.ttl {
			runs = append(runs, r)
		}
	}
	if len(runs) == 0 {
		delete(k.byTTL, one.ttl)
	}
	return runs
}

// cancelsHeard renews all leases when a task that runs here was canceled: the renewal tells which.
func (p *Pool) cancelsHeard(ctx context.Context, canceled <-chan struct{}, k *keepers) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-canceled:
			p.mu.Lock()
			p.wished = time.Now()
			p.mu.Unlock()
		}
		k.all()
	}
}

var errRenewTimeout = errors.New("renewal took too long")

// renew extends the leases of runs that still hold theirs. It reports whether some rows were locked by others.
func (p *Pool) renew(ctx context.Context, runs []*run, ttl time.Duration) (busy bool, err error) {
	leases := make([]*store.Lease, len(runs))
	for i, r := range runs {
		leases[i] = r.lease
	}
	limited, cancel := context.WithTimeoutCause(ctx, renewLimit(ttl), errRenewTimeout)
	defer cancel()
	asked := time.Now()
	renewals, err := p.store.Renew(limited, leases, ttl)
	if err != nil {
		return false, err
	}
	var lost []*run
	for i, r := range runs {
		switch renewals[i] {
		case store.Renewed:
			r.renew(asked)
		case store.Locked:
			busy = true
		case store.Lost:
			if r.losing() {
				lost = append(lost, r)
			}
		}
	}
	if len(lost) > 0 {
		p.renewing.Go(func() { p.tellLost(ctx, lost) }) // a keeper runs, so it is not being waited for yet
	}
	return busy, nil
}

// tellLost ends runs whose lease is gone, each with the reason. If that cannot be read another renewal tries again;
// meanwhile the run's own timer runs.
func (p *Pool) tellLost(ctx context.Context, lost []*run) {
	ids := make([]a2a.ID, len(lost))
	for i, r := range lost {
		ids[i] = r.lease.TaskID
	}
	ctx, cancel := context.WithTimeoutCause(ctx, settleTimeout, errSettleTimeout)
	defer cancel()
	states, err := p.store.States(ctx, ids)
	if err != nil {
		p.cfg.Logger.WarnContext(ctx, "states of lost tasks", "runs", len(lost), "err", err)
		for _, r := range lost {
			r.found()
		}
		return
	}
	for _, r := range lost {
		reason := executor.ErrLeaseLost
		if states[r.lease.TaskID] == a2a.StateCanceled {
			reason = p.canceled(ctx, r.lease.TaskID)
		}
		r.cancel(reason)
	}
}

// fence has the run end by its own timer when its lease has not been renewed in time. It is false if that time has
// passed already.
func (r *run) fence() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := r.left()
	if left <= 0 {
		return false
	}
	r.timer = time.AfterFunc(left, r.expire)
	return true
}

// left is how long the lease is trusted yet. The caller holds mu.
func (r *run) left() time.Duration {
	return time.Until(r.renewed.Add(staleAfter(r.queue.limits.LeaseTTL)))
}

// expire is called by the timer.
func (r *run) expire() {
	r.mu.Lock()
	left := r.left()
	if left > 0 {
		r.timer.Reset(left) // renewed at the last moment
	}
	r.mu.Unlock()
	if left <= 0 {
		r.cancel(executor.ErrLeaseLost)
	}
}

// unfence stops the timer: the run has ended.
func (r *run) unfence() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer != nil {
		r.timer.Stop()
	}
}

// renew notes a renewal that was asked for at that time.
func (r *run) renew(asked time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !asked.After(r.renewed) {
		return
	}
	r.renewed = asked
	if r.timer.Stop() { // else expire runs, and looks at renewed itself
		r.timer.Reset(r.left())
	}
}

// losing reports whether the run is to be told that its lease is gone: not if its last write is under way, which takes
// the lease, nor if somebody is about to tell it.
func (r *run) losing() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ending || r.told {
		return false
	}
	r.told = true
	return true
}

// found undoes losing.
func (r *run) found() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = false
}

func (r *run) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ending = true
}
