package agents

import (
	"errors"
	"strings"
	"testing"
)

// For each of these files of a hundred kilobytes the parser would use gigabytes of memory.
func TestHostileFilesAreRefusedBeforeTheyAreParsed(t *testing.T) {
	t.Parallel()
	const size = 100 << 10
	for _, piece := range []string{"[", "{", "- ", "? ", "a: ", "[a,", "{a: ", "- [", "a:\n", "!a ", "&a ", "*a ", "\"",
		"'", "%", "@", "<<: ", "a: b\n", "? a\n", "- a\r"} {
		err := tooMuch([]byte(strings.Repeat(piece, size/len(piece))))
		var at *lineError
		if !errors.As(err, &at) {
			t.Errorf("%q: %v", piece, err)
			continue
		}
		if _, err := parseYAML([]byte(strings.Repeat(piece, size/len(piece)))); !errors.As(err, &at) {
			t.Errorf("%q is parsed: %v", piece, err)
		}
	}
	for _, fine := range []string{strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth), "name: a # [[[\n",
		strings.Repeat("- {a: [b, c]}\n", 500)} {
		if err := tooMuch([]byte(fine)); err != nil {
			t.Errorf("%.60q: %v", fine, err)
		}
	}
}
