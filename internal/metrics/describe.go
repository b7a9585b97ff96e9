package metrics

import (
	"context"

	"github.com/a2ad/a2ad/internal/budget"
	"github.com/a2ad/a2ad/internal/push"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/schedules"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// describe lists the metrics of the sources.
func (s *sources) describe() {
	s.add("gauge", "a2ad_ready",
		"1 if this replica is ready, as /readyz says, else 0.",
		nil, one(func() float64 { return flag(s.Ready(context.Background())) }))
	s.describeTasks()
	s.describeWork()
	s.describeSteps()
	s.describeUsage()
	s.describeSchedules()
	s.describeUnreachable()
	s.describeStreams()
	s.describePush()
	s.describePools()
	s.describeDatabase()
	s.describeSweeps()
	s.describeTables()
	s.describeMemory()
}

func (s *sources) describeTasks() {
	s.add("gauge", "a2ad_tasks",
		"Tasks in each state, over all replicas. Counted every 15 s. The number of ended tasks is "+
			"estimated from a sample if there are more than some hundred thousand.",
		[]string{"state"}, func(show report) {
			if counts, ok := s.tasks.get(); ok {
				for _, state := range tasks.States {
					show(float64(counts[state]), state.String())
				}
			}
		})
	s.add("counter", "a2ad_task_transitions_total",
		"Times that this replica set each state. Every claim sets working, also that of a retry.",
		[]string{"state"}, func(show report) {
			counts := s.Store.Tasks.Counts()
			for _, state := range tasks.States {
				show(float64(counts.Entered[state]), state.String())
			}
		})
	s.add("gauge", "a2ad_queue_tasks",
		"Tasks that wait for a worker and may be claimed now, over all replicas. "+
			"Tasks of agents that this replica does not serve count as other.",
		[]string{"agent"},
		s.queues(func(q operate.Queue) float64 {
			return float64(q.Waiting)
		}, func(a, b float64) float64 { return a + b }))
	s.add("gauge", "a2ad_queue_oldest_seconds",
		"How long the first task in the queue of each agent has waited since it could be claimed; "+
			"0 if there is none.",
		[]string{"agent"},
		s.queues(func(q operate.Queue) float64 { return q.Oldest }, func(a, b float64) float64 { return max(a, b) }))
	s.add("gauge", "a2ad_tasks_parked",
		"Tasks whose attempts are used up and that wait for an operator, over all replicas. "+
			"Tasks of agents that this replica does not serve count as other.",
		[]string{"agent"}, s.byAgent(func(g *operate.Gauges, add func(agent string, tasks int64)) {
			for _, p := range g.Parked {
				add(p.Agent, p.Tasks)
			}
		}))
	s.add("gauge", "a2ad_tasks_waiting",
		"Tasks whose agent lets them wait, without a worker, over all replicas. "+
			"Estimated from a sample if there are more than some ten thousand. "+
			"Tasks of agents that this replica does not serve count as other.",
		[]string{"agent"}, s.byAgent(func(g *operate.Gauges, add func(agent string, tasks int64)) {
			for _, w := range g.Waiting {
				add(w.Agent, w.Tasks)
			}
		}))
	s.groups("a2ad_submit_group_size", "New tasks that shared a transaction.",
		func() tasks.Groups { return s.Store.Tasks.Counts().Submits })
	s.groups("a2ad_append_group_size", "Batches of runs that shared a transaction.",
		func() tasks.Groups { return s.Store.Tasks.Counts().Appends })
}

func (s *sources) describeWork() {
	s.add("counter", "a2ad_claims_total",
		"Runs started: by the workers of this process (local), or given to remote workers (remote).",
		[]string{"worker"}, func(show report) {
			stats, _ := s.Pool.Stats()
			remote, _ := s.Workers.Attempts()
			show(float64(stats.Claimed), "local")
			show(float64(remote), "remote")
		})
	s.add("counter", "a2ad_attempts_total",
		"Attempts that ended, by agent and outcome: finished, failed (the task failed), retry (the task is tried "+
			"again), released (given back at shutdown, or because the database was not available), canceled, lost "+
			"(the lease was lost), unreachable (the agent could not be reached; the task waits), parked (no attempt "+
			"is left, and the task waits for an operator), waiting (the agent lets its task wait). Remote workers "+
			"report the first four, parked and waiting.",
		[]string{"worker", "agent", "outcome"}, func(show report) {
			for end, n := range s.Pool.Attempts() {
				show(float64(n), "local", end.Agent, end.Outcome)
			}
			_, remote := s.Workers.Attempts()
			for end, n := range remote {
				show(float64(n), "remote", end.Agent, end.Outcome)
			}
		})
	s.add("counter", "a2ad_leases_expired_total",
		"Leases that expired, or whose replica was gone, and that this replica rescued, "+
			"by what happened to the task: retry, fail, input-required, park.",
		[]string{"fate"}, func(show report) {
			for fate, n := range s.Store.Tasks.Counts().Rescued {
				show(float64(n), fate)
			}
		})
	s.add("counter", "a2ad_executors_abandoned_total",
		"Runs whose executor continued although its context had ended.",
		nil, one(func() float64 { stats, _ := s.Pool.Stats(); return float64(stats.Abandoned) }))
	s.add("gauge", "a2ad_runs",
		"Runs in this process now.",
		nil, one(func() float64 { _, running := s.Pool.Stats(); return float64(running) }))
	s.describeSlots()
}

func (s *sources) describeSteps() {
	s.add("counter", "a2ad_steps_total",
		"Steps that agents have recorded through this replica, by result: ok, failed, retry (failed, and the agent "+
			"tries it again). A wait is no step here.",
		[]string{"agent", "result"}, s.counted(tasks.StepResults,
			func(c *tasks.Counts) map[tasks.AgentCount]uint64 { return c.Steps }))
	s.add("counter", "a2ad_waits_begun_total",
		"Times that an agent has let its task wait.",
		[]string{"agent"}, func(show report) {
			begun := s.Store.Tasks.Counts().WaitsBegun
			for _, agent := range s.Agents() {
				show(float64(begun[tasks.AgentCount{Agent: agent}]), agent)
			}
		})
	s.add("counter", "a2ad_waits_ended_total",
		"Waits that this replica has ended, by what ended them: time, message, signal, tasks (that were called), "+
			"deadline (the task fails), cancel.",
		[]string{"agent", "by"},
		s.counted(tasks.WaitEnds, func(c *tasks.Counts) map[tasks.AgentCount]uint64 { return c.WaitsEnded }))
}

func (s *sources) describeUsage() {
	s.add("counter", "a2ad_usage_tokens_total",
		"Tokens of models that agents have reported through this replica, by kind: input (among them cached_input), "+
			"output (among them reasoning).",
		[]string{"agent", "kind"}, s.counted(tasks.TokenKinds,
			func(c *tasks.Counts) map[tasks.AgentCount]uint64 { return c.UsageTokens }))
	s.add("counter", "a2ad_usage_requests_total",
		"Requests to models that agents have reported through this replica.",
		[]string{"agent"}, func(show report) {
			requests := s.Store.Tasks.Counts().UsageRequests
			for _, agent := range s.Agents() {
				show(float64(requests[tasks.AgentCount{Agent: agent}]), agent)
			}
		})
}

func (s *sources) describeSchedules() {
	s.add("counter", "a2ad_schedule_ticks_total",
		"Ticks of schedules that this replica recorded, by agent and outcome: started (a task), queued or skipped "+
			"(the task of the tick before had not ended), missed (no server was there in time, or the owner had too "+
			"many tasks). A queued tick counts again when it starts.",
		[]string{"agent", "outcome"}, func(show report) {
			counts := s.Store.Schedules.Counts()
			for _, agent := range s.Agents() {
				for _, outcome := range schedules.Outcomes {
					if n, ok := counts[schedules.Count{Agent: agent, Outcome: outcome}]; ok {
						show(float64(n), agent, string(outcome))
					}
				}
			}
		})
	s.add("gauge", "a2ad_schedule_ticks_missed",
		"Ticks of the last hour that were missed: no server was there in time, or the owner had too many tasks. "+
			"Counted over all replicas. Ticks of agents that this replica does not serve count as other.",
		[]string{"agent"}, s.byAgent(func(g *operate.Gauges, add func(agent string, ticks int64)) {
			for _, m := range g.TicksMissed {
				add(m.Agent, m.Ticks)
			}
		}))
}

func (s *sources) describeUnreachable() {
	agent := []string{"agent"}
	s.add("gauge", "a2ad_agent_unreachable",
		"1 if some replica could not reach the agent and no task has reached it since, else 0. "+
			"The same on all replicas that serve the agent.",
		agent, s.unreachable)
	s.add("gauge", "a2ad_agent_breaker_state",
		"The circuit breaker of the agent in this replica: 0 closed, 1 half-open (one task is sent as a probe), "+
			"2 open (none is).",
		agent, func(show report) {
			for name, b := range s.Pool.Breakers() {
				show(flag(b.HalfOpen)+2*flag(b.Open), name)
			}
		})
	s.add("counter", "a2ad_agent_probes_total",
		"Tasks that this replica has sent to find out whether an unreachable agent is back.",
		agent, func(show report) {
			for name, b := range s.Pool.Breakers() {
				show(float64(b.Probes), name)
			}
		})
}

func (s *sources) describeStreams() {
	s.add("gauge", "a2ad_sse_streams",
		"Open streams in this process, over gRPC too, and those that wait to begin.",
		nil, one(s.Engine.Streams))
	s.add("gauge", "a2ad_sse_streams_waiting",
		"Streams that wait for their turn to begin: many after other replicas have stopped, and otherwise none.",
		nil, one(s.Engine.Waiting))
	s.add("counter", "a2ad_stream_poll_hits_total",
		"Times that polling found events that no wake-up had announced: about none in a healthy system.",
		nil, one(s.Follower.PollHits))
	s.add("gauge", "a2ad_listener_up",
		"1 while this process receives wake-ups from other replicas; otherwise it polls.",
		nil, one(func() float64 { return flag(s.Listener.Healthy()) }))
	s.add("counter", "a2ad_listener_reconnects_total",
		"Times that wake-ups were received again after an interruption.",
		nil, one(func() float64 { return float64(s.Listener.Stats().Reconnects) }))
	s.add("counter", "a2ad_wakes_received_total",
		"Notifications received, by kind: all; among them own (sent by this process, ignored) and unreadable.",
		[]string{"kind"}, func(show report) {
			stats := s.Listener.Stats()
			show(float64(stats.Received), "all")
			show(float64(stats.Own), "own")
			show(float64(stats.Unreadable), "unreadable")
		})
	s.add("counter", "a2ad_wake_flushes_total",
		"Statements that sent wake-ups, by result: sent, failed (kept and sent again), "+
			"collapsed (too many keys: every waiter is woken).",
		[]string{"result"}, func(show report) {
			stats := s.Publisher.Stats()
			show(float64(stats.Flushes), "sent")
			show(float64(stats.Failed), "failed")
			show(float64(stats.Collapsed), "collapsed")
		})
	s.add("counter", "a2ad_wakes_sent_total",
		"Notifications sent.",
		nil, one(func() float64 { return float64(s.Publisher.Stats().Payloads) }))
}

func (s *sources) describePush() {
	s.add("counter", "a2ad_push_attempts_total",
		"Requests to webhooks, by result.",
		[]string{"class"}, func(show report) {
			tries, _ := s.Deliverer.Attempts()
			for _, class := range push.Classes {
				show(float64(tries[class]), string(class))
			}
		})
	s.add("gauge", "a2ad_push_in_flight",
		"Webhooks that this process delivers to now.",
		nil, one(func() float64 { _, busy := s.Deliverer.Attempts(); return float64(busy) }))
	s.add("gauge", "a2ad_push_backlog",
		"Webhooks with events to deliver, over all replicas.",
		nil, s.gauge(func(g *operate.Gauges) float64 { return float64(g.PushBacklog) }))
	s.add("gauge", "a2ad_push_oldest_seconds",
		"Age of the oldest event that is not delivered to its webhook yet; 0 if there is none.",
		nil, s.gauge(func(g *operate.Gauges) float64 { return g.PushOldest }))
	s.add("gauge", "a2ad_push_dest_open",
		"Destinations whose circuit breaker is open.",
		nil, s.gauge(func(g *operate.Gauges) float64 { return float64(g.DestinationsOpen) }))
	s.add("gauge", "a2ad_push_dest_disabled",
		"Destinations that are disabled until an operator enables them.",
		nil, s.gauge(func(g *operate.Gauges) float64 { return float64(g.DestinationsOff) }))
}

func (s *sources) describePools() {
	pools := func(read func(p db.PoolStat) float64) func(report) {
		return func(show report) {
			for _, p := range s.Store.DB.Pools() {
				show(read(p), p.Name)
			}
		}
	}
	pool := []string{"pool"}
	s.add("gauge", "a2ad_db_pool_max",
		"Most connections of a pool. The pool api reads for callers, worker writes, claim claims tasks, "+
			"renew renews leases.",
		pool, pools(func(p db.PoolStat) float64 { return float64(p.MaxConns()) }))
	s.add("gauge", "a2ad_db_pool_acquired",
		"Connections in use.",
		pool, pools(func(p db.PoolStat) float64 { return float64(p.AcquiredConns()) }))
	s.add("gauge", "a2ad_db_pool_idle",
		"Idle connections.",
		pool, pools(func(p db.PoolStat) float64 { return float64(p.IdleConns()) }))
	s.add("counter", "a2ad_db_pool_acquires_total",
		"Connections acquired from a pool.",
		pool, pools(func(p db.PoolStat) float64 { return float64(p.AcquireCount()) }))
	s.add("counter", "a2ad_db_pool_waits_total",
		"Times that a connection had to be waited for or opened.",
		pool, pools(func(p db.PoolStat) float64 { return float64(p.Waits) }))
	s.add("counter", "a2ad_db_pool_wait_seconds_total",
		"Time spent waiting for connections.",
		pool, pools(func(p db.PoolStat) float64 { return p.WaitTime.Seconds() }))
	s.add("counter", "a2ad_db_pool_canceled_total",
		"Waits for a connection that were given up.",
		pool, pools(func(p db.PoolStat) float64 { return float64(p.Canceled) }))
}

func (s *sources) describeDatabase() {
	s.add("gauge", "a2ad_db_oldest_transaction_seconds",
		"Age of the oldest transaction that keeps dead rows from being removed (its xmin), as far as the login "+
			"may see it: pg_read_all_stats sees all.",
		nil, s.gauge(func(g *operate.Gauges) float64 { return g.OldestTransaction }))
	s.add("gauge", "a2ad_db_notification_queue_ratio",
		"How full PostgreSQL's queue of notifications is, 0 to 1. It fills while a listening session does not "+
			"end its transaction.",
		nil, s.gauge(func(g *operate.Gauges) float64 { return g.NotificationQueue }))
	s.describeReplication()
}

func (s *sources) describeSweeps() {
	sweep := []string{"sweep"}
	s.add("counter", "a2ad_swept_total",
		"What this replica has removed because it was old: tasks and logs (of tasks) by retention, and rows of "+
			"attempts, of audit_log, of schedule_ticks, of usage_days and of jobs.",
		sweep, func(show report) {
			for sweep, done := range s.Store.Tasks.Counts().Swept {
				show(float64(done.Removed), sweep.String())
			}
		})
	s.add("gauge", "a2ad_sweep_last_run_timestamp_seconds",
		"When this replica last went through a step of each sweep, whether there was anything to remove or not; "+
			"0 if it has not.",
		sweep, func(show report) {
			for sweep, done := range s.Store.Tasks.Counts().Swept {
				at := 0.0
				if !done.At.IsZero() {
					at = float64(done.At.UnixMilli()) / 1000
				}
				show(at, sweep.String())
			}
		})
}

func (s *sources) describeTables() {
	table := []string{"table"}
	s.add("gauge", "a2ad_db_table_bytes",
		"Size of each table of a2ad, with its indexes.",
		table, s.tables(func(t operate.TableSize) int64 { return t.Bytes }))
	s.add("gauge", "a2ad_db_table_rows",
		"Rows of each table, as the statistics of PostgreSQL have them.",
		table, s.tables(func(t operate.TableSize) int64 { return t.Rows }))
	s.add("gauge", "a2ad_db_table_dead_rows",
		"Dead rows of each table that have not been vacuumed away, as the statistics have them: "+
			"they make the queue slow.",
		table, s.tables(func(t operate.TableSize) int64 { return t.Dead }))
	s.add("counter", "a2ad_db_metrics_failures_total",
		"Reads of metrics from the database that failed; what they would show is missing then.",
		nil, one(func() uint64 { return s.gauges.failures() + s.tasks.failures() }))
}

func (s *sources) describeMemory() {
	s.add("gauge", "a2ad_memory_budget_bytes",
		"Memory that requests and answers may use, by A2AD_MEMORY_BUDGET.",
		nil, one(func() float64 { return float64(s.Budget.Stats().Total) }))
	s.add("gauge", "a2ad_memory_used_bytes",
		"Memory of the budget that is held now.",
		nil, one(func() float64 { return float64(s.Budget.Stats().Used) }))
	s.add("gauge", "a2ad_memory_waiting",
		"Requests and answers that wait for memory now.",
		nil, one(func() float64 { return float64(s.Budget.Stats().Waiting) }))
	s.add("counter", "a2ad_memory_waits_total",
		"Times that one had to wait for memory.",
		nil, one(func() float64 { return float64(s.Budget.Stats().Waits) }))
	s.add("counter", "a2ad_memory_refused_total",
		"Requests and answers that were refused for want of memory, by reason: full (no memory became free in "+
			"time), owner (the caller held its share), too_large (more than one owner may hold), "+
			"evicted (a body that arrived slowly made room for others).",
		[]string{"reason"}, func(show report) {
			refused := s.Budget.Stats().Refused
			for _, reason := range budget.Reasons {
				show(float64(refused[reason]), reason)
			}
		})
}
