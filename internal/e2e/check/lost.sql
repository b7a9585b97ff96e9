-- Messages (by key or id) and cancels that were acknowledged to clients, but are not in the database. A missing task is
-- a phantom.
SELECT a.task, format('the message under key %s is in it %s times', a.key,
  (SELECT count(*) FROM audit.message m WHERE m.idem_key = a.key AND m.task_id = t.id))
FROM unnest($1::text[], $2::text[], $3::text[], $4::boolean[]) AS a (task, key, message, canceled)
JOIN audit.task t ON t.id::text = a.task
WHERE a.key <> '' AND (SELECT count(*) FROM audit.message m WHERE m.idem_key = a.key AND m.task_id = t.id) <> 1
UNION ALL
SELECT a.task, format('message %s is in it %s times', a.message,
  (SELECT count(*) FROM audit.message m WHERE m.message_id = a.message AND m.task_id = t.id))
FROM unnest($1::text[], $2::text[], $3::text[], $4::boolean[]) AS a (task, key, message, canceled)
JOIN audit.task t ON t.id::text = a.task
WHERE a.message <> ''
  AND (SELECT count(*) FROM audit.message m WHERE m.message_id = a.message AND m.task_id = t.id) <> 1
UNION ALL
SELECT a.task, format('a cancel was acknowledged, and the task is %s', t.state)
FROM unnest($1::text[], $2::text[], $3::text[], $4::boolean[]) AS a (task, key, message, canceled)
JOIN audit.task t ON t.id::text = a.task
WHERE a.canceled AND t.state <> 'CANCELED';
