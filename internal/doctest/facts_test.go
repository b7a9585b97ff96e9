package doctest_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the table of settings")

// newestVersion returns the newest version in the changelog.
func newestVersion() string {
	data, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return ""
	}
	m := regexp.MustCompile(`(?m)^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d$`).FindSubmatch(data)
	if m == nil {
		return ""
	}
	return string(m[1])
}

// make stamps the newest version of the changelog into the binary.
func TestVersion(t *testing.T) {
	t.Parallel()
	want := newestVersion()
	if want == "" {
		t.Fatal("CHANGELOG.md has no line like ## [0.1.0] - 2026-11-20")
	}
	cmd := exec.Command("make", "--no-print-directory", "--dry-run", "build")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if !bytes.Contains(out, []byte("-X main.version="+want+" ")) {
		t.Errorf("make build does not stamp %s: %s", want, out)
	}
}

// settings returns the output of `a2ad config`.
func settings(t *testing.T, args ...string) (names []string, byName map[string]setting) {
	t.Helper()
	binary, err := build()
	if err != nil {
		t.Fatalf("build a2ad: %v", err)
	}
	cmd := exec.Command(binary, append([]string{"config", "-o", "json"}, args...)...)
	cmd.Env = []string{} // nothing of the caller's environment
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) { // serve reports its missing database as a fault
		t.Fatal(err)
	}
	byName = map[string]setting{}
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		var v setting
		if err := json.Unmarshal(s.Bytes(), &v); err != nil {
			t.Fatalf("%v: %s", err, s.Bytes())
		}
		names, byName[v.Name] = append(names, v.Name), v
	}
	if len(names) == 0 {
		t.Fatalf("a2ad config prints nothing: %v", err)
	}
	return names, byName
}

type setting struct {
	Name    string `json:"name"`
	Default string `json:"default"`
	Meaning string `json:"meaning"`
}

const settingsStart, settingsEnd = "<!-- settings -->\n", "<!-- settings end -->\n"

// The table of docs/reference/configuration.md equals the output of `a2ad config`.
func TestSettings(t *testing.T) {
	t.Parallel()
	names, serve := settings(t)
	_, dev := settings(t, "--dev")
	var table strings.Builder
	table.WriteString("| setting | default | meaning |\n|---|---|---|\n")
	for _, name := range names {
		s := serve[name]
		def := "–"
		if s.Default != "" {
			def = "`" + s.Default + "`"
		}
		if d := dev[name].Default; d != s.Default {
			def += "; dev: `" + d + "`"
		}
		meaning := strings.ReplaceAll(s.Meaning, "|", `\|`)
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", name, def, meaning)
	}
	path := filepath.Join(root, "docs", "reference", "configuration.md")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(data), settingsStart)
	have, after, ended := strings.Cut(rest, settingsEnd)
	if !found || !ended {
		t.Fatalf("%s lacks the line %s or %s", path, strings.TrimSpace(settingsStart), strings.TrimSpace(settingsEnd))
	}
	if *update {
		text := before + settingsStart + table.String() + settingsEnd + after
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(table.String(), have); diff != "" {
		t.Errorf("the table of %s is not what a2ad config says (-program +table); "+
			"go test ./internal/doctest -update writes it anew:\n%s", path, diff)
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	unsaid  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// Links in the documents have a target.
func TestLinks(t *testing.T) {
	t.Parallel()
	for _, file := range documents(t) {
		data, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(data), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			target, anchor, _ := strings.Cut(m[1], "#")
			path := filepath.Join(root, filepath.Dir(file), target)
			if target == "" {
				path = filepath.Join(root, file)
			}
			if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %s does not exist", file, m[1])
				continue
			}
			if anchor != "" && !hasAnchor(t, path, anchor) {
				t.Errorf("%s: %s has no such heading", file, m[1])
			}
		}
	}
}

// hasAnchor reports whether a heading of the document has that anchor, as common renderers create it.
func hasAnchor(t *testing.T, path, anchor string) bool {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range heading.FindAllStringSubmatch(string(data), -1) {
		if strings.ReplaceAll(unsaid.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-") == anchor {
			return true
		}
	}
	return false
}

var (
	decision     = regexp.MustCompile(`^# \d+\. (.+)\n\nStatus: accepted, \d{4}-\d\d-\d\d`)
	supersession = regexp.MustCompile(`superseded (in part )?by \[\d+\]\([a-z0-9-]+\.md\)`)
)

// TestDecisions checks that every ADR has its parts, and that the index has its title and says what supersedes it.
func TestDecisions(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(root, "docs", "adr")
	index, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "0*.md"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no ADRs: %v", err)
	}
	numbers := map[string]string{}
	for _, path := range files {
		name := filepath.Base(path)
		if other := numbers[name[:4]]; other != "" {
			t.Errorf("%s and %s have the same number", other, name)
		}
		numbers[name[:4]] = name
		if !bytes.Contains(index, []byte("("+name+")")) {
			t.Errorf("%s is not in the index", name)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		title, status := decision.FindSubmatch(data), supersession.FindSubmatch(data)
		row := regexp.MustCompile(`(?m)^\| ` + name[:4] + ` .*$`).Find(index)
		if title == nil || !bytes.Contains(row, append([]byte("["), title[1]...)) {
			t.Errorf("the index does not have the title of %s", name)
		}
		superseded := bytes.Contains(row, []byte("superseded"))
		if superseded != (status != nil) || superseded && !bytes.Contains(row, status[0]) {
			t.Errorf("the index does not say what supersedes %s", name)
		}
		rest := string(data)
		for _, part := range []string{"# ", "\nStatus: ", "\n## Context\n", "\n## Decision\n", "\n## Consequences\n",
			"\n## What would reverse it\n"} {
			_, after, found := strings.Cut(rest, part)
			if !found {
				t.Errorf("%s has no %q, or not at its place", name, strings.TrimSpace(part))
				continue
			}
			rest = after
		}
	}
}

var (
	testName = regexp.MustCompile("`(Test[A-Za-z0-9]+)`")
	testFunc = regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(t \*testing\.T\)`)
)

// The tests named in docs/reference/conformance.md exist.
func TestConformance(t *testing.T) {
	t.Parallel()
	there := map[string]bool{}
	err := filepath.WalkDir(filepath.Join(root, "internal"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		data, err := os.ReadFile(path)
		for _, m := range testFunc.FindAllSubmatch(data, -1) {
			there[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile(filepath.Join(root, "docs", "reference", "conformance.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := testName.FindAllSubmatch(doc, -1)
	if len(named) < 100 {
		t.Errorf("only %d names of tests were found", len(named))
	}
	for _, m := range named {
		if !there[string(m[1])] {
			t.Errorf("no test %s", m[1])
		}
	}
}

var arrow = regexp.MustCompile("(?m)^\\| `([a-z0-9/]+)` \\| .* \\| ([^|]*) \\|$")

// docs/explanation/architecture.md lists the imports of every package.
func TestArchitectureListsTheImports(t *testing.T) {
	t.Parallel()
	const module, internal = "github.com/a2ad/a2ad/", "github.com/a2ad/a2ad/internal/"
	cmd := exec.Command("go", "list", "-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`, "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	imports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		ours := []string{}
		for _, path := range words[1:] {
			if strings.HasPrefix(path, module) {
				ours = append(ours, "`"+strings.TrimPrefix(strings.TrimPrefix(path, internal), module)+"`")
			}
		}
		imports[strings.TrimPrefix(words[0], module)] = strings.Join(ours, ", ")
	}
	data, err := os.ReadFile(filepath.Join(root, "docs", "explanation", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(data), "| package | what it does | imports, of ours |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	seen := 0
	for _, m := range arrow.FindAllStringSubmatch(table, -1) {
		seen++
		want, ok := imports[m[1]]
		if !ok {
			t.Errorf("no package %s", m[1])
		}
		if want == "" {
			want = "–"
		}
		if m[2] != "…" && m[2] != want {
			t.Errorf("%s imports %s, not %s", m[1], want, m[2])
		}
	}
	if seen < 20 {
		t.Errorf("the table of packages has %d rows that can be read", seen)
	}
}

// commandsBelow returns the commands of the binary that begin with some words, from shell completion.
func commandsBelow(t *testing.T, words ...string) (list []string) {
	t.Helper()
	binary, err := build()
	if err != nil {
		t.Fatalf("build a2ad: %v", err)
	}
	out, err := exec.Command(binary, append(append([]string{"__complete"}, words...), "")...).Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
		list = append(list, strings.Join(append(slices.Clone(words), word), " "))
	}
	return list
}

// The table of docs/reference/cli.md has every command, and no other.
func TestCommands(t *testing.T) {
	t.Parallel()
	var have []string
	for _, command := range commandsBelow(t) {
		switch below := commandsBelow(t, command); command {
		case "task", "push", "schedule", "apikey", "session", "keys", "migrate", "agent", "worker", "context", "job",
			"queue", "new":
			have = append(have, below...)
		default:
			have = append(have, command)
		}
	}
	_, table, _ := strings.Cut(readRepo(t, "docs", "reference", "cli.md"),
		"| command | does | exit codes |\n|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var documented []string
	for row := range strings.Lines(table) {
		group := ""
		for i, m := range inCode.FindAllStringSubmatch(strings.Split(row, " | ")[0], -1) {
			var words []string
			for _, word := range strings.Fields(strings.TrimPrefix(m[1], "a2ad ")) {
				if strings.ContainsAny(word, "[-…") || word == strings.ToUpper(word) {
					break
				}
				words = append(words, word)
			}
			switch command := strings.Join(words, " "); {
			case command == "" || command == "bash" || command == "zsh" || command == "fish":
			case strings.HasPrefix(m[1], "a2ad ") || i == 0:
				documented = append(documented, strings.TrimSuffix(command, " bash"))
				group, _, _ = strings.Cut(command, " ")
			default:
				documented = append(documented, group+" "+command)
			}
		}
	}
	slices.Sort(have)
	slices.Sort(documented)
	if diff := cmp.Diff(have, documented); diff != "" {
		t.Errorf("docs/reference/cli.md does not list the commands that there are (-binary +table):\n%s", diff)
	}
}
