// Package worker runs the agents of one process. It claims queued tasks, runs their executors under
// a lease, records the events that they report, and releases the tasks that it cannot finish.
//
// A run writes only through its lease, and the store refuses writes under a lost lease. A run whose
// lease was not renewed in time ends by the local clock, before another worker may claim its task.
// No transaction is open while agent code runs.
//
// Who does what:
//
//   - claimer.go claims tasks, slots.go says how many may run.
//   - start.go starts a run, run.go runs it, record.go writes its events, finish.go records its end.
//   - renewals.go renews leases.
//   - A run is stopped by its lease timer (leasetimer.go), by a renewal that finds the lease lost or the
//     task canceled (renewals.go), or by the registry: when the task comes back or the drain is over.
//   - breaker.go stops the claims for an agent that cannot be reached, and outages.go probes it.
//   - cancels.go tells agents about canceled tasks that have no run.
package worker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/attempt"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/tracing"
	"github.com/a2ad/a2ad/internal/wake"
)

// Hub delivers wake-ups.
type Hub interface {
	Wait(key string) (wake <-chan struct{}, stop func())
	Watch(key string, wake func()) (stop func())
	Wake(keys ...string)
}

// Config configures a Pool.
type Config struct {
	Worker       string // the name of this replica, as the store has it
	Slots        int    // executors at once; 0: none
	Commands     int    // of these, executors of agents that are commands; 0: as many as Slots
	MaxHeld      int64  // bytes of the tasks that runs may hold, and of one more task; 0: no limit
	Agents       []Agent
	Limits       a2a.Limits    // of agents that set none; LeaseTTL and MaxAttempts must be set
	Poll         time.Duration // how often to poll for tasks without a wake-up
	Drain        time.Duration // how long runs may continue after the stop
	FirstProbe   time.Duration // of an agent that cannot be reached; the time between two probes doubles; 0: 1 s
	LongestProbe time.Duration // the longest time between two probes; 0: 30 s
	Abandon      time.Duration // how long to wait for an executor whose context has ended; 0: 5 s
	MaxBytes     int64         // per task; 0: no limit
	MaxSeq       int64         // events per task; 0: no limit
	MaxArtifacts int           // per task; 0: no limit
	MaxSteps     int           // per task; 0: no limit
	MaxDepth     int           // of calls; 0: no limit
	MaxCalls     int           // per task; 0: no limit
	// MayCall returns why an agent cannot be called with a message. nil: none can.
	MayCall func(agent string, m *a2a.Message) error
	// MayStart reports whether tasks of an agent may be started without a claim, which would ask the database whether
	// an operator has stopped the agent or this worker. nil: they may.
	MayStart func(agent string) bool
	Logger   *slog.Logger
	Tracer   *tracing.Tracer // nil: no traces
}

// Pool is the worker of one process. Use New. Its methods are safe for concurrent use; Run works once.
type Pool struct {
	cfg   Config
	store *tasks.Store
	hub   Hub

	agents   *roster
	slots    *slots
	claimer  *claimer
	runs     *registry
	renewals *renewals
	cancels  *cancels
	outages  *outages
	retries  attempt.Timers // wake the queue when a retry is due

	ended    attempt.Tally // of runs
	counters counters
}

// New returns a Pool that does nothing until Run.
func New(s *tasks.Store, hub Hub, cfg Config) *Pool {
	if cfg.Abandon == 0 {
		cfg.Abandon = 5 * time.Second
	}
	p := &Pool{cfg: cfg, store: s, hub: hub, runs: newRegistry()}
	p.slots = newSlots(cfg.Slots, cmp.Or(cfg.Commands, cfg.Slots), cfg.MaxHeld)
	breakers := make(chan struct{}, 1)
	p.agents = newRoster(cfg.Limits, p.slots, &p.ended, breakers)
	p.claimer = newClaimer(p)
	p.outages = newOutages(p, breakers)
	p.renewals = newRenewals(p)
	p.cancels = newCancels(p)
	p.agents.set(cfg.Agents)
	return p
}

// SetAgents makes the pool work for these agents from now on. Runs that have begun continue unchanged, even
// if their agent was removed. Queued tasks of a removed agent wait until it is added again.
func (p *Pool) SetAgents(list []Agent) {
	p.agents.set(list)
	signal(p.claimer.agentsChanged)
}

// Recheck makes the pool look for tasks in all queues, because an operator has let an agent or a worker continue.
func (p *Pool) Recheck() { signal(p.claimer.agentsChanged) }

// Policies returns what happens to the agents' tasks when a worker is lost, in this process or another. A
// removed agent keeps its policy: its tasks may still be running.
func (p *Pool) Policies() []tasks.Policy { return p.agents.allPolicies() }

// Stats returns the counters and the number of runs now.
func (p *Pool) Stats() (s Stats, running int) { return p.counters.get(), p.runs.len() }

// Load is how much of a pool is in use.
type Load struct {
	Slots int           // executors that may run at once
	Busy  int           // executors that run
	Used  time.Duration // the sum over all slots of the time in which an executor ran in it, since the start

	Commands     int           // executors of commands that may run at once
	BusyCommands int           // executors of commands that run
	Waiting      time.Duration // for how long tasks of commands have waited for a slot
	HeldBytes    int64         // of the tasks of runs
}

// Load returns how much of the pool is in use.
func (p *Pool) Load() Load { return p.slots.load() }

// Attempts returns how many runs of each agent ended in each way since the start, by attempt.LocalOutcomes.
func (p *Pool) Attempts() map[attempt.End]int64 { return p.ended.All() }

// Healthy reports whether the last attempt to claim succeeded.
func (p *Pool) Healthy() bool {
	return p.cfg.Slots == 0 || p.claimer.succeeded.Load() || len(p.agents.current()) == 0
}

// Run claims and runs tasks until ctx is done. Then it claims no more, lets runs continue for the drain
// time, ends the remaining ones and releases their tasks. It returns when all of that has happened. Only
// executors that ignore their context may still run.
func (p *Pool) Run(ctx context.Context) error {
	if p.cfg.Slots == 0 {
		<-ctx.Done()
		return nil
	}
	defer p.retries.Stop()
	// Leases are renewed until the last run has ended, which is after ctx.
	renewing, stopRenewing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopRenewing()
	// Subscribed before anything runs, so that no cancel is missed.
	canceled, unsubscribeRuns := p.hub.Wait(wake.Cancel(p.cfg.Worker))
	defer unsubscribeRuns()
	pending, unsubscribeCancels := p.hub.Wait(wake.Cancels)
	defer unsubscribeCancels()
	var background sync.WaitGroup
	background.Go(func() { p.renewals.run(renewing, canceled) })
	background.Go(func() { p.cancels.run(ctx, pending) })
	background.Go(func() { p.outages.run(ctx) })

	p.slots.open()
	p.claimer.run(ctx)
	p.slots.close()
	p.drain()
	stopRenewing()
	background.Wait()
	return nil
}

// drain waits for the runs, and ends the remaining ones when the drain time is over.
func (p *Pool) drain() {
	timer := time.NewTimer(p.cfg.Drain)
	defer timer.Stop()
	done := p.slots.allFinished()
	select {
	case <-done:
		return
	case <-timer.C:
	}
	p.runs.endAll(executor.ErrShutdown)
	<-done
}

func (p *Pool) bounds() attempt.Bounds {
	return attempt.Bounds{
		Bytes: p.cfg.MaxBytes, Events: p.cfg.MaxSeq, Artifacts: p.cfg.MaxArtifacts, Steps: p.cfg.MaxSteps,
		Depth: p.cfg.MaxDepth, Children: p.cfg.MaxCalls, MayCall: p.cfg.MayCall,
	}
}

// noteEnd counts the end of a run. A run that could not record its end because the lease was lost counts as lost.
func (p *Pool) noteEnd(agent, outcome string, err error) {
	if errors.Is(err, db.ErrLeaseLost) {
		outcome = "lost"
	}
	p.ended.Add(agent, outcome)
}

// release gives leases back without charging an attempt. The reason is for the record of attempts and for the client.
func (p *Pool) release(ctx context.Context, leases []tasks.Lease, reason string) {
	held := make([]*tasks.Lease, len(leases))
	for i := range leases {
		held[i] = &leases[i]
	}
	if err := p.store.Release(ctx, held, reason); err != nil {
		p.cfg.Logger.WarnContext(ctx, "release tasks", "tasks", len(held), "err", err)
		return
	}
	p.counters.count(func(s *Stats) { s.Released += int64(len(held)) })
}

// Stats counts since the start.
type Stats struct {
	Claimed, Finished, Retried, Released, Lost, Abandoned int64
}

// counters are Stats that many runs write. The zero value is ready.
type counters struct {
	mu    sync.Mutex
	stats Stats // guarded by mu
}

func (c *counters) count(change func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.stats)
}

func (c *counters) get() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// signal sends to a channel of capacity 1, unless a signal is pending already.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
