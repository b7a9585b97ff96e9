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

	"github.com/a2ad/a2ad/internal/slowtest"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/migrations"
)

// openAt returns a database whose newest migration is at most version.
func openAt(t *testing.T, version int64) *storetest.DB {
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

// reader is a connection with a long transaction, like that of pg_dump.
type reader struct {
	*pgx.Conn
	t   *testing.T
	ctx context.Context //nolint:containedctx // it bounds the whole test
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

// up starts MigrateUp and returns its notices.
func up(ctx context.Context, db *storetest.DB) (notices <-chan string, done <-chan error) {
	n, d := make(chan string, 100), make(chan error, 1)
	go func() { d <- operate.MigrateUp(ctx, db.URL, func(s string) { n <- s }) }()
	return n, d
}

// await returns the next value, and fails the test if MigrateUp ends before it.
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

// A migration that locks a table waits for its readers. Statements that come after it must not wait, too.
func TestMigrateUpDelaysNoStatementWhileItWaitsForAReader(t *testing.T) {
	t.Parallel()
	slowtest.Only(t, slowtest.Crash)
	db := openAt(t, 22)
	dump := newReader(t, db, "SELECT count(*) FROM a2a.tasks")
	notices, done := up(migrateContext(t), db)
	sql := newReader(t, db, "COMMIT; SET statement_timeout = '8s'")
	for reads := 0; reads < 3; {
		var waits bool
		const waiting = `SELECT EXISTS (
			SELECT FROM pg_locks
			WHERE NOT granted AND relation = 'a2a.tasks'::regclass AND mode = 'AccessExclusiveLock')`
		if err := sql.QueryRow(sql.ctx, waiting).Scan(&waits); err != nil {
			t.Fatal(err)
		}
		if waits {
			reads++
		}
		sql.exec("SELECT count(*) FROM a2a.tasks") // it times out if it waits for the reader
	}
	notice := await(t, "notice", notices, done)
	want := fmt.Sprintf("process %d (dump), whose transaction is ", dump.PgConn().PID())
	if !strings.Contains(notice, want) || strings.Contains(notice, "SELECT") {
		t.Errorf("notice %q, want one with %q and no statement", notice, want)
	}
	dump.exec("COMMIT")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got, want := applied(t, db), len(steps(t, db)); got != want {
		t.Errorf("%d migrations are applied, want %d", got, want)
	}
}

func TestCanceledMigrateNamesTheHolderOfTheLock(t *testing.T) {
	t.Parallel()
	db := openAt(t, 22)
	dump := newReader(t, db, "SELECT count(*) FROM a2a.tasks")
	ctx, cancel := context.WithCancel(migrateContext(t))
	notices, done := up(ctx, db)
	await(t, "notice", notices, done)
	cancel()
	err := <-done
	want := fmt.Sprintf("held by process %d (dump)", dump.PgConn().PID())
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("MigrateUp = %v, want %q in it", err, want)
	}
}

// CREATE INDEX CONCURRENTLY waits for every older transaction. Until then lists need the index that it replaces.
func TestListsKeepTheirIndexWhileItIsReplaced(t *testing.T) {
	t.Parallel()
	slowtest.Only(t, slowtest.Crash)
	db := openAt(t, 22)
	dump := newReader(t, db, "SELECT count(*) FROM a2a.api_keys")
	notices, done := up(migrateContext(t), db)
	await(t, "notice", notices, done)
	if got := index(t, db, "tasks_list_agent"); !strings.HasPrefix(got, "true ") {
		t.Errorf("while the new index waits, the old one is %q, want it valid", got)
	}
	dump.exec("COMMIT")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := index(t, db, "tasks_list"); !strings.HasPrefix(got, "true ") || !strings.Contains(got, "(list_key") {
		t.Errorf("the new index is %q, want it valid, on list_key", got)
	}
}

// index returns "VALID DEFINITION" of an index, or "" if it does not exist.
func index(t *testing.T, db *storetest.DB, name string) (def string) {
	t.Helper()
	const q = `SELECT coalesce((
		SELECT i.indisvalid::text || ' ' || pg_get_indexdef(i.indexrelid) FROM pg_index i
		WHERE i.indexrelid = to_regclass('a2a.' || $1)), '')`
	if err := db.Pool(t).QueryRow(migrateContext(t), q, name).Scan(&def); err != nil {
		t.Fatal(err)
	}
	return def
}

// An interrupted CREATE INDEX CONCURRENTLY leaves an invalid index of that name.
func TestMigrateRebuildsAnInvalidIndex(t *testing.T) {
	t.Parallel()
	db := openAt(t, 23)
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
	got := index(t, db, "tasks_in_flight")
	if !strings.HasPrefix(got, "true ") || !strings.Contains(got, "(tenant, owner)") {
		t.Errorf("the index is %q, want it valid, on (tenant, owner)", got)
	}
}

// replacesAtOnce are migrations that are older than the rule. They drop what servers of the previous version use, and
// replace it in the same file.
var replacesAtOnce = []string{
	"00003_push.sql", "00007_contexts.sql", "00015_years.sql", "00023_list_key.sql", "00026_push_leases.sql",
}

// Servers of the previous version use what a migration replaces, so a migration of a later version drops it. An index
// that is built CONCURRENTLY must allow that its migration is repeated.
func TestMigrationsDropNothingThatTheyReplace(t *testing.T) {
	t.Parallel()
	made := regexp.MustCompile(`(?im)^\s*(?:` +
		`CREATE (?:UNIQUE )?INDEX (?:CONCURRENTLY )?(?:IF NOT EXISTS )?(\w+)|` +
		`CREATE TABLE (?:IF NOT EXISTS )?a2a\.(\w+)|` +
		`ALTER TABLE a2a\.\w+ ADD COLUMN (?:IF NOT EXISTS )?(\w+))`)
	dropped := regexp.MustCompile(`(?im)^\s*(?:` +
		`DROP (?:INDEX|TABLE) (?:CONCURRENTLY )?(?:IF EXISTS )?a2a\.(\w+)|` +
		`ALTER TABLE a2a\.\w+ DROP COLUMN (?:IF EXISTS )?(\w+))`)
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
				t.Errorf("%s drops %s, which servers of the previous version use, and makes %s",
					file, name(m), name(makes[0]))
			}
		}
		for _, m := range makes {
			earlier[name(m)] = true
		}
		for _, m := range built.FindAllStringSubmatch(upPart, -1) {
			if m[1] == "" && !strings.Contains(upPart, "DROP INDEX CONCURRENTLY IF EXISTS a2a."+m[2]+";") {
				t.Errorf("%s: %s is not built IF NOT EXISTS, so a repeated migration fails", file, m[2])
			}
		}
	}
	if !earlier["tasks_list"] || !earlier["tasks"] || !earlier["list_key"] {
		t.Errorf("the search did not find all that migrations make: %v", earlier)
	}
}
