// Package worker runs the agents: it claims waiting tasks, runs their executors under the
// lease, writes down what they report and gives back what it cannot finish.
//
// A run writes only through its lease, which the store fences. A worker that cannot renew
// its leases stops its runs by its own clock before anybody else may have them. No
// transaction is open while agent code runs.
package worker

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/attempt"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/tracing"
)

// Hub tells when to look again.
type Hub interface {
	Wait(key string) (wake <-chan struct{}, stop func())
	Watch(key string, wake func()) (stop func())
	Wake(keys ...string)
}

// Agent is one agent with the program that does its work. Without an executor its tasks are
// left to workers far away.
type Agent struct {
	*a2a.Agent
	Executor executor.Executor
}

// Config sets a Pool up.
type Config struct {
	Worker       string // the name of this replica, as the store has it
	Slots        int    // executors at once; 0: none
	Agents       []Agent
	Limits       a2a.Limits    // of agents that set none; LeaseTTL and MaxAttempts must be set
	Poll         time.Duration // how often to look for work without a wake
	Drain        time.Duration // how long runs may go on after the stop
	Abandon      time.Duration // how long to wait for an executor whose context has ended; 0: 5 s
	MaxBytes     int64         // per task; 0: no limit
	MaxSeq       int64         // events per task; 0: no limit
	MaxArtifacts int           // per task; 0: no limit
	Logger       *slog.Logger
	Tracer       *tracing.Tracer // nil: there are no traces
}

// Pool is the worker of one process. Use New.
type Pool struct {
	cfg     Config
	store   *store.Store
	hub     Hub
	freed   chan struct{} // capacity 1: a slot is free again
	changed chan struct{} // capacity 1: queues are others, for the claim loop
	claims  atomic.Bool   // the last claim went through
	ended   attempt.Tally // of runs

	mu       sync.Mutex
	queues   []*queue                // guarded by mu; replaced and never changed
	deaf     []string                // guarded by mu; agents of now that need not hear of cancels; replaced and never changed
	places   map[string]*place       // guarded by mu; of every agent that there was
	policies map[string]store.Policy // guarded by mu; of every agent that there was
	running  map[a2a.ID]*run         // guarded by mu
	working  int                     // guarded by mu; slots of runs whose executor has not ended
	held     int                     // guarded by mu; slots promised to runs that are about to start
	// begin starts a run in a slot that is held. It is nil unless Run claims. Guarded by mu.
	begin   func(q *queue, l *store.Lease, in store.Input, asked time.Time)
	wished  time.Time      // guarded by mu; when a cancel was last heard of
	stats   Stats          // guarded by mu
	keepers *keepers       // guarded by mu; set before begin
	wg      sync.WaitGroup // of slots that are held or run; Add under mu while begin is not nil

	renewing sync.WaitGroup // of what goes on until the last run has ended: renewals, and telling of cancels
}

// Stats counts since the start.
type Stats struct {
	Claimed, Finished, Retried, Released, Lost, Abandoned int64
}

// queue is one agent's waiting tasks as the claim loop sees them. When the agent changes
// another one takes its place; runs stay with the one that they began in.
type queue struct {
	Agent
	limits a2a.Limits
	*place
}

// place is what the queues of one name have in common.
type place struct {
	dirty   atomic.Bool // may hold tasks
	due     bool        // holds tasks, as far as is known; of the claim loop
	running int         // guarded by the pool's mu; slots of this agent, with those held
	backlog bool        // guarded by the pool's mu; more may wait than there was room for
}

// New returns a Pool that does nothing until Run.
func New(s *store.Store, hub Hub, cfg Config) *Pool {
	if cfg.Abandon == 0 {
		cfg.Abandon = 5 * time.Second
	}
	p := &Pool{
		cfg: cfg, store: s, hub: hub, freed: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		places: make(map[string]*place), policies: make(map[string]store.Policy), running: make(map[a2a.ID]*run),
	}
	p.set(cfg.Agents)
	return p
}

// SetAgents has the pool work for these agents from now on. Runs that have begun go on as they are, also
// those of agents that are no longer there; what waits for such an agent goes on waiting.
func (p *Pool) SetAgents(list []Agent) {
	p.set(list)
	signal(p.changed)
}

func (p *Pool) set(list []Agent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := make(map[string]bool, len(p.queues))
	for _, q := range p.queues {
		before[q.Name] = true
	}
	var queues []*queue
	var deaf []string
	for _, a := range list {
		if _, ok := a.Executor.(executor.Canceler); !ok {
			deaf = append(deaf, a.Name)
		}
		q := &queue{Agent: a, limits: a.Limits.Or(p.cfg.Limits), place: p.places[a.Name]}
		if q.place == nil {
			q.place = new(place)
			p.places[a.Name] = q.place
		}
		p.policies[a.Name] = store.Policy{Agent: a.Name, Fate: fates[a.OnLostLease], MaxAttempts: q.limits.MaxAttempts}
		if a.Executor == nil {
			continue // others claim its tasks
		}
		p.ended.Serve(a.Name, attempt.LocalOutcomes)
		q.backlog = q.backlog || !before[a.Name]
		queues = append(queues, q)
	}
	p.queues, p.deaf = queues, deaf
}

// current returns the queues to claim from.
func (p *Pool) current() []*queue {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queues
}

func (p *Pool) bounds() attempt.Bounds {
	return attempt.Bounds{Bytes: p.cfg.MaxBytes, Events: p.cfg.MaxSeq, Artifacts: p.cfg.MaxArtifacts}
}

var fates = map[a2a.OnLostLease]string{
	a2a.LostLeaseRetry: "retry", a2a.LostLeaseFail: "fail", a2a.LostLeaseInputRequired: "input-required",
}

// Policies returns what becomes of the agents' tasks whose worker is lost, wherever it was. An agent
// that is no longer there keeps its policy: its tasks may run yet.
func (p *Pool) Policies() []store.Policy {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]store.Policy, 0, len(p.policies))
	for _, name := range slices.Sorted(maps.Keys(p.policies)) {
		out = append(out, p.policies[name])
	}
	return out
}

// Stats returns the counters and how many runs there are now.
func (p *Pool) Stats() (s Stats, running int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats, len(p.running)
}

// Attempts returns how many runs of each agent ended in each way since the start, by attempt.LocalOutcomes.
func (p *Pool) Attempts() map[attempt.End]int64 { return p.ended.All() }

// noteEnd counts the end of a run. Who tried to settle what was another's has lost it.
func (p *Pool) noteEnd(agent, outcome string, err error) {
	if errors.Is(err, store.ErrLeaseLost) {
		outcome = "lost"
	}
	p.ended.Add(agent, outcome)
}

func (p *Pool) count(f func(*Stats)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.stats)
}

// Healthy reports whether the last try to claim went through.
func (p *Pool) Healthy() bool {
	return p.cfg.Slots == 0 || p.claims.Load() || len(p.current()) == 0
}

// Run claims and runs tasks until ctx is done. Then it claims no more, lets runs go on for
// the drain time, ends the rest and gives their tasks back. It returns when all that has
// happened; only executors that ignore their context may be left behind.
func (p *Pool) Run(ctx context.Context) error {
	if p.cfg.Slots == 0 {
		<-ctx.Done()
		return nil
	}
	// Runs and renewals outlive ctx: they end with the drain.
	work, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	renew, stopRenewing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopRenewing()
	canceled, stopListening := p.hub.Wait("cancel:" + p.cfg.Worker) // before anything runs
	defer stopListening()
	keepers := &keepers{pool: p, byTTL: make(map[time.Duration]*keeper)}
	keepers.start = func(one *keeper) { p.renewing.Go(func() { keepers.run(renew, one) }) }
	p.renewing.Go(func() { p.cancelsHeard(renew, canceled, keepers) })
	untold, stopHearing := p.hub.Wait(store.KeyCancels)
	defer stopHearing()
	p.renewing.Go(func() { p.cancelLoop(ctx, untold) })

	p.mu.Lock()
	p.keepers = keepers
	p.begin = func(q *queue, l *store.Lease, in store.Input, asked time.Time) { p.start(work, q, l, in, asked) }
	p.mu.Unlock()
	p.claimLoop(ctx, work)
	p.mu.Lock()
	p.begin = nil
	p.mu.Unlock()
	p.drain(stop)
	stopRenewing()
	p.renewing.Wait()
	return nil
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// settling is how many runs, in slots, there may be when executors end faster than what they
// reported can be written.
const settling = 4

// free returns how many runs of q may start now. The caller holds mu.
func (p *Pool) free(q *queue) int {
	n := p.room()
	if q.limits.Concurrency > 0 {
		n = min(n, q.limits.Concurrency-q.running)
	}
	return max(n, 0)
}

// room returns how many runs may start now, of any agent. The caller holds mu.
func (p *Pool) room() int {
	if p.begin == nil {
		return 0
	}
	return min(p.cfg.Slots-p.working, settling*p.cfg.Slots-len(p.running)) - p.held
}

// hold promises n slots to runs of q that are about to start. The caller holds mu.
func (p *Pool) hold(q *queue, n int) {
	p.held += n
	q.running += n
	p.wg.Add(n)
}

// leave gives slots back that were held and are not needed.
func (p *Pool) leave(q *queue, n int) {
	p.mu.Lock()
	p.held -= n
	q.running -= n
	p.wg.Add(-n)
	p.mu.Unlock()
	signal(p.freed)
}

// Take holds a slot for a new task of an agent, so that the task need not wait in the queue
// and be claimed from there. It refuses while more tasks of the agent may wait than there was
// room for: they came first. What is just on its way into the queue may be overtaken. It also
// refuses for an agent with a limit of its own, which the claim keeps.
func (p *Pool) Take(agent string) (store.Slot, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.queues, func(q *queue) bool { return q.Name == agent })
	if i < 0 || p.queues[i].limits.Concurrency > 0 {
		return store.Slot{}, false
	}
	q := p.queues[i]
	q.backlog = q.backlog || p.free(q) == 0
	if q.backlog {
		return store.Slot{}, false
	}
	p.hold(q, 1)
	begin, asked := p.begin, time.Now()
	return store.Slot{
		TTL: q.limits.LeaseTTL, Deadline: q.limits.Deadline,
		Start: func(l store.Lease, in store.Input) {
			p.count(func(s *Stats) { s.Claimed++ })
			begin(q, &l, in, asked)
		},
		Leave: func() { p.leave(q, 1) },
	}, true
}

func (p *Pool) release(ctx context.Context, leases []store.Lease) {
	held := make([]*store.Lease, len(leases))
	for i := range leases {
		held[i] = &leases[i]
	}
	if err := p.store.Release(ctx, held); err != nil {
		p.cfg.Logger.WarnContext(ctx, "release", "err", err)
		return
	}
	p.count(func(s *Stats) { s.Released += int64(len(held)) })
}

// start runs a task in a slot that is held for it. The claim was asked for at asked: its
// lease may run from then on.
func (p *Pool) start(work context.Context, q *queue, l *store.Lease, in store.Input, asked time.Time) {
	ctx, cancel := context.WithCancelCause(work)
	r := p.newRun(q, l, in, cancel, asked)
	if !r.fence() { // the commit, or the read of the input, took so long that the lease may be over: the rescue has the task
		cancel(nil)
		p.noteEnd(q.Name, "lost", nil)
		p.count(func(s *Stats) { s.Lost++ })
		r.log.WarnContext(work, "run", "outcome", "lost", "attempt", l.Attempt, "late_ms", time.Since(asked).Milliseconds())
		p.leave(q, 1)
		return
	}
	p.mu.Lock()
	if old := p.running[l.TaskID]; old != nil {
		old.cancel(executor.ErrLeaseLost) // no renewal will tell it: it has lost its place here
	}
	p.running[l.TaskID] = r
	p.held--
	p.working++
	k := p.keepers.keep(q.limits.LeaseTTL)
	if p.wished.After(asked) {
		signal(k.kick) // the cancel may have come before its run was known here
	}
	p.mu.Unlock()
	go func() {
		defer p.wg.Done()
		defer p.finish(r)
		r.do(ctx)
	}()
}

// idle frees the slot of a run whose executor has ended: slots bound the work of agents, and
// what is left to do, to write down the end, is not theirs.
func (p *Pool) idle(r *run) {
	p.mu.Lock()
	first := !r.idle
	if first {
		r.idle = true
		p.working--
		r.queue.running--
	}
	p.mu.Unlock()
	if first {
		signal(p.freed)
	}
}

func (p *Pool) newRun(q *queue, l *store.Lease, in store.Input, cancel context.CancelCauseFunc, asked time.Time) *run {
	return &run{
		pool: p, queue: q, lease: l, input: in, cancel: cancel, renewed: asked,
		log: p.cfg.Logger.With("task_id", l.TaskID.String(), "agent", q.Name, "epoch", l.Epoch),
	}
}

func (p *Pool) finish(r *run) {
	r.cancel(nil)
	r.unfence()
	p.idle(r)
	p.mu.Lock()
	// A task that was lost may be back here already, in another run.
	if p.running[r.lease.TaskID] == r {
		delete(p.running, r.lease.TaskID)
	}
	p.mu.Unlock()
	signal(p.freed)
}

// drain waits for the runs, and after a while ends those that are left.
func (p *Pool) drain(stop context.CancelCauseFunc) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.wg.Wait()
	}()
	timer := time.NewTimer(p.cfg.Drain)
	defer timer.Stop()
	select {
	case <-done:
		return
	case <-timer.C:
	}
	stop(executor.ErrShutdown)
	<-done
}
