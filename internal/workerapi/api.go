// Package workerapi serves the API of remote workers below /worker/v1: claim runs, report events,
// renew the lease, finish. openapi.json, which it serves, is the contract.
//
// It gives remote workers the promises of a local one: a run belongs to one worker at a time, a
// worker that lost its lease writes nothing, and what was answered is durable. It keeps nothing in
// memory that another replica would need to continue a run. It does not know what workers do.
package workerapi

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/attempt"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/budget"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/tracing"
)

// Hub passes wake-ups on between the parts of this process.
type Hub interface {
	Watch(key string, wake func()) (stop func())
	Wake(keys ...string)
}

// Config sets an API up. Zero durations and sizes take their defaults.
type Config struct {
	Authenticator auth.Authenticator
	Sessions      *auth.Sessions // ends requests whose credential expires or is revoked; nil: nothing does
	Agents        []*a2a.Agent   // agents whose runs remote workers claim
	Limits        a2a.Limits     // of agents that set none; LeaseTTL and MaxAttempts must be set
	MaxBytes      int64          // per task; 0: no limit
	MaxSeq        int64          // events per task; 0: no limit
	MaxArtifacts  int            // per task; 0: no limit
	MaxSteps      int            // per task; 0: no limit
	MaxCallDepth  int            // of calls; 0: no limit
	MaxCalls      int            // per task; 0: no limit
	// MayCall returns why an agent cannot be called with a message. nil: none can.
	MayCall func(agent string, m *a2a.Message) error
	// Drained reports whether an operator wants a worker to claim no more tasks. nil: none.
	Drained       func(worker string) bool
	Poll          time.Duration // how often to poll for tasks; default 1 s
	MaxBody       int64         // default 4 MiB
	MaxDepth      int           // of JSON; default 64
	MaxWaiting    int           // claims that wait at once; default 1000
	AnswerTimeout time.Duration // to write an answer; default 30 s
	// Drain is closed when the server is about to stop. Waiting claims are then answered.
	Drain  <-chan struct{}
	Logger *slog.Logger
	Tracer *tracing.Tracer // nil: no traces
	Budget *budget.Budget  // of memory; nil: no limit
}

func (c *Config) setDefaults() {
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{{&c.Poll, time.Second}, {&c.AnswerTimeout, 30 * time.Second}} {
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	if c.MaxBody == 0 {
		c.MaxBody = 4 << 20
	}
	if c.MaxDepth == 0 {
		c.MaxDepth = 64
	}
	if c.MaxWaiting == 0 {
		c.MaxWaiting = 1000
	}

	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// API answers workers. Use New. Its methods are safe for concurrent use.
type API struct {
	cfg        Config
	store      *tasks.Store
	hub        Hub
	byName     atomic.Pointer[map[string]*agent] // replaced as a whole and never changed
	bounds     attempt.Bounds
	dispatcher *dispatcher
	presence   *presence
	wakeups    *delayedWakeups
	artifacts  artifactCache
	held       heldRuns
	mux        *http.ServeMux
	claims     atomic.Int64
	tally      attempt.Tally // of runs that ended
}

// agent is an agent whose runs remote workers claim.
type agent struct {
	name    string
	limits  a2a.Limits
	removed bool // its runs continue, but no new ones start
}

// New returns an API. Claims are answered while Run runs.
func New(s *tasks.Store, hub Hub, cfg Config) *API {
	cfg.setDefaults()
	a := &API{cfg: cfg, store: s, hub: hub}
	a.bounds = attempt.Bounds{
		Bytes: cfg.MaxBytes, Events: cfg.MaxSeq, Artifacts: cfg.MaxArtifacts, Steps: cfg.MaxSteps,
		Depth: cfg.MaxCallDepth, Children: cfg.MaxCalls, MayCall: cfg.MayCall,
	}
	a.SetAgents(cfg.Agents)
	a.dispatcher = newDispatcher(a)
	a.presence = newPresence(a)
	a.wakeups = newDelayedWakeups(hub)
	a.routes()
	return a
}

// SetAgents replaces the agents. Workers may still report on the runs of removed ones.
func (a *API) SetAgents(list []*a2a.Agent) {
	next := make(map[string]*agent, len(list))
	for name, x := range a.agents() {
		removed := *x
		removed.removed = true
		next[name] = &removed
	}
	for _, x := range list {
		next[x.Name] = &agent{name: x.Name, limits: x.Limits.Or(a.cfg.Limits)}
		a.tally.Serve(x.Name, attempt.RemoteOutcomes)
	}
	a.byName.Store(&next)
	a.held.forget() // their limits may have changed
}

// Recheck makes waiting claims look for tasks again, because an operator has let an agent or a worker continue.
func (a *API) Recheck() {
	a.dispatcher.markAll()
	a.dispatcher.signal()
}

// drained reports whether an operator wants a worker to claim no more tasks. The claim asks the database again.
func (a *API) drained(worker string) bool { return a.cfg.Drained != nil && a.cfg.Drained(worker) }

// Attempts returns how many runs this process has given to remote workers since it started. It also
// returns how many of each agent ended in each of attempt.RemoteOutcomes.
func (a *API) Attempts() (claimed int64, ended map[attempt.End]int64) {
	return a.claims.Load(), a.tally.All()
}

// Present returns the workers that wait for tasks, or have asked for some since the last call: at most
// tasks.MostRemoteWorkers of a tenant.
func (a *API) Present() []tasks.RemoteWorker { return a.presence.takeWorkers() }

func (a *API) agents() map[string]*agent {
	if m := a.byName.Load(); m != nil {
		return *m
	}
	return nil
}

// limitsOf returns the limits of an agent, or the default ones if the agent is not known here.
func (a *API) limitsOf(name string) a2a.Limits {
	if x := a.agents()[name]; x != nil {
		return x.limits
	}
	return a.cfg.Limits
}

// Run gives queued tasks to waiting claims until ctx is done.
func (a *API) Run(ctx context.Context) error {
	defer a.wakeups.stop()
	var background sync.WaitGroup
	defer background.Wait()
	background.Go(func() { a.presence.run(ctx) })
	a.dispatcher.run(ctx)
	return nil
}

// allowed returns the agents that a caller may work for, with what each grants a run.
func (a *API) allowed(p *auth.Principal) map[string]tasks.Terms {
	out := make(map[string]tasks.Terms, len(a.agents()))
	for name, x := range a.agents() {
		if p.MayUse(name) {
			out[name] = tasks.Terms{TTL: x.limits.LeaseTTL, Deadline: x.limits.Deadline}
		}
	}
	return out
}

// choose finds the agents that a claim names. Credentials for some agents do not reveal whether
// others exist.
func (a *API) choose(p *auth.Principal, names []string) ([]*agent, error) {
	var out []*agent
	all := a.agents()
	for _, name := range names {
		if !p.MayUse(name) {
			return nil, a2a.Errorf(a2a.CodeForbidden, "the credentials are not for the agent %s", clip(name))
		}
		x := all[name]
		if x == nil || x.removed {
			return nil, notFound("there is no agent %s for remote workers", clip(name))
		}
		if !slices.Contains(out, x) {
			out = append(out, x)
		}
	}
	return out, nil
}

func clip(s string) string {
	if len(s) > 64 {
		return attempt.CleanText(s[:64]) + "…"
	}
	return s
}
