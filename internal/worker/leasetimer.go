package worker

import (
	"sync"
	"time"
)

// leaseTimer ends a run whose lease was not renewed in time. It trusts a lease for two thirds of
// its length. By the local clock, this time starts when the claim or the last successful renewal
// was sent. So the run ends while the lease still keeps other workers out.
type leaseTimer struct {
	ttl     time.Duration
	expired func() // called by the timer's goroutine, without mu

	mu      sync.Mutex
	renewed time.Time   // guarded by mu; when the claim or the last successful renewal was sent
	timer   *time.Timer // guarded by mu; set by start
}

func newLeaseTimer(ttl time.Duration, claimed time.Time, expired func()) *leaseTimer {
	return &leaseTimer{ttl: ttl, expired: expired, renewed: claimed}
}

// start starts the timer, which stop ends. It returns false if the time is over already.
func (t *leaseTimer) start() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	left := t.left()
	if left <= 0 {
		return false
	}
	t.timer = time.AfterFunc(left, t.fire)
	return true
}

// left is how long the lease is trusted from now. The caller holds mu.
func (t *leaseTimer) left() time.Duration { return time.Until(t.renewed.Add(t.ttl * 2 / 3)) }

func (t *leaseTimer) fire() {
	t.mu.Lock()
	left := t.left()
	if left > 0 { // renewed while the timer fired
		t.timer.Reset(left)
	}
	t.mu.Unlock()
	if left <= 0 {
		t.expired()
	}
}

// extend notes a successful renewal that was sent at that time. The run has started the timer.
func (t *leaseTimer) extend(sent time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !sent.After(t.renewed) {
		return
	}
	t.renewed = sent
	if t.timer.Stop() { // otherwise fire is running and reads renewed itself
		t.timer.Reset(t.left())
	}
}

// stop stops the timer: the run has ended.
func (t *leaseTimer) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer.Stop()
}
