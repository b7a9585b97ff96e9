package tasks_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// kept has a connection plan as those of the server do: once, for no arguments in particular.
const kept = "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET jit = off"

// statement returns the text of one of the server's statements.
func (f *fixture) statement(name string) string {
	f.t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "*", "dbsqlc", "*.sql.go"))
	if err != nil {
		f.t.Fatal(err)
	}
	doctor, err := filepath.Glob(filepath.Join("..", "..", "pgcheck", "dbsqlc", "*.sql.go"))
	if err != nil {
		f.t.Fatal(err)
	}
	files = append(files, doctor...)
	text := regexp.MustCompile("(?s)`-- name: " + name + " :\\w+\n(.*?)`")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.t.Fatal(err)
		}
		if m := text.FindSubmatch(data); m != nil {
			return string(m[1])
		}
	}
	f.t.Fatalf("there is no statement %s", name)
	return ""
}

// explain returns the plan that the server's connections keep of one of its statements.
func (f *fixture) explain(more, name string) []string {
	f.t.Helper()
	sql := f.statement(name)
	args := 0
	for strings.Contains(sql, fmt.Sprintf("$%d", args+1)) {
		args++
	}
	conn, err := f.sql.Acquire(f.ctx)
	if err != nil {
		f.t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(f.ctx, kept+"; "+more+"; PREPARE planned AS "+sql); err != nil {
		f.t.Fatalf("%s: %v", name, err)
	}
	execute := "EXPLAIN EXECUTE planned"
	if args > 0 {
		execute += " (" + strings.TrimSuffix(strings.Repeat("NULL, ", args), ", ") + ")"
	}
	rows, err := conn.Query(f.ctx, execute)
	if err != nil {
		f.t.Fatal(err)
	}
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		f.t.Fatal(err)
	}
	if _, err := conn.Exec(f.ctx, "DEALLOCATE planned; RESET ALL"); err != nil {
		f.t.Fatal(err)
	}
	return plan
}

// What many runs append at once is put together by hash: row by row it would be quadratic.
func TestAppendJoinsGroupsByHash(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	plan := strings.Join(f.explain("", "EventAppend"), "\n")
	if got := strings.Count(plan, "Hash Join"); got != 2 { // events, and messages, to their batches
		t.Errorf("%d hash joins in\n%s", got, plan)
	}
}
