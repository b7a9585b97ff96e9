package operate_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// Neither the login that migrates nor that of the servers needs to be a superuser.
func TestOrdinaryLoginsSuffice(t *testing.T) {
	t.Parallel()
	pg := storetest.NewEmpty(t)
	f := &storetest.Fixture{T: t, URL: pg.URL, SQL: pg.Pool(t)}
	storetest.New(t) // its migrations make the roles
	name := fmt.Sprintf("t%d", time.Now().UnixNano())
	owner, server := name+"_owner", name+"_server"
	f.Exec("CREATE ROLE " + owner + " LOGIN IN ROLE a2a_owner, a2a_app, a2a_worker")
	f.Exec("CREATE ROLE " + server + " LOGIN NOINHERIT IN ROLE a2a_app, a2a_worker")
	var database string
	if err := f.SQL.QueryRow(t.Context(), "SELECT current_database()").Scan(&database); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // roles belong to the whole server
		ctx := context.WithoutCancel(t.Context())
		conn, err := pgx.Connect(ctx, pg.URL)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close(ctx)
		both := owner + ", " + server
		for _, query := range []string{
			"REASSIGN OWNED BY " + both + " TO CURRENT_USER", "DROP OWNED BY " + both, "DROP ROLE " + both,
		} {
			if _, err := conn.Exec(ctx, query); err != nil {
				t.Error(err)
			}
		}
	})
	f.Exec("ALTER DATABASE " + database + " OWNER TO " + owner)
	f.Exec("GRANT CREATE ON SCHEMA public TO " + owner)
	as := func(user string) string {
		u, err := url.Parse(pg.URL)
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		q.Set("user", user)
		u.RawQuery = q.Encode()
		u.User = nil
		return u.String()
	}
	if err := operate.MigrateUp(t.Context(), as(owner)); err != nil {
		t.Fatal(err)
	}
	if err := operate.MigrateDown(t.Context(), as(owner)); err != nil {
		t.Fatal(err)
	}
	if err := operate.MigrateUp(t.Context(), as(server)); err == nil ||
		!strings.Contains(err.Error(), "take the one that owns the tables") {
		t.Errorf("MigrateUp with the login of the servers = %v, want that it names the owner of the tables", err)
	}
	if err := operate.MigrateUp(t.Context(), as(owner)); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), store.Config{Config: db.Config{URL: as(server), Replica: "r1", PoolSize: 4}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Operate.CheckSchema(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.Store = s
	task := f.NewTask()
	if got, err := s.Tasks.Snapshot(t.Context(), storetest.Ann, task, tasks.Want{}); err != nil || got.ID != task {
		t.Errorf("Snapshot = %v, %v, want task %s", got, err, task)
	}

	// The overview counts the connections that its login may not see.
	tx, err := f.SQL.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	hidden := func() int {
		o, err := s.Operate.Overview(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return o.Hidden
	}
	if n := hidden(); n == 0 {
		t.Error("the transaction of another login is neither shown nor counted")
	}
	// This comes before the grant: since PostgreSQL 16, a grant keeps the INHERIT of its time.
	f.Exec("ALTER ROLE " + server + " INHERIT")
	f.Exec("GRANT pg_read_all_stats TO " + server)
	if n := hidden(); n != 0 {
		t.Errorf("%d connections are hidden from a member of pg_read_all_stats", n)
	}
}
