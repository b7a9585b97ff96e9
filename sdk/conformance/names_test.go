package conformance_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
)

// word is one word of the libraries: a row of names.yaml.
type word struct {
	Name, Python, TypeScript, Go, Why string
}

// in returns the word of a language, or "-".
func (w *word) in(language string) string {
	other := map[string]string{"python": w.Python, "typescript": w.TypeScript, "go": w.Go}[language]
	parts := strings.Split(w.Name, "_")
	for i := range parts {
		switch {
		case language == "go" && parts[i] == "id":
			parts[i] = "ID"
		case language == "go" || language == "typescript" && i > 0:
			parts[i] = strings.ToUpper(parts[i][:1]) + parts[i][1:]
		}
	}
	switch {
	case other != "":
		return other
	case language == "python":
		return w.Name
	}
	return strings.Join(parts, "")
}

// The libraries have the same words, except where names.yaml says why.
func TestNames(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("names.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var table map[string][]word
	if err := yaml.UnmarshalWithOptions(text, &table, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	for of, words := range table {
		for _, w := range words {
			if other := w.Python + w.TypeScript + w.Go; (other == "") != (w.Why == "") {
				t.Errorf("names.yaml does not say why %s %q differs", of, w.Name)
			}
		}
	}
	compareNames(t, "go", table, goNames(t))
	for _, d := range drivers {
		if language := strings.TrimSuffix(d.name, "-sync"); language == "python" || language == "typescript" {
			compareNames(t, language, table, namesOf(t, d))
		}
	}
}

func compareNames(t *testing.T, language string, table map[string][]word, got map[string][]string) {
	t.Helper()
	for of, words := range table {
		var want []string
		for i := range words {
			if name := words[i].in(language); name != "-" {
				want = append(want, name)
			}
		}
		slices.Sort(want)
		slices.Sort(got[of])
		if diff := cmp.Diff(slices.Compact(want), slices.Compact(got[of])); diff != "" {
			t.Errorf("%s of %s differ from names.yaml (-table +library):\n%s", of, language, diff)
		}
	}
}

// namesOf lets a driver say which names its library has.
func namesOf(t *testing.T, d driver) (names map[string][]string) {
	t.Helper()
	command := append(slices.Clone(d.commands[0]), "--names")
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &names)
	}
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(command, " "), err, out)
	}
	return names
}

// goNames reads the names of the Go library from its source.
func goNames(t *testing.T) map[string][]string {
	t.Helper()
	files, err := filepath.Glob("../go/a2ad/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("the Go library is missing: %v", err)
	}
	names := make(map[string][]string)
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if of := belongsTo(d); of != "" && d.Name.IsExported() {
					names[of] = append(names[of], d.Name.Name)
				}
			case *ast.GenDecl:
				names["errors"] = append(names["errors"], errorsOf(d)...)
			}
		}
	}
	return names
}

// belongsTo returns the list of a function: by its receiver, or if it takes a task or returns an error alone.
func belongsTo(d *ast.FuncDecl) string {
	of := map[string]string{"Task": "task", "ArtifactWriter": "artifact", "Worker": "worker"}
	if d.Recv != nil {
		return of[pointed(d.Recv.List[0].Type)]
	}
	for _, p := range d.Type.Params.List {
		if pointed(p.Type) == "Task" {
			return "task"
		}
	}
	if r := d.Type.Results; r != nil && len(r.List) == 1 {
		if id, ok := r.List[0].Type.(*ast.Ident); ok && id.Name == "error" {
			return "errors"
		}
	}
	return ""
}

// pointed returns the name of the type that a pointer type points to.
func pointed(e ast.Expr) string {
	if star, ok := e.(*ast.StarExpr); ok {
		if id, ok := star.X.(*ast.Ident); ok {
			return id.Name
		}
	}
	return ""
}

// errorsOf returns the exported errors of a declaration: types …Error, and variables Err….
func errorsOf(d *ast.GenDecl) (names []string) {
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() && strings.HasSuffix(s.Name.Name, "Error") {
				names = append(names, s.Name.Name)
			}
		case *ast.ValueSpec:
			for _, id := range s.Names {
				if strings.HasPrefix(id.Name, "Err") {
					names = append(names, id.Name)
				}
			}
		}
	}
	return names
}
