package importer_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/importer"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

const storeOfPython = `CREATE TABLE tasks (id, context_id, kind, status, artifacts, history, metadata)`

// sqliteStore makes a store of an SDK with n tasks.
func sqliteStore(t *testing.T, n int) (conns *sql.DB, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "tasks.db")
	conns, err := sql.Open("sqlite", file) // without a time to wait for locks
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conns.Close() })
	exec(t, conns, storeOfPython)
	exec(t, conns, `WITH RECURSIVE c (n) AS (SELECT ? UNION ALL SELECT n - 1 FROM c WHERE n > 1)
		INSERT INTO tasks SELECT printf('00000000-0000-4000-8000-%012d', n), 'c', 'task', '{"state":"completed"}',
		NULL, NULL, NULL FROM c`, n)
	return conns, file
}

func exec(t *testing.T, conns *sql.DB, statement string, args ...any) {
	t.Helper()
	if _, err := conns.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatal(err)
	}
}

func openSQLite(t *testing.T, file string, tables importer.Tables) importer.Source {
	t.Helper()
	s, err := importer.Open(t.Context(), "sqlite:"+file, tables)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// writing is a target that writes to the source before it stores a batch, as the old server may.
type writing struct {
	memory
	t    *testing.T
	conn *sql.DB
}

func (w *writing) Import(ctx context.Context, source string, list []tasks.Import) ([]tasks.ImportOutcome, error) {
	exec(w.t, w.conn, `UPDATE tasks SET metadata = '{"k":1}'`)
	return w.memory.Import(ctx, source, list)
}

// An import does not lock the store while it works, and reads each task once.
func TestImportLetsTheOldServerWrite(t *testing.T) {
	t.Parallel()
	conns, file := sqliteStore(t, 250)
	w := &writing{memory{tasks: make(map[a2a.ID]tasks.Import)}, t, conns}
	report, err := importer.Import(t.Context(), openSQLite(t, file, importer.Tables{}), w, config)
	if err != nil || report.States[a2a.StateCompleted].Imported != 250 || len(w.tasks) != 250 {
		t.Errorf("%+v, %v; %d tasks", report, err, len(w.tasks))
	}
}

// An import waits for a transaction of the old server.
func TestImportWaitsForTheOldServer(t *testing.T) {
	t.Parallel()
	conns, file := sqliteStore(t, 1)
	writer, err := conns.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if _, err := writer.ExecContext(t.Context(), "BEGIN EXCLUSIVE"); err != nil {
		t.Fatal(err)
	}
	opened := make(chan error, 1)
	go func() {
		source, err := importer.Open(t.Context(), "sqlite:"+file, importer.Tables{})
		if err == nil {
			source.Close()
		}
		opened <- err
	}()
	for range 500 { // it has time to begin, and an import that does not wait to fail
		if _, err := conns.ExecContext(t.Context(), "SELECT 1 FROM tasks"); err == nil {
			t.Fatal("the database is not locked")
		}
	}
	if _, err := writer.ExecContext(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

// A view has no rowid, so it is read by one statement.
func TestViewIsAStore(t *testing.T) {
	t.Parallel()
	conns, file := sqliteStore(t, 250)
	exec(t, conns, `CREATE VIEW seen AS SELECT * FROM tasks`)
	m := &memory{tasks: make(map[a2a.ID]tasks.Import)}
	source := openSQLite(t, file, importer.Tables{Tasks: "seen"})
	if _, err := importer.Import(t.Context(), source, m, config); err != nil || len(m.tasks) != 250 {
		t.Errorf("%d tasks, %v", len(m.tasks), err)
	}
}

// A column that is not JSON, such as NaN of Python, is named.
func TestProblemsNameTheColumn(t *testing.T) {
	t.Parallel()
	conns, file := sqliteStore(t, 2)
	exec(t, conns, `UPDATE tasks SET metadata = '{"score": NaN}' WHERE rowid = 1`)
	var problems []string
	cfg := config
	cfg.Problem = func(task, why string) { problems = append(problems, task+" "+why) }
	m := &memory{tasks: make(map[a2a.ID]tasks.Import)}
	_, err := importer.Import(t.Context(), openSQLite(t, file, importer.Tables{}), m, cfg)
	want := `task 00000000-0000-4000-8000-000000000002 its column metadata cannot be read: `
	if err != nil || len(m.tasks) != 1 || len(problems) != 1 || !strings.HasPrefix(problems[0], want) {
		t.Errorf("%d tasks, problems %q, %v", len(m.tasks), problems, err)
	}
}

func TestOpenSaysWhatIsWrongWithADatabase(t *testing.T) {
	t.Parallel()
	conns, file := sqliteStore(t, 1)
	exec(t, conns, `CREATE TABLE other (id)`)
	text := filepath.Join(t.TempDir(), "text.db")
	if err := os.WriteFile(text, []byte(strings.Repeat("no database ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		tables importer.Tables
		want   string
	}{
		{file, importer.Tables{Tasks: "task"}, file + `: read table "task": `},
		{file, importer.Tables{Tasks: "other"}, file + `: table "other" has no column "context_id"`},
		{file, importer.Tables{Webhooks: "hooks"}, file + `: read table "hooks": `},
		{text, importer.Tables{}, text + ": "},
		{filepath.Dir(file), importer.Tables{}, "into a directory that you can write to"},
		{"", importer.Tables{}, "must be sqlite:FILE"},
	} {
		source, err := importer.Open(t.Context(), "sqlite:"+tc.name, tc.tables)
		if err == nil {
			source.Close()
		}
		if !strings.Contains(fmt.Sprint(err), tc.want) {
			t.Errorf("%s with %+v: %v, want %s", tc.name, tc.tables, err, tc.want)
		}
	}
}
