package storetest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
)

// PlanSettings makes a connection plan as those of the server do: once, for no arguments in particular.
const PlanSettings = "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET jit = off"

// Root returns the directory of the module, from that of any package.
func (f *Fixture) Root() string {
	f.T.Helper()
	dir, err := os.Getwd()
	if err != nil {
		f.T.Fatalf("find working directory: %v", err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			f.T.Fatal("no go.mod above the working directory")
		}
	}
}

// NamedStatement is one of the server's statements. Params are the names of its parameters, as its Go code spells them.
type NamedStatement struct {
	SQL    string
	Params []string
}

// Statements returns the server's statements by their names.
func (f *Fixture) Statements() map[string]NamedStatement {
	f.T.Helper()
	root := f.Root()
	parsed.Do(func() { parsedStatements, errParsed = parseStatements(root) })
	if errParsed != nil {
		f.T.Fatalf("read generated code: %v", errParsed)
	}
	return parsedStatements
}

// What Statements has read. A process has one module.
var (
	parsed           sync.Once
	parsedStatements map[string]NamedStatement
	errParsed        error
)

// parseStatements reads the generated code of a module.
func parseStatements(root string) (map[string]NamedStatement, error) {
	found := map[string]NamedStatement{}
	for _, dir := range []string{"internal/store/*", "internal/pgcheck"} {
		files, err := filepath.Glob(filepath.Join(root, dir, "dbsqlc", "*.sql.go"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			params := map[string][]string{}
			for _, m := range aCall.FindAllSubmatch(data, -1) {
				for _, name := range strings.Fields(strings.ReplaceAll(string(m[2]), ",", " ")) {
					params[string(m[1])] = append(params[string(m[1])], strings.TrimPrefix(name, "arg."))
				}
			}
			for _, m := range aStatement.FindAllSubmatch(data, -1) {
				found[string(m[2])] = NamedStatement{SQL: string(m[3]), Params: params[string(m[1])]}
			}
		}
	}
	return found, nil
}

var (
	aStatement = regexp.MustCompile("(?s)const (\\w+) = `-- name: (\\w+) :\\w+\n(.*?)`")
	aCall      = regexp.MustCompile(`(?s)q\.db\.\w+\(ctx, (\w+)(.*?)\)\n`)
)

// Statement returns the text of one of the server's statements.
func (f *Fixture) Statement(name string) string {
	f.T.Helper()
	s, ok := f.Statements()[name]
	if !ok {
		f.T.Fatalf("there is no statement %s", name)
	}
	return s.SQL
}

// Explain returns the plan that the server's connections keep of one of its statements. settings are further
// settings of the connection, as SQL.
func (f *Fixture) Explain(settings, name string) []string {
	f.T.Helper()
	sql := f.Statement(name)
	args := 0
	for strings.Contains(sql, fmt.Sprintf("$%d", args+1)) {
		args++
	}
	ctx := f.T.Context()
	conn, err := f.SQL.Acquire(ctx)
	if err != nil {
		f.T.Fatalf("acquire a connection: %v", err)
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, PlanSettings+"; "+settings+"; PREPARE planned AS "+sql); err != nil {
		f.T.Fatalf("%s: %v", name, err)
	}
	explain := "EXPLAIN EXECUTE planned"
	if args > 0 {
		explain += " (" + strings.TrimSuffix(strings.Repeat("NULL, ", args), ", ") + ")"
	}
	rows, err := conn.Query(ctx, explain)
	if err != nil {
		f.T.Fatalf("explain %s: %v", name, err)
	}
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		f.T.Fatalf("explain %s: %v", name, err)
	}
	if _, err := conn.Exec(ctx, "DEALLOCATE planned; RESET ALL"); err != nil {
		f.T.Fatalf("reset the connection: %v", err)
	}
	return plan
}
