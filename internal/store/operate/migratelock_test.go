package operate_test

import (
	"context"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/migrations"
)

// down returns a database whose newest step is at most version.
func down(t *testing.T, version int64) *storetest.DB {
	t.Helper()
	db := storetest.New(t)
	for {
		newest := int64(0)
		for _, m := range steps(t, db) {
			if !m.Applied.IsZero() {
				newest = m.Version
			}
		}
		if newest <= version {
			return db
		}
		if err := operate.MigrateDown(migrateContext(t), db.URL); err != nil {
			t.Fatal(err)
		}
	}
}

// reader is somebody who reads for long, as pg_dump does.
type reader struct {
	*pgx.Conn
	t   *testing.T
	ctx context.Context
}

func (r *reader) exec(sql string) {
	r.t.Helper()
	if _, err := r.Exec(r.ctx, sql); err != nil {
		r.t.Fatal(err)
	}
}

func newReader(t *testing.T, db *storetest.DB, sql string) *reader {
	t.Helper()
	ctx := migrateContext(t)
	conn, err := pgx.Connect(ctx, db.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.WithoutCancel(ctx)) })
	r := &reader{conn, t, ctx}
	r.exec("SET application_name = 'dump'")
	r.exec("BEGIN ISOLATION LEVEL REPEATABLE READ")
	r.exec(sql)
	return r
}

// up migrates, and sends what it is told.
func up(ctx context.Context, db *storetest.DB) (notices <-chan string, done <-chan error) {
	n, d := make(chan string, 100), make(chan error, 1)
	go func() { d <- operate.MigrateUp(ctx, db.URL, func(s string) { n <- s }) }()
	return n, d
}

func await[T any](t *testing.T, what string, c <-chan T, done <-chan error) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case err := <-done:
		t.Fatalf("MigrateUp = %v, before %s", err, what)
	case <-migrateContext(t).Done():
		t.Fatalf("no %s", what)
	}
	panic("unreachable")
}

// A step that needs a table waits for a reader of it. Whoever comes after the step must not wait with it.
func TestMigrateUpKeepsNobodyWaitingWhileAReaderStays(t *testing.T) {
	t.Parallel()
	db := down(t, 22)
	dump := newReader(t, db, "SELECT count(*) FROM a2a.tasks")
	notices, done := up(migrateContext(t), db)
	sql := newReader(t, db, "COMMIT; SET statement_timeout = '8s'")
	for reads := 0; reads < 3; {
		var waits bool
		const waiting = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'a2a.tasks'::regclass AND mode = 'AccessExclusiveLock')"
		if err := sql.QueryRow(sql.ctx, waiting).Scan(&waits); err != nil {
			t.Fatal(err)
		}
		if waits {
			reads++
		}
		sql.exec("SELECT count(*) FROM a2a.tasks") // it fails if it has to wait for the reader
	}
	notice := await(t, "notice", notices, done)
	if want := fmt.Sprintf("process %d (dump), whose transaction is ", dump.PgConn().PID()); !strings.Contains(notice, want) || strings.Contains(notice, "SELECT") {
		t.Errorf("notice %q, want one with %q and no statement", notice, want)
	}
	dump.exec("COMMIT")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got, want := applied(t, db), len(steps(t, db)); got != want {
		t.Errorf("%d steps are applied, want %d", got, want)
	}
}

func TestMigrateThatIsGivenUpNamesWhoHoldsTheLock(t *testing.T) {
	t.Parallel()
	db := down(t, 22)
	dump := newReader(t, db, "SELECT count(*) FROM a2a.tasks")
	ctx, cancel := context.WithCancel(migrateContext(t))
	notices, done := up(ctx, db)
	await(t, "notice", notices, done)
	cancel()
	err := <-done
	if want := fmt.Sprintf("held by process %d (dump)", dump.PgConn().PID()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("MigrateUp = %v, want %q in it", err, want)
	}
}

// To build an index waits for every older transaction: meanwhile lists have the one that it replaces.
func TestListsKeepTheirIndexWhileItIsReplaced(t *testing.T) {
	t.Parallel()
	db := down(t, 22)
	dump := newReader(t, db, "SELECT count(*) FROM a2a.api_keys")
	notices, done := up(migrateContext(t), db)
	await(t, "notice", notices, done)
	if got := index(t, db, "tasks_list_agent"); !strings.HasPrefix(got, "true ") {
		t.Errorf("while the new index waits the old one is %q", got)
	}
	dump.exec("COMMIT")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := index(t, db, "tasks_list"); !strings.HasPrefix(got, "true ") || !strings.Contains(got, "(list_key") {
		t.Errorf("the new index is %q", got)
	}
}

// index returns whether an index is valid, and its definition.
func index(t *testing.T, db *storetest.DB, name string) (def string) {
	t.Helper()
	const q = "SELECT coalesce((SELECT i.indisvalid::text || ' ' || pg_get_indexdef(i.indexrelid) FROM pg_index i WHERE i.indexrelid = to_regclass('a2a.' || $1)), '')"
	if err := db.Pool(t).QueryRow(migrateContext(t), q, name).Scan(&def); err != nil {
		t.Fatal(err)
	}
	return def
}

// A try that was cut short leaves an index that is not used and whose name is taken.
func TestMigrateRebuildsAnIndexThatWasCutShort(t *testing.T) {
	t.Parallel()
	db := down(t, 23)
	for _, q := range []string{
		"CREATE INDEX tasks_in_flight ON a2a.tasks (id)",
		"UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'a2a.tasks_in_flight'::regclass",
	} {
		if _, err := db.Pool(t).Exec(migrateContext(t), q); err != nil {
			t.Fatal(err)
		}
	}
	if err := operate.MigrateDown(migrateContext(t), db.URL); err != nil { // it builds that index
		t.Fatal(err)
	}
	if got := index(t, db, "tasks_in_flight"); !strings.HasPrefix(got, "true ") || !strings.Contains(got, "(tenant, owner)") {
		t.Errorf("the index is %q", got)
	}
}

// replacesAtOnce are migrations from before the rule that drop what an earlier one made in the file that
// replaces it. The servers of the version before are without it from then on.
var replacesAtOnce = []string{"00003_push.sql", "00007_contexts.sql", "00015_years.sql", "00023_list_key.sql", "00026_push_leases.sql"}

// What a migration replaces is dropped by a later one, of a later version: until then servers of the version
// before use it. And what is built CONCURRENTLY is so that a repeated step finds it made.
func TestMigrationsDropNothingThatTheyReplace(t *testing.T) {
	t.Parallel()
	made := regexp.MustCompile(`(?im)^\s*(?:CREATE (?:UNIQUE )?INDEX (?:CONCURRENTLY )?(?:IF NOT EXISTS )?(\w+)|CREATE TABLE (?:IF NOT EXISTS )?a2a\.(\w+)|ALTER TABLE a2a\.\w+ ADD COLUMN (?:IF NOT EXISTS )?(\w+))`)
	dropped := regexp.MustCompile(`(?im)^\s*(?:DROP (?:INDEX|TABLE) (?:CONCURRENTLY )?(?:IF EXISTS )?a2a\.(\w+)|ALTER TABLE a2a\.\w+ DROP COLUMN (?:IF EXISTS )?(\w+))`)
	built := regexp.MustCompile(`(?im)^\s*CREATE (?:UNIQUE )?INDEX CONCURRENTLY (IF NOT EXISTS )?(\w+)`)
	names, err := fs.Glob(migrations.FS, "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	name := func(m []string) string { return strings.Join(m[1:], "") }
	earlier := map[string]bool{}
	for _, file := range names {
		text, err := fs.ReadFile(migrations.FS, file)
		if err != nil {
			t.Fatal(err)
		}
		upPart, _, _ := strings.Cut(string(text), "-- +goose Down\n")
		makes := made.FindAllStringSubmatch(upPart, -1)
		for _, m := range dropped.FindAllStringSubmatch(upPart, -1) {
			if earlier[name(m)] && len(makes) > 0 && !slices.Contains(replacesAtOnce, file) {
				t.Errorf("%s drops %s, which servers of the version before use, in the step that makes %s", file, name(m), name(makes[0]))
			}
		}
		for _, m := range makes {
			earlier[name(m)] = true
		}
		for _, m := range built.FindAllStringSubmatch(upPart, -1) {
			if m[1] == "" && !strings.Contains(upPart, "DROP INDEX CONCURRENTLY IF EXISTS a2a."+m[2]+";") {
				t.Errorf("%s: %s is not built IF NOT EXISTS, so a repeated step fails", file, m[2])
			}
		}
	}
	if !earlier["tasks_list"] || !earlier["tasks"] || !earlier["list_key"] {
		t.Errorf("not all that migrations make was found: %v", earlier)
	}
}
