-- RunningByAgent counts the attempts of each agent that hold a lease.
-- name: RunningByAgent :many
SELECT t.agent, count(*) AS running
FROM a2a.task_leases l
JOIN a2a.tasks t ON t.id = l.task_id
GROUP BY t.agent
ORDER BY t.agent;

-- AgentsSeen lists the agents that remote workers have asked for.
-- name: AgentsSeen :many
SELECT w.agent, w.seen_at
FROM a2a.agent_workers w
ORDER BY w.agent;

-- WorkersBusy lists the workers that hold leases: how many, since when the oldest attempt runs, the newest event of any
-- of them, the oldest of their newest events, and the newest renewal of a lease.
-- name: WorkersBusy :many
SELECT l.worker, count(*) AS running, count(*) FILTER (WHERE l.lease_until < clock_timestamp()) AS expired,
  array_agg(DISTINCT t.agent ORDER BY t.agent)::text[] AS agents,
  min(a.claimed_at)::timestamptz AS oldest, max(t.last_at)::timestamptz AS newest_event,
  min(t.last_at)::timestamptz AS silent_since, max(l.held_at)::timestamptz AS held_at
FROM a2a.task_leases l
JOIN a2a.tasks t ON t.id = l.task_id
JOIN a2a.task_attempts a ON a.task_id = l.task_id AND a.epoch = l.epoch
GROUP BY l.worker
ORDER BY l.worker;

-- WorkersKnown lists the servers and the remote workers that were in touch lately, and for how long they were not.
-- name: WorkersKnown :many
SELECT w.tenant, w.name, w.instance, w.version, w.host, w.agents, w.slots, w.busy, w.busy_share, w.clock_ahead,
  w.commands, w.busy_commands, w.commands_wait, w.started_at, w.seen_at, (extract(epoch FROM clock_timestamp() - w.seen_at) * 1000)::bigint AS quiet_ms
FROM a2a.workers w
ORDER BY w.name, w.tenant, w.instance;

-- CountLanes counts the tasks that wait for a worker, by agent and lane. due are those that may be claimed now.
-- name: CountLanes :many
SELECT r.queue, r.priority AS lane, count(*) AS waiting, count(*) FILTER (WHERE r.run_at <= clock_timestamp()) AS due,
  (extract(epoch FROM clock_timestamp() - min(r.run_at)) * 1000)::bigint AS oldest_ms
FROM a2a.task_ready r
GROUP BY r.queue, r.priority
ORDER BY r.queue, r.priority;
