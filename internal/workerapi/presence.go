package workerapi

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/a2ad/a2ad/internal/store/tasks"
)

// presenceEvery is how often it is recorded that workers of an agent are in touch. The sweep that finds agents without
// a worker is four times as patient.
const presenceEvery = 15 * time.Second

// presence records which agents have remote workers. A worker is in touch if it waits for tasks, asks for some, or
// reports on one.
type presence struct {
	store   *tasks.Store
	log     *slog.Logger
	waiting func() []*claim // that wait now
	kick    chan struct{}   // capacity 1: an agent was seen that had no worker for a while

	mu       sync.Mutex
	seen     map[string]bool      // guarded by mu; since the last record
	recorded map[string]time.Time // guarded by mu; when each agent was last recorded
	workers  presentWorkers       // guarded by mu; since the last call of presentWorkers
}

func newPresence(a *API) *presence {
	return &presence{
		store: a.store, log: a.cfg.Logger, waiting: a.dispatcher.waitingClaims, kick: make(chan struct{}, 1),
		seen: make(map[string]bool), recorded: make(map[string]time.Time),
		workers: make(presentWorkers),
	}
}

// note notes that a worker of the agent is in touch.
func (p *presence) note(agent string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen[agent] = true
	if time.Since(p.recorded[agent]) > 2*presenceEvery {
		select {
		case p.kick <- struct{}{}:
		default:
		}
	}
}

// noteClaim notes that a worker asks for tasks.
func (p *presence) noteClaim(c *claim) {
	for _, x := range c.agents {
		p.note(x.name)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.workers.add(c)
}

// takeWorkers returns the workers that wait for tasks, or have asked for some since the last call.
func (p *presence) takeWorkers() []tasks.RemoteWorker {
	waiting := p.waiting()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range waiting {
		p.workers.add(c)
	}
	list := p.workers.all()
	clear(p.workers)
	return list
}

// presentWorkers are workers by tenant and name.
type presentWorkers map[string]map[string]*tasks.RemoteWorker

// add adds the worker of a claim, or the agents of the claim to those that the worker asks for: some workers claim for
// one agent at a time. It drops the worker if the tenant has too many.
func (w presentWorkers) add(c *claim) {
	of := w[c.tenant]
	if of == nil {
		of = make(map[string]*tasks.RemoteWorker)
		w[c.tenant] = of
	}
	x := of[c.worker]
	if x == nil {
		if len(of) == tasks.MostRemoteWorkers {
			return
		}
		x = &tasks.RemoteWorker{Tenant: c.tenant, Name: c.worker}
		of[c.worker] = x
	}
	x.Version = c.userAgent
	for _, a := range c.agents {
		if at, known := slices.BinarySearch(x.Agents, a.name); !known {
			x.Agents = slices.Insert(x.Agents, at, a.name)
		}
	}
}

func (w presentWorkers) all() (list []tasks.RemoteWorker) {
	for _, of := range w {
		for _, x := range of {
			list = append(list, *x)
		}
	}
	return list
}

// run records until ctx is done.
func (p *presence) run(ctx context.Context) {
	tick := time.NewTicker(presenceEvery)
	defer tick.Stop()
	for {
		select {
		case <-p.kick:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		p.record(ctx)
	}
}

func (p *presence) record(ctx context.Context) {
	agents := p.take()
	if len(agents) == 0 {
		return
	}
	back, err := p.store.WorkersSeen(ctx, agents)
	if err != nil {
		if ctx.Err() == nil {
			p.log.WarnContext(ctx, "record the workers in touch", "err", err)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, agent := range agents {
			p.seen[agent] = true // the next tick tries again
		}
		return
	}
	for _, agent := range back {
		p.log.InfoContext(ctx, "a worker claims the tasks of the agent again", "agent", agent)
	}
}

// take returns the agents that were seen, in order, and notes that they are recorded.
func (p *presence) take() []string {
	waiting := p.waiting()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range waiting {
		for _, x := range c.agents {
			p.seen[x.name] = true
		}
	}
	agents := slices.Sorted(maps.Keys(p.seen))
	for _, agent := range agents {
		p.recorded[agent] = time.Now()
	}
	clear(p.seen)
	return agents
}
