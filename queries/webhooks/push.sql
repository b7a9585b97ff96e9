-- PushHeadMove moves the heads of the webhooks of tasks to their newest events. It is the second statement of every
-- transaction that writes events: in the same statement it would not see a webhook that was set while the append waited
-- for its row lock. It returns how many webhooks it has moved.
-- name: PushHeadMove :execrows
UPDATE a2a.push_configs p
SET head_seq = t.last_seq,
  -- Chunks of artifacts gather for a moment. A status is delivered at once, but never cuts a running backoff short.
  next_attempt_at = CASE
    WHEN p.cursor_seq = p.head_seq
      THEN clock_timestamp() + CASE WHEN n.urgent THEN interval '0' ELSE sqlc.arg(gather)::interval END
    WHEN p.attempt = 0 AND n.urgent THEN least(p.next_attempt_at, clock_timestamp())
    ELSE p.next_attempt_at END
FROM (SELECT unnest(sqlc.arg(task_ids)::uuid[]) AS task_id, unnest(sqlc.arg(urgent)::boolean[]) AS urgent) n
JOIN a2a.tasks t ON t.id = ANY (ARRAY[n.task_id]),
LATERAL (
  SELECT c.id
  FROM a2a.push_configs c
  WHERE c.task_id = n.task_id AND c.deleted_at IS NULL
  OFFSET 0 -- so that the webhooks are looked up for each task
) c
WHERE p.id = ANY (ARRAY[c.id])
  -- Not IS NULL: the planner would walk over the index of webhooks that are not deleted.
  AND coalesce(p.deleted_at, 'infinity') = 'infinity'
  AND p.head_seq < t.last_seq
  -- While the answer may still be a message, the client knows of no task.
  AND (t.reply <> a2a.reply_open() OR a2a.state_ends_turn(t.state));

-- PushOfTaskForCaller lists the webhooks of a task of the caller, oldest first. With an id it reads only that one.
-- name: PushOfTaskForCaller :many
SELECT p.id, p.config_id, p.url, p.schemes, p.state, coalesce(p.reason, '')::text AS reason, p.created_at
FROM a2a.push_configs p
WHERE p.task_id = sqlc.arg(task_id)
  AND p.tenant = sqlc.arg(tenant)
  AND (p.owner = sqlc.arg(owner) OR sqlc.arg(shared)::boolean)
  AND p.deleted_at IS NULL
  AND (sqlc.arg(config_id)::text = '' OR p.config_id = sqlc.arg(config_id))
ORDER BY p.created_at, p.id;

-- PushInsert adds a webhook to a task whose row the transaction has locked or inserted.
-- name: PushInsert :exec
INSERT INTO a2a.push_configs (
  id, task_id, config_id, tenant, owner, agent, url, query, origin, schemes, token, credentials,
  wire_version, state, from_seq, cursor_seq, head_seq, next_attempt_at)
VALUES (
  sqlc.arg(id), sqlc.arg(task_id), sqlc.arg(config_id), sqlc.arg(tenant), sqlc.arg(owner), sqlc.arg(agent),
  sqlc.arg(url), sqlc.narg(query), sqlc.arg(origin), sqlc.arg(schemes)::text[], sqlc.narg(token),
  sqlc.narg(credentials), sqlc.arg(wire_version),
  CASE WHEN sqlc.arg(ended)::boolean THEN 'done' ELSE 'active' END,
  sqlc.arg(from_seq), sqlc.arg(from_seq), sqlc.arg(head_seq)::bigint,
  CASE WHEN sqlc.arg(head_seq) > sqlc.arg(from_seq) THEN clock_timestamp() ELSE 'infinity' END);

-- PushReplace sets a webhook again. Its position in the log stays; its failures are forgotten.
-- name: PushReplace :exec
UPDATE a2a.push_configs p
SET url = sqlc.arg(url), query = sqlc.narg(query), origin = sqlc.arg(origin),
  schemes = sqlc.arg(schemes)::text[], token = sqlc.narg(token), credentials = sqlc.narg(credentials),
  wire_version = sqlc.arg(wire_version), attempt = 0, target_seq = NULL, reason = NULL,
  parked = p.parked AND p.origin = sqlc.arg(origin),
  state = CASE WHEN p.state = 'done' THEN 'done' ELSE 'active' END,
  next_attempt_at = CASE WHEN p.cursor_seq < p.head_seq THEN clock_timestamp() ELSE 'infinity' END
WHERE p.id = sqlc.arg(id)
  -- Not IS NULL: the planner would walk over the index of webhooks that are not deleted.
  AND coalesce(p.deleted_at, 'infinity') = 'infinity';

-- TaskHasPush records that the task has a webhook, in the row that every append locks.
-- name: TaskHasPush :exec
UPDATE a2a.tasks
SET has_push = true
WHERE id = sqlc.arg(id) AND NOT has_push;

-- PushDelete deletes a webhook of the caller. A delivery that was claimed before may still be sent: see PushBusy.
-- name: PushDelete :exec
UPDATE a2a.push_configs p
SET deleted_at = clock_timestamp(), deleted_after_seq = p.head_seq
WHERE p.task_id = sqlc.arg(task_id)
  AND p.config_id = sqlc.arg(config_id)
  AND p.tenant = sqlc.arg(tenant)
  AND (p.owner = sqlc.arg(owner) OR sqlc.arg(shared)::boolean)
  AND p.deleted_at IS NULL;

-- PushBusy reports whether a replica is delivering a webhook of the caller that was deleted, by this request or an
-- earlier one.
-- name: PushBusy :one
SELECT EXISTS (
  SELECT
  FROM a2a.push_configs p
  WHERE p.task_id = sqlc.arg(task_id)
    AND p.config_id = sqlc.arg(config_id)
    AND p.tenant = sqlc.arg(tenant)
    AND (p.owner = sqlc.arg(owner) OR sqlc.arg(shared)::boolean)
    AND coalesce(p.deleted_at, 'infinity') <> 'infinity' -- the predicate of the index push_configs_deleted_task
    AND coalesce(p.lease_until, '-infinity') > clock_timestamp())::boolean AS busy;

-- PushRenew renews the leases that these epochs still have, and returns them. An expired lease is not renewed, even if
-- no other replica has claimed the webhook. It waits for no lock, because an append may lock several webhooks in any
-- order: the next call renews what this one has skipped.
-- name: PushRenew :many
WITH held AS (
  SELECT c.id
  FROM a2a.push_configs c
  JOIN (SELECT unnest(sqlc.arg(ids)::uuid[]) AS id, unnest(sqlc.arg(epochs)::bigint[]) AS epoch) x
    ON c.id = x.id AND c.lease_epoch = x.epoch
  WHERE c.id = ANY (sqlc.arg(ids))
    -- Not lease_until alone: the planner would walk over the index of all leases.
    AND coalesce(c.lease_until, '-infinity') > clock_timestamp()
  FOR UPDATE OF c SKIP LOCKED
)
UPDATE a2a.push_configs c
SET lease_until = clock_timestamp() + sqlc.arg(lease)::interval
FROM held h
WHERE c.id = ANY (ARRAY[h.id])
RETURNING c.id;

-- PushTarget chooses up to which event claimed webhooks deliver next, if the claim saw none of their events. It runs
-- after the claim in its transaction, so that it sees every event up to the heads.
-- name: PushTarget :many
WITH n AS (
  -- The next state that a receiver must not miss, else the newest event.
  SELECT p.id,
    coalesce((
      SELECT min(e.seq)
      FROM a2a.task_events e
      WHERE e.task_id = p.task_id
        AND e.seq > p.cursor_seq
        AND e.seq <= p.head_seq
        AND a2a.state_ends_turn(e.state)), p.head_seq) AS seq
  FROM a2a.push_configs p
  WHERE p.id = ANY (sqlc.arg(ids)::uuid[])
)
UPDATE a2a.push_configs p
SET target_seq = coalesce(p.target_seq, n.seq)
FROM n
WHERE p.id = ANY (ARRAY[n.id])
RETURNING p.id, p.target_seq::bigint AS target_seq;

-- PushDelivered records a delivery, moves the cursor and ends the lease. No row means that the lease was lost.
-- name: PushDelivered :one
UPDATE a2a.push_configs p
SET cursor_seq = p.target_seq, target_seq = NULL, attempt = 0, lease_until = NULL, reason = NULL,
  next_attempt_at = CASE WHEN p.target_seq < p.head_seq THEN clock_timestamp() ELSE 'infinity' END,
  state = CASE WHEN sqlc.arg(terminal)::boolean AND p.target_seq = p.head_seq THEN 'done' ELSE p.state END
WHERE p.id = sqlc.arg(id) AND p.lease_epoch = sqlc.arg(epoch) AND p.target_seq = sqlc.arg(seq)
RETURNING (p.cursor_seq < p.head_seq)::boolean AS more;

-- PushesDelivered records deliveries as PushDelivered, PushAttemptInsert and DestinationUp do, and returns the webhooks
-- that it recorded. It leaves out those whose destination had failed, because its breaker must then be closed. It waits
-- for no lock, because an append may lock several webhooks in any order: the caller records the others one by one.
-- name: PushesDelivered :many
WITH n AS (
  SELECT unnest(sqlc.arg(ids)::uuid[]) AS id, unnest(sqlc.arg(epochs)::bigint[]) AS epoch,
    unnest(sqlc.arg(from_seqs)::bigint[]) AS from_seq, unnest(sqlc.arg(seqs)::bigint[]) AS seq,
    unnest(sqlc.arg(terminal)::boolean[]) AS terminal, unnest(sqlc.arg(attempts)::int[]) AS attempt,
    unnest(sqlc.arg(triggers)::text[]) AS trigger, unnest(sqlc.arg(durations_ms)::int[]) AS duration_ms,
    unnest(sqlc.arg(remote_ips)::text[]) AS remote_ip, unnest(sqlc.arg(statuses)::int[]) AS status,
    unnest(sqlc.arg(answers)::bytea[]) AS answer
), held AS (
  -- The conditions of the lease are tested again in the row that is locked.
  SELECT c.id, n.terminal, n.from_seq, n.seq, n.attempt, n.trigger, n.duration_ms, n.remote_ip, n.status, n.answer
  FROM n
  JOIN a2a.push_configs c ON c.id = ANY (ARRAY[n.id])
  WHERE c.lease_epoch = n.epoch
    AND c.target_seq = n.seq
    AND NOT EXISTS (
      SELECT
      FROM a2a.push_destinations d
      WHERE d.tenant = ANY (ARRAY[c.tenant])
        AND d.origin = ANY (ARRAY[c.origin])
        AND (d.fails > 0 OR d.open_until IS NOT NULL))
  FOR UPDATE OF c SKIP LOCKED
), moved AS (
  UPDATE a2a.push_configs p
  SET cursor_seq = p.target_seq, target_seq = NULL, attempt = 0, lease_until = NULL, reason = NULL,
    next_attempt_at = CASE WHEN p.target_seq < p.head_seq THEN clock_timestamp() ELSE 'infinity' END,
    state = CASE WHEN h.terminal AND p.target_seq = p.head_seq THEN 'done' ELSE p.state END
  FROM held h
  WHERE p.id = ANY (ARRAY[h.id])
  RETURNING p.id, p.task_id, (p.cursor_seq < p.head_seq) AS more, h.from_seq, h.seq, h.attempt, h.trigger,
    h.duration_ms, h.remote_ip, h.status, h.answer
), tried AS (
  INSERT INTO a2a.push_attempts (
    push_id, task_id, from_seq, seq, outcome, attempt, trigger,
    started_at, duration_ms, remote_ip,
    status, answer)
  SELECT m.id, m.task_id, m.from_seq, m.seq, 'delivered', m.attempt, m.trigger,
    clock_timestamp() - make_interval(secs => m.duration_ms / 1000.0), m.duration_ms, nullif(m.remote_ip, ''),
    nullif(m.status, 0), m.answer
  FROM moved m
)
SELECT m.id, m.more::boolean AS more
FROM moved m;

-- PushFailed records a failed attempt and ends the lease. The next attempt is after delay, unless fate, a final state,
-- is not empty. It updates no row when the lease was lost, or when the webhook was set again and so has no target.
-- name: PushFailed :execrows
UPDATE a2a.push_configs p
SET attempt = p.attempt + 1, lease_until = NULL,
  next_attempt_at = clock_timestamp() + sqlc.arg(delay)::interval,
  state = CASE WHEN sqlc.arg(fate)::text = '' THEN p.state ELSE sqlc.arg(fate) END,
  reason = CASE WHEN sqlc.arg(fate) = '' THEN p.reason ELSE sqlc.arg(reason)::text END
WHERE p.id = sqlc.arg(id) AND p.lease_epoch = sqlc.arg(epoch) AND p.target_seq = sqlc.arg(seq);

-- PushReleased ends the lease of a webhook without an attempt.
-- name: PushReleased :exec
UPDATE a2a.push_configs p
SET lease_until = NULL
WHERE p.id = sqlc.arg(id) AND p.lease_epoch = sqlc.arg(epoch);

-- PushAttemptInsert records one delivery attempt, or events that were skipped.
-- name: PushAttemptInsert :exec
INSERT INTO a2a.push_attempts (
  push_id, task_id, from_seq, seq, outcome, attempt, trigger,
  started_at, duration_ms, remote_ip,
  status, class, reason, answer)
VALUES (
  sqlc.arg(push_id), sqlc.arg(task_id), sqlc.arg(from_seq), sqlc.arg(seq), sqlc.arg(outcome), sqlc.arg(attempt),
  sqlc.arg(trigger),
  clock_timestamp() - make_interval(secs => sqlc.arg(duration_ms)::int / 1000.0), sqlc.arg(duration_ms),
  sqlc.narg(remote_ip),
  sqlc.narg(status), sqlc.narg(class), sqlc.narg(reason), sqlc.narg(answer));

-- DestinationUp closes the circuit breaker of a destination. It updates no row when the destination had not failed.
-- name: DestinationUp :execrows
UPDATE a2a.push_destinations
SET fails = 0, openings = 0, first_failure_at = NULL, open_until = NULL, last_error = NULL
WHERE tenant = sqlc.arg(tenant) AND origin = sqlc.arg(origin) AND (fails > 0 OR open_until IS NOT NULL);

-- DestinationDown counts a failure of a destination, and says whether its circuit breaker is open and whether it is
-- disabled. The breaker opens at max_fails failures in a row, and at each failure of a probe, each time for twice as
-- long. After disable_after of failures the destination is disabled.
-- name: DestinationDown :one
INSERT INTO a2a.push_destinations AS d (
  tenant, origin, last_error, fails, first_failure_at, openings, open_until)
VALUES (
  sqlc.arg(tenant), sqlc.arg(origin), sqlc.arg(last_error)::text, 1, clock_timestamp(),
  CASE WHEN sqlc.arg(max_fails)::int <= 1 THEN 1 ELSE 0 END,
  CASE WHEN sqlc.arg(max_fails) <= 1
    THEN clock_timestamp() + least(sqlc.arg(first_open)::interval, sqlc.arg(max_open)::interval) END)
ON CONFLICT (tenant, origin) DO UPDATE
SET fails = d.fails + 1, last_error = excluded.last_error,
  first_failure_at = coalesce(d.first_failure_at, clock_timestamp()),
  -- While the breaker is open, only requests fail that had begun before: they are no probes.
  openings = d.openings + CASE
    WHEN d.fails + 1 >= sqlc.arg(max_fails)::int AND (d.open_until > clock_timestamp()) IS NOT TRUE THEN 1
    ELSE 0 END,
  open_until = CASE
    WHEN d.open_until > clock_timestamp() THEN d.open_until
    WHEN d.fails + 1 >= sqlc.arg(max_fails)
      THEN clock_timestamp()
        + least(sqlc.arg(first_open)::interval * power(2, least(d.openings, 20)), sqlc.arg(max_open)::interval) END,
  disabled_at = CASE
    WHEN d.first_failure_at < clock_timestamp() - sqlc.arg(disable_after)::interval
      THEN coalesce(d.disabled_at, clock_timestamp()) END
RETURNING (d.open_until IS NOT NULL)::boolean AS open, (d.disabled_at IS NOT NULL)::boolean AS disabled;

-- DestinationLock locks a destination before DestinationDown changes it, and says whether it is disabled. No row means
-- that it has never failed.
-- name: DestinationLock :one
SELECT (d.disabled_at IS NOT NULL)::boolean AS disabled
FROM a2a.push_destinations d
WHERE d.tenant = sqlc.arg(tenant) AND d.origin = sqlc.arg(origin)
FOR UPDATE;

-- DestinationEnable closes the circuit breaker of a destination and enables it, for the operator.
-- name: DestinationEnable :execrows
UPDATE a2a.push_destinations
SET fails = 0, openings = 0, first_failure_at = NULL, open_until = NULL, disabled_at = NULL, last_error = NULL
WHERE tenant = sqlc.arg(tenant) AND origin = sqlc.arg(origin);

-- PushList reads webhooks for the operator, newest first. Empty filters select all.
-- name: PushList :many
SELECT p.id, p.task_id, p.config_id, p.tenant, p.owner, p.url, p.origin, p.state,
  coalesce(p.reason, '')::text AS reason, p.cursor_seq, p.head_seq, p.attempt,
  p.next_attempt_at, p.created_at, p.deleted_at, d.open_until, d.disabled_at
FROM a2a.push_configs p
LEFT JOIN a2a.push_destinations d ON d.tenant = p.tenant AND d.origin = p.origin
WHERE (sqlc.narg(id)::uuid IS NULL OR p.id = sqlc.narg(id))
  AND (sqlc.narg(task_id)::uuid IS NULL OR p.task_id = sqlc.narg(task_id))
  AND (sqlc.arg(tenant)::text = '' OR p.tenant = sqlc.arg(tenant))
  AND (sqlc.arg(owner)::text = '' OR p.owner = sqlc.arg(owner))
  AND (sqlc.arg(origin)::text = '' OR p.origin = sqlc.arg(origin))
  AND (sqlc.arg(state)::text = '' OR p.state = sqlc.arg(state))
  AND (sqlc.narg(before)::uuid IS NULL OR p.id < sqlc.narg(before))
ORDER BY p.id DESC
LIMIT sqlc.arg(max)::int;

-- PushAttempts reads the delivery attempts of one webhook for the operator, newest first.
-- name: PushAttempts :many
WITH a AS MATERIALIZED (
  -- All of them are read and sorted: to get them in order the planner would walk over the attempts of all webhooks.
  SELECT a.*
  FROM a2a.push_attempts a
  WHERE a.push_id = sqlc.arg(push_id)
)
SELECT a.id, a.from_seq, a.seq, a.outcome, a.attempt, a.trigger, a.started_at, a.duration_ms,
  coalesce(a.remote_ip, '')::text AS remote_ip, coalesce(a.status, 0)::int AS status,
  coalesce(a.class, '')::text AS class, coalesce(a.reason, '')::text AS reason, a.answer
FROM a
ORDER BY a.id DESC
LIMIT sqlc.arg(max)::int;

-- PushKnown reports whether a webhook exists, deleted or not.
-- name: PushKnown :one
SELECT EXISTS (SELECT FROM a2a.push_configs p WHERE p.id = sqlc.arg(id))::boolean AS known;

-- PushReplay moves the cursor of a webhook back, for the operator, and makes it active: the events after seq are
-- delivered again. A seq at or after the cursor leaves the cursor where it is. Up to the present head, attempts are
-- recorded as manual.
--
-- A request that is being sent keeps its lease, so that a delete waits for it and no other request overtakes it. It is
-- not recorded, because the target is cleared.
-- name: PushReplay :one
UPDATE a2a.push_configs p
SET cursor_seq = least(p.cursor_seq, greatest(sqlc.arg(after)::bigint, p.from_seq)),
  target_seq = NULL, attempt = 0, reason = NULL,
  -- A webhook that is done, and has nothing to deliver after seq, stays done.
  state = CASE WHEN p.state = 'done' AND sqlc.arg(after) >= p.cursor_seq THEN 'done' ELSE 'active' END,
  replay_seq = p.head_seq, next_attempt_at = clock_timestamp()
WHERE p.id = sqlc.arg(id) AND coalesce(p.deleted_at, 'infinity') = 'infinity'
RETURNING p.task_id, p.tenant, p.owner, p.state, p.cursor_seq;

-- PushDestinations reads webhooks by destination, for the operator. Empty filters select all.
-- name: PushDestinations :many
SELECT p.tenant, p.origin, count(*) FILTER (WHERE p.state = 'active') AS active,
  count(*) FILTER (WHERE p.state = 'dead') AS dead, count(*) FILTER (WHERE p.state = 'disabled') AS disabled,
  coalesce(sum(p.head_seq - p.cursor_seq) FILTER (WHERE p.state = 'active'), 0)::bigint AS backlog,
  -- A webhook whose attempt is in progress, or that is parked, has a time of its own, too.
  (min(p.next_attempt_at) FILTER (WHERE p.state = 'active' AND p.cursor_seq < p.head_seq))::timestamptz AS next_at,
  coalesce(d.fails, 0)::int AS fails, d.open_until, d.disabled_at, coalesce(d.last_error, '')::text AS last_error
FROM a2a.push_configs p
LEFT JOIN a2a.push_destinations d ON d.tenant = p.tenant AND d.origin = p.origin
WHERE p.deleted_at IS NULL
  AND (sqlc.arg(tenant)::text = '' OR p.tenant = sqlc.arg(tenant))
  AND (sqlc.arg(origin)::text = '' OR p.origin = sqlc.arg(origin))
  AND (p.tenant, p.origin) > (sqlc.arg(after_tenant)::text, sqlc.arg(after_origin)::text)
GROUP BY p.tenant, p.origin, d.fails, d.open_until, d.disabled_at, d.last_error
ORDER BY p.tenant, p.origin
LIMIT sqlc.arg(max)::int;

-- PushesSince reads the webhooks of a destination whose tasks have events since a time, for the operator. after is the
-- event before the first of them.
-- name: PushesSince :many
SELECT p.id, e.after::bigint AS after
FROM a2a.push_configs p
-- The newest event of most tasks is older, so that their logs are not read.
JOIN a2a.task_events h ON h.task_id = p.task_id AND h.seq = p.head_seq AND h.committed_at >= sqlc.arg(since)
CROSS JOIN LATERAL (
  SELECT min(e.seq) - 1 AS after
  FROM a2a.task_events e
  WHERE e.task_id = p.task_id AND e.committed_at >= sqlc.arg(since)
) e
WHERE p.tenant = sqlc.arg(tenant) AND p.origin = sqlc.arg(origin) AND p.deleted_at IS NULL
  AND p.id > sqlc.arg(from_id) AND p.head_seq > p.from_seq
ORDER BY p.id
LIMIT sqlc.arg(max)::int;

-- PushSecrets reads the encrypted secrets of webhooks, and URLs whose query is not encrypted, for the rotation of keys.
-- name: PushSecrets :many
SELECT p.id, p.token, p.credentials, p.query, p.url
FROM a2a.push_configs p
WHERE (p.token IS NOT NULL OR p.credentials IS NOT NULL OR position('?' IN p.url) > 0)
  AND p.id > sqlc.arg(after)
ORDER BY p.id
LIMIT sqlc.arg(max)::int;

-- PushReseal stores secrets encrypted with another key, unless they changed meanwhile.
-- name: PushReseal :execrows
UPDATE a2a.push_configs p
SET token = sqlc.narg(token), credentials = sqlc.narg(credentials), url = sqlc.arg(url), query = sqlc.narg(query)
WHERE p.id = sqlc.arg(id)
  AND p.token IS NOT DISTINCT FROM sqlc.narg(old_token)
  AND p.credentials IS NOT DISTINCT FROM sqlc.narg(old_credentials)
  AND p.url = sqlc.arg(old_url)
  AND p.query IS NOT DISTINCT FROM sqlc.narg(old_query);

-- PushSweepTries removes failed attempts that are older than keep, and the stored answers of others. One short row
-- remains for each notification that was delivered or skipped. It returns how many rows it found, at most max.
-- name: PushSweepTries :one
WITH old AS (
  SELECT a.id, a.outcome
  FROM a2a.push_attempts a
  WHERE (a.outcome = 'failed' OR a.answer IS NOT NULL) -- the predicate of the index push_attempts_detail
    AND a.started_at < (SELECT clock_timestamp()) - sqlc.arg(keep)::interval
  ORDER BY a.started_at
  LIMIT sqlc.arg(max)::int
  FOR UPDATE SKIP LOCKED
), removed AS (
  DELETE FROM a2a.push_attempts a
  USING old
  WHERE a.id = ANY (ARRAY[old.id]) AND old.outcome = 'failed'
), stripped AS (
  UPDATE a2a.push_attempts a
  SET answer = NULL
  FROM old
  WHERE a.id = ANY (ARRAY[old.id]) AND old.outcome <> 'failed'
)
SELECT count(*)
FROM old;

-- PushSweepDeleted removes webhooks that were deleted longer ago than keep and that no replica is delivering, with
-- their attempts. It returns how many, at most max.
-- name: PushSweepDeleted :one
WITH old AS (
  SELECT p.id
  FROM a2a.push_configs p
  WHERE p.deleted_at < (SELECT clock_timestamp()) - sqlc.arg(keep)::interval
    AND (p.lease_until IS NULL OR p.lease_until < clock_timestamp())
  ORDER BY p.deleted_at
  LIMIT sqlc.arg(max)::int
  FOR UPDATE SKIP LOCKED
), attempts AS (
  DELETE FROM a2a.push_attempts a
  USING old
  WHERE a.push_id = ANY (ARRAY[old.id])
), webhooks AS (
  DELETE FROM a2a.push_configs p
  USING old
  WHERE p.id = ANY (ARRAY[old.id])
)
SELECT count(*)
FROM old;

-- PushSweepDestinations removes destinations that do not fail, and those whose failures are so old that the next one
-- would disable them: their breaker starts from zero. A disabled destination stays until an operator enables it.
-- name: PushSweepDestinations :execrows
DELETE FROM a2a.push_destinations d
WHERE d.disabled_at IS NULL
  AND (d.open_until IS NULL OR d.open_until < clock_timestamp())
  AND (d.fails = 0 OR d.first_failure_at < clock_timestamp() - sqlc.arg(forget)::interval);

-- PushesToCopy reads the webhooks of a task that another task is to get, too: all that were not deleted, and whose
-- receiver did not ask to stop.
-- name: PushesToCopy :many
SELECT p.id, p.config_id, p.url, p.query, p.origin, p.schemes, p.token, p.credentials, p.wire_version
FROM a2a.push_configs p
WHERE p.task_id = sqlc.arg(task_id) AND p.deleted_at IS NULL AND p.state <> 'disabled'
ORDER BY p.created_at, p.id;
