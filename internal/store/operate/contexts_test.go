package operate_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// A client finds by their context the tasks that are older than the table of contexts, and those that a server of the
// previous version adds after the upgrade.
func TestUpgradeFindsOlderTasksByContext(t *testing.T) {
	t.Parallel()
	ctx := migrateContext(t)
	pg := storetest.New(t)
	conn, err := pgx.Connect(ctx, pg.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	for there := true; there; {
		if err := operate.MigrateDown(ctx, pg.URL); err != nil {
			t.Fatal(err)
		}
		if err := conn.QueryRow(ctx, "SELECT to_regclass('a2a.context_tasks') IS NOT NULL").Scan(&there); err != nil {
			t.Fatal(err)
		}
	}
	add := func(n int) {
		t.Helper()
		_, err := conn.Exec(ctx, `
			INSERT INTO a2a.tasks (
			  id, tenant, owner, agent, context_id, state, status_at,
			  last_seq, last_at, last_message_seq, last_user_seq, created_at)
			SELECT gen_random_uuid(), 'acme', 'ann', 'a', 'talk', 1, now(), 1, now(), 1, 1, now()
			FROM generate_series(1, $1)`, n)
		if err != nil {
			t.Fatal(err)
		}
	}
	add(3)
	if err := operate.MigrateUp(ctx, pg.URL); err != nil {
		t.Fatal(err)
	}
	add(4)
	s, err := store.Open(ctx, store.Config{Config: db.Config{URL: pg.URL, Replica: "r1", PoolSize: 2}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for owner, want := range map[string]int{"ann": 7, "bob": 0} {
		found, total, err := s.Tasks.Page(ctx, db.Caller{Tenant: "acme", Owner: owner},
			tasks.Filter{Agent: "a", ContextID: "talk", Limit: 10})
		if err != nil || len(found) != want || total.N != want {
			t.Errorf("%s finds %d of %d tasks, %v; want %d", owner, len(found), total.N, err, want)
		}
	}
}
