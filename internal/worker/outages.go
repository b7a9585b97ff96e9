package worker

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/wake"
)

// Times between two probes of an agent that cannot be reached, over all replicas.
const (
	firstProbe   = time.Second
	longestProbe = 30 * time.Second
)

// outages acts on the circuit breakers of this replica. For each agent that cannot be reached it asks the database for
// the right to send one task, so that all replicas together send one at a time. When a task reaches the agent,
// outages makes the tasks that were postponed due and tells the other replicas. Its run method is one goroutine, which
// owns all fields.
type outages struct {
	store  *tasks.Store
	hub    Hub
	agents *roster
	woken  chan<- struct{} // of the claimer
	log    *slog.Logger

	first, longest time.Duration      // times between two probes
	changed        <-chan struct{}    // capacity 1; a breaker has changed its state
	back           chan struct{}      // capacity 1; another replica has reached an agent
	known          map[string]*outage // by agent
}

// outage is what is known of one agent whose breaker is not closed.
type outage struct {
	recorded bool      // in the database
	next     time.Time // when to ask for the next probe
	stop     func()    // ends the subscription to the agent's return
}

func newOutages(p *Pool, changed <-chan struct{}) *outages {
	return &outages{
		store: p.store, hub: p.hub, agents: p.agents, woken: p.claimer.wakeups.woken, log: p.cfg.Logger,
		first: cmp.Or(p.cfg.FirstProbe, firstProbe), longest: cmp.Or(p.cfg.LongestProbe, longestProbe),
		changed: changed, back: make(chan struct{}, 1), known: make(map[string]*outage),
	}
}

// run acts on the breakers until ctx is done.
func (o *outages) run(ctx context.Context) {
	defer func() {
		for _, out := range o.known {
			out.stop()
		}
	}()
	o.restore(ctx)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-o.changed:
		case <-timer.C:
		case <-o.back:
			for _, out := range o.known {
				out.next = time.Time{}
			}
		case <-ctx.Done():
			return
		}
		timer.Reset(o.actOnAll(ctx))
	}
}

// restore opens the breakers of agents with a recorded outage. Otherwise each new process would send its first tasks in
// vain, and an outage would stay recorded when all processes that knew of it have ended.
func (o *outages) restore(ctx context.Context) {
	list, err := o.store.Outages(ctx)
	if err != nil {
		o.log.WarnContext(ctx, "read which agents are unreachable", "err", err)
		return
	}
	for _, q := range o.agents.current() {
		for _, known := range list {
			if known.Agent == q.Name {
				q.breaker.restore(known.Reason)
			}
		}
	}
}

// actOnAll acts on the breaker of each agent, and returns how long to wait for the next time.
func (o *outages) actOnAll(ctx context.Context) (wait time.Duration) {
	wait = math.MaxInt64
	for _, q := range o.agents.current() {
		state, reason, back := q.breaker.snapshot()
		if back && !o.end(ctx, q) {
			wait = min(wait, o.first)
		}
		if state == closed {
			continue
		}
		out := o.known[q.Name]
		if out == nil {
			out = &outage{stop: o.hub.Watch(wake.Reachable(q.Name), func() { signal(o.back) })}
			o.known[q.Name] = out
		}
		if !out.recorded {
			o.begin(ctx, q, out, reason)
		}
		if !time.Now().Before(out.next) {
			o.probe(ctx, q, out)
		}
		wait = min(wait, max(time.Until(out.next), time.Millisecond))
	}
	return wait
}

// begin records that an agent cannot be reached.
func (o *outages) begin(ctx context.Context, q *queue, out *outage, reason string) {
	out.next = time.Now().Add(o.first)
	if err := o.store.BeginOutage(ctx, q.Name, reason, o.first); err != nil {
		o.log.WarnContext(ctx, "record that an agent is unreachable", "agent", q.Name, "err", err)
		return
	}
	out.recorded = true
	o.log.WarnContext(ctx, "agent unreachable: its tasks wait", "agent", q.Name, "reason", reason)
}

// probe asks for a probe, and lets the claimer claim one task if it is granted.
func (o *outages) probe(ctx context.Context, q *queue, out *outage) {
	p, err := o.store.Probe(ctx, q.Name, o.first, o.longest)
	switch {
	case err != nil:
		out.next = time.Now().Add(o.first)
		o.log.WarnContext(ctx, "ask for a probe of an agent", "agent", q.Name, "err", err)
		return
	case p.Over: // another replica has reached it; if this one does not, it records a new outage
		out.recorded = false
		out.next = time.Now().Add(o.longest)
	case !p.Granted:
		out.next = time.Now().Add(max(p.Wait, time.Millisecond))
		return
	default:
		out.next = time.Now().Add(p.Wait)
	}
	if err := o.store.Hasten(ctx, q.Name, 1); err != nil {
		o.log.WarnContext(ctx, "find a task for a probe", "agent", q.Name, "err", err)
	}
	q.breaker.allowProbe()
	o.wakeClaimer(q)
}

// end records that an agent answers again, and makes its postponed tasks due. If that fails it is repeated.
func (o *outages) end(ctx context.Context, q *queue) bool {
	err := o.store.EndOutage(ctx, q.Name)
	if err == nil {
		err = o.store.Hasten(ctx, q.Name, math.MaxInt)
	}
	if err != nil {
		o.log.WarnContext(ctx, "record that an agent is reachable again", "agent", q.Name, "err", err)
		return false
	}
	if out := o.known[q.Name]; out != nil {
		out.stop()
		delete(o.known, q.Name)
	}
	q.breaker.recordedBack()
	o.wakeClaimer(q)
	o.log.InfoContext(ctx, "agent reachable again", "agent", q.Name)
	return true
}

func (o *outages) wakeClaimer(q *queue) {
	q.mayHaveTasks.Store(true)
	signal(o.woken)
}
