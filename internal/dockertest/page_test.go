package dockertest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// documented is a block of a page that this test runs, with an excerpt of what it prints, if the page has one.
type documented struct{ text, shows string }

// page returns the blocks of a page that the test runs, according to their marks, in order.
func page(t *testing.T, path, test string) (all []documented) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", path))
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)<!-- not run: [^\n]*internal/dockertest runs it, " + test +
		" -->\n```sh\n(.*?\n)```\n(?:[^`]*?<!-- shows -->\n```text\n(.*?\n)```)?")
	for _, m := range block.FindAllStringSubmatch(string(data), -1) {
		all = append(all, documented{m[1], m[2]})
	}
	return all
}

// lacks returns the first line of an excerpt that the output does not have at its position, or "". The … stands for
// anything, and spaces count as one.
func lacks(excerpt, output string) string {
	one := func(line string) string { return strings.Join(strings.Fields(line), " ") }
	have := strings.Split(output, "\n")
	for line := range strings.Lines(excerpt) {
		line = one(line)
		pattern := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*") + "$")
		if line == "" || line == "…" {
			continue
		}
		for len(have) > 0 && !pattern.MatchString(one(have[0])) {
			have = have[1:]
		}
		if len(have) == 0 {
			return line
		}
		have = have[1:]
	}
	return ""
}

// tutorial pastes the page into one shell, and compares what the blocks print with what the page shows.
func tutorial(s *stack) {
	const path = "docs/tutorials/high-availability.md"
	blocks := page(s.t, path, "TestHighAvailability")
	if len(blocks) < 5 {
		s.t.Fatalf("%s has %d blocks", path, len(blocks))
	}
	var script strings.Builder
	const end = "--- end of block "
	for i, b := range blocks {
		fmt.Fprintf(&script, "%s\nprintf '\\n%s%d\\n'\n", b.text, end, i)
	}
	text := strings.ReplaceAll(script.String(), pageFiles, haFiles)
	if text == script.String() {
		s.t.Fatalf("%s does not name the files %s", path, pageFiles)
	}
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euc", text)
	cmd.Dir = filepath.Join("..", "..")
	raw, err := cmd.CombinedOutput()
	output := string(raw)
	s.t.Logf("%s", output)
	if err != nil {
		s.t.Fatalf("%s: %v", path, err)
	}
	for i, b := range blocks {
		part, rest, ok := strings.Cut(output, fmt.Sprintf("\n%s%d\n", end, i))
		if !ok {
			s.t.Fatalf("%s: block %d did not end", path, i+1)
		}
		if line := lacks(b.shows, part); line != "" {
			s.t.Errorf("%s: block %d prints no line like\n%s\nat its position but\n%s", path, i+1, line, part)
		}
		output = rest
	}
}
