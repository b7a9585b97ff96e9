package workerapi

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/a2ad/a2ad/internal/backoff"
	"github.com/a2ad/a2ad/internal/store"
)

// desk hands out waiting tasks. One goroutine claims for all claims that wait, first come,
// first served: a wake for a hundred idle workers costs one look at the queue and not a
// hundred.
type desk struct {
	api  *API
	kick chan struct{} // capacity 1: look again

	mu      sync.Mutex
	waiting []*claim             // guarded by mu; oldest first
	dirty   map[string]bool      // guarded by mu; queues that may hold tasks; true: they do, as far as is known
	looked  map[string]time.Time // guarded by mu; when a queue was looked at the last time, since then its wakes are heard
	open    bool                 // guarded by mu; run runs

	// Of the goroutine of run:
	guess int               // queues of this round that were claimed from without it being known that they hold tasks
	turn  int               // which of its agents a claim gets first
	heard map[string]func() // queues whose wakes are listened for, and what ends that
}

// few is how many queues that may hold tasks are claimed from without having been asked together which of them do.
const few = 4

// claim is one request for work that waits.
type claim struct {
	worker string
	agents []*agent
	max    int
	once   bool // it does not wait: one look is enough
	got    chan result
	done   bool // guarded by the desk's mu; answered, or no longer waiting
}

type result struct {
	leases []store.Lease
	err    error
}

func newDesk(a *API) *desk {
	return &desk{api: a, kick: make(chan struct{}, 1), dirty: make(map[string]bool), looked: make(map[string]time.Time), heard: make(map[string]func())}
}

// enter puts a claim in line. It is false if too many wait. A desk that does not run has
// nothing for anybody.
func (d *desk) enter(c *claim) bool {
	c.got = make(chan result, 1)
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.open {
		c.done = true
		c.got <- result{}
		return true
	}
	if len(d.waiting) >= d.api.cfg.MaxWaiting {
		return false
	}
	d.waiting = append(d.waiting, c)
	for _, a := range c.agents {
		// A wake may have come before there was anyone to hear it. One that came since is remembered; one that was lost is made up
		// for by the poll.
		if c.once || time.Since(d.looked[a.name]) > d.api.cfg.Poll {
			d.may(a.name)
		}
	}
	d.look()
	return true
}

// leave ends the wait of a claim and returns what it has been given meanwhile.
func (d *desk) leave(c *claim) result {
	d.answer(c, result{})
	return <-c.got
}

// answer gives a claim its result, unless it has one or waits no longer.
func (d *desk) answer(c *claim, r result) bool {
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

func (d *desk) look() {
	select {
	case d.kick <- struct{}{}:
	default:
	}
}

// run hands out tasks until ctx is done; then it sends all away.
func (d *desk) run(ctx context.Context) {
	defer func() {
		for _, stop := range d.heard {
			stop()
		}
	}()
	d.mu.Lock()
	d.open = true
	d.mu.Unlock()
	defer d.close()
	for name := range d.api.agents() { // before the first look
		d.listen(name)
	}
	claimer := d.api.store.NewClaimer()
	timer := time.NewTimer(d.api.cfg.Poll)
	defer timer.Stop()
	for {
		ask := false
		select {
		case <-d.kick:
		case <-timer.C:
			d.markAll()
			ask = true
			timer.Reset(backoff.Jitter(d.api.cfg.Poll, nil))
		case <-ctx.Done():
			return
		}
		d.ask(ctx, claimer, ask)
		d.serve(ctx, claimer)
	}
}

// ask finds out which of the queues that may hold tasks, and for which somebody waits, do: for all in one statement. The
// others are left alone. A few are rather claimed from, unless that is how the poll looks.
func (d *desk) ask(ctx context.Context, claimer *store.Claimer, must bool) {
	d.guess = 0
	d.mu.Lock()
	var names []string
	seen := make(map[string]bool)
	for _, c := range d.waiting {
		for _, a := range c.agents {
			if due, dirty := d.dirty[a.name]; dirty && !due && !seen[a.name] {
				seen[a.name] = true
				names = append(names, a.name)
			}
		}
	}
	d.mu.Unlock()
	if len(names) == 0 || len(names) <= few && !must {
		return
	}
	for _, name := range names {
		d.listen(name) // before the look, so that nothing falls between
	}
	d.mu.Lock()
	for _, name := range names {
		d.forget(name) // a wake from now on stands
	}
	d.mu.Unlock()
	due, err := claimer.Due(ctx, names)
	if err != nil {
		if ctx.Err() == nil {
			d.api.cfg.Logger.WarnContext(ctx, "look for due tasks", "agents", len(names), "err", err)
		}
		due = names // those who wait are told by their claims
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range due {
		d.dirty[name] = true
	}
}

// listen has the wakes of a queue mark it from now on, until the desk is closed.
func (d *desk) listen(agent string) {
	if d.heard[agent] == nil {
		d.heard[agent] = d.api.hub.Watch("ready:"+agent, func() { d.mark(agent) })
	}
}

// may notes that a queue may hold tasks. The caller holds mu.
func (d *desk) may(agent string) {
	known := d.dirty[agent]
	d.dirty[agent] = known
}

// forget notes that a queue is looked at. The caller holds mu.
func (d *desk) forget(agent string) {
	delete(d.dirty, agent)
	d.looked[agent] = time.Now()
}

func (d *desk) close() {
	d.mu.Lock()
	d.open = false
	waiting := slices.Clone(d.waiting)
	d.mu.Unlock()
	for _, c := range waiting {
		d.answer(c, result{})
	}
}

func (d *desk) mark(agent string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.may(agent)
	d.look()
}

// has marks a queue from which as many tasks came as were asked for.
func (d *desk) has(agent string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dirty[agent] = true
	d.look()
}

func (d *desk) markAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.waiting {
		for _, a := range c.agents {
			d.dirty[a.name] = false
		}
	}
}

// serve goes along the line once.
func (d *desk) serve(ctx context.Context, claimer *store.Claimer) {
	d.mu.Lock()
	line := slices.Clone(d.waiting)
	d.mu.Unlock()
	for _, c := range line {
		if ctx.Err() != nil {
			return
		}
		r := d.claim(ctx, claimer, c)
		if r.err == nil && len(r.leases) == 0 && !c.once {
			continue
		}
		if !d.answer(c, r) && len(r.leases) > 0 {
			d.api.giveBack(ctx, r.leases)
		}
	}
}

// claim takes for one claim what there is, from its agents in turns.
func (d *desk) claim(ctx context.Context, claimer *store.Claimer, c *claim) (r result) {
	d.turn++
	for _, a := range c.agents {
		d.listen(a.name) // before the look, so that nothing falls between
	}
	for i := range c.agents {
		a := c.agents[(d.turn+i)%len(c.agents)]
		n := c.max - len(r.leases)
		if n == 0 || !d.take(c, a.name) {
			continue
		}
		// The end of the server or of the request must not leave open what was claimed.
		leases, err := claimer.ClaimAs(context.WithoutCancel(ctx), store.Ask{
			Agent: a.name, Worker: c.worker, Slots: n, Running: a.limits.Concurrency, TTL: a.limits.LeaseTTL, Deadline: a.limits.Deadline,
		})
		if err != nil {
			d.mark(a.name)
			if len(r.leases) == 0 {
				r.err = err
			}
			return r
		}
		if len(leases) == n {
			d.has(a.name)
		}
		r.leases = append(r.leases, leases...)
	}
	return r
}

// take reports whether the queue is to be looked at for a claim that still waits, and marks it
// as looked at.
func (d *desk) take(c *claim, agent string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	due, dirty := d.dirty[agent]
	if c.done || !dirty {
		return false
	}
	if !due && !c.once { // whose claim does not wait is looked for now
		if d.guess++; d.guess > few { // more were woken meanwhile: all of them are asked
			d.look()
			return false
		}
	}
	d.forget(agent)
	return true
}
