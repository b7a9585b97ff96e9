-- Where the logs of some tasks begin, of those whose begin was retired, and which of the tasks
-- were removed as a whole, by retention or on request: null.
SELECT t.id::text, t.first_seq
FROM audit.task t
WHERE t.id::text = ANY($1) AND t.first_seq > 1
UNION ALL
SELECT i.id, NULL
FROM unnest($1::text[]) AS i (id)
WHERE NOT EXISTS (SELECT FROM audit.task t WHERE t.id::text = i.id)
  AND EXISTS (
    SELECT FROM audit.action a
    WHERE a.action = 'task.purge' AND a.task_id::text = i.id
      OR a.action = 'task.retire' AND i.id::uuid BETWEEN (a.detail ->> 'from')::uuid AND (a.detail ->> 'to')::uuid);
