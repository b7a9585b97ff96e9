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
	waiting []*claim        // guarded by mu; oldest first
	dirty   map[string]bool // guarded by mu; queues that may hold tasks
	open    bool            // guarded by mu; run runs

	// Of the goroutine of run:
	turn  int             // which of its agents a claim gets first
	heard map[string]bool // queues whose wakes are listened for
	wg    sync.WaitGroup  // of those who listen
}

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
	return &desk{api: a, kick: make(chan struct{}, 1), dirty: make(map[string]bool), heard: make(map[string]bool)}
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
		d.dirty[a.name] = true // a wake may have come before there was anyone to hear it
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
	defer d.wg.Wait()
	d.mu.Lock()
	d.open = true
	d.mu.Unlock()
	defer d.close()
	for name := range d.api.agents() { // before the first look
		d.listen(ctx, name)
	}
	claimer := d.api.store.NewClaimer()
	timer := time.NewTimer(d.api.cfg.Poll)
	defer timer.Stop()
	for {
		select {
		case <-d.kick:
		case <-timer.C:
			d.markAll()
			timer.Reset(backoff.Jitter(d.api.cfg.Poll, nil))
		case <-ctx.Done():
			return
		}
		d.serve(ctx, claimer)
	}
}

// listen has the wakes of a queue mark it from now on, until ctx is done.
func (d *desk) listen(ctx context.Context, agent string) {
	if d.heard[agent] {
		return
	}
	d.heard[agent] = true
	wake, stop := d.api.hub.Wait("ready:" + agent)
	d.wg.Go(func() {
		defer stop()
		for {
			select {
			case <-wake:
				d.mark(agent)
			case <-ctx.Done():
				return
			}
		}
	})
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
	d.dirty[agent] = true
	d.look()
}

func (d *desk) markAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.waiting {
		for _, a := range c.agents {
			d.dirty[a.name] = true
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
		d.listen(ctx, a.name) // before the look, so that nothing falls between
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
			d.mark(a.name)
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
	if c.done || !d.dirty[agent] {
		return false
	}
	delete(d.dirty, agent)
	return true
}
