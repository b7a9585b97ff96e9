-- Webhooks with something to deliver are ready or parked. A claim reads the oldest few that are ready, of all tenants
-- and, if there are many, of each tenant. A webhook whose destination cannot take it now is parked: it is then in the
-- list of its destination (push_parked). Claims poll a list when the destination can take something.

-- PushPoll reads what a claim begins with. It walks over dead index entries after the floor, as a claim does.
-- Part 0 is one row: at is the next_attempt_at of the first webhook that is ready, leased or not. If none is due
-- (empty), it is the time of this statement.
-- Part 1 are the lists that are due, in their order, at being their look_at. blocked means that the breaker of the
-- destination is open, or that the destination is disabled.
-- name: PushPoll :many
(
  SELECT 0::int AS part, ''::text AS tenant, ''::text AS origin,
    coalesce(w.next_attempt_at, statement_timestamp())::timestamptz AS at,
    (w.next_attempt_at IS NULL)::boolean AS empty, false AS blocked
  FROM (SELECT 1) x
  LEFT JOIN LATERAL (
    SELECT c.next_attempt_at
    FROM a2a.push_configs c
    WHERE c.state = 'active' AND c.deleted_at IS NULL AND c.cursor_seq < c.head_seq AND NOT c.parked
      AND c.next_attempt_at >= sqlc.arg(floor)::timestamptz
      AND c.next_attempt_at <= statement_timestamp()
    ORDER BY c.next_attempt_at
    LIMIT 1
  ) w ON true
)
UNION ALL
(
  SELECT 1, x.tenant, x.origin, x.look_at, false,
    coalesce(d.disabled_at IS NOT NULL OR d.open_until > statement_timestamp(), false)::boolean
  FROM (
    (
      SELECT p.tenant, p.origin, p.look_at
      FROM a2a.push_parked p
      WHERE p.look_at <= statement_timestamp()
      ORDER BY p.look_at
      LIMIT sqlc.arg(max)::int
    )
    UNION ALL
    (
      -- No statement sets look_at further ahead than a minute: the clock was set back since.
      SELECT p.tenant, p.origin, p.look_at
      FROM a2a.push_parked p
      WHERE p.look_at > statement_timestamp() + interval '1 minute'
      ORDER BY p.look_at
      LIMIT sqlc.arg(max)
    )
  ) x
  LEFT JOIN a2a.push_destinations d ON d.tenant = ANY (ARRAY[x.tenant]) AND d.origin = ANY (ARRAY[x.origin])
  ORDER BY x.look_at
  LIMIT sqlc.arg(max)
);

-- PushListsWait delays the next poll of lists: while the breaker is open, but at most for a minute. A list whose
-- breaker is closed goes to the end of the order.
-- name: PushListsWait :exec
UPDATE a2a.push_parked p
SET look_at = least(
  clock_timestamp() + interval '1 minute',
  CASE WHEN x.disabled THEN 'infinity' ELSE greatest(x.open_until, clock_timestamp()) END)
FROM (
  SELECT n.tenant, n.origin, n.look_at, d.open_until, coalesce(d.disabled_at IS NOT NULL, false) AS disabled
  FROM (
    SELECT unnest(sqlc.arg(tenants)::text[]) AS tenant, unnest(sqlc.arg(origins)::text[]) AS origin,
      unnest(sqlc.arg(look_ats)::timestamptz[]) AS look_at
  ) n
  LEFT JOIN a2a.push_destinations d ON d.tenant = ANY (ARRAY[n.tenant]) AND d.origin = ANY (ARRAY[n.origin])
  ORDER BY 1, 2
) x
WHERE p.tenant = ANY (ARRAY[x.tenant])
  AND p.origin = ANY (ARRAY[x.origin])
  -- A list that became due meanwhile has another look_at, and stays due. As a plain comparison this would make the
  -- planner use the index by look_at.
  AND p.look_at - x.look_at = interval '0';

-- PushListDue makes the list of a destination due now, because the destination can take something again.
-- name: PushListDue :exec
UPDATE a2a.push_parked p
SET look_at = clock_timestamp()
WHERE p.tenant = sqlc.arg(tenant) AND p.origin = sqlc.arg(origin) AND p.look_at > clock_timestamp();

-- PushListLock locks a list that seemed to be empty. It reads no row when another transaction has locked the list.
-- name: PushListLock :execrows
SELECT
FROM a2a.push_parked p
WHERE p.tenant = sqlc.arg(tenant) AND p.origin = sqlc.arg(origin)
FOR UPDATE SKIP LOCKED;

-- PushListDrop removes the list of a destination that has no parked webhooks. It is a second statement after the lock,
-- so it sees what was parked before the lock.
-- name: PushListDrop :execrows
DELETE FROM a2a.push_parked p
WHERE p.tenant = sqlc.arg(tenant)
  AND p.origin = sqlc.arg(origin)
  AND NOT EXISTS (
    SELECT
    FROM a2a.push_configs c
    WHERE c.tenant = sqlc.arg(tenant)
      AND c.origin = sqlc.arg(origin)
      AND c.state = 'active' AND c.deleted_at IS NULL AND c.cursor_seq < c.head_seq AND c.parked
    OFFSET 0);

-- PushTenants reads which tenants have ready webhooks, due or not. It walks over dead index entries, so it must be
-- called rarely.
-- name: PushTenants :many
WITH RECURSIVE t AS (
  -- From each tenant to the next one, by the index of ready webhooks.
  (
    SELECT c.tenant
    FROM a2a.push_configs c
    WHERE c.state = 'active' AND c.deleted_at IS NULL AND c.cursor_seq < c.head_seq AND NOT c.parked
      AND c.tenant > sqlc.arg(after)::text
    ORDER BY c.tenant, c.next_attempt_at
    LIMIT 1
  )
  UNION ALL
  SELECT (
    SELECT c.tenant
    FROM a2a.push_configs c
    WHERE c.state = 'active' AND c.deleted_at IS NULL AND c.cursor_seq < c.head_seq AND NOT c.parked
      AND c.tenant > t.tenant
    ORDER BY c.tenant, c.next_attempt_at
    LIMIT 1)
  FROM t
  WHERE t.tenant IS NOT NULL
)
SELECT t.tenant::text AS tenant
FROM t
WHERE t.tenant IS NOT NULL
LIMIT sqlc.arg(max)::int;

-- PushFront reads webhooks that a claim may claim. It locks nothing. The floor is the next_attempt_at below which the
-- caller has seen no ready webhook (PushPoll). blocked webhooks are ready, but their destination can take nothing.
-- Part 1 are the oldest ready ones, part 2 the oldest of each tenant, and part 3 the oldest of each list.
-- name: PushFront :many
WITH front AS MATERIALIZED (
  SELECT c.id, c.tenant, c.origin, 1 AS part
  FROM a2a.push_configs c
  WHERE c.state = 'active' AND c.deleted_at IS NULL AND c.cursor_seq < c.head_seq AND NOT c.parked
    AND c.next_attempt_at >= sqlc.arg(floor)::timestamptz
    AND c.next_attempt_at <= statement_timestamp()
    AND (c.lease_until IS NULL OR c.lease_until <= statement_timestamp())
  ORDER BY c.next_attempt_at
  LIMIT sqlc.arg(most)::int
), fair AS MATERIALIZED (
  SELECT x.id, x.tenant, x.origin, 2 AS part
  FROM (SELECT unnest(sqlc.arg(tenants)::text[]) AS tenant) t,
  LATERAL (
    SELECT c.id, c.tenant, c.origin
    FROM a2a.push_configs c
    WHERE c.state = 'active' AND c.deleted_at IS NULL AND c.cursor_seq < c.head_seq AND NOT c.parked
      -- Only the index of tenants has rows in this order: the oldest are read, and no more.
      AND (c.tenant, c.next_attempt_at) >= (t.tenant, sqlc.arg(floor))
      AND (c.tenant, c.next_attempt_at) <= (t.tenant, statement_timestamp())
      AND (c.lease_until IS NULL OR c.lease_until <= statement_timestamp())
    ORDER BY c.tenant, c.next_attempt_at
    LIMIT sqlc.arg(each)::int
  ) x
), lists AS MATERIALIZED (
  SELECT x.id, x.tenant, x.origin, 3 AS part
  FROM (
    SELECT unnest(sqlc.arg(list_tenants)::text[]) AS tenant, unnest(sqlc.arg(list_origins)::text[]) AS origin
  ) l,
  LATERAL (
    SELECT c.id, c.tenant, c.origin
    FROM a2a.push_configs c
    WHERE c.state = 'active' AND c.deleted_at IS NULL AND c.cursor_seq < c.head_seq AND c.parked
      AND c.tenant = l.tenant
      AND c.origin = l.origin
    ORDER BY c.tenant, c.origin, c.next_attempt_at
    LIMIT sqlc.arg(each)
  ) x
)
SELECT x.id, x.tenant, x.origin, x.part::int AS part,
  (x.part < 3 AND coalesce(d.disabled_at IS NOT NULL OR d.open_until > statement_timestamp(), false))::boolean
    AS blocked
FROM (SELECT * FROM front UNION ALL SELECT * FROM fair UNION ALL SELECT * FROM lists) x
LEFT JOIN a2a.push_destinations d ON d.tenant = ANY (ARRAY[x.tenant]) AND d.origin = ANY (ARRAY[x.origin])
ORDER BY x.part;

-- PushOriginsTry locks origins for the rest of the transaction: one claim at a time counts and fills each, so that the
-- cap is exact. It does not wait; mine is false for an origin that another claim has locked. It is a statement of its
-- own, so that the claim takes its snapshot after it.
-- name: PushOriginsTry :many
SELECT o.origin::text AS origin, pg_try_advisory_xact_lock(sqlc.arg(class)::int, hashtext(o.origin)) AS mine
FROM (SELECT unnest(sqlc.arg(origins)::text[]) AS origin) o
-- A bitmap scan of the leases would read the entries of all that ended since the last vacuum; an index scan marks them
-- as dead, and the next one skips them.
WHERE set_config('enable_bitmapscan', 'off', true) IS NOT NULL;

-- PushOriginWait locks one origin, as the first statement of the transaction. It waits.
-- name: PushOriginWait :exec
SELECT pg_advisory_xact_lock(sqlc.arg(class)::int, hashtext(sqlc.arg(origin)::text));

-- PushClaim claims at most max of these webhooks: at most the cap of each of the origins at once, which the caller has
-- locked, and none to a destination whose breaker is open. A destination whose breaker was open gets a single probe.
-- Tenants, and then the destinations of each, take turns. It chooses up to which event each delivers next; target_seq 0
-- means that it saw none of the events (PushTarget).
-- name: PushClaim :many
WITH busy AS MATERIALIZED (
  SELECT b.tenant, b.origin, count(*) AS n
  FROM a2a.push_configs b
  WHERE b.lease_until > statement_timestamp()
  GROUP BY b.tenant, b.origin
), origin AS (
  SELECT unnest(sqlc.arg(origins)::text[]) AS origin, unnest(sqlc.arg(caps)::bigint[]) AS cap
), own AS (
  -- The number of each webhook in its destination, and how many the destination may take.
  SELECT c.id, c.tenant, c.origin, c.next_attempt_at, o.cap,
    row_number() OVER (PARTITION BY c.tenant, c.origin ORDER BY c.next_attempt_at, c.id) AS rn,
    CASE
      WHEN d.disabled_at IS NOT NULL OR d.open_until > statement_timestamp() THEN 0
      WHEN d.open_until IS NOT NULL
          AND EXISTS (SELECT FROM busy b WHERE b.tenant = c.tenant AND b.origin = c.origin)
        THEN 0
      WHEN d.open_until IS NOT NULL THEN 1
      ELSE o.cap END AS room
  FROM a2a.push_configs c
  JOIN origin o ON o.origin = c.origin || '' -- an expression, so that no index by origin is used
  LEFT JOIN a2a.push_destinations d ON d.tenant = ANY (ARRAY[c.tenant]) AND d.origin = ANY (ARRAY[c.origin])
  WHERE c.id = ANY (sqlc.arg(ids)::uuid[])
), shared AS (
  -- Its number in the origin, which tenants share.
  SELECT o.*,
    row_number() OVER (PARTITION BY o.origin ORDER BY o.rn, o.next_attempt_at, o.id)
      + coalesce((SELECT sum(b.n) FROM busy b WHERE b.origin = o.origin), 0) AS number
  FROM own o
  WHERE o.rn <= o.room
), candidate AS (
  SELECT s.*, row_number() OVER (PARTITION BY s.tenant ORDER BY s.number, s.next_attempt_at, s.id) AS turn
  FROM shared s
  WHERE s.number <= s.cap
), pick AS (
  -- The ids are as old as the statement that read them, and a webhook may have been deleted since. So every condition
  -- is tested again, in the row that is locked. The conditions are not those of a partial index: the planner would walk
  -- over that instead of looking up the id.
  SELECT c.id
  FROM a2a.push_configs c
  JOIN candidate n ON c.id = ANY (ARRAY[n.id])
  WHERE c.origin = ANY (ARRAY[n.origin])
    AND c.state = 'active'
    AND coalesce(c.deleted_at, 'infinity') = 'infinity'
    AND c.cursor_seq < c.head_seq
    AND (c.parked OR c.next_attempt_at <= statement_timestamp())
    AND coalesce(c.lease_until, '-infinity') <= statement_timestamp()
  ORDER BY n.turn, c.next_attempt_at, c.id
  LIMIT sqlc.arg(max)::int
  FOR UPDATE OF c SKIP LOCKED
)
UPDATE a2a.push_configs c
SET lease_until = clock_timestamp() + sqlc.arg(lease)::interval, lease_epoch = c.lease_epoch + 1, parked = false,
  -- The next state that a receiver must not miss, else the newest event. A failed attempt is repeated with the target
  -- that it had. This statement may see fewer events than there are up to the head of the row that it has locked. It
  -- sees all up to the newest that it sees, so that bounds the target. If that is at the cursor, there is no target.
  target_seq = coalesce(
    c.target_seq,
    (
      SELECT min(e.seq)
      FROM a2a.task_events e
      WHERE e.task_id = c.task_id AND e.seq > c.cursor_seq AND e.seq <= c.head_seq AND a2a.state_ends_turn(e.state)),
    (
      SELECT max(e.seq)
      FROM a2a.task_events e
      WHERE e.task_id = c.task_id AND e.seq > c.cursor_seq AND e.seq <= c.head_seq))
FROM pick
WHERE c.id = ANY (ARRAY[pick.id])
RETURNING c.id, c.task_id, c.config_id, c.tenant, c.owner, c.agent, c.url, c.query, c.origin, c.schemes, c.token,
  c.credentials, c.wire_version, c.cursor_seq, c.attempt, c.lease_epoch, coalesce(c.target_seq, 0)::bigint AS target_seq,
  (c.cursor_seq < c.replay_seq)::boolean AS manual,
  coalesce((SELECT t.traceparent FROM a2a.tasks t WHERE t.id = c.task_id), '')::text AS traceparent;

-- PushListAdd adds lists for destinations and locks them for the rest of the transaction. It waits for other
-- transactions that do the same; all of them lock in one order.
-- name: PushListAdd :exec
INSERT INTO a2a.push_parked AS p (tenant, origin, look_at)
SELECT n.tenant, n.origin, clock_timestamp()
FROM (SELECT unnest(sqlc.arg(tenants)::text[]) AS tenant, unnest(sqlc.arg(origins)::text[]) AS origin) n
ORDER BY 1, 2
ON CONFLICT (tenant, origin) DO UPDATE SET look_at = p.look_at;

-- PushPark parks webhooks of destinations: the given ones, and those among the oldest ready ones. It follows
-- PushListAdd in its transaction.
-- name: PushPark :execrows
WITH destination AS (
  SELECT unnest(sqlc.arg(tenants)::text[]) AS tenant, unnest(sqlc.arg(origins)::text[]) AS origin
), due AS MATERIALIZED (
  SELECT c.id, c.tenant, c.origin
  FROM a2a.push_configs c
  WHERE c.state = 'active' AND c.deleted_at IS NULL AND c.cursor_seq < c.head_seq AND NOT c.parked
    AND c.next_attempt_at >= sqlc.arg(floor)::timestamptz
    AND c.next_attempt_at <= statement_timestamp()
  ORDER BY c.next_attempt_at
  LIMIT sqlc.arg(most)::int
), candidate AS (
  SELECT due.id
  FROM due
  JOIN destination d ON d.tenant = due.tenant AND d.origin = due.origin
  UNION
  SELECT unnest(sqlc.arg(ids)::uuid[])
), pick AS (
  -- Every condition is tested again in the row that is locked, as in PushClaim.
  SELECT c.id
  FROM a2a.push_configs c
  JOIN candidate n ON c.id = ANY (ARRAY[n.id])
  WHERE (c.tenant, c.origin) IN (SELECT d.tenant, d.origin FROM destination d)
    AND c.state = 'active'
    AND coalesce(c.deleted_at, 'infinity') = 'infinity'
    AND c.cursor_seq < c.head_seq
    AND c.parked IS NOT TRUE
    AND c.next_attempt_at <= statement_timestamp()
    AND coalesce(c.lease_until, '-infinity') <= statement_timestamp()
  FOR UPDATE OF c SKIP LOCKED
)
UPDATE a2a.push_configs c
SET parked = true
FROM pick
WHERE c.id = ANY (ARRAY[pick.id]);
