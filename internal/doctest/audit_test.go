package doctest_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/store/storetest"
)

var (
	viewHead = regexp.MustCompile(`^### audit\.(\w+)\n$`)
	inCode   = regexp.MustCompile("`([^`]+)`")
)

// documentedColumns returns the columns of each view in docs/reference/audit.md, in order.
func documentedColumns(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "docs", "reference", "audit.md"))
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	view := ""
	for line := range strings.Lines(string(data)) {
		switch m := viewHead.FindStringSubmatch(line); {
		case m != nil:
			view = m[1]
		// another table
		case strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| `") && line != "| column | |\n":
			view = ""
		case view != "" && strings.HasPrefix(line, "| `"):
			names, meaning, _ := strings.Cut(line[1:], "|")
			if strings.Trim(meaning, " |\n") == "" {
				t.Errorf("audit.%s: nothing is said of %s", view, names)
			}
			for _, name := range inCode.FindAllStringSubmatch(names, -1) {
				list = append(list, view+"."+name[1])
			}
		case strings.HasPrefix(line, "#"): // another section
			view = ""
		}
	}
	return list
}

// docs/reference/audit.md has every column of every view, and no other.
func TestAuditColumns(t *testing.T) {
	t.Parallel()
	rows, err := storetest.New(t).Pool(t).Query(t.Context(),
		`SELECT table_name || '.' || column_name FROM information_schema.columns WHERE table_schema = 'audit'`)
	if err != nil {
		t.Fatal(err)
	}
	have, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	documented := documentedColumns(t)
	for _, c := range have {
		if !slices.Contains(documented, c) {
			t.Errorf("docs/reference/audit.md does not say what audit.%s is", c)
		}
	}
	for i, c := range documented {
		if !slices.Contains(have, c) {
			t.Errorf("docs/reference/audit.md has audit.%s, and the database has not", c)
		}
		if slices.Contains(documented[:i], c) {
			t.Errorf("docs/reference/audit.md has audit.%s twice", c)
		}
	}
}

// Every query of the audit pages works for a2a_audit. This role can read no table of the server and change nothing.
func TestAuditorsCanOnlyReadTheAuditViews(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	conn, err := pgx.Connect(ctx, storetest.New(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	column := func(query string) []string {
		rows, err := conn.Query(ctx, query)
		if err != nil {
			t.Fatal(err)
		}
		list, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	tables := column(`SELECT c.oid::regclass::text FROM pg_class c WHERE c.relnamespace = 'a2a'::regnamespace
		AND c.relkind IN ('r', 'p', 'v', 'm')`)
	views := column(`SELECT c.oid::regclass::text FROM pg_class c WHERE c.relnamespace = 'audit'::regnamespace`)
	if _, err := conn.Exec(ctx, "SET ROLE a2a_audit"); err != nil {
		t.Fatal(err)
	}
	asked := 0
	for _, b := range blocks(t, "docs/how-to/audit-queries.md") {
		query := b.sql()
		if query == "" || b.mark != "run" {
			continue
		}
		asked++
		if _, err := conn.Exec(ctx, query); err != nil {
			t.Errorf("%s: %v", b.at(), err)
		}
	}
	if asked < 20 {
		t.Errorf("docs/how-to/audit-queries.md answers %d questions, want 20 or more", asked)
	}
	for _, v := range views {
		if _, err := conn.Exec(ctx, "SELECT * FROM "+v+" LIMIT 1"); err != nil {
			t.Errorf("%s: %v", v, err)
		}
		for _, write := range []string{"DELETE FROM " + v, "INSERT INTO " + v + " DEFAULT VALUES"} {
			if _, err := conn.Exec(ctx, write); err == nil || !strings.Contains(err.Error(), "permission denied") &&
				!strings.Contains(err.Error(), " view ") {
				t.Errorf("an auditor tries to %s: %v", write, err)
			}
		}
	}
	for _, table := range append(tables, "public.a2a_goose_version") {
		if _, err := conn.Exec(ctx, "SELECT FROM "+table+" LIMIT 1"); err == nil ||
			!strings.Contains(err.Error(), "permission denied") {
			t.Errorf("an auditor reads %s: %v", table, err)
		}
	}
	for _, more := range []string{"SET ROLE a2a_owner", "CREATE TABLE audit.mine (i int)",
		"CREATE TABLE a2a.mine (i int)", "CREATE ROLE mine"} {
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "SET LOCAL SESSION AUTHORIZATION a2a_audit"); err != nil {
				t.Error(err)
			}
			_, err := tx.Exec(ctx, more)
			return err
		})
		if err == nil || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("an auditor tries to %s: %v", more, err)
		}
	}
}
