package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNewAgent(t *testing.T) { // not parallel: it changes the working directory
	clone := t.TempDir()
	for _, file := range []string{"sdk/python/pyproject.toml", "sdk/typescript/package.json", "sdk/go/go.mod"} {
		text, err := os.ReadFile(filepath.Join("..", "..", file))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(clone, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var screens []string
	t.Run("in an empty directory", func(t *testing.T) {
		t.Chdir(t.TempDir())
		for _, args := range []string{
			"greeter --lang python", "greeter --lang typescript --dir agents/ts", "greeter --lang go --dir agents/go",
			"greeter --lang shell --dir .", "greeter --lang shell --dir .",
		} {
			words := append([]string{"new", "agent"}, strings.Fields(args)...)
			screen := screenful(t, t.Context(), nil, nil, append(words, "--clone", clone)...)
			screens = append(screens, strings.ReplaceAll(screen, clone, "a2ad"))
		}
	})
	golden(t, "new-agent", strings.Join(screens, "\n"))
}

func TestNewAgentRefuses(t *testing.T) { // not parallel: it changes the working directory
	dir := t.TempDir()
	t.Chdir(dir)
	for _, test := range []struct {
		args string
		code int
		want string
	}{
		{"greeter --lang python", exitFailure, "the libraries are not released yet: pass --clone DIR, " +
			"the directory of a clone of https://github.com/a2ad/a2ad"},
		{"greeter --lang go --clone .", exitFailure, "--clone: there is no library for go below ."},
		{"greeter --lang cobol", exitUsage, `--lang must be one of "python","typescript","go","shell"`},
		{"greeter", exitUsage, "missing flags: --lang=LANGUAGE"},
		{"../greeter --lang shell", exitUsage, `"../greeter" is not a name of an agent`},
		{"--lang go", exitUsage, `expected "<name>"`},
		{"tasks --lang shell", exitUsage, `the name "tasks" is used by the server itself`},
	} {
		i := &invocation{}
		i.run(t, append([]string{"new", "agent"}, strings.Fields(test.args)...)...)
		if i.code != test.code || !strings.Contains(i.stderr, test.want) || i.stdout != "" {
			t.Errorf("new agent %s: exit code %d\n%s%s", test.args, i.code, i.stdout, i.stderr)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
}
