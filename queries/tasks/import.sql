-- TaskImport stores tasks that another server has worked on, one per array element, and returns the ids of those that
-- it stored. An element whose id exists stores nothing: TaskImported says why. ImportEvents, ImportMessages and
-- ImportKeys follow in the same transaction. The caller passes ids in their order, so that two imports cannot deadlock.
-- name: TaskImport :many
WITH input AS (
  SELECT unnest(sqlc.arg(ids)::uuid[]) AS id, unnest(sqlc.arg(tenants)::text[]) AS tenant,
    unnest(sqlc.arg(owners)::text[]) AS owner, unnest(sqlc.arg(agents)::text[]) AS agent,
    unnest(sqlc.arg(context_ids)::text[]) AS context_id, unnest(sqlc.arg(states)::smallint[]) AS state,
    unnest(sqlc.arg(created_at)::timestamptz[]) AS created_at, unnest(sqlc.arg(last_at)::timestamptz[]) AS last_at,
    -- last_user_seq is 0 without a message of the client, status_message_seq without a message of the status.
    unnest(sqlc.arg(status_message_seqs)::bigint[]) AS status_message_seq,
    unnest(sqlc.arg(last_seqs)::bigint[]) AS last_seq, unnest(sqlc.arg(last_message_seqs)::bigint[]) AS last_message_seq,
    unnest(sqlc.arg(last_user_seqs)::bigint[]) AS last_user_seq,
    unnest(sqlc.arg(read_user_seqs)::bigint[]) AS read_user_seq,
    unnest(sqlc.arg(has_artifacts)::boolean[]) AS has_artifacts, unnest(sqlc.arg(sizes)::bigint[]) AS size,
    unnest(sqlc.arg(metadata)::json[]) AS metadata, unnest(sqlc.arg(lanes)::smallint[]) AS lane,
    unnest(sqlc.arg(queued)::boolean[]) AS queued
), task AS (
  INSERT INTO a2a.tasks (
    id, tenant, owner, agent, context_id, state, status_at, status_message_seq, last_seq, last_at, last_message_seq,
    last_user_seq, read_user_seq, ready_at, has_artifacts, bytes, metadata, created_at, priority, list_key)
  SELECT i.id, i.tenant, i.owner, i.agent, i.context_id, i.state, date_trunc('milliseconds', i.last_at),
    nullif(i.status_message_seq, 0), i.last_seq, i.last_at, i.last_message_seq, i.last_user_seq, i.read_user_seq,
    CASE WHEN i.queued THEN sqlc.arg(now)::timestamptz END, i.has_artifacts, i.size, i.metadata, i.created_at, i.lane,
    a2a.list_key(i.tenant, i.owner, i.agent)
  FROM input i
  ON CONFLICT (id) DO NOTHING
  RETURNING id, agent, priority, ready_at, tenant
), ready AS (
  INSERT INTO a2a.task_ready (queue, priority, run_at, task_id, tenant)
  SELECT t.agent, t.priority, t.ready_at, t.id, t.tenant
  FROM task t
  WHERE t.ready_at IS NOT NULL
)
SELECT t.id::uuid AS id
FROM task t;

-- ImportEvents stores the logs of imported tasks. The server has written them: no worker of this server has.
-- name: ImportEvents :exec
INSERT INTO a2a.task_events (task_id, seq, event_uid, kind, state, source, committed_at, artifact_id, body, parts)
SELECT e.task_id, e.seq, e.event_uid, e.kind, nullif(e.state, 0), a2a.source_server(), e.at, nullif(e.artifact_id, ''),
  e.body, e.parts
FROM (
  SELECT unnest(sqlc.arg(task_ids)::uuid[]) AS task_id, unnest(sqlc.arg(seqs)::bigint[]) AS seq,
    unnest(sqlc.arg(event_uids)::uuid[]) AS event_uid, unnest(sqlc.arg(kinds)::smallint[]) AS kind,
    unnest(sqlc.arg(states)::smallint[]) AS state, unnest(sqlc.arg(ats)::timestamptz[]) AS at,
    unnest(sqlc.arg(artifact_ids)::text[]) AS artifact_id, unnest(sqlc.arg(bodies)::json[]) AS body,
    unnest(sqlc.arg(parts)::json[]) AS parts
) e;

-- ImportMessages stores the messages of imported tasks.
-- name: ImportMessages :exec
INSERT INTO a2a.messages (task_id, seq, at_seq, message_id, role, body)
SELECT unnest(sqlc.arg(task_ids)::uuid[]), unnest(sqlc.arg(seqs)::bigint[]), unnest(sqlc.arg(at_seqs)::bigint[]),
  unnest(sqlc.arg(message_ids)::text[]), unnest(sqlc.arg(roles)::smallint[]), unnest(sqlc.arg(bodies)::json[]);

-- ImportKeys records what tasks were imported from. TaskDelete derives the key from the id as well. A server of the
-- previous version does not, and leaves the key of a task that it has removed.
-- name: ImportKeys :exec
INSERT INTO a2a.idempotency_keys (tenant, owner, key, digest, task_id)
SELECT k.tenant, k.owner, 'i:' || k.task_id, k.digest, k.task_id
FROM (
  SELECT unnest(sqlc.arg(tenants)::text[]) AS tenant, unnest(sqlc.arg(owners)::text[]) AS owner,
    unnest(sqlc.arg(digests)::bytea[]) AS digest, unnest(sqlc.arg(task_ids)::uuid[]) AS task_id
) k
ON CONFLICT (tenant, owner, key) DO UPDATE SET digest = excluded.digest, task_id = excluded.task_id;

-- TasksImported returns those of the ids that are in use, and their agents. Of a task that was imported for this owner,
-- it returns the digest of what it was imported from, and the uid of its first event, unless its log was retired.
-- name: TasksImported :many
SELECT t.id, t.agent, i.tenant::text AS tenant, i.owner::text AS owner, k.digest, e.event_uid
FROM (
  SELECT unnest(sqlc.arg(ids)::uuid[]) AS id, unnest(sqlc.arg(tenants)::text[]) AS tenant,
    unnest(sqlc.arg(owners)::text[]) AS owner
) i
  -- The limits keep the order of the joins: a plan that was made while the tables were small would scan them.
CROSS JOIN LATERAL (
  SELECT x.id, x.agent
  FROM a2a.tasks x
  WHERE x.id = ANY (ARRAY[i.id])
  LIMIT 1
) t
LEFT JOIN a2a.idempotency_keys k
  ON k.tenant = ANY (ARRAY[i.tenant]) AND k.owner = ANY (ARRAY[i.owner]) AND k.key = ANY (ARRAY['i:' || i.id])
  AND k.task_id = i.id
LEFT JOIN LATERAL (
  SELECT x.event_uid
  FROM a2a.task_events x
  WHERE x.task_id = ANY (ARRAY[i.id]) AND x.seq = 1
  LIMIT 1
) e ON true;
