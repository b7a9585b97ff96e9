-- +goose NO TRANSACTION
-- +goose Up

-- Whose a task is and which agent has it, as one number for the indexes: 20 bits of the tenant above, 28 of
-- the owner, 16 of the agent, so that what a tenant has, and what an owner has, is one range each. A status
-- change adds an entry to every index of tasks, and to find its place among entries that begin with
-- three texts was a tenth of what a task costs the database. Two that have the same number are told
-- apart by the texts, which every query asks for too.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION a2a.list_key(tenant text, owner text, agent text) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT (hashtextextended(tenant, 0) << 44) | ((hashtextextended(owner, 0) & 268435455) << 16) | (hashtextextended(agent, 0) & 65535)
$$;
-- +goose StatementEnd
ALTER FUNCTION a2a.list_key OWNER TO a2a_owner;
GRANT EXECUTE ON FUNCTION a2a.list_key TO a2a_app, a2a_worker; -- where the database gives PUBLIC none
ALTER TABLE a2a.tasks ADD COLUMN IF NOT EXISTS list_key bigint;

-- Servers of the version before make tasks without it.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION a2a.tasks_list_key() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.list_key := a2a.list_key(NEW.tenant, NEW.owner, NEW.agent);
  RETURN NEW;
END $$;
-- +goose StatementEnd
ALTER FUNCTION a2a.tasks_list_key OWNER TO a2a_owner;
CREATE OR REPLACE TRIGGER tasks_list_key BEFORE INSERT ON a2a.tasks FOR EACH ROW WHEN (NEW.list_key IS NULL) EXECUTE FUNCTION a2a.tasks_list_key();

-- Those that are there, some at a time: servers go on meanwhile.
-- +goose StatementBegin
DO $$
DECLARE
  done uuid := '00000000-0000-0000-0000-000000000000';
  last uuid;
BEGIN
  LOOP
    last := (SELECT x.id FROM (SELECT t.id FROM a2a.tasks t WHERE t.id > done ORDER BY t.id LIMIT 2000) x ORDER BY x.id DESC LIMIT 1);
    EXIT WHEN last IS NULL;
    UPDATE a2a.tasks t SET list_key = a2a.list_key(t.tenant, t.owner, t.agent)
    FROM (SELECT x.id FROM a2a.tasks x WHERE x.id > done AND x.id <= last AND x.list_key IS NULL ORDER BY x.id FOR UPDATE) x
    WHERE t.id = x.id;
    COMMIT;
    done := last;
  END LOOP;
END $$;
-- +goose StatementEnd
ALTER TABLE a2a.tasks DROP CONSTRAINT IF EXISTS tasks_list_key_known;
ALTER TABLE a2a.tasks ADD CONSTRAINT tasks_list_key_known CHECK (list_key IS NOT NULL) NOT VALID;
ALTER TABLE a2a.tasks VALIDATE CONSTRAINT tasks_list_key_known;
ALTER TABLE a2a.tasks ALTER COLUMN list_key SET NOT NULL;
ALTER TABLE a2a.tasks DROP CONSTRAINT tasks_list_key_known;

-- Until they are replaced, servers of the version before read lists without an index. The id, which
-- decides between tasks of the same millisecond, is not in it: a plan made while there is one task
-- looked tasks up by id in whatever index has it, and walked over all of it ever after.
DROP INDEX CONCURRENTLY IF EXISTS a2a.tasks_list;
CREATE INDEX CONCURRENTLY tasks_list ON a2a.tasks (list_key, status_at);
DROP INDEX CONCURRENTLY IF EXISTS a2a.tasks_list_agent;
DROP INDEX CONCURRENTLY IF EXISTS a2a.tasks_running;
CREATE INDEX CONCURRENTLY tasks_running ON a2a.tasks (list_key) WHERE state IN (1, 2);
DROP INDEX CONCURRENTLY IF EXISTS a2a.tasks_in_flight;

-- +goose Down
CREATE INDEX CONCURRENTLY IF NOT EXISTS tasks_in_flight ON a2a.tasks (tenant, owner) WHERE state IN (1, 2);
CREATE INDEX CONCURRENTLY IF NOT EXISTS tasks_list_agent ON a2a.tasks (tenant, owner, agent, status_at DESC, id DESC);
DROP INDEX CONCURRENTLY IF EXISTS a2a.tasks_running;
DROP INDEX CONCURRENTLY IF EXISTS a2a.tasks_list;
DROP TRIGGER IF EXISTS tasks_list_key ON a2a.tasks;
DROP FUNCTION IF EXISTS a2a.tasks_list_key();
ALTER TABLE a2a.tasks DROP COLUMN IF EXISTS list_key;
DROP FUNCTION IF EXISTS a2a.list_key(text, text, text);
