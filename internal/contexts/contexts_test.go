package contexts_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/a2ad/a2ad/internal/contexts"
)

var same = cmpopts.IgnoreUnexported(contexts.File{})

func TestSavedContextsAreLoaded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "new", "contexts.json")
	f, err := contexts.Load(path)
	if err != nil || len(f.Names()) > 0 || f.Current != "" {
		t.Fatalf("a file that does not exist: %+v, %v", f, err)
	}
	prod := contexts.Context{Server: "https://a2a.example", APIKey: "a2ad_live_x"}
	for name, c := range map[string]contexts.Context{"prod": prod, "db": {Database: "postgres://h/d"}} {
		if err := f.Set(name, c); err != nil {
			t.Fatal(err)
		}
	}
	f.Current = "prod"
	for range 2 { // the second time it replaces the file
		if err := f.Save(); err != nil {
			t.Fatal(err)
		}
	}
	got, err := contexts.Load(path)
	if diff := cmp.Diff(f, got, same); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has the mode %v, %v", info.Mode(), err)
	}
	if list, err := os.ReadDir(filepath.Dir(path)); err != nil || len(list) != 1 {
		t.Errorf("the directory has %v, %v", list, err)
	}
}

func TestFirstContextIsTheCurrentOneUntilItIsRemoved(t *testing.T) {
	t.Parallel()
	f := &contexts.File{Contexts: map[string]contexts.Context{}}
	for _, name := range []string{"a", "b"} {
		if err := f.Set(name, contexts.Context{Server: "http://" + name}); err != nil {
			t.Fatal(err)
		}
	}
	if f.Current != "a" {
		t.Errorf("the current context is %q", f.Current)
	}
	if err := f.Remove("a"); err != nil || f.Current != "" {
		t.Errorf("after its removal: %q, %v", f.Current, err)
	}
	if err := f.Remove("a"); err == nil || err.Error() != "context a not found; contexts here: b" {
		t.Errorf("removed again: %v", err)
	}
}

func TestNamesAreWordsForACommandLine(t *testing.T) {
	t.Parallel()
	f := &contexts.File{Contexts: map[string]contexts.Context{}}
	for _, name := range []string{"", "-x", "a b", "a/b", "ä", ".a", strings.Repeat("x", 64), "a\n"} {
		if err := f.Set(name, contexts.Context{}); err == nil {
			t.Errorf("%q is accepted", name)
		}
	}
}

func TestDamagedFileIsNamed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "contexts.json")
	if err := os.WriteFile(path, []byte(`{"contexts":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := contexts.Load(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("%v", err)
	}
}

func TestPath(t *testing.T) {
	t.Parallel()
	for want, env := range map[string]map[string]string{
		"":                              {},
		"/h/.config/a2ad/contexts.json": {"HOME": "/h", "XDG_CONFIG_HOME": "relative"},
		"/c/a2ad/contexts.json":         {"HOME": "/h", "XDG_CONFIG_HOME": "/c"},
		"/w/a2ad/contexts.json":         {"AppData": "/w"},
	} {
		if got := contexts.Path(func(name string) string { return env[name] }); got != want {
			t.Errorf("%v: %q, want %q", env, got, want)
		}
	}
}
