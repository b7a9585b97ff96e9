-- +goose Up
-- Who analyzes a log of many rows reads 30,000 of them, after each tenth that it has grown. Rows of these tables are only ever
-- looked up by their keys, in plans that no statistics change; an auditor's queries do with a tenth of the sample.
-- +goose StatementBegin
DO $$
DECLARE
  c record;
BEGIN
  FOR c IN
    SELECT a.attrelid::regclass AS log, a.attname AS name
    FROM pg_catalog.pg_attribute a
    WHERE a.attnum > 0 AND NOT a.attisdropped AND a.attrelid = ANY (ARRAY['a2a.task_events', 'a2a.messages', 'a2a.task_attempts', 'a2a.artifacts',
      'a2a.artifact_parts', 'a2a.context_tasks', 'a2a.idempotency_keys', 'a2a.push_attempts']::regclass[])
    ORDER BY a.attrelid, a.attnum
  LOOP
    EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET STATISTICS 10', c.log, c.name);
  END LOOP;
END
$$;
-- +goose StatementEnd

-- A task's row is written three times, each time with a new entry beside the one before: a page that the first
-- ones have filled is searched for dead entries, and split, by the second ones. Such pages end half full anyway: this index is an eighth larger.
ALTER INDEX a2a.tasks_pkey SET (fillfactor = 40);

-- +goose Down
ALTER INDEX a2a.tasks_pkey RESET (fillfactor);
-- +goose StatementBegin
DO $$
DECLARE
  c record;
BEGIN
  FOR c IN
    SELECT a.attrelid::regclass AS log, a.attname AS name
    FROM pg_catalog.pg_attribute a
    WHERE a.attnum > 0 AND NOT a.attisdropped AND a.attrelid = ANY (ARRAY['a2a.task_events', 'a2a.messages', 'a2a.task_attempts', 'a2a.artifacts',
      'a2a.artifact_parts', 'a2a.context_tasks', 'a2a.idempotency_keys', 'a2a.push_attempts']::regclass[])
    ORDER BY a.attrelid, a.attnum
  LOOP
    EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET STATISTICS -1', c.log, c.name);
  END LOOP;
END
$$;
-- +goose StatementEnd
