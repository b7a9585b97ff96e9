package operate_test

import (
	"context"
	"io/fs"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/a2ad/a2ad/internal/slowtest"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/migrations"
)

func TestMigrateUpFromSeveralProcessesAtOnce(t *testing.T) {
	t.Parallel()
	ctx := migrateContext(t)
	db := storetest.NewEmpty(t)
	var replicas errgroup.Group
	for range 6 {
		replicas.Go(func() error { return operate.MigrateUp(ctx, db.URL) })
	}
	if err := replicas.Wait(); err != nil {
		t.Fatal(err)
	}
	if got, want := applied(t, db), len(steps(t, db)); got != want {
		t.Errorf("%d migrations are applied, want %d", got, want)
	}
}

// A migration may take longer than the statement_timeout of the server.
func TestMigrateHasNoStatementTimeout(t *testing.T) {
	t.Parallel()
	ctx := migrateContext(t)
	db := storetest.NewEmpty(t)
	pool := db.Pool(t)
	// While another transaction creates the same schema, and may yet roll back, the first migration waits.
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx) //nolint:errcheck // it is rolled back below
	for _, query := range []string{"SET LOCAL statement_timeout = 0", "CREATE SCHEMA a2a"} {
		if _, err := tx.Exec(ctx, query); err != nil {
			t.Fatal(err)
		}
	}
	const limit = `DO $$ BEGIN
		EXECUTE format('ALTER DATABASE %I SET statement_timeout = 100', current_database());
	END $$`
	if _, err := pool.Exec(ctx, limit); err != nil {
		t.Fatal(err)
	}
	up := make(chan error, 1)
	go func() { up <- operate.MigrateUp(ctx, db.URL) }()
	for long := false; !long; {
		select {
		case err := <-up:
			t.Fatalf("MigrateUp = %v before the other transaction ended", err)
		default:
		}
		const waits = `
			SELECT count(*) > 0 FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'
			  AND clock_timestamp() - query_start > interval '200 ms'`
		if err := pool.QueryRow(ctx, waits).Scan(&long); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-up; err != nil {
		t.Error(err)
	}
}

func TestMigrateDownRevertsOneMigration(t *testing.T) {
	t.Parallel()
	slowtest.Only(t, slowtest.Crash)
	ctx := migrateContext(t)
	db := storetest.New(t)
	for left := len(steps(t, db)) - 1; left >= 0; left-- {
		if err := operate.MigrateDown(ctx, db.URL); err != nil {
			t.Fatal(err)
		}
		if got := applied(t, db); got != left {
			t.Fatalf("%d migrations are applied, want %d", got, left)
		}
	}
	if err := operate.MigrateDown(ctx, db.URL); err != nil {
		t.Errorf("MigrateDown with nothing applied = %v, want nil", err)
	}
	if got := schemas(t, db); got != "" {
		t.Errorf("schemas left after the last migration was reverted: %s", got)
	}
	if err := operate.MigrateUp(ctx, db.URL); err != nil {
		t.Errorf("MigrateUp after all migrations were reverted: %v", err)
	}
}

func TestMigrateStatusListsEveryMigration(t *testing.T) {
	t.Parallel()
	all := steps(t, storetest.New(t))
	for i, m := range all {
		if m.Applied.IsZero() || m.Name == "" || i > 0 && all[i-1].Version >= m.Version {
			t.Errorf("migration %d = %+v, want a name, the order of versions, and that it is applied", i, m)
		}
	}
	if got, want := all[len(all)-1].Version, operate.SchemaVersion(); got != want {
		t.Errorf("the newest migration is %d, want SchemaVersion() = %d", got, want)
	}
}

func TestMigrateWaitsForTheLockOnlyAsLongAsItsContext(t *testing.T) {
	t.Parallel()
	ctx := migrateContext(t)
	db := storetest.NewEmpty(t)
	holder, err := pgx.Connect(ctx, db.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close(ctx)
	if _, err := holder.Exec(ctx, "SELECT pg_advisory_lock($1)", int64(0x61326164_00000001)); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if err := operate.MigrateUp(short, db.URL); err == nil {
		t.Error("MigrateUp = nil while another process migrates")
	}
	if got := schemas(t, db); got != "" {
		t.Errorf("MigrateUp made schemas %s without the lock", got)
	}
}

func TestMigrationFilesAreNumberedAndReversible(t *testing.T) {
	t.Parallel()
	names, err := fs.Glob(migrations.FS, "*")
	if err != nil {
		t.Fatal(err)
	}
	form := regexp.MustCompile(`^\d{5}_[a-z0-9_]+\.sql$`)
	seen := map[string]string{}
	for _, name := range names {
		if !form.MatchString(name) {
			t.Errorf("%s: want NNNNN_name.sql", name)
		}
		number, _, _ := strings.Cut(name, "_")
		if other := seen[number]; other != "" {
			t.Errorf("%s and %s have the same number", name, other)
		}
		seen[number] = name
		text, err := fs.ReadFile(migrations.FS, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"-- +goose Up\n", "-- +goose Down\n"} {
			if strings.Count(string(text), part) != 1 {
				t.Errorf("%s: want one %q", name, part)
			}
		}
	}
}

// steps returns all migrations, in order.
func steps(t *testing.T, db *storetest.DB) []operate.Migration {
	t.Helper()
	all, err := operate.MigrateStatus(migrateContext(t), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatal("no migrations")
	}
	return all
}

// applied returns how many migrations are applied.
func applied(t *testing.T, db *storetest.DB) int {
	t.Helper()
	n := 0
	for _, m := range steps(t, db) {
		if !m.Applied.IsZero() {
			n++
		}
	}
	return n
}

// schemas returns the names of the schemas that migrations make.
func schemas(t *testing.T, db *storetest.DB) string {
	t.Helper()
	ctx := migrateContext(t)
	var got string
	err := db.Pool(t).QueryRow(ctx,
		"SELECT coalesce(string_agg(nspname, ' '), '') FROM pg_namespace WHERE nspname IN ('a2a', 'audit')").Scan(&got)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// migrateContext ends migrations that hang.
func migrateContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// ANALYZE reads 300 rows per step of the finest statistics target of a table. One new column with the default target
// would make it read ten times as many rows of a log.
func TestStatisticsOfLogsAreCheap(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	const columns = `
		FROM pg_attribute a
		WHERE a.attnum > 0 AND NOT a.attisdropped AND a.attrelid = ANY (ARRAY[
		  'a2a.task_events', 'a2a.messages', 'a2a.task_attempts', 'a2a.artifacts', 'a2a.artifact_parts',
		  'a2a.context_tasks', 'a2a.idempotency_keys', 'a2a.push_attempts']::regclass[])`
	const tables = "SELECT count(DISTINCT a.attrelid)::int" + columns + " AND a.attstattarget = 10"
	if got := storetest.Value[int](f, tables); got != 8 {
		t.Errorf("%d tables have cheap statistics, want 8", got)
	}
	const others = "SELECT coalesce(string_agg(a.attrelid::regclass || '.' || a.attname, ', '), '')" +
		columns + " AND a.attstattarget IS DISTINCT FROM 10"
	if got := storetest.Value[string](f, others); got != "" {
		t.Errorf("statistics of %s are not those of 00024_cheap_statistics.sql", got)
	}
}
