-- WaitBegin records what ends the wait of a task whose run has just ended. The transaction has locked the task. It
-- returns how long the task waits at most; nothing if only an event ends the wait.
-- name: WaitBegin :one
WITH task AS (
  SELECT t.id, t.lease_epoch, t.deadline_at, t.last_user_seq
  FROM a2a.tasks t
  WHERE t.id = sqlc.arg(task_id)::uuid
), signal AS (
  -- The oldest signal with the name that has ended no wait yet.
  UPDATE a2a.task_signals s
  SET step = sqlc.arg(step)::int
  WHERE s.task_id = sqlc.arg(task_id)
    AND s.seq = (
      SELECT min(x.seq)
      FROM a2a.task_signals x
      WHERE x.task_id = sqlc.arg(task_id) AND x.name = sqlc.narg(on_signal)::text AND x.step IS NULL)
  RETURNING json_build_object('by', 'signal', 'name', s.name, 'value', s.value) AS result
), calls AS (
  -- The transaction has locked the steps of the calls.
  SELECT count(*)::int AS calls,
    CASE WHEN sqlc.arg(any_call)::boolean THEN least(1, 1 - count(s.ended_at))
      ELSE count(*) - count(s.ended_at) END::int AS pending
  FROM a2a.task_steps s
  WHERE s.task_id = sqlc.arg(task_id) AND s.seq = ANY (sqlc.arg(calls)::int[])
), ended AS (
  -- What has happened before the wait began.
  SELECT coalesce(
    (SELECT s.result FROM signal s),
    CASE
      WHEN sqlc.arg(on_message)::boolean AND t.last_user_seq > sqlc.arg(through)::bigint
        THEN json_build_object('by', 'message', 'messageId', (
          SELECT m.message_id
          FROM a2a.messages m
          WHERE m.task_id = t.id AND m.seq > sqlc.arg(through) AND m.role = a2a.role_user()
          ORDER BY m.seq
          LIMIT 1))
      WHEN c.calls > 0 AND c.pending <= 0 THEN '{"by":"tasks"}'::json END) AS result, c.pending
  FROM task t, calls c
), wait AS (
  INSERT INTO a2a.task_waits AS w (
    task_id, epoch, step, due_at, set_at, deadline_at, on_message, on_signal, expects, result, calls, pending)
  SELECT t.id, t.lease_epoch, sqlc.arg(step),
    CASE
      WHEN e.result IS NOT NULL THEN clock_timestamp()
      WHEN sqlc.narg(until)::timestamptz IS NOT NULL THEN sqlc.narg(until)
      WHEN sqlc.narg(lasts)::interval IS NOT NULL THEN clock_timestamp() + sqlc.narg(lasts)
      ELSE 'infinity' END,
    -- A time that the agent named does not move with the clock, unless the deadline, which does, comes first.
    CASE WHEN e.result IS NOT NULL OR sqlc.narg(until) IS NULL OR sqlc.narg(until) >= t.deadline_at
      THEN clock_timestamp() END,
    t.deadline_at, sqlc.arg(on_message), sqlc.narg(on_signal), sqlc.narg(expects)::json, e.result,
    nullif(sqlc.arg(calls)::int[], '{}'), e.pending
  FROM task t, ended e
  -- A server of an earlier version may have left one.
  ON CONFLICT (task_id) DO UPDATE
  SET epoch = excluded.epoch, step = excluded.step, due_at = excluded.due_at, set_at = excluded.set_at,
    deadline_at = excluded.deadline_at, on_message = excluded.on_message, on_signal = excluded.on_signal,
    expects = excluded.expects, result = excluded.result, calls = excluded.calls, pending = excluded.pending
  RETURNING w.due_at, w.deadline_at
)
SELECT (least(w.due_at, w.deadline_at) < 'infinity')::boolean AS bounded,
  CASE WHEN least(w.due_at, w.deadline_at) < 'infinity'
    THEN (extract(epoch FROM least(w.due_at, w.deadline_at) - clock_timestamp()) * 1000)::bigint ELSE 0 END::bigint
    AS due_in_ms
FROM wait w;

-- WaitsNext returns how long it takes until the next wait ends by its time or its deadline; -1: never.
-- name: WaitsNext :one
SELECT CASE WHEN n.at IS NULL THEN -1 ELSE greatest(extract(epoch FROM n.at - clock_timestamp()) * 1000, 0) END::bigint
  AS due_in_ms
FROM (
  SELECT least(
    (SELECT w.due_at FROM a2a.task_waits w WHERE w.due_at < 'infinity' ORDER BY w.due_at LIMIT 1),
    (SELECT w.deadline_at FROM a2a.task_waits w WHERE w.deadline_at < 'infinity' ORDER BY w.deadline_at LIMIT 1)) AS at
) n;

-- WaitsEnd puts tasks whose wait is over into the queue, at most batch of them. It waits for no lock.
-- name: WaitsEnd :many
WITH due AS (
  SELECT w.task_id
  FROM a2a.task_waits w
  WHERE w.due_at <= (SELECT clock_timestamp())
  ORDER BY w.due_at
  LIMIT sqlc.arg(batch)::int
), locked AS (
  SELECT t.id, a2a.state_interrupted(t.state) AS asks
  FROM a2a.tasks t
  WHERE t.id = ANY (ARRAY(SELECT d.task_id FROM due d))
  ORDER BY t.id
  FOR UPDATE SKIP LOCKED
), ended AS (
  -- Also rows that belong to no wait any more.
  DELETE FROM a2a.task_waits w
  USING locked k
  WHERE w.task_id = ANY (ARRAY[k.id]) AND w.due_at <= clock_timestamp()
  RETURNING w.task_id, w.epoch, w.step, coalesce(w.result, '{"by":"time"}') AS result, clock_timestamp() AS now
), task AS (
  -- A task that waits for an answer is worked on again. That is a status of its own.
  UPDATE a2a.tasks t
  SET ready_at = e.now,
    state = a2a.state_working(),
    last_seq = t.last_seq + CASE WHEN k.asks THEN 1 ELSE 0 END,
    last_at = CASE WHEN k.asks THEN greatest(e.now, t.last_at) ELSE t.last_at END,
    status_at = CASE WHEN k.asks THEN date_trunc('milliseconds', greatest(e.now, t.last_at))
      ELSE t.status_at END,
    status_message_seq = CASE WHEN NOT k.asks THEN t.status_message_seq END
  FROM ended e
  JOIN locked k ON k.id = e.task_id
  WHERE t.id = ANY (ARRAY[e.task_id]) AND t.lease_epoch = e.epoch AND NOT a2a.state_terminal(t.state)
  RETURNING t.id, t.agent, t.priority, t.tenant, t.ready_at, t.last_seq, t.last_at, t.has_push, e.step, e.result,
    k.asks
), step AS (
  UPDATE a2a.task_steps s
  SET ended_at = clock_timestamp(), result = t.result
  FROM task t
  WHERE s.task_id = ANY (ARRAY[t.id]) AND s.seq = t.step AND s.ended_at IS NULL
), event AS (
  INSERT INTO a2a.task_events (task_id, seq, event_uid, kind, state, source, committed_at, body)
  SELECT t.id, t.last_seq, gen_random_uuid(), a2a.kind_status(), a2a.state_working(), a2a.source_server(), t.last_at,
    '{}'
  FROM task t
  WHERE t.asks
), ready AS (
  -- The claim writes no event: the client has been told, or sees no difference.
  INSERT INTO a2a.task_ready (queue, priority, run_at, task_id, tenant, quiet)
  SELECT t.agent, t.priority, t.ready_at, t.id, t.tenant, true
  FROM task t
)
SELECT t.id, t.agent, t.asks, t.has_push,
  split_part(t.result::text, '"', 4) AS by -- the result begins with {"by":"…"
FROM task t;

-- WaitAnswer tells the wait of a task that the transaction has locked about a message of the client. If the message
-- puts the task back into the queue, the wait is over; otherwise it is due if it is for a message. It returns whether
-- a wait is over, and whether one is due.
-- name: WaitAnswer :one
WITH ended AS (
  DELETE FROM a2a.task_waits w
  WHERE w.task_id = sqlc.arg(task_id)::uuid AND sqlc.arg(resubmit)::boolean
  RETURNING w.task_id, w.step
), step AS (
  UPDATE a2a.task_steps s
  SET ended_at = clock_timestamp(),
    result = json_build_object('by', 'message', 'messageId', sqlc.arg(message_id)::text)
  FROM ended e
  WHERE s.task_id = ANY (ARRAY[e.task_id]) AND s.seq = e.step AND s.ended_at IS NULL
), due AS (
  UPDATE a2a.task_waits w
  SET due_at = clock_timestamp(), set_at = clock_timestamp(),
    result = json_build_object('by', 'message', 'messageId', sqlc.arg(message_id)::text)
  WHERE w.task_id = sqlc.arg(task_id) AND NOT sqlc.arg(resubmit) AND w.on_message AND w.result IS NULL
    AND w.due_at > clock_timestamp()
  RETURNING w.task_id
)
SELECT EXISTS (SELECT FROM ended) AS ended, EXISTS (SELECT FROM due) AS due;

-- WaitSkip records that a wait was over before it began, because the client had sent its answer.
-- name: WaitSkip :exec
UPDATE a2a.task_steps s
SET ended_at = clock_timestamp(),
  result = json_build_object('by', 'message', 'messageId', (
    -- The first message that the run has not seen.
    SELECT m.message_id
    FROM a2a.messages m
    WHERE m.task_id = sqlc.arg(task_id) AND m.seq > sqlc.arg(through)::bigint AND m.role = a2a.role_user()
    ORDER BY m.seq
    LIMIT 1))
WHERE s.task_id = sqlc.arg(task_id) AND s.seq = sqlc.arg(step) AND s.ended_at IS NULL;

-- WaitExpects returns what an answer to the task's question must look like. No row means that it may be anything.
-- name: WaitExpects :one
SELECT w.expects
FROM a2a.task_waits w
JOIN a2a.tasks t ON t.id = w.task_id AND t.lease_epoch = w.epoch
WHERE w.task_id = sqlc.arg(task_id) AND w.expects IS NOT NULL;

-- WaitsOverdue removes the waits of tasks whose deadline has passed, at most batch of them, and locks and returns the
-- tasks. It waits for no lock.
-- name: WaitsOverdue :many
WITH due AS (
  SELECT w.task_id
  FROM a2a.task_waits w
  WHERE w.deadline_at <= (SELECT clock_timestamp())
  ORDER BY w.deadline_at
  LIMIT sqlc.arg(batch)::int
), locked AS (
  SELECT t.id, t.agent, t.lease_epoch, t.state
  FROM a2a.tasks t
  WHERE t.id = ANY (ARRAY(SELECT d.task_id FROM due d))
  ORDER BY t.id
  FOR UPDATE SKIP LOCKED
), ended AS (
  DELETE FROM a2a.task_waits w
  USING locked k
  WHERE w.task_id = ANY (ARRAY[k.id])
    -- Not the predicate of the partial index: the planner would walk over it, not look up the task.
    AND coalesce(w.deadline_at, 'infinity') <= clock_timestamp()
  RETURNING w.task_id, w.epoch
)
SELECT k.id, k.agent
FROM ended e
JOIN locked k ON k.id = e.task_id AND k.lease_epoch = e.epoch
WHERE NOT a2a.state_terminal(k.state);

-- SignalAdd stores a signal for a task that the transaction has locked, and ends the wait that is for it. A signal with
-- a known key changes nothing. It returns whether it is new, whether a wait is due, and the digest under the key.
-- name: SignalAdd :one
WITH known AS (
  SELECT s.digest
  FROM a2a.task_signals s
  WHERE s.task_id = sqlc.arg(task_id)::uuid AND s.key = sqlc.arg(key)::text
), due AS (
  UPDATE a2a.task_waits w
  SET due_at = clock_timestamp(), set_at = clock_timestamp(),
    result = json_build_object('by', 'signal', 'name', sqlc.arg(name)::text, 'value', sqlc.arg(value)::json)
  WHERE w.task_id = sqlc.arg(task_id) AND w.on_signal = sqlc.arg(name) AND w.result IS NULL
    AND w.due_at > clock_timestamp()
    AND NOT EXISTS (SELECT FROM known)
  RETURNING w.step
), added AS (
  INSERT INTO a2a.task_signals (task_id, seq, name, key, digest, value, sender, step)
  SELECT sqlc.arg(task_id),
    (SELECT coalesce(max(x.seq), 0) + 1 FROM a2a.task_signals x WHERE x.task_id = sqlc.arg(task_id)),
    sqlc.arg(name), sqlc.arg(key), sqlc.arg(digest)::bytea, sqlc.arg(value), sqlc.arg(sender)::text,
    (SELECT d.step FROM due d)
  WHERE NOT EXISTS (SELECT FROM known)
  RETURNING seq
)
SELECT EXISTS (SELECT FROM added) AS added, EXISTS (SELECT FROM due) AS due,
  coalesce((SELECT k.digest FROM known k), sqlc.arg(digest))::bytea AS digest;

-- SignalTask locks the task that a signal is for.
-- name: SignalTask :one
SELECT t.tenant, t.owner, t.agent, t.state, (SELECT count(*) FROM a2a.task_signals s WHERE s.task_id = sqlc.arg(id)) AS signals
FROM a2a.tasks t
WHERE t.id = sqlc.arg(id)::uuid
FOR UPDATE;
