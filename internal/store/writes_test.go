package store_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sources returns the files of the package, or of one below it, without the tests.
func sources(t *testing.T, dir string) (*token.FileSet, []*ast.File) {
	t.Helper()
	fset := token.NewFileSet()
	pkgs, err := parser.ParseDir(fset, dir, func(f fs.FileInfo) bool { return !strings.HasSuffix(f.Name(), "_test.go") }, parser.SkipObjectResolution) //nolint:staticcheck // no build constraints here
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, p := range pkgs {
		for _, name := range slices.Sorted(maps.Keys(p.Files)) {
			files = append(files, p.Files[name])
		}
	}
	return fset, files
}

var writes = regexp.MustCompile(`(?i)\b(INSERT INTO|DELETE FROM|pg_notify)\b|\bUPDATE a2a\.`)

// writingMethods returns the exported methods of the store, and of what it returns, from which a query is reached that writes.
func writingMethods(t *testing.T) []string {
	t.Helper()
	query := map[string]bool{} // names of queries that write
	_, queries := sources(t, "dbsqlc")
	for _, file := range queries {
		for _, d := range file.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.CONST {
				spec := g.Specs[0].(*ast.ValueSpec)
				sql := spec.Values[0].(*ast.BasicLit).Value
				if writes.MatchString(sql) {
					name := spec.Names[0].Name
					query[strings.ToUpper(name[:1])+name[1:]] = true
				}
			}
		}
	}
	query["APIKeyInsert"], query["APIKeyRevoke"], query["APIKeyUsed"] = true, true, true // their constants begin with aPI
	fset, files := sources(t, ".")
	info := uses(fset, files)
	calls := map[types.Object]map[types.Object]bool{}
	writer := map[types.Object]bool{}
	exported := map[string]types.Object{}
	for _, file := range files {
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			at := info.Defs[f.Name]
			if f.Recv != nil && f.Name.IsExported() {
				exported[f.Name.Name] = at
			}
			writer[at] = f.Name.Name == "safely" // what the combiners flush
			calls[at] = map[types.Object]bool{}
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					to := info.Uses[id]
					if f, ok := to.(*types.Func); ok {
						to = f.Origin()
					}
					calls[at][to] = true
					writer[at] = writer[at] || to == nil && query[id.Name]
				}
				return true
			})
		}
	}
	for grew := true; grew; {
		grew = false
		for f, callees := range calls {
			for callee := range callees {
				if writer[callee] && !writer[f] {
					writer[f], grew = true, true
				}
			}
		}
	}
	var list []string
	for name, f := range exported {
		if writer[f] {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

// TestTransactionsReturnWhatTheyDid looks at every function that is given to a transaction, or is repeated. It changes nothing
// outside of itself and has no effect but on the database: what it did is what it returns, and nobody has that before the commit.
func TestTransactionsReturnWhatTheyDid(t *testing.T) {
	t.Parallel()
	fset, files := sources(t, ".")
	info := uses(fset, files)
	looked := 0
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			given, ok := call.Args[len(call.Args)-1].(*ast.FuncLit)
			switch called(call.Fun) {
			case "inTx", "inTxOnce", "inTxWithin", "doInTx", "autocommit", "repeated":
			default:
				return true
			}
			if !ok {
				return true
			}
			looked++
			for _, wrong := range outside(given, info) {
				t.Errorf("%s: a transaction changes %s, which is outside of it", fset.Position(wrong.Pos()), types.ExprString(wrong))
			}
			return true
		})
	}
	if looked < 20 {
		t.Errorf("%d functions were looked at, want all", looked)
	}
}

// uses tells what the names in files stand for, as far as they are of the package itself.
func uses(fset *token.FileSet, files []*ast.File) *types.Info {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	conf := types.Config{Error: func(error) {}, Importer: nothing{}}
	_, _ = conf.Check("store", fset, files, info) // it finds no package that is imported
	return info
}

func called(fun ast.Expr) string {
	switch fun := fun.(type) {
	case *ast.Ident:
		return fun.Name
	case *ast.SelectorExpr:
		return fun.Sel.Name
	case *ast.IndexExpr:
		return called(fun.X)
	}
	return ""
}

// outside returns what a function assigns to that it has not declared, and whom it tells of its work.
func outside(f *ast.FuncLit, info *types.Info) (list []ast.Expr) {
	check := func(e ast.Expr) {
		root := e
		for {
			switch x := root.(type) {
			case *ast.SelectorExpr:
				root = x.X
				continue
			case *ast.IndexExpr:
				root = x.X
				continue
			case *ast.StarExpr:
				root = x.X
				continue
			case *ast.ParenExpr:
				root = x.X
				continue
			}
			break
		}
		id, ok := root.(*ast.Ident)
		if !ok || id.Name == "_" {
			return
		}
		if o := info.ObjectOf(id); o != nil && (o.Pos() < f.Pos() || o.Pos() > f.End()) {
			list = append(list, e)
		}
	}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if called(n.Fun) == "After" {
				return false // it runs once the commit is acknowledged
			}
		case *ast.AssignStmt:
			for _, e := range n.Lhs {
				check(e)
			}
		case *ast.IncDecStmt:
			check(n.X)
		case *ast.UnaryExpr:
			if _, literal := n.X.(*ast.CompositeLit); n.Op == token.AND && !literal {
				check(n.X)
			}
		case *ast.SelectorExpr:
			on, _ := n.X.(*ast.Ident)
			switch n.Sel.Name {
			case "Wake":
				if on == nil || on.Name != "tx" {
					list = append(list, n)
				}
			case "Committed", "Start", "start", "counters":
				list = append(list, n)
			}
		}
		return true
	})
	return list
}

// nothing is where no package is found.
type nothing struct{}

func (nothing) Import(string) (*types.Package, error) { return nil, fs.ErrNotExist }
