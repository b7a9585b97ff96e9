package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCompletion checks which words fit at a place of the command line.
func TestCompletion(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		line string // the words after a2ad; the last one is being typed
		want string // words, in order; … for more
	}{
		{"ta", "task"},
		{"task ", "ls show watch tail cancel resume retry answer assign signal purge"},
		{"task re", "resume retry"},
		{"task ls --st", "--state"},
		{"task ls --state ", "submitted working input-required auth-required completed failed canceled rejected"},
		{"task ls --state com", "completed"},
		{"task ls -o ", "text json"},
		{"task show --output j", "json"},
		{"completion ", "bash zsh fish"},
		{"completion bash ", ""},
		{"push ls --state d", "done dead disabled"},
		{"serve --auth ", "required none"},
		{"task ls --tenant x --wat", "--watch"},
		{"help task p", "purge"},
		{"task ls --tenant ", ""},
		{"nothing ", "…"},
		{"task show -- --o", ""},
		{"doctor --off", "--offline"},
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

// TestCompletionScripts checks the scripts that `a2ad completion` prints.
func TestCompletionScripts(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		var i invocation
		if i.run(t, "completion", shell); i.code != exitOK {
			t.Fatalf("%s: %s", shell, i.stderr)
		}
		golden(t, "completion-"+shell, i.stdout)
	}
}

// atPrompt has for each shell a start-up file, the command that runs it, and what a person types: the keys under test,
// and a key that makes the shell print its line.
var atPrompt = map[string]struct{ rc, program, typed string }{
	"bash": {
		"PS1='$ '\nsource <(a2ad completion bash)\n" +
			"bind -x '\"\\C-x\\C-p\": printf \"LINE<%s>\\n\" \"$READLINE_LINE\"'\n",
		`exec bash --noprofile --rcfile "$HOME/rc" -i`, "%s\x18\x10\x15exit\n",
	},
	"zsh": {
		"PS1='$ '\nautoload -Uz compinit && compinit -u -D\nsource <(a2ad completion zsh)\n" +
			"show() { print -r -- \"LINE<$BUFFER>\" }\nzle -N show; bindkey '^X^P' show\n",
		`exec zsh -fc 'zmodload zsh/zpty && zpty z "zsh -fi" && zpty -w z "source $HOME/rc" && ` +
			`IFS= read -r keys && zpty -w -n z "$keys" && zpty -r z all "*LINE<*>*" && print -r -- "$all"'`,
		"%s\x18\x10\n",
	},
	"fish": {
		"",
		`exec fish -c 'source (a2ad completion fish | psub); read line; ` +
			`for word in (complete -C "$line"); echo "LINE<"(string replace -r "\t.*" "" -- $word)">"; end'`,
		"%s\n",
	},
}

// TestShellsComplete types at the prompt of each installed shell, which runs the program itself.
func TestShellsComplete(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, "a2ad"),
		[]byte(fmt.Sprintf("#!/bin/sh\n%s=1 exec %q \"$@\"\n", asProgram, self)), 0o755); err != nil {
		t.Fatal(err)
	}
	for shell, at := range atPrompt {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(shell); err != nil {
				if os.Getenv("CI") != "" { // .ci/run installs it
					t.Fatal(err)
				}
				t.Skipf("%s is not installed: %v", shell, err)
			}
			dir := filepath.Join(home, shell)
			if err := errors.Join(os.Mkdir(dir, 0o755),
				os.WriteFile(filepath.Join(dir, "rc"), []byte(at.rc), 0o600)); err != nil {
				t.Fatal(err)
			}
			for keys, want := range map[string]string{
				"a2ad task ls --stat\t": "a2ad task ls --state ", "a2ad comple\tba\t": "a2ad completion bash ",
				"a2ad task ls --state inp\t": "a2ad task ls --state input-required ",
				"a2ad task show -o js\t":     "a2ad task show -o json ",
			} {
				if shell == "fish" { // fish completes a word, not the line
					keys, want = strings.ReplaceAll(keys, "comple\tba\t", "completion ba"),
						want[strings.LastIndexByte(strings.TrimSpace(want), ' ')+1:]
					keys, want = strings.TrimSuffix(keys, "\t"), strings.TrimSpace(want)
				}
				cmd := exec.CommandContext(t.Context(), "sh", "-c", at.program)
				cmd.Env = []string{
					"PATH=" + home + ":" + os.Getenv("PATH"), "HOME=" + dir, "TERM=dumb", "INPUTRC=/dev/null",
				}
				cmd.Stdin = strings.NewReader(fmt.Sprintf(at.typed, keys))
				out, err := cmd.CombinedOutput()
				if err != nil || !strings.Contains(string(out), "LINE<"+want+">") {
					t.Errorf("after the keys %q the line is not %q: %v\n%s", keys, want, err, out)
				}
			}
		})
	}
}
