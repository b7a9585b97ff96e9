package worker

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/backoff"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/wake"
)

// fewQueues is how many queues that may hold tasks are claimed from at once. If there are more, one statement
// first asks which of them hold any.
const fewQueues = 4

// claimer claims tasks for the slots of a pool. Its run method is one goroutine, which owns all fields without
// a comment.
type claimer struct {
	pool   *Pool // starts the runs
	store  *tasks.Store
	agents *roster
	slots  *slots
	poll   time.Duration
	log    *slog.Logger

	claims  *tasks.Claimer
	wakeups wakeups
	queues  []*queue
	pollDue bool // a poll is due, and waits for a free slot

	agentsChanged chan struct{} // capacity 1; written by SetAgents
	succeeded     atomic.Bool   // the last claim or poll succeeded; read by Healthy
}

func newClaimer(p *Pool) *claimer {
	return &claimer{
		pool: p, store: p.store, agents: p.agents, slots: p.slots, poll: p.cfg.Poll, log: p.cfg.Logger,
		claims: p.store.NewClaimer(), agentsChanged: make(chan struct{}, 1),
		wakeups: wakeups{hub: p.hub, woken: make(chan struct{}, 1), stops: make(map[string]func())},
	}
}

// run claims tasks until ctx is done: whenever an agent's queue is woken, a slot is free again or a poll is due.
// A poll is one statement for all queues. A claim is made where a poll or a wake-up says that there are tasks.
func (c *claimer) run(ctx context.Context) {
	defer c.wakeups.unsubscribe()
	timer := time.NewTimer(c.poll)
	defer timer.Stop()
	c.loadAgents()
	for first := 0; ; {
		c.pollQueues(ctx)
		first = c.claimInTurn(ctx, first)
		c.slots.noteWaiting(slices.ContainsFunc(c.queues, func(q *queue) bool { return q.Command && q.hasTasks }))
		select {
		case <-c.wakeups.woken:
		case <-c.slots.freed:
		case <-c.agentsChanged:
			c.loadAgents()
		case <-timer.C:
			c.pollAll()
			timer.Reset(backoff.Jitter(c.poll, nil))
		case <-ctx.Done():
			return
		}
	}
}

// loadAgents subscribes to the wake-ups of the agents that the pool has now, and polls all of them.
func (c *claimer) loadAgents() {
	c.queues = c.agents.current()
	c.wakeups.subscribe(c.queues)
	c.pollAll()
}

// pollAll makes the next poll ask for all queues, including those that had tasks at the last one.
func (c *claimer) pollAll() {
	for _, q := range c.queues {
		q.hasTasks = false
		q.mayHaveTasks.Store(true)
	}
	c.pollDue = true
}

// claimInTurn claims from each queue that has tasks, starting with the first, and returns the queue to start with
// next: the one after the last agent that got a task. So a flooded agent does not keep another one waiting.
func (c *claimer) claimInTurn(ctx context.Context, first int) (next int) {
	next = first
	guesses := 0
	for i := range c.queues {
		at := (first + i) % len(c.queues)
		q := c.queues[at]
		if !q.hasTasks && q.mayHaveTasks.Load() {
			if guesses++; guesses > fewQueues { // more were woken meanwhile: ask for all of them first
				signal(c.wakeups.woken)
				continue
			}
		}
		if c.claim(ctx, q) {
			next = at + 1
		}
	}
	return next
}

// pollQueues asks which of the queues that may have tasks do have some, if a poll is due or if they are many. While
// no run could start, the poll stays due.
func (c *claimer) pollQueues(ctx context.Context) {
	var open []*queue
	var names []string
	for _, q := range c.queues {
		if q.mayHaveTasks.Load() && !q.hasTasks {
			open, names = append(open, q), append(names, q.Name)
		}
	}
	switch {
	case len(open) == 0:
		c.pollDue = false
		return
	case len(open) <= fewQueues && !c.pollDue, ctx.Err() != nil:
		return
	case !c.slots.anyFree():
		c.pollDue = true
		return
	}
	c.pollDue = false // after an error: the next poll
	for _, q := range open {
		q.mayHaveTasks.Store(false) // before the statement, so that a wake-up from now on is kept
	}
	due, err := c.claims.Due(ctx, names)
	c.succeeded.Store(err == nil)
	if err != nil {
		if ctx.Err() == nil {
			c.log.WarnContext(ctx, "poll for due tasks", "agents", len(names), "err", err)
		}
		return
	}
	has := make(map[string]bool, len(due))
	for _, name := range due {
		has[name] = true
	}
	for _, q := range open {
		if q.hasTasks = has[q.Name]; q.hasTasks {
			q.mayHaveTasks.Store(true)
		} else if !q.mayHaveTasks.Load() {
			c.slots.setBacklog(q, false)
		}
	}
}

// claim claims as many tasks of one agent as there are slots, and starts their runs. It reports whether there
// were any.
func (c *claimer) claim(ctx context.Context, q *queue) bool {
	if ctx.Err() != nil || !q.mayHaveTasks.Load() {
		return false
	}
	usable := q.breaker.slots(math.MaxInt)
	if usable == 0 {
		return false // the queue keeps its mark: outages wakes this goroutine when a task may be claimed
	}
	n := c.slots.reserveForClaim(q)
	if n > usable {
		c.slots.release(q, n-usable)
		n = usable
	}
	if n == 0 {
		return false
	}
	q.mayHaveTasks.Store(false)
	q.hasTasks = false
	work := context.WithoutCancel(ctx) // a claim that was sent is carried out, and its runs outlive ctx
	sent := time.Now()
	leases, err := c.claims.ClaimFor(work, tasks.ClaimRequest{
		Agent: q.Name, Slots: n, Running: q.limits.Concurrency, TTL: q.limits.LeaseTTL, Deadline: q.limits.Deadline,
	})
	c.succeeded.Store(err == nil)
	all := len(leases) == n
	if err == nil {
		c.slots.setBacklog(q, all)
	}
	if !all {
		c.slots.release(q, n-len(leases))
	}
	if err != nil {
		// If it was committed after all, those leases are not renewed, and the rescue finds them.
		c.log.WarnContext(ctx, "claim", "agent", q.Name, "err", err)
		return false
	}
	if len(leases) == 0 {
		return false
	}
	if all { // there may be more
		q.mayHaveTasks.Store(true)
		q.hasTasks = true
		signal(c.slots.freed)
	}
	q.breaker.claimed()
	c.pool.counters.count(func(s *Stats) { s.Claimed += int64(len(leases)) })
	c.startAll(work, q, leases, sent)
	return true
}

// startAll reads the inputs of claimed tasks and starts their runs. Tasks that do not fit into memory go back to the
// queue, without an attempt counted.
func (c *claimer) startAll(ctx context.Context, q *queue, leases []tasks.Lease, sent time.Time) {
	if n := c.slots.fit(q, leases); n < len(leases) {
		c.pool.release(ctx, leases[n:], "the memory for tasks of runs is full")
		c.slots.release(q, len(leases)-n)
		leases = leases[:n]
	}
	if len(leases) == 0 {
		return
	}
	inputs, err := c.store.Inputs(ctx, leases)
	if err != nil {
		c.log.WarnContext(ctx, "read claimed tasks", "agent", q.Name, "err", err)
		for i := range leases {
			c.startOne(ctx, q, leases[i:i+1], sent)
		}
		return
	}
	for i := range leases {
		c.pool.start(ctx, q, &leases[i], inputs[i], sent)
	}
}

// startOne starts the run of one task, so that a task that cannot be read does not keep the others of its claim
// from running. Such a task is retried later, as if its agent had failed: if it were released at once, it would
// be claimed again at once.
func (c *claimer) startOne(ctx context.Context, q *queue, lease []tasks.Lease, sent time.Time) {
	in, err := c.store.Inputs(ctx, lease)
	switch {
	case err == nil:
		c.pool.start(ctx, q, &lease[0], in[0], sent)
	case a2a.CodeOf(err) == a2a.CodeUnavailable:
		c.pool.release(ctx, lease, "the task could not be read")
		c.slots.release(q, 1)
	default:
		r := c.pool.newRun(q, &lease[0], tasks.Input{}, func(error) {}, sent)
		outcome, err := r.finish(ctx, fmt.Errorf("read the task: %w", err))
		c.pool.noteEnd(q.Name, outcome, err)
		r.log.ErrorContext(ctx, "run", "outcome", outcome, "attempt", lease[0].Attempt, "err", err)
		c.slots.release(q, 1)
	}
}

// wakeups are the claimer's subscriptions to the queues of its agents. They belong to its goroutine.
type wakeups struct {
	hub   Hub
	woken chan struct{}     // capacity 1; written by the hub: a queue may have tasks
	stops map[string]func() // by agent; each ends a subscription
}

// subscribe subscribes to the wake-ups of these queues and of no others.
func (w *wakeups) subscribe(queues []*queue) {
	removed := maps.Clone(w.stops)
	for _, q := range queues {
		delete(removed, q.Name)
		if w.stops[q.Name] != nil {
			continue
		}
		d := q.demand // which the next queue of this name shares
		w.stops[q.Name] = w.hub.Watch(wake.Ready(q.Name), func() {
			d.mayHaveTasks.Store(true)
			signal(w.woken)
		})
	}
	for name, stop := range removed {
		stop()
		delete(w.stops, name)
	}
}

func (w *wakeups) unsubscribe() {
	for _, stop := range w.stops {
		stop()
	}
}
