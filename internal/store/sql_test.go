package store_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// madeSQL is where a statement is put together, each time of constants.
var madeSQL = map[string]string{
	"internal/notify/listener.go":           `"LISTEN " + Channel`,
	"internal/store/operate/migratelock.go": `"DROP INDEX CONCURRENTLY IF EXISTS " + name`, // of an index that a migration makes
}

// TestStatementsAreConstants: nothing that comes from outside can become SQL, since no statement of
// the server is put together. What is in queries/ takes arguments.
func TestStatementsAreConstants(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	looked := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && rel != "." || rel == "bin" || rel == "internal/store/storetest" || rel == "internal/bench" || rel == "internal/devpg" || rel == "internal/interop" || rel == "internal/wire"):
			return fs.SkipDir // what is not in the server, and devpg, which makes databases of its own
		case !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			i, known := map[string]int{"Exec": 1, "Query": 1, "QueryRow": 1, "Queue": 0, "Prepare": 2}[method.Sel.Name]
			if !known || len(call.Args) <= i {
				return true
			}
			looked++
			switch arg := call.Args[i].(type) {
			case *ast.BinaryExpr:
				if madeSQL[rel] == "" || !strings.HasPrefix(madeSQL[rel], text(arg.X)) || text(arg.Y) != strings.TrimSpace(strings.Split(madeSQL[rel], "+")[1]) {
					t.Errorf("%s: a statement is put together: %s + %s", rel, text(arg.X), text(arg.Y))
				}
			case *ast.CallExpr:
				t.Errorf("%s: a statement is the result of a call, in a call of %s", rel, method.Sel.Name)
			}
			return true
		})
		return nil
	})
	if err != nil || looked < 80 {
		t.Errorf("%d statements were looked at, %v", looked, err)
	}
}

// text returns a literal or a name.
func text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Value
	case *ast.Ident:
		return e.Name
	}
	return "?"
}
