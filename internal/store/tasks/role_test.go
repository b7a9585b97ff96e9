package tasks_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// What requests may read at all; each holds rows of a caller after full.
var readable = []string{"tasks", "messages", "task_events", "artifacts", "artifact_parts", "context_tasks", "idempotency_keys", "push_configs"}

// full makes ann a task with a row in every readable table.
func (f *fixture) full() a2a.ID {
	f.t.Helper()
	sub := f.submit(tasks.Submission{
		Caller: ann, Agent: agent, ContextID: "talk", Key: "h:k",
		Message: a2a.Message{ID: "m", Role: a2a.RoleUser, Parts: []a2a.Part{{Kind: a2a.PartText, Text: "x"}}},
	})
	f.setPush(sub.Task, "hook")
	l := f.claimTask(sub.Task)
	for i := range 40 { // so many that they are folded
		f.append(l, whole("a", fmt.Sprint(i)))
	}
	f.append(l, status(a2a.StateCompleted, "done"))
	return sub.Task
}

// asApp runs f on a connection of the role that serves requests.
func (f *fixture) asApp(do func(conn *pgx.Conn)) {
	f.t.Helper()
	conn, err := pgx.Connect(f.ctx, f.url)
	if err != nil {
		f.t.Fatal(err)
	}
	defer conn.Close(f.ctx)
	if _, err := conn.Exec(f.ctx, "SET ROLE a2a_app"); err != nil {
		f.t.Fatal(err)
	}
	do(conn)
}

func (f *fixture) rowsSeen(conn *pgx.Conn, table string, settings ...string) (n int) {
	f.t.Helper()
	err := pgx.BeginFunc(f.ctx, conn, func(tx pgx.Tx) error {
		for i, name := range []string{"tenant", "owner", "sharing"}[:len(settings)] {
			if _, err := tx.Exec(f.ctx, "SELECT set_config($1, $2, true)", "a2a."+name, settings[i]); err != nil {
				return err
			}
		}
		return tx.QueryRow(f.ctx, "SELECT count(*) FROM a2a."+table).Scan(&n)
	})
	if err != nil {
		f.t.Fatalf("%s: %v", table, err)
	}
	return n
}

func TestRowsAreSeenByTheirCallerAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.full()
	f.asApp(func(conn *pgx.Conn) {
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
				if n := f.rowsSeen(conn, table, tt.settings...); (n > 0) != tt.seen {
					t.Errorf("%s: %s sees %d rows", table, tt.name, n)
				}
			}
		}
	})
}

// Whatever a pooler made of a connection, requests see what is their caller's alone.
func TestRequestsTakeOnTheirRoleEachTime(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *store.Config) { c.PoolSize = 2 })
	f.full()
	for _, mixed := range []string{"SET ROLE a2a_worker", "RESET ROLE"} {
		err := onPools(f.ctx, f.Store, func(_ string, conn *pgx.Conn) error {
			_, err := conn.Exec(f.ctx, mixed)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		var role string
		if err := queryAs(f.ctx, f.Store, ann, "SELECT current_user::text", &role); err != nil || role != "a2a_app" {
			t.Errorf("after %s a request reads as %s: %v", mixed, role, err)
		}
		for _, table := range readable {
			var n int
			if err := queryAs(f.ctx, f.Store, db.Caller{Tenant: "other", Owner: "eve"}, "SELECT count(*) FROM a2a."+table, &n); err != nil || n != 0 {
				t.Errorf("after %s somebody else sees %d rows of %s: %v", mixed, n, table, err)
			}
		}
	}
}

func TestRequestsMayOnlyReadAndNotEverything(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tables := f.column("SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'a2a'::regnamespace AND c.relkind IN ('r', 'p')")
	f.asApp(func(conn *pgx.Conn) {
		for _, table := range tables {
			may := func(what string) (ok bool) {
				if err := conn.QueryRow(f.ctx, "SELECT has_table_privilege('a2a.' || $1, $2)", table, what).Scan(&ok); err != nil {
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
	f := newFixture(t)
	for _, wrong := range f.column(`
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

// A query that forgets whose task it is about still finds nothing.
func TestSnapshotIsForTheCaller(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	task := f.full()
	for _, c := range []db.Caller{{Tenant: "acme", Owner: "bob"}, {Tenant: "other", Owner: "ann", Shared: true}, {}} {
		_, err := f.Tasks.Snapshot(f.ctx, c, task, tasks.Want{Artifacts: true})
		wantCode(t, err, a2a.CodeTaskNotFound)
	}
	whole, err := f.Tasks.SnapshotOfAny(f.ctx, task, tasks.Want{Artifacts: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []db.Caller{ann, {Tenant: "acme", Owner: "bob", Shared: true}} {
		got, err := f.Tasks.Snapshot(f.ctx, c, task, tasks.Want{Artifacts: true})
		if err != nil {
			t.Fatal(err)
		}
		same(t, "task", whole, got)
	}
}

// A tenant that shares: its members find, continue and cancel each other's tasks, which stay
// those of who made them.
func TestSharedTasksAreForTheTenant(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	bob, eve := db.Caller{Tenant: "acme", Owner: "bob", Shared: true}, db.Caller{Tenant: "other", Owner: "eve", Shared: true}
	task := f.task()
	f.setPush(task, "hook")
	for c, want := range map[db.Caller]int{bob: 1, eve: 0, {Tenant: "acme", Owner: "bob"}: 0} {
		found, total, err := f.Tasks.Page(f.ctx, c, tasks.Filter{Agent: agent, Limit: 10})
		if err != nil || len(found) != want || total.N != want {
			t.Errorf("%+v finds %d of %d tasks, %v; want %d", c, len(found), total.N, err, want)
		}
		hooks, err := f.Webhooks.OfTask(f.ctx, c, task, "")
		if err != nil || len(hooks) != want {
			t.Errorf("%+v finds %d webhooks, %v; want %d", c, len(hooks), err, want)
		}
	}
	_, err := f.Tasks.Cancel(f.ctx, eve, "", task)
	wantCode(t, err, a2a.CodeTaskNotFound)
	hook := newPush("bob's")
	wantCode(t, f.Tasks.SetWebhook(f.ctx, eve, agent, task, hook, 2), a2a.CodeTaskNotFound)
	for range 2 { // the second one replaces the first
		if err := f.Tasks.SetWebhook(f.ctx, bob, agent, task, hook, 2); err != nil {
			t.Error(err)
		}
	}
	if hooks, err := f.Webhooks.OfTask(f.ctx, ann, task, ""); err != nil || len(hooks) != 2 {
		t.Errorf("webhooks of the task, to its owner: %+v, %v", hooks, err)
	}
	if err := f.Webhooks.Delete(f.ctx, bob, task, "hook"); err != nil {
		t.Error(err)
	}
	if hooks, err := f.Webhooks.OfTask(f.ctx, ann, task, ""); err != nil || len(hooks) != 1 {
		t.Errorf("after a delete by another: %+v, %v", hooks, err)
	}
	if _, err := f.Tasks.Submit(f.ctx, tasks.Submission{Caller: bob, Agent: agent, Task: task, Message: a2a.Message{ID: "m2", Role: a2a.RoleUser, Parts: []a2a.Part{{Kind: a2a.PartText, Text: "y"}}}}); err != nil {
		t.Error(err)
	}
	if _, err := f.Tasks.Cancel(f.ctx, bob, "", task); err != nil {
		t.Error(err)
	}
	if o, err := f.Operate.Owner(f.ctx, task); err != nil || o != ann {
		t.Errorf("the task is %+v's, %v", o, err)
	}
}

// Neither who migrates nor who serves needs to be a superuser.
func TestOrdinaryLoginsSuffice(t *testing.T) {
	t.Parallel()
	f := &fixture{t: t, ctx: migrateContext(t)}
	pg := storetest.NewEmpty(t)
	f.url, f.sql = pg.URL, pg.Pool(t)
	storetest.New(t) // the roles are there
	name := fmt.Sprintf("t%d", time.Now().UnixNano())
	owner, server := name+"_owner", name+"_server"
	f.exec("CREATE ROLE " + owner + " LOGIN IN ROLE a2a_owner, a2a_app, a2a_worker")
	f.exec("CREATE ROLE " + server + " LOGIN NOINHERIT IN ROLE a2a_app, a2a_worker")
	var database string
	if err := f.sql.QueryRow(f.ctx, "SELECT current_database()").Scan(&database); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // roles are of the cluster
		ctx := context.WithoutCancel(f.ctx)
		conn, err := pgx.Connect(ctx, pg.URL)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close(ctx)
		both := owner + ", " + server
		for _, query := range []string{"REASSIGN OWNED BY " + both + " TO CURRENT_USER", "DROP OWNED BY " + both, "DROP ROLE " + both} {
			if _, err := conn.Exec(ctx, query); err != nil {
				t.Error(err)
			}
		}
	})
	f.exec("ALTER DATABASE " + database + " OWNER TO " + owner)
	f.exec("GRANT CREATE ON SCHEMA public TO " + owner)
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
	if err := operate.MigrateUp(f.ctx, as(owner)); err != nil {
		t.Fatal(err)
	}
	if err := operate.MigrateDown(f.ctx, as(owner)); err != nil {
		t.Fatal(err)
	}
	if err := operate.MigrateUp(f.ctx, as(server)); err == nil || !strings.Contains(err.Error(), "take the one that owns the tables") {
		t.Errorf("the login of the servers migrates: %v", err)
	}
	if err := operate.MigrateUp(f.ctx, as(owner)); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(f.ctx, store.Config{Config: db.Config{URL: as(server), Replica: "r1", PoolSize: 4}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Operate.CheckSchema(f.ctx); err != nil {
		t.Fatal(err)
	}
	f.Store = s
	task := f.task()
	if got, err := s.Tasks.Snapshot(f.ctx, ann, task, tasks.Want{}); err != nil || got.ID != task {
		t.Errorf("%v, %v", got, err)
	}

	// What it may not see it says that it does not see.
	tx, err := f.sql.Begin(f.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(f.ctx) }()
	hidden := func() int {
		o, err := s.Operate.Overview(f.ctx)
		if err != nil {
			t.Fatal(err)
		}
		return o.Hidden
	}
	if n := hidden(); n == 0 {
		t.Error("the transaction of another login is neither shown nor counted")
	}
	f.exec("ALTER ROLE " + server + " INHERIT") // before the grant: from version 16 on, each grant keeps what it was given with
	f.exec("GRANT pg_read_all_stats TO " + server)
	if n := hidden(); n != 0 {
		t.Errorf("%d connections are hidden from a member of pg_read_all_stats", n)
	}
}

// column runs a query of one text column.
func (f *fixture) column(query string) []string {
	f.t.Helper()
	rows, err := f.sql.Query(f.ctx, query)
	if err != nil {
		f.t.Fatal(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		f.t.Fatal(err)
	}
	return out
}
