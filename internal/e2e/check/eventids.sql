-- The ids by which clients know the events of some tasks.
SELECT e.task_id::text, e.seq || '-' || left(e.event_uid::text, 8)
FROM audit.event e
WHERE e.task_id::text = ANY($1);
