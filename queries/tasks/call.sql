-- CallsCount counts the calls that runs of a task have made.
-- name: CallsCount :one
SELECT count(*)::int AS calls
FROM a2a.task_steps s
WHERE s.task_id = sqlc.arg(task_id)::uuid AND s.kind = a2a.step_call();

-- CallsLock locks the steps of calls, in one order: of those that made the given tasks, if these have ended, and of
-- those that a wait begins to wait for. It comes before CallsEnd and WaitBegin, so that of the end of a child and of
-- the wait for it, one sees the other. ends is set for the open steps of the tasks that have ended.
-- name: CallsLock :many
WITH ended AS (
  SELECT t.id, t.parent_id, t.parent_step, t.agent, t.state, t.bytes
  FROM a2a.tasks t
  WHERE t.id = ANY (sqlc.arg(children)::uuid[]) AND t.parent_id IS NOT NULL AND a2a.state_terminal(t.state)
), wanted AS (
  SELECT e.parent_id AS task_id, e.parent_step AS seq
  FROM ended e
  UNION
  SELECT unnest(sqlc.arg(waiting)::uuid[]), unnest(sqlc.arg(steps)::int[])
), locked AS (
  -- LIMIT keeps this a loop in the order of wanted, with one look-up each.
  SELECT s.task_id, s.seq, s.ended_at
  FROM (SELECT w.task_id, w.seq FROM wanted w ORDER BY w.task_id, w.seq) w,
  LATERAL (
    SELECT x.task_id, x.seq, x.ended_at
    FROM a2a.task_steps x
    WHERE x.task_id = w.task_id AND x.seq = w.seq
    LIMIT 1
    FOR UPDATE
  ) s
)
-- All of locked is read, and locked, because it is the outer side of the join.
SELECT k.task_id AS parent_id, k.seq AS step, coalesce(e.id, k.task_id)::uuid AS child_id,
  (e.id IS NOT NULL AND k.ended_at IS NULL)::boolean AS ends, coalesce(e.agent, '')::text AS agent,
  coalesce(e.state, 0)::smallint AS state, coalesce(e.bytes, 0)::bigint AS bytes
FROM locked k
LEFT JOIN ended e ON e.parent_id = k.task_id AND e.parent_step = k.seq;

-- CallsEnd ends the steps of calls that the transaction has locked, and tells the waits of their tasks. The wait that
-- has no more to wait for is due. It follows CallsLock as a statement of its own: that one does not see a wait that
-- began while it waited for a lock. It returns whether a wait is due.
-- name: CallsEnd :one
WITH ended AS (
  SELECT unnest(sqlc.arg(parents)::uuid[]) AS task_id, unnest(sqlc.arg(steps)::int[]) AS seq,
    unnest(sqlc.arg(results)::json[]) AS result
), step AS (
  UPDATE a2a.task_steps s
  SET ended_at = clock_timestamp(), result = e.result
  FROM ended e
  WHERE s.task_id = ANY (ARRAY[e.task_id]) AND s.seq = ANY (ARRAY[e.seq]) AND s.ended_at IS NULL
), parent AS (
  SELECT w.task_id, w.pending - (
      SELECT count(*)::int FROM ended e WHERE e.task_id = w.task_id AND e.seq = ANY (w.calls)) AS pending
  FROM (SELECT DISTINCT e.task_id FROM ended e ORDER BY e.task_id) p, -- the order of locks
  LATERAL (
    SELECT x.task_id, x.calls, x.pending
    FROM a2a.task_waits x
    WHERE x.task_id = p.task_id AND x.calls IS NOT NULL
    LIMIT 1
    FOR UPDATE
  ) w
), told AS (
  UPDATE a2a.task_waits w
  SET pending = p.pending,
    due_at = CASE WHEN p.pending <= 0 AND w.result IS NULL THEN least(w.due_at, clock_timestamp()) ELSE w.due_at END,
    set_at = CASE WHEN p.pending <= 0 AND w.result IS NULL THEN clock_timestamp() ELSE w.set_at END,
    result = CASE WHEN p.pending <= 0 THEN coalesce(w.result, '{"by":"tasks"}') ELSE w.result END
  FROM parent p
  WHERE w.task_id = ANY (ARRAY[p.task_id])
  RETURNING p.pending
)
SELECT coalesce(bool_or(t.pending <= 0), false)::boolean AS due
FROM told t;

-- OrphansAdd notes the children of ended tasks that must be canceled, and returns how many. A child that ends at the
-- same time may be among them.
-- name: OrphansAdd :execrows
INSERT INTO a2a.task_orphans (task_id, parent_id)
SELECT s.child_id, s.task_id
FROM a2a.task_steps s
WHERE s.task_id = ANY (sqlc.arg(parents)::uuid[]) AND s.kind = a2a.step_call() AND s.ended_at IS NULL
  AND s.on_parent_end = a2a.call_cancel()
ON CONFLICT DO NOTHING;

-- OrphanNext locks a child that must be canceled. No row means that there is none that no other transaction has.
-- name: OrphanNext :one
SELECT o.task_id, o.parent_id, coalesce(t.tenant, '')::text AS tenant, coalesce(t.owner, '')::text AS owner,
  (t.id IS NULL)::boolean AS gone
FROM (
  SELECT x.task_id, x.parent_id
  FROM a2a.task_orphans x
  ORDER BY x.task_id
  LIMIT 1
  FOR UPDATE SKIP LOCKED
) o
LEFT JOIN LATERAL (SELECT c.id, c.tenant, c.owner FROM a2a.tasks c WHERE c.id = o.task_id LIMIT 1) t ON true;

-- OrphanDelete removes a child that needs no cancel any more.
-- name: OrphanDelete :exec
DELETE FROM a2a.task_orphans o
WHERE o.task_id = sqlc.arg(task_id)::uuid;

-- CallsOpen reads a page of the calls that have not ended, and whether the child or the parent has. A server of an
-- earlier version ends tasks without telling their parent, or their children.
-- name: CallsOpen :many
SELECT s.task_id, s.seq, s.child_id::uuid AS child_id,
  coalesce(a2a.state_terminal(c.state), true)::boolean AS child_ended, (c.id IS NULL)::boolean AS child_gone,
  coalesce(a2a.state_terminal(p.state), true)::boolean AS parent_ended
FROM (
  SELECT x.task_id, x.seq, x.child_id
  FROM a2a.task_steps x
  WHERE x.kind = a2a.step_call() AND x.ended_at IS NULL
    AND (x.task_id, x.seq) > (sqlc.arg(after_task)::uuid, sqlc.arg(after_seq)::int)
  ORDER BY x.task_id, x.seq
  LIMIT sqlc.arg(max)::int
) s
LEFT JOIN LATERAL (SELECT x.id, x.state FROM a2a.tasks x WHERE x.id = s.child_id LIMIT 1) c ON true
LEFT JOIN LATERAL (SELECT x.id, x.state FROM a2a.tasks x WHERE x.id = s.task_id LIMIT 1) p ON true
ORDER BY s.task_id, s.seq;
