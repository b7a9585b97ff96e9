package prose_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/prose"
)

func words(t *testing.T) *prose.Words {
	t.Helper()
	w, err := prose.ReadWords(filepath.Join("..", "..", ".vale", "a2ad", "Words.yml"))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// check returns what is wrong with the texts of a file, each with its line.
func check(t *testing.T, w *prose.Words, fset *token.FileSet, file *ast.File) []string {
	t.Helper()
	var out []string
	for _, text := range prose.Texts(file) {
		found, err := w.Check(text.Text)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			out = append(out, fset.Position(text.Pos).String()+": "+f)
		}
	}
	return out
}

func TestTextsOfTheCodeKeepToTheWordList(t *testing.T) {
	t.Parallel()
	w := words(t)
	fset := token.NewFileSet()
	files := 0
	for _, dir := range []string{"cmd", "internal", "migrations"} {
		err := filepath.WalkDir(filepath.Join("..", "..", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil || ast.IsGenerated(file) {
				return err
			}
			files++
			for _, fault := range check(t, w, fset, file) {
				t.Error(fault)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 300 {
		t.Errorf("only %d files were checked", files)
	}
}

// TestPlantedWordsAreFound shows that the test above can fail, in each place that it reads.
func TestPlantedWordsAreFound(t *testing.T) {
	t.Parallel()
	const source = `// Package p is far away.
package p

// F tells nobody.
func F() error {
	slog.Info("the connection goes behind the proxy")
	slog.WarnContext(ctx, "the agent " + "is away")
	logger.Error("so many tasks")
	return fmt.Errorf("read events behind %d: %w", n, err)
}

// T is documented well, behind a load balancer.
type T struct {
	F int // of others
	g int // somebody's
}

// unexported comments may tell somebody.
func f() error {
	return a2a.Error{Message: "cancelled"}
}

var ErrAway = errors.New("at the least one")

const (
	C = 1 // whose behaviour
)
`
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", source, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, fault := range check(t, words(t), fset, file) {
		lines = append(lines, strings.Split(fault, ":")[1])
	}
	want := []string{"1", "4", "7", "8", "9", "14", "23", "26"}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("lines with faults (-want +got):\n%s", diff)
	}
}
