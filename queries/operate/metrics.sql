-- QueueDepths counts the tasks of each agent that wait for a worker and may be claimed, and reads for how many seconds
-- the first of them has waited.
-- name: QueueDepths :many
SELECT q.queue, count(*)::bigint AS waiting,
  extract(epoch FROM clock_timestamp() - min(q.run_at))::float8 AS oldest
FROM a2a.task_ready q
WHERE q.run_at <= (SELECT clock_timestamp())
GROUP BY q.queue;

-- PushBacklog counts the webhooks with something to deliver, and reads how many seconds ago the oldest event that one
-- of them must still deliver was committed. Events that retention has removed are of unknown age.
-- name: PushBacklog :one
SELECT count(*)::bigint AS backlog,
  coalesce(max(extract(epoch FROM clock_timestamp() - e.committed_at)), 0)::float8 AS oldest
FROM a2a.push_configs p
LEFT JOIN a2a.task_events e ON e.task_id = p.task_id AND e.seq = p.cursor_seq + 1
WHERE p.state = 'active' AND p.deleted_at IS NULL AND p.cursor_seq < p.head_seq;

-- DestinationsDownCount counts destinations whose breaker is open, and those that are disabled.
-- name: DestinationsDownCount :one
SELECT (count(*) FILTER (WHERE d.disabled_at IS NULL AND d.open_until > clock_timestamp()))::bigint AS open,
  (count(*) FILTER (WHERE d.disabled_at IS NOT NULL))::bigint AS disabled
FROM a2a.push_destinations d
WHERE d.disabled_at IS NOT NULL OR d.open_until IS NOT NULL;

-- ServerHealth reads for how many seconds the oldest transaction has kept dead rows from being removed, and which share
-- of the queue for notifications is in use. It sees sessions of other logins only with pg_read_all_stats.
-- name: ServerHealth :one
SELECT greatest(
    (
      SELECT max(extract(epoch FROM clock_timestamp() - a.xact_start))
      FROM pg_stat_activity a
      WHERE (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL) AND a.backend_type <> 'autovacuum worker'),
    (
      SELECT max(extract(epoch FROM clock_timestamp() - p.prepared))
      FROM pg_prepared_xacts p),
    0)::float8 AS oldest_transaction,
  pg_notification_queue_usage()::float8 AS notification_queue;

-- CountTicksMissed counts the ticks of each agent that were recorded as missed in the last hour.
-- name: CountTicksMissed :many
SELECT t.agent, count(*) AS ticks
FROM a2a.schedule_ticks t
WHERE t.at BETWEEN (SELECT clock_timestamp() - interval '1 hour') AND (SELECT clock_timestamp()) AND t.outcome = 'missed'
GROUP BY t.agent;
