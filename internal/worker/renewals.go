package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

const (
	// retryPart: a renewal that failed is repeated after this part of the interval.
	retryPart = 8
	// limitPart: a renewal may take this part of the lease. So one that gets no answer leaves time for another
	// before the lease timers end the runs, which is another third of the lease later.
	limitPart = 5
	// minLimit is what a renewal may take in any case, up to a third of the lease: a busy but working database
	// needs some hundred milliseconds, and a lease of a second has no time for two such tries.
	minLimit = 500 * time.Millisecond
)

var errRenewTimeout = errors.New("renewal took too long")

// renewLimit is how long a renewal may take.
func renewLimit(ttl time.Duration) time.Duration {
	return max(ttl/limitPart, min(ttl/3, minLimit))
}

// renewals renews the leases of the running attempts, each at a third of its length. A renewal also finds leases
// that are lost, and ends their runs.
type renewals struct {
	store *tasks.Store
	runs  *registry
	log   *slog.Logger

	added chan struct{}  // capacity 1; a renewer waits to be started by run
	tasks sync.WaitGroup // renewers, and the ends of lost runs; run waits for them

	mu         sync.Mutex
	renewers   map[time.Duration]*renewer // guarded by mu; by length of the leases
	canceledAt time.Time                  // guarded by mu; when the last wake-up for a cancel came
}

// renewer renews the leases of one length. Each length has its own, so that slow, stuck or interrupted renewals
// of one agent do not delay another's.
type renewer struct {
	ttl     time.Duration
	now     chan struct{} // capacity 1: renew now
	started bool          // guarded by renewals.mu
}

func newRenewals(p *Pool) *renewals {
	return &renewals{
		store: p.store, runs: p.runs, log: p.cfg.Logger,
		added: make(chan struct{}, 1), renewers: make(map[time.Duration]*renewer),
	}
}

// run starts renewers as they are needed until ctx is done, which must be after the last run has ended. A message
// on canceled says that a task that runs here may have been canceled. Then all leases are renewed at once: the
// renewal finds which.
func (n *renewals) run(ctx context.Context, canceled <-chan struct{}) {
	defer n.tasks.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.added:
			n.startRenewers(ctx)
		case <-canceled:
			n.renewAll()
		}
	}
}

// add has leases of this length renewed from now on. The run whose claim was sent at that time is registered.
func (n *renewals) add(ttl time.Duration, sent time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	one := n.renewers[ttl]
	if one == nil {
		one = &renewer{ttl: ttl, now: make(chan struct{}, 1)}
		n.renewers[ttl] = one
		signal(n.added)
	}
	if n.canceledAt.After(sent) {
		signal(one.now) // the cancel may have been for this run, before it was registered
	}
}

func (n *renewals) startRenewers(ctx context.Context) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, one := range n.renewers {
		if !one.started {
			one.started = true
			n.tasks.Go(func() { n.renewUntilUnused(ctx, one) })
		}
	}
}

func (n *renewals) renewAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.canceledAt = time.Now()
	for _, one := range n.renewers {
		signal(one.now)
	}
}

// renewUntilUnused renews leases of one length until no run has one.
func (n *renewals) renewUntilUnused(ctx context.Context, one *renewer) {
	interval := one.ttl / 3
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-one.now:
		case <-timer.C:
		}
		timer.Reset(interval)
		runs := n.runsOf(one)
		if len(runs) == 0 {
			return
		}
		locked, err := n.renew(ctx, runs, one.ttl)
		if err != nil && ctx.Err() == nil {
			n.log.WarnContext(ctx, "renew leases", "runs", len(runs), "err", err)
		}
		if locked || err != nil {
			timer.Reset(interval / retryPart)
		}
	}
}

// runsOf returns the runs of a renewer. If there are none it removes the renewer, which must end.
func (n *renewals) runsOf(one *renewer) []*run {
	n.mu.Lock()
	defer n.mu.Unlock()
	runs := n.runs.withTTL(one.ttl)
	if len(runs) == 0 {
		delete(n.renewers, one.ttl)
	}
	return runs
}

// renew renews the leases of runs. It reports whether another transaction had locked some of them.
func (n *renewals) renew(ctx context.Context, runs []*run, ttl time.Duration) (locked bool, err error) {
	leases := make([]*tasks.Lease, len(runs))
	for i, r := range runs {
		leases[i] = r.lease
	}
	limited, cancel := context.WithTimeoutCause(ctx, renewLimit(ttl), errRenewTimeout)
	defer cancel()
	sent := time.Now()
	renewals, err := n.store.Renew(limited, leases, ttl)
	if err != nil {
		return false, err
	}
	var lost []*run
	for i, r := range runs {
		switch renewals[i] {
		case tasks.Renewed:
			r.timer.extend(sent)
		case tasks.Locked:
			locked = true
		case tasks.Lost:
			if r.beginLosing() {
				lost = append(lost, r)
			}
		}
	}
	if len(lost) > 0 {
		n.tasks.Go(func() { n.endLost(ctx, lost) }) // not awaited here: other leases must be renewed meanwhile
	}
	return locked, nil
}

// endLost ends runs whose lease is lost, each with the reason. If the reasons cannot be read, the next renewal
// tries again, and the lease timers continue to run.
func (n *renewals) endLost(ctx context.Context, lost []*run) {
	ids := make([]a2a.ID, len(lost))
	for i, r := range lost {
		ids[i] = r.lease.TaskID
	}
	ctx, cancel := context.WithTimeoutCause(ctx, finishTimeout, errFinishTimeout)
	defer cancel()
	states, err := n.store.States(ctx, ids)
	if err != nil {
		n.log.WarnContext(ctx, "read states of lost tasks", "runs", len(lost), "err", err)
		for _, r := range lost {
			r.undoLosing()
		}
		return
	}
	for _, r := range lost {
		reason := executor.ErrLeaseLost
		if states[r.lease.TaskID] == a2a.StateCanceled {
			reason = r.pool.canceled(ctx, r.lease.TaskID)
		}
		r.cancel(reason)
	}
}
