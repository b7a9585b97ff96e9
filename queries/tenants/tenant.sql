-- TenantMoves lists the tenants that are moving or have moved.
-- name: TenantMoves :many
SELECT m.tenant, m.state, m.move_id, m.since, m.pages, m.sha256,
  EXISTS (SELECT FROM a2a.tenant_rows r WHERE r.tenant = ANY (ARRAY[m.tenant])) AS kept
FROM a2a.tenant_moves m
WHERE sqlc.arg(tenant)::text = '' OR m.tenant = sqlc.arg(tenant)
ORDER BY m.tenant;

-- TenantMoveLock locks the move of a tenant. No row means that the tenant has never moved.
-- name: TenantMoveLock :one
SELECT m.state, m.move_id, m.pages, m.sha256
FROM a2a.tenant_moves m
WHERE m.tenant = sqlc.arg(tenant)
FOR UPDATE;

-- TenantMoveSet begins a move, or begins one anew.
-- name: TenantMoveSet :exec
INSERT INTO a2a.tenant_moves AS m (tenant, state, move_id, sha256)
VALUES (sqlc.arg(tenant), sqlc.arg(state), sqlc.arg(move_id), sqlc.arg(sha256))
ON CONFLICT (tenant) DO UPDATE
SET state = excluded.state, move_id = excluded.move_id, since = clock_timestamp(), pages = 0, sha256 = excluded.sha256;

-- TenantMoveNext sets the state of a move and how many pages it has.
-- name: TenantMoveNext :exec
UPDATE a2a.tenant_moves m
SET state = sqlc.arg(state), pages = sqlc.arg(pages),
  since = CASE WHEN m.state = sqlc.arg(state) THEN m.since ELSE clock_timestamp() END
WHERE m.tenant = sqlc.arg(tenant);

-- TenantMoveEnd forgets the move of a tenant, which is served here from now on.
-- name: TenantMoveEnd :exec
DELETE FROM a2a.tenant_moves m
WHERE m.tenant = sqlc.arg(tenant);

-- TenantKnown reports whether there is anything of a tenant here that an import would meet.
-- name: TenantKnown :one
SELECT (EXISTS (SELECT FROM a2a.context_tasks c WHERE c.tenant = sqlc.arg(tenant))
  OR EXISTS (SELECT FROM a2a.idempotency_keys k WHERE k.tenant = sqlc.arg(tenant))
  OR EXISTS (SELECT FROM a2a.push_destinations d WHERE d.tenant = sqlc.arg(tenant))
  OR EXISTS (SELECT FROM a2a.usage_pending u WHERE u.tenant = sqlc.arg(tenant))
  OR EXISTS (SELECT FROM a2a.usage_days u WHERE u.tenant = sqlc.arg(tenant))
  OR EXISTS (SELECT FROM a2a.tenant_rows r WHERE r.tenant = sqlc.arg(tenant)))::boolean AS known;

-- TransactionsOpen lists the transactions of this database that are in progress. One that began before a commit may not
-- see it. A vacuum has no user, and decides nothing.
-- name: TransactionsOpen :many
SELECT l.virtualtransaction::text AS id, l.pid::int AS pid
FROM pg_locks l
JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'virtualxid' AND l.granted AND l.mode = 'ExclusiveLock' AND l.pid <> pg_backend_pid()
  AND a.datname = current_database() AND a.usesysid IS NOT NULL;

-- TenantLeases counts the attempts of a tenant that are in progress.
-- name: TenantLeases :one
SELECT count(*) AS leases
FROM a2a.task_leases l
JOIN a2a.tasks t ON t.id = ANY (ARRAY[l.task_id])
WHERE t.tenant = sqlc.arg(tenant);

-- TenantLeasesExpire ends the leases of a tenant. Their workers can renew none of them.
-- name: TenantLeasesExpire :execrows
WITH held AS (
  SELECT l.task_id, l.epoch
  FROM a2a.task_leases l
  JOIN a2a.tasks t ON t.id = ANY (ARRAY[l.task_id])
  WHERE t.tenant = sqlc.arg(tenant) AND l.lease_until > clock_timestamp()
  ORDER BY l.task_id -- the order of locks
  FOR UPDATE OF l
)
UPDATE a2a.task_leases l
SET lease_until = clock_timestamp()
FROM held h
WHERE l.task_id = ANY (ARRAY[h.task_id]) AND l.epoch = h.epoch;

-- TenantTakeTasks takes a page of tasks. NULL means that there is no task after the given one.
-- name: TenantTakeTasks :one
SELECT a2a.tenant_take_tasks(sqlc.arg(tenant)::text, sqlc.arg(page)::bigint, sqlc.arg(after)::uuid, sqlc.arg(most)::int,
  sqlc.arg(bytes)::bigint)::uuid AS last;

-- TenantTakeRest takes a page of what is no task. 0 means that there is no more.
-- name: TenantTakeRest :one
SELECT a2a.tenant_take_rest(sqlc.arg(tenant)::text, sqlc.arg(page)::bigint, sqlc.arg(most)::int)::bigint AS moved;

-- TenantTakeKeys copies the API keys of a tenant.
-- name: TenantTakeKeys :one
SELECT a2a.tenant_take_keys(sqlc.arg(tenant)::text, sqlc.arg(page)::bigint)::bigint AS copied;

-- TenantPut puts rows of one table back, and returns them as they are stored.
-- name: TenantPut :many
SELECT a2a.tenant_put(sqlc.arg(tenant)::text, sqlc.arg(kind)::text, sqlc.arg(bodies)::text[])::text AS body;

-- TenantPage reads a page of rows that were taken.
-- name: TenantPage :many
SELECT r.kind, r.body
FROM a2a.tenant_rows r
WHERE r.tenant = sqlc.arg(tenant) AND r.page = sqlc.arg(page)
ORDER BY r.n;

-- TenantPageNext returns the next page that has rows; 0: there is none.
-- name: TenantPageNext :one
SELECT coalesce((
  SELECT r.page
  FROM a2a.tenant_rows r
  WHERE r.tenant = sqlc.arg(tenant) AND r.page > sqlc.arg(after)
  ORDER BY r.page
  LIMIT 1), 0)::bigint AS page;

-- TenantPageDelete removes a page.
-- name: TenantPageDelete :execrows
DELETE FROM a2a.tenant_rows r
WHERE r.tenant = sqlc.arg(tenant) AND r.page = sqlc.arg(page);
