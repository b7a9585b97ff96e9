package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/term"
)

// exampleWord is a word of a command line as a shell reads it.
var exampleWord = regexp.MustCompile(`"[^"]*"|'[^']*'|\S+`)

// exampleArgs returns the arguments of a2ad in an example.
func exampleArgs(t *testing.T, line string) []string {
	t.Helper()
	_, after, ok := strings.Cut(" "+strings.TrimSuffix(strings.TrimPrefix(line, "source <("), ")"), " a2ad ")
	if !ok {
		t.Fatalf("%q does not call a2ad", line)
	}
	args := exampleWord.FindAllString(after, -1)
	for i, arg := range args {
		args[i] = strings.Trim(arg, `"'`)
	}
	return args
}

func exampleParser(t *testing.T) *kong.Kong {
	t.Helper()
	parser, err := newParser(t.Context(), &cli{}, &App{Console: term.Console{Stdout: t.Output(), Stderr: t.Output()}},
		config.Flags{})
	if err != nil {
		t.Fatal(err)
	}
	return parser
}

// Every command has examples in its help, and each is a command line that the command accepts.
func TestEveryCommandHasExamples(t *testing.T) {
	t.Parallel()
	left := map[string]bool{}
	for name := range examples {
		left[name] = true
	}
	for _, leaf := range exampleParser(t).Model.Leaves(false) {
		name := strings.TrimPrefix(leaf.Path(), "a2ad ")
		delete(left, name)
		if len(examples[name]) == 0 {
			t.Errorf("%s has no example", name)
		}
		for _, line := range examples[name] {
			if !strings.Contains(leaf.Detail, "    "+line+"\n") {
				t.Errorf("the help of %s lacks %q", name, line)
			}
			parsed, err := exampleParser(t).Parse(exampleArgs(t, line))
			if err != nil {
				t.Errorf("%q: %v", line, err)
			} else if got := strings.TrimPrefix(parsed.Selected().Path(), "a2ad "); got != name {
				t.Errorf("%q is an example of %s, and not of %s", line, got, name)
			}
		}
	}
	for name := range left {
		t.Errorf("there are examples of %q, which is no command", name)
	}
}
