package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCompletion: what fits where.
func TestCompletion(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		line string // the words behind a2ad; the last one is being typed
		want string // words, in order; … for more
	}{
		{"ta", "task"}, {"task ", "ls show watch cancel retry purge"}, {"task re", "retry"}, {"task ls --st", "--state"},
		{"task ls --state ", "submitted working input-required auth-required completed failed canceled rejected"}, {"task ls --state com", "completed"},
		{"task ls -o ", "text json"}, {"task show --output j", "json"}, {"completion ", "bash zsh fish"}, {"completion bash ", ""},
		{"push ls --state d", "done dead disabled"}, {"serve --auth ", "required none"}, {"task ls --tenant x --wat", "--watch"}, {"help task p", "purge"},
		{"task ls --tenant ", ""}, {"nothing ", "…"}, {"task show -- --o", ""}, {"doctor --off", "--offline"},
	} {
		var i invocation
		i.run(t, append([]string{completeWord}, strings.Split(tc.line, " ")...)...)
		var words []string
		for line := range strings.Lines(i.stdout) {
			word, _, _ := strings.Cut(line, "\t")
			words = append(words, strings.TrimSpace(word))
		}
		if got := strings.Join(words, " "); i.code != exitOK || got != tc.want && tc.want != "…" {
			t.Errorf("%q: exit code %d, %q, want %q %s", tc.line, i.code, got, tc.want, i.stderr)
		}
	}
}

// TestCompletionScripts runs what a shell is given, where there is that shell.
func TestCompletionScripts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// It stands for the program: what it is asked is what it answers.
	fake := "#!/bin/sh\nshift\nfor w; do printf '%s\\tmeaning of it\\n' \"<$w>\"; done\n"
	if err := os.WriteFile(filepath.Join(dir, "a2ad"), []byte(fake), 0o755); err != nil {
		t.Fatal(err)
	}
	for shell, ask := range map[string]string{
		"bash": "COMP_WORDS=(a2ad task ls --st); COMP_CWORD=3; _a2ad; printf '%s\\n' \"${COMPREPLY[@]}\"",
		"fish": "complete -C 'a2ad task ls --st' | string replace -r '\\t.*' ''",
		"zsh":  "",
	} {
		var i invocation
		if i.run(t, "completion", shell); i.code != exitOK {
			t.Fatalf("%s: %s", shell, i.stderr)
		}
		golden(t, "completion-"+shell, i.stdout)
		program, err := exec.LookPath(shell)
		if err != nil || ask == "" {
			t.Logf("%s is not run", shell)
			continue
		}
		script := filepath.Join(dir, "script."+shell)
		if err := os.WriteFile(script, []byte(i.stdout+ask+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(program, script)
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir)
		out, err := cmd.CombinedOutput()
		if err != nil || string(out) != "<task>\n<ls>\n<--st>\n" {
			t.Errorf("%s: %v\n%s", shell, err, out)
		}
	}
}
