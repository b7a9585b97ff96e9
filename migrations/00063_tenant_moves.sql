-- +goose Up

-- Tenants that move to another deployment, or have come from one. See docs/adr/0083-tenants-move-as-rows.md.
--   leaving   requests of the tenant are refused, and its tasks are not claimed; its rows are being taken
--   left      all its rows are in tenant_rows, until an operator removes them
--   arriving  its rows are being imported; requests are refused, and its tasks are not claimed
--   arrived   it is served here
CREATE TABLE a2a.tenant_moves (
  tenant text PRIMARY KEY,
  state text NOT NULL CHECK (state IN ('leaving', 'left', 'arriving', 'arrived')),
  move_id uuid NOT NULL,
  since timestamptz NOT NULL DEFAULT clock_timestamp(),
  pages bigint NOT NULL DEFAULT 0, -- taken, or imported
  sha256 text NOT NULL DEFAULT '' -- of the file that was imported
);
-- Every statement that makes tasks reads it. It is nearly always empty.
CREATE INDEX tenant_moves_away ON a2a.tenant_moves (tenant) WHERE state <> 'arrived';

-- The rows that were taken from the tables of a tenant. A page is taken, and put into tables, by one transaction.
CREATE TABLE a2a.tenant_rows (
  tenant text NOT NULL,
  page bigint NOT NULL,
  n bigint GENERATED ALWAYS AS IDENTITY,
  kind text NOT NULL, -- the table
  body text NOT NULL, -- a JSON object: each column that is not null, as the text of its value
  PRIMARY KEY (tenant, page, n)
);

-- +goose StatementBegin
CREATE FUNCTION a2a.tenant_refuse(state text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  -- internal/store/db makes an error for callers of this SQLSTATE.
  RAISE EXCEPTION USING ERRCODE = 'AD001', MESSAGE = CASE state
    WHEN 'left' THEN 'the tenant has moved to another deployment: try again'
    ELSE 'the tenant is moving to another deployment: try again' END;
END $$;
-- +goose StatementEnd

-- tenant_check refuses a tenant that is moving or has moved. The role of requests may call it, and not read the table.
-- +goose StatementBegin
CREATE FUNCTION a2a.tenant_check(asked text) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  away text;
BEGIN
  SELECT m.state INTO away FROM a2a.tenant_moves m WHERE m.tenant = asked AND m.state <> 'arrived';
  IF FOUND THEN
    PERFORM a2a.tenant_refuse(away);
  END IF;
  RETURN true;
END $$;
-- +goose StatementEnd

-- A tenant that is moving gets no task, whoever makes it. An import names its tenant in a2a.arriving.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION a2a.context_tasks_add() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  away text;
BEGIN
  SELECT m.state INTO away
  FROM a2a.tenant_moves m
  WHERE m.state <> 'arrived'
    AND m.tenant <> coalesce(current_setting('a2a.arriving', true), '')
    AND EXISTS (SELECT FROM n WHERE n.tenant = m.tenant)
  LIMIT 1;
  IF FOUND THEN
    PERFORM a2a.tenant_refuse(away);
  END IF;
  INSERT INTO a2a.context_tasks (tenant, owner, context_id, task_id) SELECT n.tenant, n.owner, n.context_id, n.id FROM n;
  RETURN NULL;
END $$;
-- +goose StatementEnd

-- tenant_columns lists the columns of a table that move. The others have values of their own in each database.
CREATE FUNCTION a2a.tenant_columns(kind text) RETURNS TABLE (number int, name text, type text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT a.attnum::int, a.attname::text, format_type(a.atttypid, a.atttypmod)
  FROM pg_attribute a
  WHERE a.attrelid = ('a2a.' || quote_ident(kind))::regclass AND a.attnum > 0 AND NOT a.attisdropped
    AND (kind, a.attname) NOT IN (('task_events', 'xid'), ('push_attempts', 'id'), ('tasks', 'list_key'))
$$;

-- tenant_text is an expression for the body of a row that is called x.
CREATE FUNCTION a2a.tenant_text(kind text) RETURNS text LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT 'json_strip_nulls(json_build_object(' || string_agg(format('%L, x.%I::text', c.name, c.name), ', ' ORDER BY c.number)
    || '))::text'
  FROM a2a.tenant_columns(kind) c
$$;

-- tenant_move moves rows of one table into tenant_rows: those that match a condition, which may use $1, the tenant, and
-- $2, ids. It returns how many.
-- +goose StatementBegin
CREATE FUNCTION a2a.tenant_move(asked text, to_page bigint, kind text, sorted text, matching text, ids uuid[])
RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET "TimeZone" = 'UTC' SET "DateStyle" = 'ISO' SET "IntervalStyle" = 'iso_8601'
SET bytea_output = 'hex' AS $$
DECLARE
  moved bigint;
BEGIN
  EXECUTE format(
    'WITH gone AS (DELETE FROM a2a.%1$I x WHERE %2$s RETURNING x.*)
    INSERT INTO a2a.tenant_rows (tenant, page, kind, body)
    SELECT $1, $3, %1$L, %3$s FROM gone x ORDER BY %4$s',
    kind, matching, a2a.tenant_text(kind), sorted) USING asked, ids, to_page;
  GET DIAGNOSTICS moved = ROW_COUNT;
  RETURN moved;
END $$;
-- +goose StatementEnd

-- tenant_take_tasks takes the next tasks of a tenant with everything about them, in the order of their ids: at most
-- most of them, and about max_bytes. It skips tasks at work. It returns the last id that it has read; NULL: there is
-- no further task.
-- +goose StatementBegin
CREATE FUNCTION a2a.tenant_take_tasks(asked text, to_page bigint, after uuid, most int, max_bytes bigint)
RETURNS uuid LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  seen uuid[];
  ids uuid[];
  pushes uuid[];
  by_task CONSTANT text := 'x.task_id = ANY ($2)';
BEGIN
  SELECT array_agg(p.id ORDER BY p.id) INTO seen
  FROM (
    SELECT t.id, sum(t.bytes + t.step_bytes) OVER (ORDER BY t.id) - t.bytes - t.step_bytes AS before
    FROM (
      SELECT c.task_id FROM a2a.context_tasks c
      WHERE c.tenant = asked AND c.task_id > after
      ORDER BY c.task_id LIMIT most
    ) c
    JOIN a2a.tasks t ON t.id = ANY (ARRAY[c.task_id])
  ) p
  WHERE p.before < max_bytes;
  IF seen IS NULL THEN
    RETURN NULL;
  END IF;

  PERFORM FROM a2a.tasks t WHERE t.id = ANY (seen) ORDER BY t.id FOR UPDATE;
  SELECT coalesce(array_agg(t.id), '{}') INTO ids
  FROM a2a.tasks t
  WHERE t.id = ANY (seen)
    AND NOT EXISTS (SELECT FROM a2a.task_leases l WHERE l.task_id = t.id)
    AND NOT EXISTS (
      SELECT FROM a2a.push_configs p
      WHERE p.task_id = t.id AND p.deleted_at IS NULL AND coalesce(p.lease_until, '-infinity') > clock_timestamp());
  SELECT coalesce(array_agg(p.id), '{}') INTO pushes
  FROM (
    SELECT l.id FROM a2a.push_configs l WHERE l.task_id = ANY (ids) AND l.deleted_at IS NULL
    UNION ALL
    SELECT d.id FROM a2a.push_configs d
    WHERE d.task_id = ANY (ids) AND coalesce(d.deleted_at, 'infinity') <> 'infinity'
  ) p;

  PERFORM a2a.tenant_move(asked, to_page, 'task_ready', 'x.task_id',
    '(x.queue, x.priority, x.run_at, x.task_id) IN (SELECT t.agent, t.priority, t.ready_at, t.id
      FROM a2a.tasks t WHERE t.id = ANY ($2) AND t.ready_at IS NOT NULL)', ids);
  PERFORM a2a.tenant_move(asked, to_page, 'push_attempts', 'x.id', 'x.push_id = ANY ($2)', pushes);
  PERFORM a2a.tenant_move(asked, to_page, 'push_configs', 'x.id', 'x.id = ANY ($2)', pushes);
  PERFORM a2a.tenant_move(asked, to_page, k.kind, k.sorted, by_task, ids)
  FROM (VALUES
    ('task_events', 'x.task_id, x.seq'), ('messages', 'x.task_id, x.seq'),
    ('artifacts', 'x.task_id, x.artifact_id COLLATE "C"'),
    ('artifact_parts', 'x.task_id, x.artifact_id COLLATE "C", x.seq, x.idx'),
    ('task_attempts', 'x.task_id, x.epoch'), ('task_checkpoints', 'x.task_id'), ('task_steps', 'x.task_id, x.seq'),
    ('task_waits', 'x.task_id'), ('task_signals', 'x.task_id, x.seq'), ('task_parked', 'x.task_id'),
    ('task_cancels', 'x.task_id'), ('task_orphans', 'x.task_id'), ('task_assignments', 'x.task_id'),
    ('task_batches', 'x.task_id, x.epoch, x.batch_id COLLATE "C"'),
    ('task_usage', 'x.task_id, x.model COLLATE "C"')
  ) k (kind, sorted);
  DELETE FROM a2a.context_tasks c WHERE c.tenant = asked AND c.task_id = ANY (ids);
  -- Last: a trigger removes the usage of tasks.
  PERFORM a2a.tenant_move(asked, to_page, 'tasks', 'x.id', 'x.id = ANY ($2)', ids);
  RETURN seen[array_upper(seen, 1)];
END $$;
-- +goose StatementEnd

-- tenant_take_rest takes what a tenant has beside its tasks, at most most rows of one table. It returns how many; 0:
-- there is no more.
-- +goose StatementBegin
CREATE FUNCTION a2a.tenant_take_rest(asked text, to_page bigint, most int)
RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  k record;
  moved bigint;
BEGIN
  FOR k IN SELECT * FROM (VALUES
    (1, 'idempotency_keys', 'x.owner COLLATE "C", x.key COLLATE "C"', 'y.tenant = $1'),
    (2, 'push_destinations', 'x.origin COLLATE "C"', 'y.tenant = $1'),
    (3, 'push_parked', 'x.origin COLLATE "C"', 'y.tenant = $1'),
    (4, 'schedule_ticks', 'x.agent COLLATE "C", x.name COLLATE "C", x.tick',
      'EXISTS (SELECT FROM a2a.schedules s WHERE s.tenant = $1 AND s.agent = y.agent AND s.name = y.name)'),
    (5, 'schedules', 'x.agent COLLATE "C", x.name COLLATE "C"', 'y.tenant = $1'),
    -- In this order: a sweep adds the rows of the one to the other.
    (6, 'usage_pending', 'x.day, x.owner COLLATE "C", x.agent COLLATE "C", x.model COLLATE "C"', 'y.tenant = $1'),
    (7, 'usage_days', 'x.day, x.owner COLLATE "C", x.agent COLLATE "C", x.model COLLATE "C"', 'y.tenant = $1')
  ) v (number, kind, sorted, matching) ORDER BY v.number
  LOOP
    moved := a2a.tenant_move(asked, to_page, k.kind, k.sorted, format(
      'x.ctid = ANY (ARRAY(SELECT y.ctid FROM a2a.%I y WHERE %s LIMIT %s FOR UPDATE))', k.kind, k.matching, most), NULL);
    IF moved > 0 THEN
      RETURN moved;
    END IF;
  END LOOP;
  RETURN 0;
END $$;
-- +goose StatementEnd

-- tenant_take_keys copies the API keys of a tenant, which stay: requests with them are refused because the tenant has
-- moved, and not because the key is unknown. Keys of operators and workers are for all tenants, so they do not move.
-- +goose StatementBegin
CREATE FUNCTION a2a.tenant_take_keys(asked text, to_page bigint) RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET "TimeZone" = 'UTC' SET "DateStyle" = 'ISO' SET bytea_output = 'hex' AS $$
DECLARE
  copied bigint;
BEGIN
  EXECUTE 'INSERT INTO a2a.tenant_rows (tenant, page, kind, body)
    SELECT $1, $2, ''api_keys'', ' || a2a.tenant_text('api_keys') || ' FROM a2a.api_keys x
    WHERE x.tenant = $1 AND NOT x.scopes && ''{operator:read,operator:write,worker}'' ORDER BY x.id COLLATE "C"'
    USING asked, to_page;
  GET DIAGNOSTICS copied = ROW_COUNT;
  RETURN copied;
END $$;
-- +goose StatementEnd

-- tenant_put puts rows into their table, and returns them as they are stored. It returns fewer if a row belongs to
-- another tenant here.
-- +goose StatementBegin
CREATE FUNCTION a2a.tenant_put(asked text, kind text, bodies text[]) RETURNS SETOF text LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET "TimeZone" = 'UTC' SET "DateStyle" = 'ISO' SET "IntervalStyle" = 'iso_8601'
SET bytea_output = 'hex' AS $$
DECLARE
  names text;
  vals text;
  fields text;
  sets text;
BEGIN
  IF kind NOT IN ('tasks', 'task_ready', 'task_events', 'messages', 'artifacts', 'artifact_parts', 'task_attempts',
    'task_checkpoints', 'task_steps', 'task_waits', 'task_signals', 'task_parked', 'task_cancels', 'task_orphans',
    'task_assignments', 'task_batches', 'task_usage', 'push_configs', 'push_attempts', 'idempotency_keys',
    'push_destinations', 'push_parked', 'schedules', 'schedule_ticks', 'usage_pending', 'usage_days', 'api_keys')
  THEN
    RAISE EXCEPTION 'no rows of table % move', kind;
  END IF;
  PERFORM set_config('a2a.arriving', asked, true);
  SELECT string_agg(format('%I', c.name), ', ' ORDER BY c.number),
    string_agg(format('r.%I::%s', c.name, c.type), ', ' ORDER BY c.number),
    string_agg(format('%I text', c.name), ', ' ORDER BY c.number),
    string_agg(format('%1$I = excluded.%1$I', c.name), ', ' ORDER BY c.number)
  INTO names, vals, fields, sets
  FROM a2a.tenant_columns(kind) c;
  RETURN QUERY EXECUTE format(
    'INSERT INTO a2a.%1$I AS x (%2$s)
    SELECT %3$s FROM unnest($1::json[]) WITH ORDINALITY u (j, n), json_to_record(u.j) r (%4$s) ORDER BY u.n
    %5$s RETURNING %6$s',
    kind, names, vals, fields,
    CASE kind
      -- A key may have been here before, and a schedule may be in an agent file here.
      WHEN 'api_keys' THEN 'ON CONFLICT (id) DO UPDATE SET ' || sets
        || ' WHERE x.tenant = excluded.tenant AND x.secret_sha256 = excluded.secret_sha256'
      WHEN 'schedules' THEN 'ON CONFLICT (agent, name) DO UPDATE SET ' || sets || ' WHERE x.tenant = excluded.tenant'
      ELSE '' END,
    a2a.tenant_text(kind)) USING bodies;
  PERFORM set_config('a2a.arriving', '', true);
END $$;
-- +goose StatementEnd

ALTER TABLE a2a.tenant_moves OWNER TO a2a_owner;
ALTER TABLE a2a.tenant_moves ENABLE ROW LEVEL SECURITY;
ALTER TABLE a2a.tenant_moves FORCE ROW LEVEL SECURITY;
CREATE POLICY server ON a2a.tenant_moves TO a2a_owner, a2a_worker USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON a2a.tenant_moves TO a2a_worker;
ALTER TABLE a2a.tenant_rows OWNER TO a2a_owner;
ALTER TABLE a2a.tenant_rows ENABLE ROW LEVEL SECURITY;
ALTER TABLE a2a.tenant_rows FORCE ROW LEVEL SECURITY;
CREATE POLICY server ON a2a.tenant_rows TO a2a_owner, a2a_worker USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, DELETE ON a2a.tenant_rows TO a2a_worker;
ALTER FUNCTION a2a.tenant_check(text) OWNER TO a2a_owner;

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION a2a.context_tasks_add() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO a2a.context_tasks (tenant, owner, context_id, task_id) SELECT n.tenant, n.owner, n.context_id, n.id FROM n;
  RETURN NULL;
END $$;
-- +goose StatementEnd
DROP FUNCTION a2a.tenant_put(text, text, text[]);
DROP FUNCTION a2a.tenant_take_keys(text, bigint);
DROP FUNCTION a2a.tenant_take_rest(text, bigint, int);
DROP FUNCTION a2a.tenant_take_tasks(text, bigint, uuid, int, bigint);
DROP FUNCTION a2a.tenant_move(text, bigint, text, text, text, uuid[]);
DROP FUNCTION a2a.tenant_text(text);
DROP FUNCTION a2a.tenant_columns(text);
DROP FUNCTION a2a.tenant_check(text);
DROP FUNCTION a2a.tenant_refuse(text);
DROP TABLE a2a.tenant_rows;
DROP TABLE a2a.tenant_moves;
