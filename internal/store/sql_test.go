package store_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// builtSQL are the files that build a statement, always from constants.
var builtSQL = map[string]string{
	"internal/notify/listener.go": `"LISTEN " + Channel`,
	// The name is that of an index of a migration.
	"internal/store/operate/migratelock.go": `"DROP INDEX CONCURRENTLY IF EXISTS " + name`,
}

// notInTheServer are directories without statements of the server. devpg and pgfit make databases of their own.
var notInTheServer = []string{
	"bin", "internal/store/storetest", "internal/bench", "internal/devpg", "internal/interop", "internal/pgfit",
	"internal/wire",
}

// No input can become SQL, because the server builds no statement. The statements in queries/ have arguments.
func TestStatementsAreConstants(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	checked := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && rel != "." || slices.Contains(notInTheServer, rel)):
			return fs.SkipDir
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
			checked++
			switch arg := call.Args[i].(type) {
			case *ast.BinaryExpr:
				if builtSQL[rel] == "" || !strings.HasPrefix(builtSQL[rel], text(arg.X)) ||
					text(arg.Y) != strings.TrimSpace(strings.Split(builtSQL[rel], "+")[1]) {
					t.Errorf("%s: a statement is put together: %s + %s", rel, text(arg.X), text(arg.Y))
				}
			case *ast.CallExpr:
				t.Errorf("%s: a statement is the result of a call, in a call of %s", rel, method.Sel.Name)
			}
			return true
		})
		return nil
	})
	if err != nil || checked < 80 {
		t.Errorf("%d statements were checked, want at least 80; %v", checked, err)
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
