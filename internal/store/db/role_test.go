package db_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// What requests may read at all; each holds rows of a caller after full.
var readable = []string{"tasks", "messages", "task_events", "artifacts", "artifact_parts", "context_tasks", "idempotency_keys", "push_configs"}

// asApp runs f on a connection of the role that serves requests.
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

func rowsSeen(f *storetest.Fixture, conn *pgx.Conn, table string, settings ...string) (n int) {
	f.T.Helper()
	err := pgx.BeginFunc(f.T.Context(), conn, func(tx pgx.Tx) error {
		for i, name := range []string{"tenant", "owner", "sharing"}[:len(settings)] {
			if _, err := tx.Exec(f.T.Context(), "SELECT set_config($1, $2, true)", "a2a."+name, settings[i]); err != nil {
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

func TestRowsAreSeenByTheirCallerAlone(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	f.FullTask()
	asApp(f, func(conn *pgx.Conn) {
		for _, table := range readable {
			tests := []struct {
				name     string
				settings []string
				seen     bool
			}{
				{"nobody", nil, false},
				{"the owner", []string{"acme", "ann", "owner"}, true},
				// The settings of the transaction before are empty now, and not missing.
				{"nobody, afterwards", nil, false},
				{"an empty caller", []string{"", "", "owner"}, false},
				{"another owner", []string{"acme", "bob", "owner"}, false},
				{"another tenant", []string{"other", "ann", "owner"}, false},
				{"another tenant that shares", []string{"other", "ann", "tenant"}, false},
				// What a key stands for is its owner's business in any case.
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

// Whatever a pooler made of a connection, requests see what is their caller's alone.
func TestRequestsTakeOnTheirRoleEachTime(t *testing.T) {
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
		if err := f.DB.As(storetest.Ann).QueryRow(t.Context(), "SELECT current_user::text").Scan(&role); err != nil || role != "a2a_app" {
			t.Errorf("after %s a request reads as %s: %v", mixed, role, err)
		}
		for _, table := range readable {
			var n int
			if err := f.DB.As(db.Caller{Tenant: "other", Owner: "eve"}).QueryRow(t.Context(), "SELECT count(*) FROM a2a."+table).Scan(&n); err != nil || n != 0 {
				t.Errorf("after %s somebody else sees %d rows of %s: %v", mixed, n, table, err)
			}
		}
	}
}

func TestRequestsMayOnlyReadAndNotEverything(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	tables := f.Column("SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'a2a'::regnamespace AND c.relkind IN ('r', 'p')")
	asApp(f, func(conn *pgx.Conn) {
		for _, table := range tables {
			may := func(what string) (ok bool) {
				if err := conn.QueryRow(t.Context(), "SELECT has_table_privilege('a2a.' || $1, $2)", table, what).Scan(&ok); err != nil {
					t.Fatal(err)
				}
				return ok
			}
			if may("INSERT") || may("UPDATE") || may("DELETE") || may("TRUNCATE") {
				t.Errorf("requests may write to %s", table)
			}
			if want := strings.Contains(" "+strings.Join(readable, " ")+" ", " "+table+" "); may("SELECT") != want {
				t.Errorf("requests may read %s: %v, want %v", table, !want, want)
			}
		}
	})
}

// A migration that makes a table must put it behind the wall.
func TestEveryTableHasItsOwnerAndPolicies(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	for _, wrong := range f.Column(`
		SELECT c.relname || ': ' || concat_ws(', ',
		  CASE WHEN NOT c.relrowsecurity THEN 'no row security' END, CASE WHEN NOT c.relforcerowsecurity THEN 'not forced' END,
		  CASE WHEN pg_get_userbyid(c.relowner) <> 'a2a_owner' THEN 'owned by another' END,
		  CASE WHEN NOT EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid AND p.polname = 'server') THEN 'no policy for the server' END,
		  CASE WHEN NOT has_table_privilege('a2a_worker', c.oid, 'SELECT, INSERT, UPDATE, DELETE') THEN 'not for a2a_worker' END)
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
		WHERE c.relnamespace = 'a2a'::regnamespace AND c.relkind IN ('r', 'p') AND has_table_privilege('a2a_audit', c.oid, 'SELECT')
		UNION ALL
		SELECT r.rolname || ' may too much' FROM pg_roles r
		WHERE r.rolname IN ('a2a_owner', 'a2a_app', 'a2a_worker', 'a2a_audit')
		  AND (r.rolsuper OR r.rolcreaterole OR r.rolcreatedb OR r.rolbypassrls AND r.rolname <> 'a2a_worker')`) {
		t.Error(wrong)
	}
}
