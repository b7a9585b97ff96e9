package doctest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// root is the directory of the repository.
const root = "../.."

// block is one fenced block of a document.
type block struct {
	file   string // path in the repository
	line   int    // number of its first line of text
	lang   string
	mark   string // "run", "shows", "not run" or ""
	arg    string // the text after the colon of the mark
	text   string
	shows  []block // excerpts of the output of a block that is run
	indent string
}

var pasted = regexp.MustCompile(`(?s)^[^\n]*\bpsql\b[^\n]* <<'SQL'\n(.*)SQL\n$`)

// sql returns the SQL that a block pastes into psql, or "".
func (b *block) sql() string {
	if m := pasted.FindStringSubmatch(b.text); m != nil {
		return m[1]
	}
	return ""
}

func (b *block) at() string { return fmt.Sprintf("%s:%d", b.file, b.line) }

var (
	fence  = regexp.MustCompile("^([ \t]*)```+([a-z]*)\\s*$")
	marker = regexp.MustCompile(`^\s*<!-- (run|shows|not run)(?:: (.+))? -->\s*$`)
	// programs write what is between two of these
	generated = regexp.MustCompile(`^<!-- (end of )?` +
		`(settings|limits|metrics|summary|servers|aims|comparison|figures)\b.*-->$`)
)

// blocks reads the fenced blocks of a document.
func blocks(t *testing.T, file string) []block {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	all, err := parse(file, string(data))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func parse(file, text string) ([]block, error) {
	var all []block
	var open *block
	last := "" // the line above
	for i, line := range strings.Split(text, "\n") {
		m := fence.FindStringSubmatch(line)
		switch {
		case open != nil && m != nil && m[2] == "":
			all = append(all, *open)
			open = nil
		case open != nil:
			open.text += strings.TrimPrefix(line, open.indent) + "\n"
		case m != nil:
			open = &block{file: file, line: i + 2, lang: m[2], indent: m[1]}
			if mm := marker.FindStringSubmatch(last); mm != nil {
				open.mark, open.arg = mm[1], mm[2]
			}
		case marker.MatchString(last):
			return nil, fmt.Errorf("%s:%d: no block under the mark", file, i+1)
		case strings.Contains(line, "<!-- ") && !marker.MatchString(line) && !generated.MatchString(line):
			return nil, fmt.Errorf("%s:%d: unknown mark", file, i+1)
		}
		last = line
	}
	if open != nil {
		return nil, fmt.Errorf("%s:%d: the block has no end", file, open.line)
	}
	return all, nil
}

// steps returns the blocks of a document that are run, with each excerpt at its block.
func steps(t *testing.T, file string) []block {
	t.Helper()
	var all []block
	for _, b := range blocks(t, file) {
		switch b.mark {
		case "run":
			all = append(all, b)
		case "shows":
			if len(all) == 0 || all[len(all)-1].mark != "run" {
				t.Fatalf("%s: an excerpt of nothing", b.at())
			}
			all[len(all)-1].shows = append(all[len(all)-1].shows, b)
		}
	}
	return all
}

// documents are all documents for readers.
func documents(t *testing.T) []string {
	t.Helper()
	files := []string{"README.md", "AGENTS.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"}
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md", "examples/*/*.md", "sdk/*.md", "sdk/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			rel, err := filepath.Rel(root, f)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, rel)
		}
	}
	return files
}

// volatile matches the parts of an output that differ from run to run.
var volatile = []*regexp.Regexp{
	regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`),
	regexp.MustCompile(`\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00)?`),
	regexp.MustCompile(`\b[0-9a-f]{64}\b`),
	regexp.MustCompile(`a2ad_live_[0-9A-Za-z]+_[0-9A-Za-z]+_[0-9a-f]+`),
	regexp.MustCompile(`\bmsg-[0-9A-Z]+\b`),
}

var eventID = regexp.MustCompile(`\b(\d+)-[0-9a-f]{8}\b`)

// plain removes what differs between two runs of a command.
func plain(line string) string {
	for _, v := range volatile {
		line = v.ReplaceAllString(line, "~")
	}
	line = eventID.ReplaceAllString(line, "$1-~")
	return strings.Join(strings.Fields(line), " ")
}

// missing returns the first line of an excerpt that the output lacks, or "".
func missing(excerpt, output string) string {
	have := strings.Split(output, "\n")
	for want := range strings.Lines(excerpt) {
		want = strings.TrimSuffix(want, "\n")
		line := plain(want)
		if line == "" || line == "…" || strings.Trim(line, "-+") == "" { // a rule below the head of a table
			continue
		}
		parts := strings.Split(line, "…")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		pattern := regexp.MustCompile("^" + strings.Join(parts, ".*") + "$")
		at := 0
		for at < len(have) && !pattern.MatchString(plain(have[at])) {
			at++
		}
		if at == len(have) {
			return want
		}
		have = have[at+1:]
	}
	return ""
}
