package store_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// namedNumbers are the files of the constants that columns store, and how their names begin.
var namedNumbers = map[string][]string{
	"../a2a/state.go":     {"State", "Role"},
	"../a2a/step.go":      {"Step"},
	"tasks/body.go":       {"kind"},
	"tasks/reply.go":      {"reply"},
	"tasks/calls.go":      {"call"},
	"operate/timeline.go": {"Source"},
}

// TestNumbersInSQL compares the functions that name stored numbers in statements (migration 45) with the constants of
// the server.
func TestNumbersInSQL(t *testing.T) {
	t.Parallel()
	pool := storetest.New(t).Pool(t)
	rows, err := pool.Query(t.Context(), `
		SELECT p.proname
		FROM pg_proc p
		WHERE p.pronamespace = 'a2a'::regnamespace AND p.pronargs = 0 AND p.prorettype = 'smallint'::regtype`)
	if err != nil {
		t.Fatal(err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	inSQL := map[string]int16{}
	for _, name := range found {
		var value int16
		query := "SELECT a2a." + pgx.Identifier{name}.Sanitize() + "()"
		if err := pool.QueryRow(t.Context(), query).Scan(&value); err != nil {
			t.Fatal(err)
		}
		inSQL[name] = value
	}
	inGo := map[string]int16{"reply_task": 0} // the zero value has no constant
	for file, prefixes := range namedNumbers {
		constants(t, file, prefixes, inGo)
	}
	delete(inGo, "state_none") // an event that sets no state stores null
	if diff := cmp.Diff(inGo, inSQL); diff != "" {
		t.Errorf("constants of the server (-) and functions in SQL (+) differ:\n%s", diff)
	}
	for s := a2a.StateNone; s <= a2a.StateRejected+1; s++ {
		var terminal, interrupted, endsTurn bool
		err := pool.QueryRow(t.Context(),
			"SELECT a2a.state_terminal($1), a2a.state_interrupted($1), a2a.state_ends_turn($1)", int16(s)).
			Scan(&terminal, &interrupted, &endsTurn)
		if err != nil {
			t.Fatal(err)
		}
		if (s.Valid() || s == a2a.StateNone) &&
			(terminal != s.Terminal() || interrupted != s.Interrupted() || endsTurn != s.EndsTurn()) {
			t.Errorf("state %d in SQL: terminal %t, interrupted %t, ends its turn %t; want as in Go",
				s, terminal, interrupted,
				endsTurn)
		}
	}
}

// constants adds the constants of a file whose names begin with one of the prefixes, named as SQL names them.
func constants(t *testing.T, path string, prefixes []string, to map[string]int16) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	upper := regexp.MustCompile(`([a-z])([A-Z])`)
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		value, ok := spec.Values[0].(*ast.BasicLit)
		for _, prefix := range prefixes {
			if name := spec.Names[0].Name; ok && value.Kind == token.INT && strings.HasPrefix(name, prefix) {
				v, err := strconv.ParseInt(value.Value, 10, 16)
				if err != nil {
					t.Fatal(err)
				}
				to[strings.ToLower(upper.ReplaceAllString(name, "${1}_$2"))] = int16(v)
			}
		}
		return true
	})
}

// TestStatementsNameNumbers refuses a stored number in a statement: zero alone may be written as it is, for "none".
func TestStatementsNameNumbers(t *testing.T) {
	t.Parallel()
	raw := regexp.MustCompile(`\b(state|kind|source|role|reply|asked)\s*(=|<>|<|>|<=|>=|IN \()\s*[1-9]`)
	files, err := filepath.Glob(filepath.Join("..", "..", "queries", "*", "*.sql"))
	if err != nil || len(files) == 0 {
		t.Fatalf("queries: %v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			if m := raw.FindString(line); m != "" {
				t.Errorf("%s:%d has a number without a name: %s", file, i+1, m)
			}
		}
	}
}
