-- AssignmentSet assigns the question of a task to a person. No row: the task asks nothing, or another question.
-- name: AssignmentSet :one
WITH asking AS (
  SELECT t.id, t.tenant, t.owner, t.status_at
  FROM a2a.tasks t
  WHERE t.id = sqlc.arg(id)
    AND a2a.state_interrupted(t.state)
    AND (sqlc.narg(asked_at)::timestamptz IS NULL OR t.status_at = sqlc.narg(asked_at))
), assigned AS (
  INSERT INTO a2a.task_assignments AS a (task_id, asked_at, assignee, assigned_by)
  SELECT q.id, q.status_at, sqlc.arg(assignee)::text, sqlc.arg(assigned_by)::text
  FROM asking q
  ON CONFLICT (task_id) DO UPDATE
  SET asked_at = excluded.asked_at, assignee = excluded.assignee, assigned_by = excluded.assigned_by,
    assigned_at = clock_timestamp()
)
SELECT q.tenant, q.owner
FROM asking q;

-- AssignmentEnd ends the assignment of the question of a task. No row: the task asks nothing, or another question.
-- name: AssignmentEnd :one
WITH asking AS (
  SELECT t.id, t.tenant, t.owner
  FROM a2a.tasks t
  WHERE t.id = sqlc.arg(id)
    AND a2a.state_interrupted(t.state)
    AND (sqlc.narg(asked_at)::timestamptz IS NULL OR t.status_at = sqlc.narg(asked_at))
), ended AS (
  DELETE FROM a2a.task_assignments a
  WHERE a.task_id = ANY (ARRAY(SELECT q.id FROM asking q))
)
SELECT q.tenant, q.owner
FROM asking q;
