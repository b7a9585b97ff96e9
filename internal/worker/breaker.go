package worker

import "sync"

// breakerThreshold is how many runs in a row must fail to reach the agent before its breaker opens. One refused
// connection of many is not an outage.
const breakerThreshold = 3

// breakerState is the state of a breaker.
type breakerState uint8

const (
	closed   breakerState = iota // tasks are claimed
	open                         // none is
	halfOpen                     // one task is claimed as a probe; the result decides
)

// breaker is the circuit breaker of one agent in this replica: it opens when the agent cannot be reached, so that its
// tasks wait in the queue instead of being sent in vain. Claims and runs tell it what they see; outages, which asks the
// database for probes, opens it half and says when it may close.
type breaker struct {
	changed chan<- struct{} // of outages: the state is another one

	mu       sync.Mutex
	state    breakerState // guarded by mu
	failures int          // guarded by mu; in a row
	reason   string       // guarded by mu; of the newest failure
	probe    bool         // guarded by mu; half-open: no task was claimed for the probe yet
	probes   int64        // guarded by mu; tasks that were claimed as probes, since the start
	back     bool         // guarded by mu; it has closed, and outages has not recorded that yet
}

// isClosed reports whether tasks may be sent to the agent.
func (b *breaker) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state == closed
}

// slots returns how many of n slots may be used for tasks of the agent now.
func (b *breaker) slots(n int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.state == closed:
		return n
	case b.state == halfOpen && b.probe:
		return min(n, 1)
	}
	return 0
}

// claimed notes that a task was claimed. If it is the probe, no other one may follow.
func (b *breaker) claimed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == halfOpen && b.probe {
		b.probes++
	}
	b.probe = false
}

// reached notes that the agent has answered.
func (b *breaker) reached() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures = 0
	if b.state == closed {
		return
	}
	b.state, b.back = closed, true
	signal(b.changed)
}

// unreachable notes that the agent could not be reached.
func (b *breaker) unreachable(reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures++
	b.reason = reason
	if b.state == open || b.state == closed && b.failures < breakerThreshold {
		return
	}
	b.state = open
	signal(b.changed)
}

// allowProbe lets one task be claimed, unless the agent has answered meanwhile.
func (b *breaker) allowProbe() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state != closed {
		b.state, b.probe = halfOpen, true
	}
}

// restore opens the breaker because of an outage that another process has recorded.
func (b *breaker) restore(reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == closed {
		b.state, b.reason, b.back = open, reason, false
	}
}

// BreakerState is the state of the circuit breaker of an agent in this replica.
type BreakerState struct {
	Open     bool  // no task is claimed
	HalfOpen bool  // one task is claimed as a probe; the result decides
	Probes   int64 // tasks that were claimed as probes since the start
}

// Breakers returns the circuit breakers of the agents that this pool runs, by agent.
func (p *Pool) Breakers() map[string]BreakerState {
	all := make(map[string]BreakerState)
	for _, q := range p.agents.current() {
		all[q.Name] = q.breaker.shown()
	}
	return all
}

func (b *breaker) shown() BreakerState {
	b.mu.Lock()
	defer b.mu.Unlock()
	return BreakerState{Open: b.state == open, HalfOpen: b.state == halfOpen, Probes: b.probes}
}

// snapshot returns what outages acts on.
func (b *breaker) snapshot() (state breakerState, reason string, back bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state, b.reason, b.back
}

// recordedBack notes that the end of the outage is recorded.
func (b *breaker) recordedBack() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.back = false
}
