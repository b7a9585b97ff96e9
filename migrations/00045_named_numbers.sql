-- +goose Up

-- Names for the numbers that columns store, for statements that people read: <column>_<value>(). The planner replaces
-- each call by its number, so a statement has the plan that it has with the number itself, partial indexes included.
-- The numbers are also in internal/a2a and internal/store/tasks: TestNumbersInSQL compares them.

CREATE FUNCTION a2a.state_submitted() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 1::smallint;
CREATE FUNCTION a2a.state_working() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 2::smallint;
CREATE FUNCTION a2a.state_input_required() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 3::smallint;
CREATE FUNCTION a2a.state_auth_required() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 4::smallint;
CREATE FUNCTION a2a.state_completed() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 100::smallint;
CREATE FUNCTION a2a.state_failed() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 101::smallint;
CREATE FUNCTION a2a.state_canceled() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 102::smallint;
CREATE FUNCTION a2a.state_rejected() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 103::smallint;

-- The methods Terminal, Interrupted and EndsTurn of a2a.State. The bodies are spelled as the predicates of the partial
-- indexes are.
CREATE FUNCTION a2a.state_terminal(state smallint) RETURNS boolean
  LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN state >= 100;
CREATE FUNCTION a2a.state_interrupted(state smallint) RETURNS boolean
  LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN state IN (3, 4);
CREATE FUNCTION a2a.state_ends_turn(state smallint) RETURNS boolean
  LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN state >= 3;

-- a2a.task_events: what an event is, and what wrote it. A chunk adds to an artifact.
CREATE FUNCTION a2a.kind_status() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 1::smallint;
CREATE FUNCTION a2a.kind_artifact() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 2::smallint;
CREATE FUNCTION a2a.kind_chunk() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 3::smallint;
CREATE FUNCTION a2a.kind_message() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 4::smallint;
CREATE FUNCTION a2a.source_worker() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 1::smallint;
CREATE FUNCTION a2a.source_caller() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 2::smallint;
CREATE FUNCTION a2a.source_server() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 3::smallint;

-- a2a.messages: who wrote a message.
CREATE FUNCTION a2a.role_user() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 1::smallint;
CREATE FUNCTION a2a.role_agent() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 2::smallint;

-- a2a.tasks: the client gets a task as the answer; the agent may still answer with a message; it has.
CREATE FUNCTION a2a.reply_task() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 0::smallint;
CREATE FUNCTION a2a.reply_open() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 1::smallint;
CREATE FUNCTION a2a.reply_message() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 2::smallint;

-- The lowest and the highest list_key that tasks of a tenant, or of one owner, can have: see migration 23.
CREATE FUNCTION a2a.list_key_lowest(tenant text) RETURNS bigint
  LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN a2a.list_key(tenant, '', '') & -17592186044416;
CREATE FUNCTION a2a.list_key_highest(tenant text) RETURNS bigint
  LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN a2a.list_key(tenant, '', '') | 17592186044415;
CREATE FUNCTION a2a.list_key_lowest(tenant text, owner text) RETURNS bigint
  LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN a2a.list_key(tenant, owner, '') & -65536;
CREATE FUNCTION a2a.list_key_highest(tenant text, owner text) RETURNS bigint
  LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN a2a.list_key(tenant, owner, '') | 65535;

-- +goose StatementBegin
DO $$
DECLARE
  f regprocedure;
BEGIN
  FOR f IN
    SELECT p.oid
    FROM pg_proc p
    WHERE p.pronamespace = 'a2a'::regnamespace AND p.proname ~ '^(state|kind|source|role|reply|list_key)_'
  LOOP
    EXECUTE format('ALTER FUNCTION %s OWNER TO a2a_owner', f);
    EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO a2a_app, a2a_worker', f); -- where the database gives PUBLIC none
  END LOOP;
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION
  a2a.list_key_highest(text, text), a2a.list_key_lowest(text, text),
  a2a.list_key_highest(text), a2a.list_key_lowest(text),
  a2a.reply_message(), a2a.reply_open(), a2a.reply_task(),
  a2a.role_agent(), a2a.role_user(),
  a2a.source_server(), a2a.source_caller(), a2a.source_worker(),
  a2a.kind_message(), a2a.kind_chunk(), a2a.kind_artifact(), a2a.kind_status(),
  a2a.state_ends_turn(smallint), a2a.state_interrupted(smallint), a2a.state_terminal(smallint),
  a2a.state_rejected(), a2a.state_canceled(), a2a.state_failed(), a2a.state_completed(),
  a2a.state_auth_required(), a2a.state_input_required(), a2a.state_working(), a2a.state_submitted();
