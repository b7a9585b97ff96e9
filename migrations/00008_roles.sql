-- +goose Up

-- Who may touch what. Connections log in as whoever A2AD_DATABASE_URL says and SET ROLE:
-- a2a_app serves requests and sees the rows of the caller alone, whatever its queries say;
-- a2a_worker runs, delivers and administers; a2a_audit reads schema audit and nothing else;
-- a2a_owner owns it all. Roles are of the whole cluster: another database may have made them,
-- at this very moment too. Who may not make roles finds them made, or is told.
-- +goose StatementBegin
DO $$
DECLARE
  r text;
BEGIN
  FOREACH r IN ARRAY ARRAY['a2a_owner', 'a2a_app', 'a2a_worker', 'a2a_audit'] LOOP
    CONTINUE WHEN to_regrole(r) IS NOT NULL;
    BEGIN
      EXECUTE format('CREATE ROLE %I NOLOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE', r);
    EXCEPTION
      WHEN duplicate_object OR unique_violation THEN NULL; -- somebody else was first
      WHEN insufficient_privilege THEN
        RAISE EXCEPTION 'role % is missing, and % may not make it', r, current_user
          USING HINT = 'As an administrator: CREATE ROLE ' || r || ' NOLOGIN; and the same for a2a_owner, a2a_app, a2a_worker and a2a_audit; then grant all four to ' || current_user || '.';
    END;
  END LOOP;
  IF NOT (SELECT p.rolbypassrls FROM pg_roles p WHERE p.rolname = 'a2a_worker') THEN
    BEGIN
      ALTER ROLE a2a_worker BYPASSRLS;
    EXCEPTION WHEN insufficient_privilege OR internal_error THEN NULL; -- its policy lets it pass as well; or somebody else does it now
    END;
  END IF;
  IF NOT (SELECT p.rolsuper FROM pg_roles p WHERE p.rolname = current_user) THEN
    FOREACH r IN ARRAY ARRAY['a2a_owner', 'a2a_app', 'a2a_worker'] LOOP
      BEGIN
        EXECUTE format('GRANT %I TO CURRENT_USER', r);
      EXCEPTION WHEN insufficient_privilege THEN NULL; -- an administrator has, or what follows says so
      END;
    END LOOP;
  END IF;
  EXECUTE format('GRANT CREATE ON DATABASE %I TO a2a_owner', current_database());
END $$;
-- +goose StatementEnd

GRANT USAGE ON SCHEMA a2a TO a2a_app, a2a_worker;
GRANT USAGE ON SCHEMA audit TO a2a_worker, a2a_audit;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA a2a TO a2a_worker;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA a2a TO a2a_worker;
GRANT SELECT ON ALL TABLES IN SCHEMA audit TO a2a_worker, a2a_audit;
GRANT SELECT ON a2a.tasks, a2a.messages, a2a.task_events, a2a.artifacts, a2a.artifact_parts, a2a.context_tasks, a2a.idempotency_keys, a2a.push_configs TO a2a_app;
GRANT SELECT ON public.a2a_goose_version TO a2a_worker;

-- What the wall of requests is made of. A setting that was never made is null, and one that an
-- earlier transaction made is empty: neither is anybody's. The subqueries are
-- evaluated once per statement, and leave the indexes in use.
CREATE POLICY caller ON a2a.tasks FOR SELECT TO a2a_app USING (
  tenant = (SELECT current_setting('a2a.tenant', true))
  AND (owner = (SELECT current_setting('a2a.owner', true)) OR (SELECT current_setting('a2a.sharing', true)) = 'tenant'));
CREATE POLICY caller ON a2a.push_configs FOR SELECT TO a2a_app USING (
  tenant = (SELECT current_setting('a2a.tenant', true))
  AND (owner = (SELECT current_setting('a2a.owner', true)) OR (SELECT current_setting('a2a.sharing', true)) = 'tenant'));
CREATE POLICY caller ON a2a.context_tasks FOR SELECT TO a2a_app USING (
  tenant = (SELECT current_setting('a2a.tenant', true))
  AND (owner = (SELECT current_setting('a2a.owner', true)) OR (SELECT current_setting('a2a.sharing', true)) = 'tenant'));
CREATE POLICY caller ON a2a.idempotency_keys FOR SELECT TO a2a_app USING (
  tenant = (SELECT current_setting('a2a.tenant', true)) AND owner = (SELECT current_setting('a2a.owner', true)));
-- What belongs to a task is seen by whoever sees the task.
CREATE POLICY caller ON a2a.messages FOR SELECT TO a2a_app USING (EXISTS (SELECT FROM a2a.tasks t WHERE t.id = task_id));
CREATE POLICY caller ON a2a.task_events FOR SELECT TO a2a_app USING (EXISTS (SELECT FROM a2a.tasks t WHERE t.id = task_id));
CREATE POLICY caller ON a2a.artifacts FOR SELECT TO a2a_app USING (EXISTS (SELECT FROM a2a.tasks t WHERE t.id = task_id));
CREATE POLICY caller ON a2a.artifact_parts FOR SELECT TO a2a_app USING (EXISTS (SELECT FROM a2a.tasks t WHERE t.id = task_id));

-- The owner too is held by policies (FORCE), and has one, so that the views of schema audit,
-- which read as their owner, and servers of the version before, which log in as a member of
-- these roles and set none, go on as they did.
-- +goose StatementBegin
DO $$
DECLARE
  r record;
BEGIN
  FOR r IN SELECT c.oid::regclass AS name FROM pg_class c WHERE c.relnamespace = 'a2a'::regnamespace AND c.relkind IN ('r', 'p') LOOP
    EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', r.name);
    EXECUTE format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', r.name);
    EXECUTE format('CREATE POLICY server ON %s TO a2a_owner, a2a_worker USING (true) WITH CHECK (true)', r.name);
  END LOOP;
  ALTER SCHEMA a2a OWNER TO a2a_owner;
  ALTER SCHEMA audit OWNER TO a2a_owner;
  FOR r IN SELECT c.oid::regclass AS name, c.relkind FROM pg_class c
    WHERE c.relnamespace IN ('a2a'::regnamespace, 'audit'::regnamespace) AND c.relkind IN ('r', 'p', 'v') LOOP
    EXECUTE format('ALTER %s %s OWNER TO a2a_owner', CASE r.relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, r.name);
  END LOOP;
  FOR r IN SELECT p.oid::regprocedure AS name FROM pg_proc p WHERE p.pronamespace IN ('a2a'::regnamespace, 'audit'::regnamespace) LOOP
    EXECUTE format('ALTER FUNCTION %s OWNER TO a2a_owner', r.name);
  END LOOP;
END $$;
-- +goose StatementEnd

-- +goose Down
-- The roles stay: they are of the cluster, and another database may use them.
-- +goose StatementBegin
DO $$
DECLARE
  r record;
BEGIN
  FOR r IN SELECT c.oid::regclass AS name, c.relkind FROM pg_class c
    WHERE c.relnamespace IN ('a2a'::regnamespace, 'audit'::regnamespace) AND c.relkind IN ('r', 'p', 'v') LOOP
    EXECUTE format('ALTER %s %s OWNER TO CURRENT_USER', CASE r.relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, r.name);
  END LOOP;
  FOR r IN SELECT p.oid::regprocedure AS name FROM pg_proc p WHERE p.pronamespace IN ('a2a'::regnamespace, 'audit'::regnamespace) LOOP
    EXECUTE format('ALTER FUNCTION %s OWNER TO CURRENT_USER', r.name);
  END LOOP;
  ALTER SCHEMA a2a OWNER TO CURRENT_USER;
  ALTER SCHEMA audit OWNER TO CURRENT_USER;
  FOR r IN SELECT p.polname, p.polrelid::regclass AS name FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid WHERE c.relnamespace = 'a2a'::regnamespace LOOP
    EXECUTE format('DROP POLICY %I ON %s', r.polname, r.name);
  END LOOP;
  FOR r IN SELECT c.oid::regclass AS name FROM pg_class c WHERE c.relnamespace = 'a2a'::regnamespace AND c.relkind IN ('r', 'p') LOOP
    EXECUTE format('ALTER TABLE %s NO FORCE ROW LEVEL SECURITY', r.name);
    EXECUTE format('ALTER TABLE %s DISABLE ROW LEVEL SECURITY', r.name);
  END LOOP;
  EXECUTE format('REVOKE CREATE ON DATABASE %I FROM a2a_owner', current_database());
END $$;
-- +goose StatementEnd
REVOKE ALL ON ALL TABLES IN SCHEMA a2a FROM a2a_app, a2a_worker, a2a_audit;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA a2a FROM a2a_worker;
REVOKE ALL ON ALL TABLES IN SCHEMA audit FROM a2a_worker, a2a_audit;
REVOKE ALL ON SCHEMA a2a, audit FROM a2a_app, a2a_worker, a2a_audit;
REVOKE ALL ON public.a2a_goose_version FROM a2a_worker;
