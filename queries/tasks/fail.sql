-- TasksFail fails tasks that the transaction has locked and taken from where they waited, each with its text as the
-- message. It returns those that had not ended.
-- name: TasksFail :many
WITH failing AS (
  SELECT unnest(sqlc.arg(ids)::uuid[]) AS id, unnest(sqlc.arg(texts)::text[]) AS text, clock_timestamp() AS now
), task AS (
  UPDATE a2a.tasks t
  SET state = a2a.state_failed(),
    lease_epoch = t.lease_epoch + 1,
    last_seq = t.last_seq + 1,
    last_message_seq = t.last_message_seq + 1,
    last_at = greatest(f.now, t.last_at),
    status_at = date_trunc('milliseconds', greatest(f.now, t.last_at)),
    status_message_seq = t.last_message_seq + 1,
    deadline_at = NULL,
    ready_at = NULL,
    folded = t.has_artifacts
      AND t.last_seq >= sqlc.arg(fold_events)::bigint
      AND t.last_seq < sqlc.arg(fold_most_events)::bigint
      AND t.bytes <= sqlc.arg(fold_most_bytes)::bigint
  FROM failing f
  WHERE t.id = ANY (ARRAY[f.id]) AND NOT a2a.state_terminal(t.state)
  RETURNING t.id, t.last_seq, t.last_message_seq, t.last_at, t.folded, t.has_push, f.text
), status AS (
  SELECT t.id, t.last_message_seq, t.last_seq, t.last_at, json_build_object('messageId', gen_random_uuid(), 'parts',
    json_build_array(json_build_object('text', t.text))) AS message
  FROM task t
), message AS (
  INSERT INTO a2a.messages (task_id, seq, at_seq, message_id, role, body)
  SELECT s.id, s.last_message_seq, s.last_seq, s.message->>'messageId', a2a.role_agent(), s.message
  FROM status s
), event AS (
  INSERT INTO a2a.task_events (task_id, seq, event_uid, kind, state, source, committed_at, body)
  SELECT s.id, s.last_seq, gen_random_uuid(), a2a.kind_status(), a2a.state_failed(), a2a.source_server(), s.last_at,
    json_build_object('message', s.message)
  FROM status s
)
SELECT t.id, t.folded, t.has_push
FROM task t;
