package replica

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/agents"
	"github.com/a2ad/a2ad/internal/bulk"
	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/push"
	"github.com/a2ad/a2ad/internal/scheduler"
	"github.com/a2ad/a2ad/internal/stops"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/worker"
	"github.com/a2ad/a2ad/internal/workerapi"
)

// work runs agents: in this process, and in remote workers.
type work struct {
	pool   *worker.Pool
	remote *workerapi.API
	// scheduler makes tasks at the times that agent files name.
	scheduler *scheduler.Scheduler
	// stopped is what operators have stopped.
	stopped *stops.View
	// jobs runs the bulk jobs of operators.
	jobs *bulk.Runner
}

// openWork makes the worker and the API of remote workers. draining ends when no new work is taken.
func (r *Replica) openWork(draining context.Context) *work {
	cfg, limits := &r.cfg, agentLimits(&r.cfg)
	stopped := stops.New(r.database.store.Tasks, r.database.hub, r.log)
	pool := worker.New(r.database.store.Tasks, r.database.hub, worker.Config{
		Worker: r.name, Slots: cfg.Workers, Commands: commandSlots(cfg), MaxHeld: r.budget.Share() / heldShare,
		Agents: r.agents.set.workers(), Limits: limits, Poll: cfg.PollInterval,
		Drain: runGrace(cfg.DrainTimeout), MaxBytes: int64(cfg.MaxTask), MaxSeq: int64(cfg.MaxChunks),
		MaxArtifacts: cfg.MaxArtifacts, MaxSteps: cfg.MaxSteps, MaxDepth: cfg.MaxCallDepth, MaxCalls: cfg.MaxCalls,
		MayCall: r.mayCall, Logger: r.log, Tracer: r.observed.tracer,
		MayStart: func(agent string) bool { return stopped.MayStart(agent, r.name) },
	})
	remote := workerapi.New(r.database.store.Tasks, r.database.hub, workerapi.Config{
		Authenticator: signIn{r.credentials.chain, r}, Sessions: r.credentials.sessions, Agents: r.agents.set.pulled(),
		Limits: limits, Poll: cfg.PollInterval, AnswerTimeout: cfg.WriteTimeout, MaxBytes: int64(cfg.MaxTask),
		MaxSeq: int64(cfg.MaxChunks), MaxArtifacts: cfg.MaxArtifacts, MaxSteps: cfg.MaxSteps,
		MaxCallDepth: cfg.MaxCallDepth, MaxCalls: cfg.MaxCalls, MayCall: r.mayCall, MaxBody: int64(cfg.MaxBody),
		MaxDepth: cfg.MaxJSONDepth, MaxWaiting: cfg.MaxClaims, Drain: draining.Done(), Logger: r.log,
		Tracer: r.observed.tracer, Budget: r.budget, Drained: stopped.Drained,
	})
	stopped.OnChange(pool.Recheck)
	stopped.OnChange(remote.Recheck)
	ticks := scheduler.New(r.database.store.Schedules, r.database.hub, func() []*a2a.Agent {
		return *r.agents.served.Load()
	}, cfg.MaxInFlight, r.log)
	jobs := bulk.New(bulk.Config{
		Store: r.database.store.Jobs, Hub: r.database.hub, Worker: r.name, MoveSecrets: r.moveSecrets, Logger: r.log,
	})
	return &work{pool, remote, ticks, stopped, jobs}
}

// moveSecrets encrypts the secrets of a webhook for the task that a retry makes.
func (r *Replica) moveSecrets(from, to a2a.ID, s webhooks.Secrets) (webhooks.Secrets, error) {
	return push.Move(r.cfg.Keys, from, to, s)
}

// mayCall returns why an agent of this server cannot be called with a message.
func (r *Replica) mayCall(agent string, m *a2a.Message) error {
	served := *r.agents.served.Load()
	i := slices.IndexFunc(served, func(a *a2a.Agent) bool { return a.Name == agent })
	if i < 0 {
		return errors.New("this server has no such agent")
	}
	return agents.CheckInput(served[i], m)
}

// agentLimits are the limits of agents that set none.
func agentLimits(cfg *config.Config) a2a.Limits {
	limits := a2a.Limits{
		MaxAttempts: cfg.MaxAttempts, BackoffBase: cfg.RetryBackoffBase, BackoffMax: cfg.RetryBackoffMax,
		LeaseTTL: cfg.LeaseTTL, Deadline: cfg.RunDeadline, IdleTimeout: cfg.IdleTimeout,
		Unreachable: cfg.UnreachableLimit, OnExhausted: a2a.ExhaustedFail, ParkFor: time.Duration(cfg.ParkFor),
	}
	if cfg.OnExhausted == "park" {
		limits.OnExhausted = a2a.ExhaustedPark
	}
	return limits
}

// runGrace is how long attempts may continue in a drain. The rest of the time is for releasing the tasks
// of those that did not end.
func runGrace(drain time.Duration) time.Duration { return drain - min(drain/4, 2*time.Second) }
