-- Heartbeat records that a server runs, and that remote workers are in touch with it. A tenant has at most most_remote
-- rows: names that are new beyond that are not recorded. Two servers that do this at the same moment may exceed it.
-- name: Heartbeat :exec
WITH n AS (
  SELECT clock_timestamp() AS now
), server AS (
  INSERT INTO a2a.workers AS w (tenant, name, instance, version, host, agents, slots, busy, busy_share, clock_ahead,
    commands, busy_commands, commands_wait, started_at, seen_at)
  SELECT '', sqlc.arg(name)::text, sqlc.arg(instance)::text, sqlc.arg(version)::text, sqlc.arg(host)::text, '{}',
    sqlc.arg(slots)::int, sqlc.arg(busy)::int, sqlc.arg(busy_share)::real, sqlc.arg(clock)::timestamptz - n.now,
    sqlc.arg(commands)::int, sqlc.arg(busy_commands)::int, coalesce(sqlc.narg(commands_wait)::interval, '0'),
    n.now, n.now
  FROM n
  ON CONFLICT (tenant, name, instance) DO UPDATE
  SET version = excluded.version, slots = excluded.slots, busy = excluded.busy, busy_share = excluded.busy_share,
    clock_ahead = excluded.clock_ahead, commands = excluded.commands, busy_commands = excluded.busy_commands,
    commands_wait = excluded.commands_wait, seen_at = excluded.seen_at
), given AS (
  SELECT unnest(sqlc.arg(tenants)::text[]) AS tenant, unnest(sqlc.arg(names)::text[]) AS name,
    unnest(sqlc.arg(versions)::text[]) AS version, unnest(sqlc.arg(agents)::text[]) AS agents
), remote AS (
  SELECT g.tenant, g.name, g.version, g.agents, g.known,
    row_number() OVER (PARTITION BY g.tenant, g.known ORDER BY g.name) AS nth
  FROM (
    SELECT x.tenant, x.name, x.version, x.agents, (
      SELECT true
      FROM a2a.workers k
      WHERE k.tenant = ANY (ARRAY[x.tenant]) AND k.name = ANY (ARRAY[x.name])
      LIMIT 1) AS known
    FROM given x
  ) g
)
INSERT INTO a2a.workers AS w (tenant, name, instance, version, host, agents, slots, busy, busy_share, clock_ahead,
  started_at, seen_at)
SELECT r.tenant, r.name, '', r.version, '', string_to_array(r.agents, ','), 0, 0, 0, '0', n.now, n.now
FROM n, remote r
WHERE r.known OR r.nth <= sqlc.arg(most_remote)::int - (
    SELECT count(*)
    FROM a2a.workers x
    WHERE x.tenant = ANY (ARRAY[r.tenant]))
ORDER BY r.tenant, r.name -- two servers that lock in one order cannot deadlock
ON CONFLICT (tenant, name, instance) DO UPDATE
SET version = excluded.version, agents = excluded.agents, seen_at = excluded.seen_at;

-- WorkerLeave removes a server that has stopped.
-- name: WorkerLeave :exec
DELETE FROM a2a.workers w
WHERE w.tenant = '' AND w.name = sqlc.arg(name)::text AND w.instance = sqlc.arg(instance)::text;

-- ServersDead lists the servers that were not in touch for a while, and have not removed their rows as servers do that
-- stop.
-- name: ServersDead :many
SELECT w.instance
FROM a2a.workers w
WHERE w.tenant = ANY (ARRAY[''::text]) AND w.seen_at < clock_timestamp() - sqlc.arg(older)::interval
ORDER BY w.instance;

-- ServersGone says of this server, and of each other that has not left, whether no session holds its presence lock. It
-- takes a lock that is free and frees it at once: the server may be about to connect again.
-- name: ServersGone :many
SELECT s.instance::text AS instance,
  (CASE WHEN pg_try_advisory_lock(hashtextextended(s.instance, 0))
    THEN pg_advisory_unlock(hashtextextended(s.instance, 0))
    ELSE false END)::boolean AS gone
FROM (
  (SELECT w.instance
  FROM a2a.workers w
  WHERE w.tenant = ANY (ARRAY[''::text]) AND w.instance <> sqlc.arg(own)::text
  ORDER BY w.seen_at DESC
  LIMIT sqlc.arg(most)::int)
  UNION ALL
  SELECT sqlc.arg(own)
) s;

-- WorkersForget removes what was not in touch for a while. A time in the future was stored before the clock was set
-- back.
-- name: WorkersForget :execrows
DELETE FROM a2a.workers w
WHERE (w.tenant, w.name, w.instance) IN (
  SELECT x.tenant, x.name, x.instance
  FROM a2a.workers x
  WHERE x.seen_at < clock_timestamp() - sqlc.arg(older)::interval
    OR x.seen_at > clock_timestamp() + sqlc.arg(older)
  FOR UPDATE SKIP LOCKED);
