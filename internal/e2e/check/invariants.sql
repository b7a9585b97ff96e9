-- The invariants that a database shows by itself. Each query returns (task id, what is wrong)
-- and no row where its invariant holds. $1, where it stands, is how long work may wait for a
-- worker at quiescence.

-- invariant: I2a statuses follow each other as the state machine allows
SELECT s.task_id::text, format('seq %s: %s after %s', s.seq, s.state, coalesce(s.before, 'nothing'))
FROM (
  SELECT e.task_id, e.seq, e.state, lag(e.state) OVER (PARTITION BY e.task_id ORDER BY e.seq) AS before
  FROM audit.event e
  WHERE e.kind = 'status'
) s
WHERE CASE
  WHEN s.seq > 1 AND s.before IS NULL THEN false -- the log was retired; I3a says what else may be missing
  WHEN s.before IS NULL THEN s.state <> 'SUBMITTED'
  WHEN s.before IN ('SUBMITTED', 'WORKING') THEN s.state = 'SUBMITTED'
  WHEN s.before IN ('INPUT_REQUIRED', 'AUTH_REQUIRED') THEN s.state IN ('INPUT_REQUIRED', 'AUTH_REQUIRED')
  ELSE false -- I2b names what follows an end
END;

-- invariant: I2b nothing follows the end
SELECT e.task_id::text, format('seq %s (%s) after the end at seq %s', e.seq, coalesce(e.state, e.kind), f.seq)
FROM audit.event e
JOIN (
  SELECT t.task_id, min(t.seq) AS seq
  FROM audit.event t
  WHERE t.state IN ('COMPLETED', 'FAILED', 'CANCELED', 'REJECTED')
  GROUP BY t.task_id
) f ON f.task_id = e.task_id AND f.seq < e.seq;

-- invariant: I2c a task is in the state of its newest status
SELECT t.id::text, format('the task is %s, its newest status %s', t.state, coalesce(n.state, 'is missing'))
FROM audit.task t
LEFT JOIN (
  SELECT DISTINCT ON (e.task_id) e.task_id, e.state
  FROM audit.event e
  WHERE e.kind = 'status'
  ORDER BY e.task_id, e.seq DESC
) n ON n.task_id = t.id
WHERE n.state IS DISTINCT FROM t.state;

-- invariant: I3a events are numbered from first_seq (1, unless the log was retired) to last_seq, each once
SELECT n.task_id::text, format('place %s of %s has seq %s, last_seq is %s',
  n.place, n.events, coalesce(n.seq::text, '(none)'), n.last_seq)
FROM (
  SELECT t.id AS task_id, t.first_seq, t.last_seq, e.seq, row_number() OVER w + t.first_seq - 1 AS place,
    count(e.seq) OVER (PARTITION BY t.id) AS events
  FROM audit.task t
  LEFT JOIN audit.event e ON e.task_id = t.id
  WINDOW w AS (PARTITION BY t.id ORDER BY e.seq)
) n
WHERE n.seq IS DISTINCT FROM n.place OR n.events <> n.last_seq - n.first_seq + 1;

-- invariant: I3a no event without its task
SELECT e.task_id::text, format('seq %s', e.seq)
FROM audit.event e
WHERE NOT EXISTS (SELECT FROM audit.task t WHERE t.id = e.task_id);

-- invariant: I3b events are numbered in the order of their commits
SELECT e.task_id::text, format('seq %s is of %s, the one before of %s', e.seq, e.committed_at, e.before)
FROM (
  SELECT v.task_id, v.seq, v.committed_at, lag(v.committed_at) OVER (PARTITION BY v.task_id ORDER BY v.seq) AS before
  FROM audit.event v
) e
WHERE e.committed_at < e.before;

-- invariant: I4a a worker writes nothing after a later claim has written
SELECT o.task_id::text, format('seq %s was written under claim %s, which claim %s had overtaken at seq %s',
  o.seq, o.token, y.token, y.seq)
FROM audit.event o
JOIN LATERAL (
  SELECT v.seq, v.token
  FROM audit.event v
  WHERE v.task_id = o.task_id AND v.seq < o.seq AND v.source = 'worker' AND v.token > o.token
  ORDER BY v.seq
  LIMIT 1
) y ON true
WHERE o.source = 'worker';

-- invariant: I4b a claim has one worker
SELECT a.task_id::text, format('claim %s: %s', a.token, string_agg(a.worker, ', '))
FROM audit.attempt a
GROUP BY a.task_id, a.token
HAVING count(*) > 1;

-- invariant: I4c a worker writes only under its own claim
SELECT e.task_id::text, format('seq %s by %s under claim %s', e.seq, coalesce(e.worker, '(nobody)'), e.token)
FROM audit.event e
LEFT JOIN audit.attempt a ON a.task_id = e.task_id AND a.token = e.token AND a.worker = e.worker
WHERE e.source = 'worker' AND a.task_id IS NULL;

-- invariant: I4d a claim begins with a working status, unless an attempt before was unreachable or waiting
SELECT a.task_id::text, format('claim %s begins with %s', a.token, coalesce(f.state, f.kind, 'nothing'))
FROM audit.attempt a
LEFT JOIN audit.task t ON t.id = a.task_id
LEFT JOIN LATERAL (
  SELECT v.kind, v.state
  FROM audit.event v
  WHERE v.task_id = a.task_id AND v.token = a.token
  ORDER BY v.seq
  LIMIT 1
) f ON true
WHERE f.state IS DISTINCT FROM 'WORKING' AND coalesce(t.first_seq, 1) = 1
  AND NOT EXISTS (
    SELECT FROM audit.attempt p
    WHERE p.task_id = a.task_id AND p.token < a.token AND p.outcome IN ('unreachable', 'waiting'));

-- invariant: I8a the steps of a task are numbered from 1 without a gap, until its log is retired
SELECT s.task_id::text, format('%s steps, numbered %s to %s', count(*), min(s.seq), max(s.seq))
FROM audit.step s
GROUP BY s.task_id
HAVING min(s.seq) <> 1 OR max(s.seq) <> count(*);

-- invariant: I8b a worker records steps only under its own claim
SELECT s.task_id::text, format('step %s by %s under claim %s', s.key, s.worker, s.token)
FROM audit.step s
LEFT JOIN audit.attempt a ON a.task_id = s.task_id AND a.token = s.token AND a.worker = s.worker
WHERE a.task_id IS NULL;

-- invariant: I8c a later step was not recorded under an earlier claim
SELECT o.task_id::text, format('step %s under claim %s follows step %s under claim %s', o.seq, o.token, y.seq, y.token)
FROM audit.step o
JOIN audit.step y ON y.task_id = o.task_id AND y.seq < o.seq AND y.token > o.token
  -- A step that is recorded again has the claim of the last time.
  AND y.attempts = 1 AND y.artifact_id IS NULL;

-- invariant: I8d a task that waits has no worker, has not ended, and has its wait among its steps
SELECT w.task_id::text, format('%s, held by %s, step %s is %s', t.state, coalesce(t.lease_worker, 'nobody'), w.step,
  coalesce(s.kind, 'missing'))
FROM audit.wait w
LEFT JOIN audit.task t ON t.id = w.task_id
LEFT JOIN audit.step s ON s.task_id = w.task_id AND s.seq = w.step
WHERE t.lease_worker IS NOT NULL OR t.state IS NULL
  OR t.state NOT IN ('WORKING', 'INPUT_REQUIRED', 'AUTH_REQUIRED')
  OR s.kind IS DISTINCT FROM 'wait' OR s.ended_at IS NOT NULL;

-- invariant: I8e a wait that is not over is waited for
SELECT s.task_id::text, format('step %s', s.key)
FROM audit.step s
JOIN audit.task t ON t.id = s.task_id AND t.state IN ('WORKING', 'INPUT_REQUIRED', 'AUTH_REQUIRED')
WHERE s.kind = 'wait' AND s.ended_at IS NULL
  AND NOT EXISTS (SELECT FROM audit.wait w WHERE w.task_id = s.task_id AND w.step = s.seq);

-- invariant: I8f a call has its task, of the same owner, and a called task has its call
SELECT s.task_id::text, format('call %s of task %s', s.key, s.child_id)
FROM audit.step s
LEFT JOIN audit.task c ON c.id = s.child_id AND c.parent_id = s.task_id AND c.parent_step = s.seq
WHERE s.kind = 'call' AND s.ended_at IS NULL AND c.id IS NULL
UNION ALL
SELECT c.id::text, format('called by %s', p.id)
FROM audit.task c
JOIN audit.task p ON p.id = c.parent_id AND p.first_seq = 1
WHERE (c.tenant, c.owner) <> (p.tenant, p.owner)
  OR NOT EXISTS (SELECT FROM audit.step s WHERE s.task_id = p.id AND s.seq = c.parent_step AND s.child_id = c.id);

-- invariant: I8g a call ends with its task
SELECT s.task_id::text, format('call %s of task %s, which is %s', s.key, s.child_id, c.state)
FROM audit.step s
JOIN audit.task c ON c.id = s.child_id
WHERE s.kind = 'call' AND (s.ended_at IS NOT NULL) <> (c.state IN ('COMPLETED', 'FAILED', 'CANCELED', 'REJECTED'));

-- invariant: I8h a task that waits has a way to be woken, and is not parked
SELECT w.task_id::text, format('step %s waits for %s', w.step,
  CASE WHEN p.task_id IS NULL THEN 'nothing' ELSE 'something, and the task is parked' END)
FROM audit.wait w
LEFT JOIN audit.parked p ON p.task_id = w.task_id
WHERE p.task_id IS NOT NULL
  OR w.due_at IS NULL AND w.deadline_at IS NULL AND NOT w.on_message AND w.on_signal IS NULL AND w.pending <= 0;

-- invariant: I7a only the log of an ended task is retired, up to its last event
SELECT t.id::text, format('%s, begins at seq %s of %s', t.state, t.first_seq, t.last_seq)
FROM audit.task t
WHERE t.first_seq > 1 AND (t.state NOT IN ('COMPLETED', 'FAILED', 'CANCELED', 'REJECTED') OR t.first_seq <> t.last_seq);

-- invariant: I7b nothing is left of a deleted task
SELECT x.task_id::text, format('its %s', x.what)
FROM (
  SELECT a.task_id, 'attempts' AS what FROM audit.attempt a
  UNION ALL
  SELECT c.task_id, 'webhooks' FROM audit.push_config c
) x
WHERE NOT EXISTS (SELECT FROM audit.task t WHERE t.id = x.task_id);

-- invariant: I4e an ended claim has an outcome, and a claim without one has the lease
SELECT a.task_id::text, format('claim %s of %s ended %s with %s, the task is held under %s',
  a.token, a.worker, coalesce(a.ended_at::text, 'never'), coalesce(a.outcome, 'no outcome'), t.lease_token)
FROM audit.attempt a
JOIN audit.task t ON t.id = a.task_id
WHERE (a.outcome IS NULL) <> (t.lease_worker IS NOT NULL AND t.lease_token = a.token)
  OR (a.ended_at IS NULL) <> (a.outcome IS NULL);

-- invariant: I4f a task that has ended or waits for its client has no lease
SELECT t.id::text, format('%s and held by %s under claim %s', t.state, t.lease_worker, t.lease_token)
FROM audit.task t
WHERE t.lease_worker IS NOT NULL AND t.state <> 'WORKING';

-- invariant: I4g a parked task is working, has no lease, and was claimed by nobody since
SELECT p.task_id::text, format('parked since %s, the task is %s, %s, its newest claim %s', p.since,
  coalesce(t.state, 'gone'), coalesce('held by ' || t.lease_worker, 'not held'), coalesce(a.token::text, 'missing'))
FROM audit.parked p
LEFT JOIN audit.task t ON t.id = p.task_id
LEFT JOIN LATERAL (
  SELECT c.token FROM audit.attempt c WHERE c.task_id = p.task_id ORDER BY c.token DESC LIMIT 1
) a ON true
WHERE t.state IS DISTINCT FROM 'WORKING' OR t.lease_worker IS NOT NULL OR a.token > p.token;

-- invariant: I5a every event after a webhook's start is delivered to it, or is given up with a reason
SELECT c.task_id::text, format('config %s, seq %s: %s',
  c.id, e.seq, coalesce(d.state || coalesce(' (' || d.reason || ')', ''), 'nothing'))
FROM audit.push_config c
JOIN audit.event e ON e.task_id = c.task_id AND e.seq > c.from_seq AND e.seq <= coalesce(c.deleted_after_seq, e.seq)
LEFT JOIN audit.delivery d ON d.config_id = c.id AND d.task_id = c.task_id AND d.seq = e.seq
WHERE CASE d.state
  WHEN 'delivered' THEN false
  WHEN 'dead' THEN coalesce(d.reason, '') = ''
  WHEN 'skipped' THEN coalesce(d.reason, '') = ''
  WHEN 'cancelled' THEN c.deleted_after_seq IS NULL
  ELSE true
END;

-- invariant: I5b a webhook gets events in their order
SELECT d.task_id::text, format('config %s: seq %s was delivered before seq %s', d.config_id, d.seq, b.seq)
FROM audit.delivery d
JOIN LATERAL (
  SELECT p.seq
  FROM audit.delivery p
  WHERE p.config_id = d.config_id AND p.task_id = d.task_id AND p.seq < d.seq
    AND p.state = 'delivered' AND p.delivered_at > d.delivered_at
  ORDER BY p.seq DESC
  LIMIT 1
) b ON true
WHERE d.state = 'delivered';

-- invariant: I6a an Idempotency-Key stands for one message
SELECT NULL::text, format('%s of %s/%s: %s messages in %s tasks',
  m.idem_key, m.tenant, m.owner, count(*), count(DISTINCT m.task_id))
FROM audit.message m
WHERE m.idem_key IS NOT NULL
GROUP BY m.tenant, m.owner, m.idem_key
HAVING count(*) > 1;

-- invariant: I6b where an agent dedupes by message id, an id stands for one message
SELECT NULL::text, format('%s of %s/%s: %s messages in %s tasks',
  m.message_id, m.tenant, m.owner, count(*), count(DISTINCT m.task_id))
FROM audit.message m
WHERE m.dedupe_mid
GROUP BY m.tenant, m.owner, m.message_id
HAVING count(*) > 1;

-- invariant: I6c no two ticks of schedules have one task, and at most one tick of a schedule is queued
SELECT max(k.task_id::text),
  format('%s/%s: %s ticks, %s, the newest at %s', k.agent, k.name, count(*), k.outcome, max(k.tick))
FROM audit.schedule_tick k
WHERE k.outcome IN ('started', 'queued')
GROUP BY k.agent, k.name, k.outcome, k.task_id
HAVING count(*) > 1;

-- invariant: I9 the usage of tasks is in the sums by day, which also have that of removed tasks
SELECT NULL::text, format('%s/%s, agent %s, model %s: the tasks have %s input tokens in %s requests, the days %s in %s',
  u.tenant, u.owner, u.agent, u.model, u.input, u.requests, coalesce(d.input, 0), coalesce(d.requests, 0))
FROM (
  SELECT t.tenant, t.owner, t.agent, u.model, sum(u.input_tokens) AS input, sum(u.output_tokens) AS output,
    sum(u.cached_input_tokens) AS cached, sum(u.reasoning_tokens) AS reasoning, sum(u.requests) AS requests
  FROM audit.usage u
  JOIN audit.task t ON t.id = u.task_id
  GROUP BY t.tenant, t.owner, t.agent, u.model
) u
LEFT JOIN (
  SELECT s.tenant, s.owner, s.agent, s.model, sum(s.input_tokens) AS input, sum(s.output_tokens) AS output,
    sum(s.cached_input_tokens) AS cached, sum(s.reasoning_tokens) AS reasoning, sum(s.requests) AS requests
  FROM audit.usage_day s
  GROUP BY s.tenant, s.owner, s.agent, s.model
) d USING (tenant, owner, agent, model)
WHERE d.input IS NULL OR d.input < u.input OR d.output < u.output OR d.cached < u.cached OR d.reasoning < u.reasoning
  OR d.requests < u.requests;

-- invariant: I8 no work is left without a lease or a place in the queue, unless it is parked or waits
SELECT t.id::text, format('%s since %s, lease until %s', t.state, t.updated_at, coalesce(t.lease_until::text, 'never'))
FROM audit.task t
WHERE t.state IN ('SUBMITTED', 'WORKING')
  AND greatest(t.updated_at, t.lease_until) < clock_timestamp() - $1::interval
  AND NOT EXISTS (SELECT FROM audit.parked p WHERE p.task_id = t.id)
  AND NOT EXISTS (SELECT FROM audit.wait w WHERE w.task_id = t.id);
