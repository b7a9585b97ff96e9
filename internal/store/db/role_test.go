package db_test

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// readable are the tables that requests may read. FullTask puts rows into each of them.
var readable = []string{
	"tasks", "messages", "task_events", "artifacts", "artifact_parts", "context_tasks", "idempotency_keys",
	"push_configs",
}

// asApp calls do with a connection of the role that serves requests.
func asApp(f *storetest.Fixture, do func(conn *pgx.Conn)) {
	f.T.Helper()
	conn, err := pgx.Connect(f.T.Context(), f.URL)
	if err != nil {
		f.T.Fatal(err)
	}
	defer conn.Close(f.T.Context())
	if _, err := conn.Exec(f.T.Context(), "SET ROLE a2a_app"); err != nil {
		f.T.Fatal(err)
	}
	do(conn)
}

// rowsSeen returns how many rows of a table a caller sees, who is described by settings: tenant, owner, sharing, and
// the tasks that the transaction names.
func rowsSeen(f *storetest.Fixture, conn *pgx.Conn, table string, settings ...string) (n int) {
	f.T.Helper()
	err := pgx.BeginFunc(f.T.Context(), conn, func(tx pgx.Tx) error {
		for i, name := range []string{"tenant", "owner", "sharing", "tasks"}[:len(settings)] {
			_, err := tx.Exec(f.T.Context(), "SELECT set_config($1, $2, true)", "a2a."+name, settings[i])
			if err != nil {
				return err
			}
		}
		return tx.QueryRow(f.T.Context(), "SELECT count(*) FROM a2a."+table).Scan(&n)
	})
	if err != nil {
		f.T.Fatalf("%s: %v", table, err)
	}
	return n
}

func TestCallersSeeOnlyTheirOwnRows(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	named := "{" + f.FullTask().String() + "}"
	asApp(f, func(conn *pgx.Conn) {
		for _, table := range readable {
			tests := []struct {
				name     string
				settings []string
				seen     bool
			}{
				{"no caller", nil, false},
				{"the owner", []string{"acme", "ann", "owner"}, true},
				// The settings of the previous transaction are empty now, not missing.
				{"no caller, afterwards", nil, false},
				{"an empty caller", []string{"", "", "owner"}, false},
				{"the owner, of the tasks it names", []string{"acme", "ann", "owner", named}, true},
				{"the owner, of tasks it does not name", []string{"acme", "ann", "owner", "{}"}, true},
				{"no caller, of named tasks", []string{"", "", "owner", named}, false},
				{"another owner", []string{"acme", "bob", "owner"}, false},
				{"another owner, of named tasks", []string{"acme", "bob", "owner", named}, false},
				{"another tenant, of named tasks", []string{"other", "ann", "tenant", named}, false},
				{"another tenant", []string{"other", "ann", "owner"}, false},
				{"another tenant that shares", []string{"other", "ann", "tenant"}, false},
				// Idempotency keys are never shared.
				{"another owner who shares", []string{"acme", "bob", "tenant"}, table != "idempotency_keys"},
			}
			for _, tt := range tests {
				if n := rowsSeen(f, conn, table, tt.settings...); (n > 0) != tt.seen {
					t.Errorf("%s: %s sees %d rows", table, tt.name, n)
				}
			}
		}
	})
}

// Whatever role a pooler left on a connection, a request sees only the rows of its caller.
func TestRequestsSetTheirRoleEachTime(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t, func(c *store.Config) { c.PoolSize = 2 })
	f.FullTask()
	for _, mixed := range []string{"SET ROLE a2a_worker", "RESET ROLE"} {
		err := db.OnEveryPool(t.Context(), f.DB, func(_ string, conn *pgx.Conn) error {
			_, err := conn.Exec(t.Context(), mixed)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		var role string
		err = f.DB.As(storetest.Ann).QueryRow(t.Context(), "SELECT current_user::text").Scan(&role)
		if err != nil || role != "a2a_app" {
			t.Errorf("after %s a request reads as %s: %v", mixed, role, err)
		}
		for _, table := range readable {
			var n int
			eve := f.DB.As(db.Caller{Tenant: "other", Owner: "eve"})
			if err := eve.QueryRow(t.Context(), "SELECT count(*) FROM a2a."+table).Scan(&n); err != nil || n != 0 {
				t.Errorf("after %s another caller sees %d rows of %s: %v", mixed, n, table, err)
			}
		}
	}
}

func TestRequestsMayOnlyReadCertainTables(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	tables := f.Column(`
		SELECT c.relname FROM pg_class c
		WHERE c.relnamespace = 'a2a'::regnamespace AND c.relkind IN ('r', 'p')`)
	asApp(f, func(conn *pgx.Conn) {
		for _, table := range tables {
			may := func(what string) (ok bool) {
				row := conn.QueryRow(t.Context(), "SELECT has_table_privilege('a2a.' || $1, $2)", table, what)
				if err := row.Scan(&ok); err != nil {
					t.Fatal(err)
				}
				return ok
			}
			if may("INSERT") || may("UPDATE") || may("DELETE") || may("TRUNCATE") {
				t.Errorf("requests may write to %s", table)
			}
			if want := slices.Contains(readable, table); may("SELECT") != want {
				t.Errorf("requests may read %s: %v, want %v", table, !want, want)
			}
		}
	})
}

// A migration that adds a table must restrict who may use it.
func TestEveryTableHasItsOwnerAndPolicies(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	for _, wrong := range f.Column(`
		SELECT c.relname || ': ' || concat_ws(', ',
		  CASE WHEN NOT c.relrowsecurity THEN 'no row security' END,
		  CASE WHEN NOT c.relforcerowsecurity THEN 'not forced' END,
		  CASE WHEN pg_get_userbyid(c.relowner) <> 'a2a_owner' THEN 'owned by another' END,
		  CASE WHEN NOT EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid AND p.polname = 'server')
		    THEN 'no policy for the server' END,
		  CASE WHEN NOT has_table_privilege('a2a_worker', c.oid, 'SELECT, INSERT, UPDATE, DELETE')
		    THEN 'not for a2a_worker' END)
		FROM pg_class c WHERE c.relnamespace = 'a2a'::regnamespace AND c.relkind IN ('r', 'p')
		  AND (NOT c.relrowsecurity OR NOT c.relforcerowsecurity OR pg_get_userbyid(c.relowner) <> 'a2a_owner'
		    OR NOT EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid AND p.polname = 'server')
		    OR NOT has_table_privilege('a2a_worker', c.oid, 'SELECT, INSERT, UPDATE, DELETE'))
		UNION ALL
		SELECT 'view ' || c.relname || ' is not the owner''s, or not for auditors' FROM pg_class c
		WHERE c.relnamespace = 'audit'::regnamespace AND c.relkind = 'v'
		  AND (pg_get_userbyid(c.relowner) <> 'a2a_owner' OR NOT has_table_privilege('a2a_audit', c.oid, 'SELECT'))
		UNION ALL
		SELECT 'auditors may read table ' || c.relname FROM pg_class c
		WHERE c.relnamespace = 'a2a'::regnamespace AND c.relkind IN ('r', 'p')
		  AND has_table_privilege('a2a_audit', c.oid, 'SELECT')
		UNION ALL
		SELECT r.rolname || ' has too many rights' FROM pg_roles r
		WHERE r.rolname IN ('a2a_owner', 'a2a_app', 'a2a_worker', 'a2a_audit')
		  AND (r.rolsuper OR r.rolcreaterole OR r.rolcreatedb OR r.rolbypassrls AND r.rolname <> 'a2a_worker')`) {
		t.Error(wrong)
	}
}
