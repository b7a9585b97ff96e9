package worker

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/backoff"
	"github.com/a2ad/a2ad/internal/store"
)

// few is how many queues that may hold tasks are claimed from without having been asked together which of them do.
const few = 4

// claimLoop looks for work whenever a queue was woken, a slot came free or the poll is due. The poll is one statement for all
// queues; a claim is made where that, or a wake, says that there is something.
func (p *Pool) claimLoop(ctx, work context.Context) {
	kick := make(chan struct{}, 1)
	ears := ears{pool: p, kick: kick, stops: make(map[string]func())}
	defer ears.close()
	claimer := p.store.NewClaimer()
	timer := time.NewTimer(p.cfg.Poll)
	defer timer.Stop()
	queues := ears.turn()
	ask := true
	for first := 0; ; { // after the last agent that was served, so that all are in turn
		ask = p.ask(ctx, claimer, queues, ask)
		next, guesses := first, 0
		for i := range queues {
			at := (first + i) % len(queues)
			q := queues[at]
			if !q.due && q.dirty.Load() {
				if guesses++; guesses > few { // more were woken meanwhile: all of them are asked
					signal(kick)
					continue
				}
			}
			if p.claim(ctx, work, claimer, q) {
				next = at + 1
			}
		}
		first = next
		select {
		case <-kick:
		case <-p.freed:
		case <-p.changed:
			queues, ask = ears.turn(), true
		case <-timer.C:
			lookEverywhere(queues)
			ask = true
			timer.Reset(backoff.Jitter(p.cfg.Poll, nil))
		case <-ctx.Done():
			return
		}
	}
}

// ask finds out which of the queues that may hold tasks do, if it must or if they are many, and leaves the others alone.
// It reports whether that is still to be done: while no run could start it is put off.
func (p *Pool) ask(ctx context.Context, c *store.Claimer, queues []*queue, must bool) (later bool) {
	var open []*queue
	var names []string
	for _, q := range queues {
		if q.dirty.Load() && !q.due {
			open, names = append(open, q), append(names, q.Name)
		}
	}
	if len(open) == 0 || len(open) <= few && !must || ctx.Err() != nil {
		return must && len(open) > 0
	}
	p.mu.Lock()
	room := p.room() > 0
	p.mu.Unlock()
	if !room {
		return true
	}
	for _, q := range open {
		q.dirty.Store(false) // a wake from now on stands
	}
	due, err := c.Due(ctx, names)
	p.claims.Store(err == nil)
	if err != nil {
		if ctx.Err() == nil {
			p.cfg.Logger.WarnContext(ctx, "look for due tasks", "agents", len(names), "err", err)
		}
		return false // the next poll
	}
	has := make(map[string]bool, len(due))
	for _, name := range due {
		has[name] = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, q := range open {
		if q.due = has[q.Name]; q.due {
			q.dirty.Store(true)
		} else if !q.dirty.Load() {
			q.backlog = false
		}
	}
	return false
}

// ears listen for wakes of the agents that there are. They belong to the claim loop.
type ears struct {
	pool  *Pool
	kick  chan<- struct{}
	stops map[string]func() // by agent
}

// turn listens to the agents of now, and to no others, and has all of them looked at.
func (e *ears) turn() []*queue {
	queues := e.pool.current()
	gone := maps.Clone(e.stops)
	for _, q := range queues {
		delete(gone, q.Name)
		if e.stops[q.Name] != nil {
			continue
		}
		at := q.place
		e.stops[q.Name] = e.pool.hub.Watch("ready:"+q.Name, func() { // before the first look, so that nothing falls between
			at.dirty.Store(true)
			signal(e.kick)
		})
	}
	for name, stop := range gone {
		stop()
		delete(e.stops, name)
	}
	lookEverywhere(queues)
	return queues
}

func (e *ears) close() {
	for _, stop := range e.stops {
		stop()
	}
}

// lookEverywhere has all queues asked, also those that held tasks the last time.
func lookEverywhere(queues []*queue) {
	for _, q := range queues {
		q.due = false
		q.dirty.Store(true)
	}
}

// claim takes as many tasks of one agent as there are slots and starts their runs. Unless
// tasks had to wait it leaves some slots to those that Take brings meanwhile. It reports whether there were any.
func (p *Pool) claim(ctx, work context.Context, c *store.Claimer, q *queue) bool {
	if ctx.Err() != nil || !q.dirty.Load() {
		return false
	}
	p.mu.Lock()
	n := p.free(q)
	if !q.backlog {
		n = (n + 1) / 2
	}
	p.hold(q, n)
	p.mu.Unlock()
	if n == 0 {
		return false
	}
	q.dirty.Store(false)
	q.due = false
	asked := time.Now()
	leases, err := c.ClaimAs(work, store.Ask{Agent: q.Name, Slots: n, Running: q.limits.Concurrency, TTL: q.limits.LeaseTTL, Deadline: q.limits.Deadline})
	p.claims.Store(err == nil)
	if err == nil {
		p.mu.Lock()
		q.backlog = len(leases) == n
		p.mu.Unlock()
	}
	if len(leases) < n {
		p.leave(q, n-len(leases))
	}
	if err != nil {
		// Should it have been committed after all, nobody renews those leases: the rescue
		// finds them.
		p.cfg.Logger.WarnContext(ctx, "claim", "agent", q.Name, "err", err)
		return false
	}
	if len(leases) == 0 {
		return false
	}
	if len(leases) == n {
		q.dirty.Store(true)
		q.due = true
		signal(p.freed)
	}
	p.count(func(s *Stats) { s.Claimed += int64(len(leases)) })
	inputs, err := p.store.Inputs(work, leases)
	if err != nil {
		p.cfg.Logger.WarnContext(ctx, "read claimed tasks", "agent", q.Name, "err", err)
		p.startEach(work, q, leases, asked)
		return true
	}
	for i := range leases {
		p.start(work, q, &leases[i], inputs[i], asked)
	}
	return true
}

// startEach reads claimed tasks one by one, so that one that cannot be read does not keep
// the others from running. That one is tried again later, as if its agent had failed: given
// back at once it would be claimed again at once.
func (p *Pool) startEach(work context.Context, q *queue, leases []store.Lease, asked time.Time) {
	for i := range leases {
		in, err := p.store.Inputs(work, leases[i:i+1])
		switch {
		case err == nil:
			p.start(work, q, &leases[i], in[0], asked)
		case a2a.CodeOf(err) == a2a.CodeUnavailable:
			p.release(work, leases[i:i+1])
			p.leave(q, 1)
		default:
			r := p.newRun(q, &leases[i], store.Input{}, func(error) {}, asked)
			outcome, err := r.settle(work, fmt.Errorf("read the task: %w", err))
			p.noteEnd(q.Name, outcome, err)
			r.log.ErrorContext(work, "run", "outcome", outcome, "attempt", leases[i].Attempt, "err", err)
			p.leave(q, 1)
		}
	}
}
