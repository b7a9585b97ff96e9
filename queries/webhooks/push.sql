-- PushHeadMove tells the webhooks of tasks that there are new events: the second statement of
-- every transaction that wrote some. In the same statement it would not see a webhook that
-- was set while the append waited for its row lock. Chunks of artifacts gather
-- for a moment; a status goes at once, but never cuts a running backoff short. What
-- may still be answered with a message has nothing to tell. It returns how many webhooks have
-- something to deliver. They are looked up apart, and not told from deleted ones by IS NULL a second
-- time: the index of those that are not deleted would be walked over.
-- name: PushHeadMove :execrows
UPDATE a2a.push_configs p
SET head_seq = t.last_seq,
  next_attempt_at = CASE
    WHEN p.cursor_seq = p.head_seq THEN clock_timestamp() + CASE WHEN n.urgent THEN interval '0' ELSE sqlc.arg(gather)::interval END
    WHEN p.attempt = 0 AND n.urgent THEN least(p.next_attempt_at, clock_timestamp())
    ELSE p.next_attempt_at END
FROM (SELECT unnest(sqlc.arg(task_ids)::uuid[]) AS task_id, unnest(sqlc.arg(urgent)::boolean[]) AS urgent) n
JOIN a2a.tasks t ON t.id = ANY (ARRAY[n.task_id]),
LATERAL (SELECT c.id FROM a2a.push_configs c WHERE c.task_id = n.task_id AND c.deleted_at IS NULL OFFSET 0) c
WHERE p.id = ANY (ARRAY[c.id]) AND coalesce(p.deleted_at, 'infinity') = 'infinity' AND p.head_seq < t.last_seq
  AND (t.reply <> 1 OR t.state > 2);

-- PushOfTaskForCaller lists the webhooks of a task of the caller, oldest first; with an id
-- only that one.
-- name: PushOfTaskForCaller :many
SELECT p.id, p.config_id, p.url, p.schemes, p.state, coalesce(p.reason, '')::text AS reason, p.created_at
FROM a2a.push_configs p
WHERE p.task_id = sqlc.arg(task_id) AND p.tenant = sqlc.arg(tenant) AND (p.owner = sqlc.arg(owner) OR sqlc.arg(shared)::boolean) AND p.deleted_at IS NULL
  AND (sqlc.arg(config_id)::text = '' OR p.config_id = sqlc.arg(config_id))
ORDER BY p.created_at, p.id;

-- PushInsert adds a webhook to a task whose row the transaction has locked or made.
-- name: PushInsert :exec
INSERT INTO a2a.push_configs (id, task_id, config_id, tenant, owner, agent, url, query, origin, schemes, token, credentials, wire_version,
  state, from_seq, cursor_seq, head_seq, next_attempt_at)
VALUES (sqlc.arg(id), sqlc.arg(task_id), sqlc.arg(config_id), sqlc.arg(tenant), sqlc.arg(owner), sqlc.arg(agent), sqlc.arg(url),
  sqlc.narg(query), sqlc.arg(origin), sqlc.arg(schemes)::text[], sqlc.narg(token), sqlc.narg(credentials), sqlc.arg(wire_version),
  CASE WHEN sqlc.arg(ended)::boolean THEN 'done' ELSE 'active' END, sqlc.arg(from_seq), sqlc.arg(from_seq), sqlc.arg(head_seq)::bigint,
  CASE WHEN sqlc.arg(head_seq) > sqlc.arg(from_seq) THEN clock_timestamp() ELSE 'infinity' END);

-- PushReplace sets a webhook again: where it stands in the log stays, its failures are forgotten. Where a webhook is
-- looked up by its id, deleted_at is not tested with IS NULL: the planner would walk over the index of those.
-- name: PushReplace :exec
UPDATE a2a.push_configs p
SET url = sqlc.arg(url), query = sqlc.narg(query), origin = sqlc.arg(origin), schemes = sqlc.arg(schemes)::text[], token = sqlc.narg(token), credentials = sqlc.narg(credentials),
  wire_version = sqlc.arg(wire_version), attempt = 0, target_seq = NULL, reason = NULL, parked = p.parked AND p.origin = sqlc.arg(origin),
  state = CASE WHEN p.state = 'done' THEN 'done' ELSE 'active' END,
  next_attempt_at = CASE WHEN p.cursor_seq < p.head_seq THEN clock_timestamp() ELSE 'infinity' END
WHERE p.id = sqlc.arg(id) AND coalesce(p.deleted_at, 'infinity') = 'infinity';

-- TaskHasPush notes in the row that every append locks that the task has a webhook.
-- name: TaskHasPush :exec
UPDATE a2a.tasks SET has_push = true WHERE id = sqlc.arg(id) AND NOT has_push;

-- PushDelete ends a webhook of the caller. What was claimed before may still be sent: see
-- PushBusy.
-- name: PushDelete :exec
UPDATE a2a.push_configs p
SET deleted_at = clock_timestamp(), deleted_after_seq = p.head_seq
WHERE p.task_id = sqlc.arg(task_id) AND p.config_id = sqlc.arg(config_id) AND p.tenant = sqlc.arg(tenant) AND (p.owner = sqlc.arg(owner) OR sqlc.arg(shared)::boolean) AND p.deleted_at IS NULL;

-- PushBusy reports whether a deliverer holds a webhook of the caller that was deleted, be it
-- by this request or by one before whose answer nobody waited for.
-- name: PushBusy :one
SELECT EXISTS (
  SELECT FROM a2a.push_configs p
  WHERE p.task_id = sqlc.arg(task_id) AND p.config_id = sqlc.arg(config_id) AND p.tenant = sqlc.arg(tenant) AND (p.owner = sqlc.arg(owner) OR sqlc.arg(shared)::boolean)
    AND coalesce(p.deleted_at, 'infinity') <> 'infinity' AND coalesce(p.lease_until, '-infinity') > clock_timestamp())::boolean AS busy;

-- PushRenew extends leases that are still held by these epochs, and returns them. It waits for no
-- lock: an append may hold several webhooks, in any order. What it passes over for that is
-- renewed by the next call. A lease that ran out is not revived, taken or not. Asked plainly for its end the
-- planner would go through all leases.
-- name: PushRenew :many
WITH h AS (
  SELECT c.id
  FROM a2a.push_configs c
  JOIN (SELECT unnest(sqlc.arg(ids)::uuid[]) AS id, unnest(sqlc.arg(epochs)::bigint[]) AS epoch) x
    ON c.id = x.id AND c.lease_epoch = x.epoch
  WHERE c.id = ANY (sqlc.arg(ids)) AND coalesce(c.lease_until, '-infinity') > clock_timestamp()
  FOR UPDATE OF c SKIP LOCKED
)
UPDATE a2a.push_configs c
SET lease_until = clock_timestamp() + sqlc.arg(lease)::interval
FROM h
WHERE c.id = ANY (ARRAY[h.id])
RETURNING c.id;

-- PushTarget settles what claimed webhooks deliver next: events up to the next state that a
-- consumer must not miss, or up to the newest. What was chosen for a failed try stays. It runs
-- after the claim in its transaction, so that it sees every event up to the heads. With it
-- comes the trace that the request is a part of.
-- name: PushTarget :many
WITH n AS (
  SELECT p.id, coalesce(
    (SELECT min(e.seq) FROM a2a.task_events e WHERE e.task_id = p.task_id AND e.seq > p.cursor_seq AND e.seq <= p.head_seq AND e.state >= 3),
    p.head_seq) AS seq
  FROM a2a.push_configs p
  WHERE p.id = ANY(sqlc.arg(ids)::uuid[])
)
UPDATE a2a.push_configs p
SET target_seq = coalesce(p.target_seq, n.seq)
FROM n
WHERE p.id = ANY (ARRAY[n.id])
RETURNING p.id, p.target_seq::bigint AS target_seq,
  coalesce((SELECT t.traceparent FROM a2a.tasks t WHERE t.id = p.task_id), '')::text AS traceparent;

-- PushDelivered records a delivery and moves the cursor. No row means that the lease was lost.
-- name: PushDelivered :one
UPDATE a2a.push_configs p
SET cursor_seq = p.target_seq, target_seq = NULL, attempt = 0, lease_until = NULL, reason = NULL,
  next_attempt_at = CASE WHEN p.target_seq < p.head_seq THEN clock_timestamp() ELSE 'infinity' END,
  state = CASE WHEN sqlc.arg(terminal)::boolean AND p.target_seq = p.head_seq THEN 'done' ELSE p.state END
WHERE p.id = sqlc.arg(id) AND p.lease_epoch = sqlc.arg(epoch) AND p.target_seq = sqlc.arg(seq)
RETURNING (p.cursor_seq < p.head_seq)::boolean AS more;

-- PushFailed records a failed try: the next one is after delay, unless fate says otherwise.
-- It is fenced like PushDelivered: a webhook that was set again has no target.
-- name: PushFailed :execrows
UPDATE a2a.push_configs p
SET attempt = p.attempt + 1, lease_until = NULL, next_attempt_at = clock_timestamp() + sqlc.arg(delay)::interval,
  state = CASE WHEN sqlc.arg(fate)::text = '' THEN p.state ELSE sqlc.arg(fate) END,
  reason = CASE WHEN sqlc.arg(fate) = '' THEN p.reason ELSE sqlc.arg(reason)::text END
WHERE p.id = sqlc.arg(id) AND p.lease_epoch = sqlc.arg(epoch) AND p.target_seq = sqlc.arg(seq);

-- PushReleased gives a webhook back untried.
-- name: PushReleased :exec
UPDATE a2a.push_configs p SET lease_until = NULL WHERE p.id = sqlc.arg(id) AND p.lease_epoch = sqlc.arg(epoch);

-- PushAttemptInsert writes one line of the ledger.
-- name: PushAttemptInsert :exec
INSERT INTO a2a.push_attempts (push_id, task_id, from_seq, seq, outcome, attempt, trigger, started_at, duration_ms, remote_ip, status, class, reason, answer)
VALUES (sqlc.arg(push_id), sqlc.arg(task_id), sqlc.arg(from_seq), sqlc.arg(seq), sqlc.arg(outcome), sqlc.arg(attempt), sqlc.arg(trigger),
  clock_timestamp() - make_interval(secs => sqlc.arg(duration_ms)::int / 1000.0), sqlc.arg(duration_ms), sqlc.narg(remote_ip), sqlc.narg(status),
  sqlc.narg(class), sqlc.narg(reason), sqlc.narg(answer));

-- DestinationUp closes the breaker of a destination, and reports whether it had failed.
-- name: DestinationUp :execrows
UPDATE a2a.push_destinations SET fails = 0, openings = 0, first_failure_at = NULL, open_until = NULL, last_error = NULL
WHERE tenant = sqlc.arg(tenant) AND origin = sqlc.arg(origin) AND (fails > 0 OR open_until IS NOT NULL);

-- DestinationDown counts a failure of a destination. At the limit, and at every failure of a
-- probe, the breaker opens, twice as long each time; after days of failure it is disabled.
-- Failures of what was under way when it opened are no probes.
-- name: DestinationDown :one
INSERT INTO a2a.push_destinations AS d (tenant, origin, last_error, fails, first_failure_at, openings, open_until)
VALUES (sqlc.arg(tenant), sqlc.arg(origin), sqlc.arg(last_error)::text, 1, clock_timestamp(), CASE WHEN sqlc.arg(max_fails)::int <= 1 THEN 1 ELSE 0 END,
  CASE WHEN sqlc.arg(max_fails) <= 1 THEN clock_timestamp() + least(sqlc.arg(first_open)::interval, sqlc.arg(max_open)::interval) END)
ON CONFLICT (tenant, origin) DO UPDATE
SET fails = d.fails + 1, last_error = excluded.last_error, first_failure_at = coalesce(d.first_failure_at, clock_timestamp()),
  openings = d.openings + CASE WHEN d.fails + 1 >= sqlc.arg(max_fails)::int AND (d.open_until > clock_timestamp()) IS NOT TRUE THEN 1 ELSE 0 END,
  open_until = CASE WHEN d.open_until > clock_timestamp() THEN d.open_until WHEN d.fails + 1 >= sqlc.arg(max_fails)
    THEN clock_timestamp() + least(sqlc.arg(first_open)::interval * power(2, least(d.openings, 20)), sqlc.arg(max_open)::interval) END,
  disabled_at = CASE WHEN d.first_failure_at < clock_timestamp() - sqlc.arg(disable_after)::interval THEN coalesce(d.disabled_at, clock_timestamp()) END
RETURNING (d.open_until IS NOT NULL)::boolean AS open, (d.disabled_at IS NOT NULL)::boolean AS disabled;

-- DestinationLock takes a destination before DestinationDown does, and says whether it is disabled.
-- name: DestinationLock :one
SELECT (d.disabled_at IS NOT NULL)::boolean AS disabled FROM a2a.push_destinations d
WHERE d.tenant = sqlc.arg(tenant) AND d.origin = sqlc.arg(origin)
FOR UPDATE;

-- DestinationEnable lets a disabled or resting destination try again at once.
-- name: DestinationEnable :execrows
UPDATE a2a.push_destinations SET fails = 0, openings = 0, first_failure_at = NULL, open_until = NULL, disabled_at = NULL, last_error = NULL
WHERE tenant = sqlc.arg(tenant) AND origin = sqlc.arg(origin);

-- PushList reads webhooks for the operator, newest first.
-- name: PushList :many
SELECT p.id, p.task_id, p.config_id, p.tenant, p.owner, p.url, p.origin, p.state, coalesce(p.reason, '')::text AS reason, p.cursor_seq, p.head_seq, p.attempt,
  p.next_attempt_at, p.created_at, p.deleted_at, d.open_until, d.disabled_at
FROM a2a.push_configs p
LEFT JOIN a2a.push_destinations d ON d.tenant = p.tenant AND d.origin = p.origin
WHERE (sqlc.narg(task_id)::uuid IS NULL OR p.task_id = sqlc.narg(task_id)) AND (sqlc.arg(tenant)::text = '' OR p.tenant = sqlc.arg(tenant))
  AND (sqlc.arg(owner)::text = '' OR p.owner = sqlc.arg(owner)) AND (sqlc.arg(origin)::text = '' OR p.origin = sqlc.arg(origin))
  AND (sqlc.arg(state)::text = '' OR p.state = sqlc.arg(state)) AND (sqlc.narg(before)::uuid IS NULL OR p.id < sqlc.narg(before))
ORDER BY p.id DESC
LIMIT sqlc.arg(max)::int;

-- PushAttempts reads the ledger of one webhook for the operator, newest first. All of that is read and sorted: to have
-- it in order the planner would walk over the ledger of all.
-- name: PushAttempts :many
WITH a AS MATERIALIZED (
  SELECT a.* FROM a2a.push_attempts a WHERE a.push_id = sqlc.arg(push_id)
)
SELECT a.id, a.from_seq, a.seq, a.outcome, a.attempt, a.trigger, a.started_at, a.duration_ms, coalesce(a.remote_ip, '')::text AS remote_ip,
  coalesce(a.status, 0)::int AS status, coalesce(a.class, '')::text AS class, coalesce(a.reason, '')::text AS reason, a.answer
FROM a
ORDER BY a.id DESC
LIMIT sqlc.arg(max)::int;

-- PushKnown reports whether there is a webhook, deleted or not.
-- name: PushKnown :one
SELECT EXISTS (SELECT FROM a2a.push_configs p WHERE p.id = sqlc.arg(id))::boolean AS known;

-- PushReplay moves the cursor of a webhook back (or leaves it, with a seq at or ahead of it)
-- and makes it active: what follows is delivered again, and up to the present head the ledger
-- says that this was asked for. A request under way keeps its lease, so that a delete waits for
-- it and nothing overtakes it; it is not recorded, because the target is gone.
-- One that is done, with nothing ahead of seq, stays done.
-- name: PushReplay :one
UPDATE a2a.push_configs p
SET cursor_seq = least(p.cursor_seq, greatest(sqlc.arg(after)::bigint, p.from_seq)), target_seq = NULL, attempt = 0, reason = NULL,
  state = CASE WHEN p.state = 'done' AND sqlc.arg(after) >= p.cursor_seq THEN 'done' ELSE 'active' END,
  replay_seq = p.head_seq, next_attempt_at = clock_timestamp()
WHERE p.id = sqlc.arg(id) AND coalesce(p.deleted_at, 'infinity') = 'infinity'
RETURNING p.task_id, p.tenant, p.owner, p.state, p.cursor_seq;

-- PushSecrets reads what is sealed, and URLs whose query is not, for the change of keys.
-- name: PushSecrets :many
SELECT p.id, p.token, p.credentials, p.query, p.url FROM a2a.push_configs p
WHERE (p.token IS NOT NULL OR p.credentials IS NOT NULL OR position('?' IN p.url) > 0) AND p.id > sqlc.arg(after)
ORDER BY p.id
LIMIT sqlc.arg(max)::int;

-- PushReseal stores secrets under another key, unless they changed meanwhile.
-- name: PushReseal :execrows
UPDATE a2a.push_configs p
SET token = sqlc.narg(token), credentials = sqlc.narg(credentials), url = sqlc.arg(url), query = sqlc.narg(query)
WHERE p.id = sqlc.arg(id) AND p.token IS NOT DISTINCT FROM sqlc.narg(old_token) AND p.credentials IS NOT DISTINCT FROM sqlc.narg(old_credentials)
  AND p.url = sqlc.arg(old_url) AND p.query IS NOT DISTINCT FROM sqlc.narg(old_query);

-- PushSweepTries removes the failed tries from the ledger that are older than keep, and the
-- answers of the others: what is left is one short line for each notification that was
-- settled. It returns how many rows it found.
-- name: PushSweepTries :one
WITH old AS (
  SELECT a.id, a.outcome
  FROM a2a.push_attempts a
  WHERE (a.outcome = 'failed' OR a.answer IS NOT NULL) AND a.started_at < (SELECT clock_timestamp()) - sqlc.arg(keep)::interval
  ORDER BY a.started_at
  LIMIT sqlc.arg(max)::int
  FOR UPDATE SKIP LOCKED
), gone AS (
  DELETE FROM a2a.push_attempts a USING old WHERE a.id = ANY (ARRAY[old.id]) AND old.outcome = 'failed'
), bare AS (
  UPDATE a2a.push_attempts a SET answer = NULL FROM old WHERE a.id = ANY (ARRAY[old.id]) AND old.outcome <> 'failed'
)
SELECT count(*) FROM old;

-- PushSweepDeleted removes webhooks that were deleted longer ago than keep, with their ledger.
-- None of them is held. It returns how many there were.
-- name: PushSweepDeleted :one
WITH old AS (
  SELECT p.id
  FROM a2a.push_configs p
  WHERE p.deleted_at < (SELECT clock_timestamp()) - sqlc.arg(keep)::interval AND (p.lease_until IS NULL OR p.lease_until < clock_timestamp())
  ORDER BY p.deleted_at
  LIMIT sqlc.arg(max)::int
  FOR UPDATE SKIP LOCKED
), a AS (
  DELETE FROM a2a.push_attempts a USING old WHERE a.push_id = ANY (ARRAY[old.id])
), p AS (
  DELETE FROM a2a.push_configs p USING old WHERE p.id = ANY (ARRAY[old.id])
)
SELECT count(*) FROM old;

-- PushSweepDestinations forgets destinations that are well, and those that nobody has called
-- for so long that they would else be disabled: their breaker begins anew. What is disabled
-- stays until an operator enables it.
-- name: PushSweepDestinations :execrows
DELETE FROM a2a.push_destinations d
WHERE d.disabled_at IS NULL AND (d.open_until IS NULL OR d.open_until < clock_timestamp())
  AND (d.fails = 0 OR d.first_failure_at < clock_timestamp() - sqlc.arg(forget)::interval);
