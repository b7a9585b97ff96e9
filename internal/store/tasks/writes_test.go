package tasks_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sources parses the files of a directory, without the tests.
func sources(t *testing.T, dir string) (*token.FileSet, []*ast.File) {
	t.Helper()
	fset := token.NewFileSet()
	noTest := func(f fs.FileInfo) bool { return !strings.HasSuffix(f.Name(), "_test.go") }
	//nolint:staticcheck // no build constraints here
	pkgs, err := parser.ParseDir(fset, dir, noTest, parser.SkipObjectResolution)
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

// rooms are the packages of the store. A field that holds the store of a package has the same name.
var rooms = []string{"db", "access", "webhooks", "tasks", "schedules", "operate", "jobs"}

// source is the files of one package, and what their names refer to.
type source struct {
	room  string
	fset  *token.FileSet
	files []*ast.File
	info  *types.Info
}

func sourcesOfRooms(t *testing.T) (list []source) {
	t.Helper()
	for _, room := range rooms {
		fset, files := sources(t, filepath.Join("..", room))
		list = append(list, source{room, fset, files, uses(fset, files)})
	}
	return list
}

// writingQueries returns the names of the queries of a package that write.
func writingQueries(t *testing.T, room string) map[string]bool {
	query := map[string]bool{}
	_, queries := sources(t, filepath.Join("..", room, "dbsqlc"))
	for _, file := range queries {
		for _, d := range file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			spec := g.Specs[0].(*ast.ValueSpec)
			if writes.MatchString(spec.Values[0].(*ast.BasicLit).Value) {
				name := spec.Names[0].Name
				query[strings.ToUpper(name[:1])+name[1:]] = true
			}
		}
	}
	if room == "access" { // the names of their constants begin with aPI
		query["APIKeyInsert"], query["APIKeyRevoke"], query["APIKeyUsed"] = true, true, true
	}
	return query
}

// callGraph is what the functions of all packages call. A function of another package is known by its package and name.
type callGraph struct {
	calls    map[any]map[any]bool
	writer   map[any]bool
	exported map[string]any // methods, such as "tasks.Submit"
}

// foreign returns the package and name of a function of another package, from a call: access.Record, or
// s.webhooks.EndOfTasks.
func foreign(sel *ast.SelectorExpr) (key string, ok bool) {
	var on string
	switch x := sel.X.(type) {
	case *ast.Ident:
		on = x.Name
	case *ast.SelectorExpr:
		on = x.Sel.Name
	}
	return on + "." + sel.Sel.Name, slices.Contains(rooms, on)
}

func (g *callGraph) add(src source, f *ast.FuncDecl, query map[string]bool) {
	at := any(src.info.Defs[f.Name])
	if g.calls[at] = map[any]bool{}; f.Name.IsExported() {
		g.calls[src.room+"."+f.Name.Name] = map[any]bool{at: true}
	}
	if on := receiver(f); f.Name.IsExported() && (on == "Store" || on == "DB" || on == "Claimer") {
		g.exported[src.room+"."+f.Name.Name] = at
	}
	g.writer[at] = f.Name.Name == "safely" // the combiners call it to flush
	ast.Inspect(f.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if key, ok := foreign(n); ok {
				g.calls[at][key] = true
			}
		case *ast.Ident:
			to := src.info.Uses[n]
			if f, ok := to.(*types.Func); ok {
				to = f.Origin()
			}
			if to != nil {
				g.calls[at][to] = true
			}
			g.writer[at] = g.writer[at] || to == nil && query[n.Name]
		}
		return true
	})
}

// receiver returns the name of the type that has a method.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	e := f.Recv.List[0].Type
	if star, ok := e.(*ast.StarExpr); ok {
		e = star.X
	}
	id, _ := e.(*ast.Ident)
	if id == nil {
		return ""
	}
	return id.Name
}

// writingMethods returns the exported methods of stores and claimers from which a query that writes is reached.
func writingMethods(t *testing.T) []string {
	t.Helper()
	g := &callGraph{calls: map[any]map[any]bool{}, writer: map[any]bool{}, exported: map[string]any{}}
	for _, src := range sourcesOfRooms(t) {
		query := writingQueries(t, src.room)
		for _, file := range src.files {
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
					g.add(src, f, query)
				}
			}
		}
	}
	for grew := true; grew; {
		grew = false
		for f, callees := range g.calls {
			for callee := range callees {
				if g.writer[callee] && !g.writer[f] {
					g.writer[f], grew = true, true
				}
			}
		}
	}
	var list []string
	for name, f := range g.exported {
		if g.writer[f] {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

// A function that runs in a transaction, or is repeated, has no effect except on the database: it returns what it did,
// and its caller uses that after the commit.
func TestTransactionsReturnWhatTheyDid(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, src := range sourcesOfRooms(t) {
		for _, file := range src.files {
			ast.Inspect(file, func(n ast.Node) bool {
				given := givenToTransaction(n)
				if given == nil {
					return true
				}
				checked++
				for _, wrong := range outside(given, src.info) {
					t.Errorf("%s: a transaction changes %s, which is outside of it",
						src.fset.Position(wrong.Pos()), types.ExprString(wrong))
				}
				return true
			})
		}
	}
	if checked < 20 {
		t.Errorf("the test found %d functions, want all", checked)
	}
}

// givenToTransaction returns the function that a call passes to a transaction, or to a function that repeats it.
func givenToTransaction(n ast.Node) *ast.FuncLit {
	call, ok := n.(*ast.CallExpr)
	if !ok || len(call.Args) == 0 {
		return nil
	}
	switch called(call.Fun) {
	case "InTx", "InTxOnce", "InTxWithin", "DoInTx", "Autocommit", "Repeat", "run":
	default:
		return nil
	}
	given, _ := call.Args[len(call.Args)-1].(*ast.FuncLit)
	return given
}

// uses resolves the names in files, except for those of other packages.
func uses(fset *token.FileSet, files []*ast.File) *types.Info {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	conf := types.Config{Error: func(error) {}, Importer: nothing{}}
	_, _ = conf.Check("store", fset, files, info) // it fails, since it finds no other package
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

// outside returns what a function changes that it has not declared, and its calls that report its work.
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
				return false // it runs after the commit is acknowledged
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

// nothing is an importer that finds no package.
type nothing struct{}

func (nothing) Import(string) (*types.Package, error) { return nil, fs.ErrNotExist }
