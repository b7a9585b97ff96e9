-- TaskHeadForCaller reads what decides about a request for a task of the caller. No row means that the caller has no
-- such task.
-- name: TaskHeadForCaller :one
SELECT t.agent, t.context_id, t.state, t.last_seq, t.reply,
  (t.bytes + 512 * (t.last_seq + t.last_message_seq))::bigint AS cost -- as in TaskSnapshots
FROM a2a.tasks t
WHERE t.id = (
    -- The id is looked up together with the caller before any row is read. So a task of another caller takes as long as
    -- one that does not exist.
    SELECT c.task_id FROM a2a.context_tasks c
    WHERE c.task_id = sqlc.arg(id) AND c.tenant = sqlc.arg(tenant) AND c.owner = sqlc.arg(owner))
  AND t.tenant = sqlc.arg(tenant)
  AND t.owner = sqlc.arg(owner);

-- TaskHeadSharedForCaller is TaskHeadForCaller for a tenant that shares its tasks.
-- name: TaskHeadSharedForCaller :one
SELECT t.agent, t.context_id, t.state, t.last_seq, t.reply,
  (t.bytes + 512 * (t.last_seq + t.last_message_seq))::bigint AS cost -- as in TaskSnapshots
FROM a2a.tasks t
WHERE t.id = (
    SELECT c.task_id FROM a2a.context_tasks c
    WHERE c.task_id = sqlc.arg(id) AND c.tenant = sqlc.arg(tenant))
  AND t.tenant = sqlc.arg(tenant);

-- TaskSnapshots reads whole tasks in one statement, so that a task and its last_seq are of one moment. The caller has
-- checked that the client may see the tasks. If the tasks may take more than most bytes (0: no limit), it reads only
-- part 0, whose cost says how many they may take.
--
-- The rows are in no order: part 0 is the task, 1 messages, 2 artifacts, 3 their parts, and 4 the artifact events of a
-- task whose artifacts are not folded. Sorting them here would write the log of a large task to disk; they come in the
-- order of their index anyway.
-- name: TaskSnapshots :many
WITH t AS (
  -- 512 stands for what a row takes besides its payload.
  SELECT t.*, t.bytes + 512 * (t.last_seq + t.last_message_seq) AS cost
  FROM a2a.tasks t
  WHERE t.id = ANY (sqlc.arg(ids)::uuid[])
), fits AS (
  SELECT sqlc.arg(most)::bigint = 0 OR sum(t.cost) <= sqlc.arg(most) AS fit
  FROM t
)
SELECT t.id AS task_id, 0::smallint AS part, t.last_seq AS seq, coalesce(t.status_message_seq, 0)::bigint AS idx,
  t.context_id AS name, t.state, t.status_at AS at,
  (SELECT e.event_uid FROM a2a.task_events e WHERE e.task_id = t.id AND e.seq = t.last_seq) AS uid,
  t.agent AS agent, t.created_at AS created_at, t.metadata AS body, NULL::json AS parts,
  (t.reply = a2a.reply_message())::boolean AS replied, t.cost::bigint AS cost
FROM t
UNION ALL
SELECT t.id, 1::smallint, m.seq, 0, m.message_id, m.role, NULL, NULL, '', NULL, m.body, NULL, false, 0
FROM t
JOIN a2a.messages m ON m.task_id = t.id
  -- Each table is entered by = ANY, here and below, so that no statistics can make the planner read a whole one.
  AND m.task_id = ANY (sqlc.arg(ids))
  AND (m.seq > t.last_message_seq - sqlc.arg(history)::bigint - 1 OR m.seq = t.status_message_seq)
WHERE (SELECT fits.fit FROM fits)
UNION ALL
SELECT a.task_id, 2::smallint, a.position, 0, a.artifact_id, 0, NULL, NULL, '', NULL, a.header, NULL, false, 0
FROM a2a.artifacts a
WHERE sqlc.arg(artifacts)::boolean
  AND (SELECT fits.fit FROM fits)
  AND a.task_id = ANY (ARRAY(SELECT t.id FROM t WHERE t.folded))
UNION ALL
SELECT p.task_id, 3::smallint, p.seq, p.idx, p.artifact_id, 0, NULL, NULL, '', NULL, p.part, NULL, false, 0
FROM a2a.artifact_parts p
WHERE sqlc.arg(artifacts)
  AND (SELECT fits.fit FROM fits)
  AND p.task_id = ANY (ARRAY(SELECT t.id FROM t WHERE t.folded))
UNION ALL
SELECT e.task_id, 4::smallint, e.seq, 0, e.artifact_id, e.kind, NULL, NULL, '', NULL, e.body, e.parts, false, 0
FROM a2a.task_events e
WHERE sqlc.arg(artifacts)
  AND (SELECT fits.fit FROM fits)
  AND e.artifact_id IS NOT NULL
  AND e.task_id = ANY (ARRAY(SELECT t.id FROM t WHERE t.has_artifacts AND NOT t.folded));

-- TaskSizes estimates how many bytes TaskSnapshots would read of each task, from the sizes of the rows themselves.
-- name: TaskSizes :many
SELECT t.id,
  (512
    + coalesce((
        SELECT sum(octet_length(m.body::text) + 512)
        FROM a2a.messages m
        WHERE m.task_id = ANY (ARRAY[t.id])
          AND (m.seq > t.last_message_seq - sqlc.arg(history)::bigint - 1 OR m.seq = t.status_message_seq)), 0)
    + CASE
        WHEN NOT sqlc.arg(artifacts)::boolean OR NOT t.has_artifacts THEN 0
        WHEN t.folded THEN coalesce((
          SELECT sum(octet_length(p.part::text) + 512)
          FROM a2a.artifact_parts p
          WHERE p.task_id = ANY (ARRAY[t.id])), 0)
        ELSE coalesce((
          SELECT sum(octet_length(e.body::text) + octet_length(e.parts::text) + 512)
          FROM a2a.task_events e
          WHERE e.task_id = ANY (ARRAY[t.id]) AND e.artifact_id IS NOT NULL), 0) END)::bigint AS bytes
FROM a2a.tasks t
WHERE t.id = ANY (sqlc.arg(ids)::uuid[]);

-- TasksSnapshotAt reads different tasks, each as it was when its event seq was the newest one, in the rows of
-- TaskSnapshots. A task that may take more than most bytes (0: no limit) gives only its part 0. It reads nothing that a
-- later event changes, so its answer is always the same. The caller has checked that the client may see the tasks.
-- name: TasksSnapshotAt :many
WITH n AS (
  SELECT unnest(sqlc.arg(ids)::uuid[]) AS id, unnest(sqlc.arg(seqs)::bigint[]) AS seq
), t AS MATERIALIZED (
  SELECT t.id, n.seq, t.context_id, t.agent, t.created_at, t.metadata, t.first_seq, t.reply, e.event_uid,
    t.bytes + 512 * (t.last_seq + t.last_message_seq) AS cost,
    s.seq AS status_seq, s.state, s.committed_at AS status_at
  FROM n
  JOIN a2a.tasks t ON t.id = ANY (ARRAY[n.id])
  JOIN a2a.task_events e ON e.task_id = ANY (ARRAY[n.id]) AND e.seq = ANY (ARRAY[n.seq]),
  LATERAL (
    SELECT x.seq, x.state, x.committed_at
    FROM a2a.task_events x
    WHERE x.task_id = n.id AND x.seq <= n.seq AND x.kind = a2a.kind_status()
    ORDER BY x.seq DESC
    LIMIT 1
  ) s
), m AS MATERIALIZED (
  -- A client's message that came without an event shows from the next event on.
  SELECT t.id, m.seq, m.message_id, m.role, m.body, m.role = a2a.role_agent() AND m.at_seq = t.status_seq AS of_status,
    max(m.seq) OVER (PARTITION BY t.id) AS newest, t.cost
  FROM t
  JOIN a2a.messages m ON m.task_id = ANY (ARRAY[t.id]) AND m.at_seq <= t.seq
)
SELECT t.id AS task_id, 0::smallint AS part, t.seq::bigint AS seq,
  coalesce((SELECT m.seq FROM m WHERE m.id = t.id AND m.of_status), 0)::bigint AS idx, t.context_id AS name,
  coalesce(t.state, 0)::smallint AS state, t.status_at AS at, t.event_uid AS uid,
  t.agent AS agent, t.created_at AS created_at, t.metadata AS body, NULL::json AS parts,
  (t.reply = a2a.reply_message() AND t.state = a2a.state_completed())::boolean AS replied, t.cost::bigint AS cost
FROM t
UNION ALL
SELECT m.id, 1::smallint, m.seq, 0, m.message_id, m.role, NULL, NULL, '', NULL, m.body, NULL, false, 0
FROM m
WHERE (m.seq > m.newest - sqlc.arg(history)::bigint - 1 OR m.of_status)
  AND (sqlc.arg(most)::bigint = 0 OR m.cost <= sqlc.arg(most))
UNION ALL
SELECT a.task_id, 2::smallint, a.position, 0, a.artifact_id, 0, NULL, NULL, '', NULL, a.header, NULL, false, 0
FROM t
JOIN a2a.artifacts a ON a.task_id = ANY (ARRAY[t.id])
WHERE sqlc.arg(artifacts)::boolean
  AND t.first_seq > 1 -- older events were removed: only the folded artifacts have what they said
  AND (sqlc.arg(most)::bigint = 0 OR t.cost <= sqlc.arg(most))
UNION ALL
SELECT p.task_id, 3::smallint, p.seq, p.idx, p.artifact_id, 0, NULL, NULL, '', NULL, p.part, NULL, false, 0
FROM t
JOIN a2a.artifact_parts p ON p.task_id = ANY (ARRAY[t.id])
WHERE sqlc.arg(artifacts)
  AND t.first_seq > 1
  AND (sqlc.arg(most)::bigint = 0 OR t.cost <= sqlc.arg(most))
UNION ALL
SELECT e.task_id, 4::smallint, e.seq, 0, e.artifact_id, e.kind, NULL, NULL, '', NULL, e.body, e.parts, false, 0
FROM t
JOIN a2a.task_events e ON e.task_id = ANY (ARRAY[t.id])
WHERE sqlc.arg(artifacts)
  AND e.seq <= t.seq
  AND e.artifact_id IS NOT NULL
  AND (sqlc.arg(most)::bigint = 0 OR t.cost <= sqlc.arg(most));

-- TaskPageForCaller reads the ids of one page of the caller's tasks of one agent, newest status first. before_at and
-- before_id are the position of the last task of the previous page.
-- name: TaskPageForCaller :many
SELECT t.id, t.status_at
FROM a2a.tasks t
WHERE t.tenant = sqlc.arg(tenant)
  AND (t.owner = sqlc.arg(owner) OR sqlc.arg(shared)::boolean)
  AND t.agent = sqlc.arg(agent)
  -- The statement is planned for its arguments: the list of an owner is one list_key, that of a tenant a range.
  AND (t.list_key = a2a.list_key(sqlc.arg(tenant), sqlc.arg(owner), sqlc.arg(agent)) OR sqlc.arg(shared))
  AND (t.list_key >= a2a.list_key_lowest(sqlc.arg(tenant)) AND t.list_key <= a2a.list_key_highest(sqlc.arg(tenant))
    OR NOT sqlc.arg(shared))
  AND (sqlc.arg(context_id)::text = '' OR t.id = ANY (ARRAY(
    SELECT c.task_id
    FROM a2a.context_tasks c
    WHERE c.tenant = sqlc.arg(tenant)
      AND (c.owner = sqlc.arg(owner) OR sqlc.arg(shared))
      AND c.context_id = sqlc.arg(context_id))))
  AND (sqlc.arg(state)::smallint = 0 OR t.state = sqlc.arg(state))
  AND t.status_at >= sqlc.arg(since)::timestamptz
  -- An undecided task, and one that was answered with a message, is no task to clients.
  AND (t.reply = a2a.reply_task() OR t.reply = a2a.reply_open() AND a2a.state_ends_turn(t.state))
  AND (t.status_at, t.id) < (sqlc.arg(before_at)::timestamptz, sqlc.arg(before_id)::uuid)
ORDER BY t.status_at DESC, t.id DESC
LIMIT sqlc.arg(max)::int;

-- TaskCountForCaller counts the tasks that TaskPageForCaller pages through, up to most.
-- name: TaskCountForCaller :one
SELECT count(*)
FROM (
  SELECT
  FROM a2a.tasks t
  WHERE t.tenant = sqlc.arg(tenant)
    AND (t.owner = sqlc.arg(owner) OR sqlc.arg(shared)::boolean)
    AND t.agent = sqlc.arg(agent)
    AND (t.list_key = a2a.list_key(sqlc.arg(tenant), sqlc.arg(owner), sqlc.arg(agent)) OR sqlc.arg(shared))
    AND (t.list_key >= a2a.list_key_lowest(sqlc.arg(tenant)) AND t.list_key <= a2a.list_key_highest(sqlc.arg(tenant))
      OR NOT sqlc.arg(shared))
    AND (sqlc.arg(context_id)::text = '' OR t.id = ANY (ARRAY(
      SELECT c.task_id
      FROM a2a.context_tasks c
      WHERE c.tenant = sqlc.arg(tenant)
        AND (c.owner = sqlc.arg(owner) OR sqlc.arg(shared))
        AND c.context_id = sqlc.arg(context_id))))
    AND (sqlc.arg(state)::smallint = 0 OR t.state = sqlc.arg(state))
    AND (t.reply = a2a.reply_task() OR t.reply = a2a.reply_open() AND a2a.state_ends_turn(t.state))
    AND t.status_at >= sqlc.arg(since)::timestamptz
  LIMIT sqlc.arg(most)::bigint
) x;

-- TaskOwner reads who owns a task. It is for a submit that must find out whether it was stored, and for the operator
-- (package operate), who may act on any task.
-- name: TaskOwner :one
SELECT t.tenant, t.owner, t.created_at
FROM a2a.tasks t
WHERE t.id = sqlc.arg(id);

-- TaskCountInFlightForCaller counts the tasks of one owner, of all agents, that wait for an agent or are with one, up
-- to max.
-- name: TaskCountInFlightForCaller :one
SELECT count(*)
FROM (
  SELECT 1
  FROM a2a.tasks t
  WHERE t.list_key >= a2a.list_key_lowest(sqlc.arg(tenant), sqlc.arg(owner))
    AND t.list_key <= a2a.list_key_highest(sqlc.arg(tenant), sqlc.arg(owner))
    AND t.tenant = sqlc.arg(tenant)
    AND t.owner = sqlc.arg(owner)
    AND t.state IN (a2a.state_submitted(), a2a.state_working()) -- the predicate of the index tasks_running
  LIMIT sqlc.arg(max)::int
) n;
