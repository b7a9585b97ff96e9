-- +goose Up

-- The usage of a task is removed with it. The database does this, so that servers of the version before, which do not
-- know the table, leave nothing.
-- +goose StatementBegin
CREATE FUNCTION a2a.task_usage_remove() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  -- An array, so that every plan looks up the tasks by key.
  DELETE FROM a2a.task_usage u WHERE u.task_id = ANY (ARRAY(SELECT o.id FROM o));
  RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER task_usage AFTER DELETE ON a2a.tasks
  REFERENCING OLD TABLE AS o FOR EACH STATEMENT EXECUTE FUNCTION a2a.task_usage_remove();

DELETE FROM a2a.task_usage u WHERE NOT EXISTS (SELECT FROM a2a.tasks t WHERE t.id = u.task_id);

-- +goose Down
DROP TRIGGER task_usage ON a2a.tasks;
DROP FUNCTION a2a.task_usage_remove();
