-- +goose NO TRANSACTION
-- +goose Up

-- Which tasks a context has. Not an index on a2a.tasks: a status change moves the row in
-- tasks_list and so adds an entry to every index of the table, and that of the contexts cost a
-- fifth of what a task costs the database from claim to end. What is here never changes.
CREATE TABLE IF NOT EXISTS a2a.context_tasks (
  tenant text COLLATE "C" NOT NULL,
  owner text COLLATE "C" NOT NULL,
  context_id text COLLATE "C" NOT NULL,
  task_id uuid NOT NULL,
  PRIMARY KEY (tenant, owner, context_id, task_id)
);

-- The database keeps it, so that servers of the version before need not know it.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION a2a.context_tasks_add() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO a2a.context_tasks (tenant, owner, context_id, task_id) SELECT n.tenant, n.owner, n.context_id, n.id FROM n;
  RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE OR REPLACE TRIGGER context_tasks AFTER INSERT ON a2a.tasks
  REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION a2a.context_tasks_add();

INSERT INTO a2a.context_tasks (tenant, owner, context_id, task_id)
SELECT t.tenant, t.owner, t.context_id, t.id FROM a2a.tasks t
ON CONFLICT DO NOTHING;

DROP INDEX CONCURRENTLY IF EXISTS a2a.tasks_context;

-- +goose Down
CREATE INDEX CONCURRENTLY IF NOT EXISTS tasks_context ON a2a.tasks (tenant, owner, context_id, id);
DROP TRIGGER IF EXISTS context_tasks ON a2a.tasks;
DROP FUNCTION IF EXISTS a2a.context_tasks_add();
DROP TABLE IF EXISTS a2a.context_tasks;
