package workerapi

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/a2ad/a2ad/internal/backoff"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/wake"
)

// dispatcher gives queued tasks to waiting claim requests, in the order in which the requests
// came. One goroutine claims for all of them: a wake-up for a hundred idle workers costs one query
// on the queue and not a hundred.
type dispatcher struct {
	api  *API
	kick chan struct{} // capacity 1: there may be something to do

	mu        sync.Mutex
	waiting   []*claim              // guarded by mu; oldest first
	queues    map[string]queueState // guarded by mu; queues that may hold tasks, by agent
	claimedAt map[string]time.Time  // guarded by mu; when a queue was last claimed from or asked about
	running   bool                  // guarded by mu

	// Used by the goroutine of run only.
	unsure        int               // queues in state mayHoldTasks that this round has claimed from
	turn          int               // rotates which of its agents claims try first
	subscriptions map[string]func() // queues whose wake-ups arrive, and what ends each subscription
}

// queueState is what the dispatcher knows of a queue. A queue without a state holds no tasks.
type queueState int

const (
	mayHoldTasks queueState = iota + 1
	holdsTasks
)

// fewQueues is how many queues that may hold tasks are claimed from at once. If there are more,
// one statement first asks which of them hold any.
const fewQueues = 4

// claim is one request for work that waits.
type claim struct {
	worker    string
	tenant    string // of the credentials
	userAgent string // what the worker says it is
	agents    []*agent
	max       int
	noWait    bool // one try is enough
	got       chan claimResult
	done      bool // guarded by the dispatcher's mu; answered, or no longer waiting
}

type claimResult struct {
	leases []tasks.Lease
	asked  time.Time // a moment before the first of them was claimed
	err    error
}

func newDispatcher(a *API) *dispatcher {
	return &dispatcher{
		api: a, kick: make(chan struct{}, 1),
		queues: make(map[string]queueState), claimedAt: make(map[string]time.Time),
		subscriptions: make(map[string]func()),
	}
}

// add appends a claim to the queue. It returns false if too many claims wait. While run
// does not run, the claim is answered at once without tasks.
func (d *dispatcher) add(c *claim) bool {
	c.got = make(chan claimResult, 1)
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.running {
		c.done = true
		c.got <- claimResult{}
		return true
	}
	if len(d.waiting) >= d.api.cfg.MaxWaiting {
		return false
	}
	d.waiting = append(d.waiting, c)
	for _, a := range c.agents {
		// A wake-up may have come before anything subscribed to the queue. The poll makes up for
		// wake-ups that are lost later.
		if c.noWait || time.Since(d.claimedAt[a.name]) > d.api.cfg.Poll {
			d.markLocked(a.name)
		}
	}
	d.signal()
	return true
}

// cancel ends the wait of a claim, and returns what the claim was given in the meantime.
func (d *dispatcher) cancel(c *claim) claimResult {
	d.answer(c, claimResult{})
	return <-c.got
}

// answer gives a claim its result. It returns false if the claim has one or no longer waits.
func (d *dispatcher) answer(c *claim, r claimResult) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.done {
		return false
	}
	c.done = true
	if i := slices.Index(d.waiting, c); i >= 0 {
		d.waiting = slices.Delete(d.waiting, i, i+1)
	}
	c.got <- r
	return true
}

// signal makes run start another round.
func (d *dispatcher) signal() {
	select {
	case d.kick <- struct{}{}:
	default:
	}
}

// run dispatches tasks until ctx is done. Then it answers all waiting claims without tasks.
func (d *dispatcher) run(ctx context.Context) {
	d.mu.Lock()
	d.running = true
	d.mu.Unlock()
	defer d.stop()
	for name := range d.api.agents() { // before the first claim, so that no wake-up is missed
		d.subscribe(name)
	}
	claimer := d.api.store.NewClaimer()
	timer := time.NewTimer(d.api.cfg.Poll)
	defer timer.Stop()
	for {
		polled := false
		select {
		case <-d.kick:
		case <-timer.C:
			d.markAll()
			polled = true
			timer.Reset(backoff.Jitter(d.api.cfg.Poll, nil))
		case <-ctx.Done():
			return
		}
		d.checkQueues(ctx, claimer, polled)
		d.serve(ctx, claimer)
	}
}

func (d *dispatcher) stop() {
	for _, unsubscribe := range d.subscriptions {
		unsubscribe()
	}
	d.mu.Lock()
	d.running = false
	waiting := slices.Clone(d.waiting)
	d.mu.Unlock()
	for _, c := range waiting {
		d.answer(c, claimResult{})
	}
}

// checkQueues asks, in one statement, which of the queues that may hold tasks do. It asks only for
// agents that a claim waits for. Unless this is a poll it skips a few queues, from which serve
// claims directly.
func (d *dispatcher) checkQueues(ctx context.Context, claimer *tasks.Claimer, polled bool) {
	d.unsure = 0
	names := d.unsureQueues()
	if len(names) == 0 || len(names) <= fewQueues && !polled {
		return
	}
	for _, name := range names {
		d.subscribe(name) // before the query, so that no wake-up is missed
	}
	d.mu.Lock()
	for _, name := range names {
		d.clearLocked(name) // a wake-up from now on marks the queue again
	}
	d.mu.Unlock()
	due, err := claimer.Due(ctx, names)
	if err != nil {
		if ctx.Err() == nil {
			d.api.cfg.Logger.WarnContext(ctx, "ask for due tasks", "agents", len(names), "err", err)
		}
		due = names // the claims from these queues will report the error
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range due {
		d.queues[name] = holdsTasks
	}
}

// waitingClaims returns the claims that wait.
func (d *dispatcher) waitingClaims() []*claim {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.waiting)
}

// unsureQueues returns the agents that claims wait for and whose queues may hold tasks.
func (d *dispatcher) unsureQueues() (names []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	seen := make(map[string]bool)
	for _, c := range d.waiting {
		for _, a := range c.agents {
			if d.queues[a.name] == mayHoldTasks && !seen[a.name] {
				seen[a.name] = true
				names = append(names, a.name)
			}
		}
	}
	return names
}

// subscribe makes the wake-ups of a queue mark it until run returns.
func (d *dispatcher) subscribe(agent string) {
	if d.subscriptions[agent] == nil {
		d.subscriptions[agent] = d.api.hub.Watch(wake.Ready(agent), func() { d.mark(agent) })
	}
}

// markLocked notes that a queue may hold tasks, unless it is known that it does. The caller holds mu.
func (d *dispatcher) markLocked(agent string) {
	if d.queues[agent] == 0 {
		d.queues[agent] = mayHoldTasks
	}
}

// clearLocked forgets the state of a queue that is about to be claimed from or asked about. The caller
// holds mu.
func (d *dispatcher) clearLocked(agent string) {
	delete(d.queues, agent)
	d.claimedAt[agent] = time.Now()
}

func (d *dispatcher) mark(agent string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.markLocked(agent)
	d.signal()
}

// markFull notes that a queue gave as many tasks as were claimed, so it may hold more.
func (d *dispatcher) markFull(agent string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queues[agent] = holdsTasks
	d.signal()
}

// markAll notes that every queue that a claim waits for may hold tasks.
func (d *dispatcher) markAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.waiting {
		for _, a := range c.agents {
			d.queues[a.name] = mayHoldTasks
		}
	}
}
