package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/agents"
)

func TestNewAgent(t *testing.T) {
	t.Parallel()
	clone, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for lang, want := range map[string][]string{
		"go":     {"README.md", "agent.go", "agent.yaml", "agent_test.go", "go.mod", "main.go"},
		"python": {".gitignore", "README.md", "agent.py", "agent.yaml", "requirements.txt", "test_agent.py"},
		"shell":  {"README.md", "agent.sh", "agent.yaml", "test.sh"},
		"typescript": {
			".gitignore", "README.md", "agent.test.ts", "agent.ts", "agent.yaml", "main.ts", "package.json",
			"tsconfig.json",
		},
	} {
		dir := filepath.Join(t.TempDir(), "hello")
		var i invocation
		i.run(t, "new", "agent", "hello", "--lang", lang, "--dir", dir, "--clone", clone)
		if i.code != exitOK || i.stderr != "" {
			t.Errorf("%s: exit code %d, %s", lang, i.code, i.stderr)
		}
		golden(t, "new-agent-"+lang, strings.NewReplacer(dir, "DIR", clone, "CLONE").Replace(i.stdout))
		var got []string
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			got = append(got, f.Name())
			text, err := os.ReadFile(filepath.Join(dir, f.Name()))
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), "{{") {
				t.Errorf("%s: %s has a place that is not filled in", lang, f.Name())
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: the files are %v, want %v", lang, got, want)
		}
		checked := agents.Check(filepath.Join(dir, "agent.yaml"))
		if len(checked) != 1 || len(checked[0].Faults) > 0 || checked[0].Agent.Name != "hello" {
			t.Errorf("%s: the agent file is %+v", lang, checked)
		}
	}
}

func TestNewAgentRefuses(t *testing.T) {
	t.Parallel()
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"is not empty: choose another directory":    {"hello", "--lang", "shell", "--dir", full},
		"not a directory":                           {"hello", "--lang", "shell", "--dir", filepath.Join(full, "mine")},
		`"my agent" cannot be the name of an agent`: {"my agent", "--lang", "shell"},
		`"../up" cannot be the name of an agent`:    {"../up", "--lang", "shell"},
		`the server itself uses the name "tasks"`:   {"tasks", "--lang", "shell"},
		"is not a clone of a2ad's repository":       {"hello", "--lang", "go", "--clone", full},
		"the libraries are not released yet":        {"hello", "--lang", "go"},
		`must be one of "python","typescript","go"`: {"hello", "--lang", "perl"},
		"missing flags: --lang=LANG":                {"hello"},
	} {
		var i invocation
		i.run(t, append([]string{"new", "agent"}, args...)...)
		if i.code == exitOK || !strings.Contains(i.stderr, want) {
			t.Errorf("%v: exit code %d, %q, want %q", args, i.code, i.stderr, want)
		}
	}
	if files, err := os.ReadDir(full); err != nil || len(files) != 1 {
		t.Errorf("the directory has %v, %v", files, err)
	}
	if _, err := os.Stat("hello"); !os.IsNotExist(err) {
		t.Errorf("a refused command made the directory: %v", err)
	}
}
