package push

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// lease is the lease of one delivery as its process knows it. The lease is certain while valid says so. When it
// expires, the request is canceled.
type lease struct {
	due    *webhooks.Delivery
	now    func() time.Time
	ttl    time.Duration
	expire func() // cancels the request

	mu    sync.Mutex
	sent  time.Time   // guarded by mu; when the claim or the last successful renewal was sent
	timer *time.Timer // guarded by mu; calls expire at the end; stopped by stop
}

// newLease returns the lease of a delivery whose claim was sent at that time.
func newLease(due *webhooks.Delivery, now func() time.Time, sent time.Time, ttl time.Duration, expire func()) *lease {
	l := &lease{due: due, now: now, ttl: ttl, expire: expire, sent: sent}
	l.timer = time.AfterFunc(l.end().Sub(now()), expire)
	return l
}

// leaseMargin is how much earlier than the database, at most, a deliverer regards a lease as expired: clocks run at
// different rates.
const leaseMargin = time.Second

// end is when the lease expires by the clock of this process. The caller holds mu, or has the only reference to l.
func (l *lease) end() time.Time {
	return l.sent.Add(l.ttl - min(leaseMargin, l.ttl/6))
}

// valid reports whether the lease certainly has not expired. It compares both the monotonic clock and the wall clock:
// the first may stop while the machine is suspended, the second may be set.
func (l *lease) valid() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, end := l.now(), l.end()
	return t.Before(end) && t.Round(0).Before(end.Round(0))
}

// renewalDue reports whether it is time to renew.
func (l *lease) renewalDue() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now().Sub(l.sent) >= l.ttl/3
}

// renewed notes a successful renewal that was sent at that time.
func (l *lease) renewed(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = sent
	if l.timer.Stop() { // otherwise the request is canceled already, or has ended
		l.timer.Reset(l.end().Sub(l.now()))
	}
}

// stop ends the lease without a call of expire.
func (l *lease) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer.Stop()
}

// renewals renews the leases of deliveries whose requests take long. So a lease can be short, in case its process
// dies, however long a request may take. While the database is unreachable, requests are canceled as their leases
// expire.
type renewals struct {
	store *store.Store
	ttl   time.Duration
	now   func() time.Time
	log   *slog.Logger

	mu     sync.Mutex
	leases map[*lease]bool // guarded by mu; of the deliveries in flight
}

func newRenewals(s *store.Store, ttl time.Duration, now func() time.Time, log *slog.Logger) *renewals {
	return &renewals{store: s, ttl: ttl, now: now, log: log, leases: make(map[*lease]bool)}
}

// add has a lease renewed until remove.
func (n *renewals) add(l *lease) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.leases[l] = true
}

func (n *renewals) remove(l *lease) {
	l.stop()
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.leases, l)
}

// run renews leases until done is closed.
func (n *renewals) run(ctx context.Context, done <-chan struct{}) {
	ticker := time.NewTicker(n.ttl / 6)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			n.renewDue(ctx)
		case <-done:
			return
		}
	}
}

func (n *renewals) renewDue(ctx context.Context) {
	byRow := map[a2a.ID]*lease{}
	var due []*webhooks.Delivery
	n.mu.Lock()
	for l := range n.leases {
		if l.renewalDue() {
			byRow[l.due.Row] = l
			due = append(due, l.due)
		}
	}
	n.mu.Unlock()
	if len(due) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, n.ttl/3)
	defer cancel()
	sent := n.now()
	rows, err := n.store.Webhooks.Renew(ctx, due, n.ttl)
	if err != nil {
		n.log.WarnContext(ctx, "renew webhooks", "err", err)
		return
	}
	for _, row := range rows {
		byRow[row].renewed(sent)
	}
}
