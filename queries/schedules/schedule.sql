-- ScheduleList reads the schedules of some agents, or of all agents, with the database's time.
-- name: ScheduleList :many
SELECT sqlc.embed(s), clock_timestamp()::timestamptz AS now
FROM a2a.schedules s
WHERE sqlc.arg(all_agents)::boolean OR s.agent = ANY (sqlc.arg(agents)::text[])
ORDER BY s.agent, s.name;

-- ScheduleLock locks a schedule. No row means that there is none.
-- name: ScheduleLock :one
SELECT sqlc.embed(s), clock_timestamp()::timestamptz AS now
FROM a2a.schedules s
WHERE s.agent = sqlc.arg(agent) AND s.name = sqlc.arg(name)
FOR UPDATE;

-- ScheduleTryLock locks a schedule that may have ticks. No row means that it has none now, or that another process has
-- locked it.
-- name: ScheduleTryLock :one
SELECT sqlc.embed(s), clock_timestamp()::timestamptz AS now
FROM a2a.schedules s
WHERE s.agent = sqlc.arg(agent) AND s.name = sqlc.arg(name) AND s.next_tick IS NOT NULL
FOR UPDATE SKIP LOCKED;

-- SchedulePut stores what an agent file says of a schedule.
-- name: SchedulePut :exec
INSERT INTO a2a.schedules AS s (
  agent, name, cron, timezone, message, tenant, owner, overlap, catch_up, jitter, paused, loaded_by, next_tick, next_at)
VALUES (
  sqlc.arg(agent), sqlc.arg(name), sqlc.arg(cron), sqlc.arg(timezone), sqlc.arg(message), sqlc.arg(tenant),
  sqlc.arg(owner), sqlc.arg(overlap), sqlc.arg(catch_up), sqlc.arg(jitter), sqlc.arg(paused), sqlc.arg(loaded_by),
  sqlc.narg(next_tick), sqlc.narg(next_at))
ON CONFLICT (agent, name) DO UPDATE
SET cron = excluded.cron, timezone = excluded.timezone, message = excluded.message, tenant = excluded.tenant,
  owner = excluded.owner, overlap = excluded.overlap, catch_up = excluded.catch_up, jitter = excluded.jitter,
  paused = excluded.paused, loaded_at = clock_timestamp(), loaded_by = excluded.loaded_by, removed_at = NULL,
  -- An operator has paused it since it was read.
  next_tick = CASE WHEN s.paused_at IS NULL THEN excluded.next_tick END,
  next_at = CASE WHEN s.paused_at IS NULL THEN excluded.next_at END;

-- ScheduleRemove keeps a schedule without ticks.
-- name: ScheduleRemove :exec
UPDATE a2a.schedules s
SET removed_at = clock_timestamp(), next_tick = NULL, next_at = NULL, queued_tick = NULL, loaded_at = clock_timestamp(),
  loaded_by = sqlc.arg(loaded_by)
WHERE s.agent = sqlc.arg(agent) AND s.name = sqlc.arg(name);

-- TickSkip records that a queued tick starts no task.
-- name: TickSkip :exec
UPDATE a2a.schedule_ticks t
SET outcome = 'skipped', at = clock_timestamp()
WHERE t.agent = sqlc.arg(agent) AND t.name = sqlc.arg(name) AND t.tick = sqlc.arg(tick) AND t.outcome = 'queued';

-- ScheduleMove stores how far a locked schedule is.
-- name: ScheduleMove :exec
UPDATE a2a.schedules s
SET next_tick = sqlc.narg(next_tick), next_at = sqlc.narg(next_at), queued_tick = sqlc.narg(queued_tick),
  last_tick = sqlc.narg(last_tick), last_task = sqlc.narg(last_task)
WHERE s.agent = sqlc.arg(agent) AND s.name = sqlc.arg(name);

-- SchedulePause stores whether an operator has paused a locked schedule.
-- name: SchedulePause :exec
UPDATE a2a.schedules s
SET paused_at = CASE WHEN sqlc.arg(paused_now)::boolean THEN clock_timestamp() END,
  next_tick = sqlc.narg(next_tick), next_at = sqlc.narg(next_at)
WHERE s.agent = sqlc.arg(agent) AND s.name = sqlc.arg(name);

-- TicksAdd records ticks that start no task now, and returns those that had no record.
-- name: TicksAdd :many
INSERT INTO a2a.schedule_ticks (agent, name, tick, outcome)
SELECT sqlc.arg(agent), sqlc.arg(name), unnest(sqlc.arg(ticks)::timestamptz[]), sqlc.arg(outcome)
ON CONFLICT DO NOTHING
RETURNING tick;

-- TickStart records that a tick has started a task. No row means that it has a record, unless it was queued: then that
-- record is changed.
-- name: TickStart :execrows
INSERT INTO a2a.schedule_ticks AS t (agent, name, tick, outcome, task_id)
VALUES (sqlc.arg(agent), sqlc.arg(name), sqlc.arg(tick), 'started', sqlc.arg(task_id))
ON CONFLICT (agent, name, tick) DO UPDATE
SET outcome = 'started', task_id = excluded.task_id, at = clock_timestamp()
WHERE t.outcome = 'queued';

-- TaskRuns reports whether a task exists and has not ended.
-- name: TaskRuns :one
SELECT EXISTS (SELECT FROM a2a.tasks t WHERE t.id = ANY (ARRAY[sqlc.arg(id)::uuid]) AND NOT a2a.state_terminal(t.state));

-- TicksRecent reads the newest ticks of a schedule.
-- name: TicksRecent :many
SELECT t.tick, t.outcome, t.task_id, t.at
FROM a2a.schedule_ticks t
WHERE t.agent = sqlc.arg(agent) AND t.name = sqlc.arg(name)
ORDER BY t.tick DESC
LIMIT sqlc.arg(max)::int;

-- TicksForget removes up to batch ticks whose record is older than keep. A queued one is not over.
-- name: TicksForget :execrows
DELETE FROM a2a.schedule_ticks d
WHERE d.ctid = ANY (ARRAY(
  SELECT t.ctid
  FROM a2a.schedule_ticks t
  WHERE t.at < (SELECT clock_timestamp() - sqlc.arg(keep)::interval) AND t.outcome <> 'queued'
  ORDER BY t.at
  LIMIT sqlc.arg(batch)::int
));
