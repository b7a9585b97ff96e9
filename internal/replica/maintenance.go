package replica

import (
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/lifecycle"
	"github.com/a2ad/a2ad/internal/maintenance"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// waitsPoll is how often a replica looks for waits that are over if a wake-up was lost.
const waitsPoll = 5 * time.Second

// maintenance is the parts that rescue tasks and remove what is old.
func (r *Replica) maintenance() lifecycle.Stage {
	cfg, s, log, limits := &r.cfg, r.database.store, r.log, agentLimits(&r.cfg)
	keepPush := time.Duration(cfg.PushRetention)
	rescuer := &maintenance.Rescuer{
		Store: s.Tasks, Policies: r.work.pool.Policies, Every: cfg.RescueInterval, Logger: log,
		Sessions: &tasks.Sessions{Grace: cfg.RescueGrace},
		Others: tasks.Policy{
			MaxAttempts: limits.MaxAttempts, Parks: limits.OnExhausted == a2a.ExhaustedPark, ParkFor: limits.ParkFor,
		},
	}
	parked := &maintenance.ParkedSweeper{Store: s.Tasks, Logger: log}
	webhooks := &maintenance.WebhookSweeper{
		Store: s.Webhooks, Keep: keepPush, Forget: max(keepPush, cfg.PushDisableAfter),
		Every: cfg.SweepInterval, Logger: log,
	}
	actions := &maintenance.ActionSweeper{
		Store: s.Access, Keep: time.Duration(cfg.AuditRetention), KeepSignIns: time.Duration(cfg.SigninRetention),
		Every: cfg.SweepInterval, Logger: log,
	}
	attempts := &maintenance.AttemptSweeper{
		Store: s.Tasks, Keep: time.Duration(cfg.AttemptRetention), Every: cfg.SweepInterval, Logger: log,
	}
	ticks := &maintenance.TickSweeper{
		Store: s.Schedules, Keep: time.Duration(cfg.AuditRetention), Every: cfg.SweepInterval, Logger: log,
	}
	jobs := &maintenance.JobSweeper{
		Store: s.Jobs, Keep: time.Duration(cfg.AuditRetention), Every: cfg.SweepInterval, Logger: log,
	}
	usage := &maintenance.UsageSummer{Store: s.Tasks, Keep: time.Duration(cfg.AuditRetention), Logger: log}
	unreachable := &maintenance.UnreachableSweeper{Store: s.Tasks, Agents: r.limitsOfPulled, Logger: log}
	waits := &maintenance.Waits{Store: s.Tasks, Wait: r.database.hub.Wait, Every: waitsPoll, Logger: log}
	calls := &maintenance.Calls{Store: s.Tasks, Wait: r.database.hub.Wait, Logger: log}
	batches := &maintenance.BatchSweeper{Store: s.Tasks, Logger: log}
	retirer := &maintenance.Retirer{Store: s.Tasks, Rules: r.retention, Every: cfg.RetireInterval, Logger: log}
	return lifecycle.Stage{
		{Name: "rescue", Run: rescuer.Run},
		{Name: "parked tasks", Run: parked.Run},
		{Name: "waits", Run: waits.Run},
		{Name: "calls", Run: calls.Run},
		{Name: "batch ids", Run: batches.Run},
		{Name: "audit log", Run: actions.Run},
		{Name: "attempts", Run: attempts.Run},
		{Name: "sweep", Run: webhooks.Run},
		{Name: "ticks", Run: ticks.Run},
		{Name: "old jobs", Run: jobs.Run},
		{Name: "usage", Run: usage.Run},
		{Name: "unreachable agents", Run: unreachable.Run},
		{Name: "retention", Run: retirer.Run},
	}
}

// limitsOfPulled returns the limits of agents whose tasks remote workers claim.
func (r *Replica) limitsOfPulled() map[string]a2a.Limits {
	limits, pulled := agentLimits(&r.cfg), make(map[string]a2a.Limits)
	for _, a := range *r.agents.pulled.Load() {
		pulled[a.Name] = a.Limits.Or(limits)
	}
	return pulled
}

// retention says how long finished tasks are kept: by agent, and for all other agents.
func (r *Replica) retention() (rules map[string]a2a.Retention, others a2a.Retention) {
	keep := time.Duration(r.cfg.Retention)
	others = a2a.Retention{
		Completed: keep, Failed: keep, Canceled: keep, Rejected: keep, Log: time.Duration(r.cfg.LogRetention),
	}
	rules = make(map[string]a2a.Retention)
	for _, a := range *r.agents.served.Load() {
		rules[a.Name] = a.Retention.Or(others)
	}
	return rules, others
}
