package doctest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/slowtest"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

func TestMain(m *testing.M) {
	if isCurl() {
		os.Exit(curl(os.Args[1:], os.Stdout))
	}
	storetest.Main(m, func() {
		if buildDir != "" {
			_ = os.RemoveAll(buildDir) // in the temporary directory: leftovers do no harm
		}
	})
}

// commanded is a document whose commands are run.
type commanded struct {
	file        string
	ownDatabase bool   // the database of dev, with its own PostgreSQL
	needs       string // required programs besides a2ad
}

var commands = []commanded{
	{"README.md", true, ""},
	{"docs/tutorials/first-agent.md", true, ""},
	{"docs/tutorials/first-webhook.md", true, "python3"},
	{"docs/tutorials/durable-agent.md", true, "python3"},
	{"docs/tutorials/operators-day.md", true, ""},
	{"docs/tutorials/first-deployment.md", false, ""},
	{"docs/explanation/durability.md", false, ""},
	{"docs/how-to/a2a-agents.md", false, ""},
	{"docs/how-to/agent-files.md", false, ""},
	{"docs/how-to/command-agents.md", false, ""},
	{"docs/how-to/http-agents.md", false, "python3"},
	{"docs/how-to/migrate-from-sdk.md", true, "python3"},
	{"docs/how-to/remote-workers.md", false, ""},
	{"docs/reference/demo-agents.md", false, ""},
	{"docs/how-to/audit-queries.md", true, ""},
	{"docs/how-to/schedules.md", true, ""},
	{"docs/how-to/tasks.md", true, ""},
	{"docs/reference/cli.md", false, ""},
	{"docs/reference/configuration.md", false, ""},
	{"docs/how-to/back-up.md", false, ""},
	{"docs/how-to/fail-over.md", false, ""},
	{"docs/how-to/monitor.md", true, ""},
	{"docs/how-to/repair.md", true, ""},
	{"docs/how-to/runbook.md", true, ""},
	{"docs/how-to/size.md", false, ""},
	{"docs/how-to/upgrade.md", false, ""},
	{"docs/explanation/security.md", true, ""},
	{"docs/how-to/operate-webhooks.md", true, ""},
	{"docs/how-to/verify-webhooks.md", false, "node"},
	{"examples/llm/README.md", false, "python3"},
	{"examples/python-http/README.md", false, "python3"},
	{"examples/python-pull/README.md", false, "python3"},
	{"examples/shell/README.md", false, ""},
	{"examples/typescript/README.md", false, "npm"},
	{"sdk/go/README.md", false, "go"},
	{"sdk/python/README.md", false, "python3"},
	{"sdk/typescript/README.md", false, "npm"},
}

// networked are the documents that install packages from the network, and the variables that let the test run them.
var networked = map[string]string{
	"examples/typescript/README.md": "A2AD_TEST_NPM", // make interop
	"sdk/python/README.md":          "A2AD_TEST_PIP", // make sdk-python
	"sdk/typescript/README.md":      "A2AD_TEST_NPM", // make sdk-typescript
}

// The documents are followed step by step.
func TestDocuments(t *testing.T) {
	t.Parallel()
	for _, doc := range commands {
		t.Run(strings.TrimSuffix(doc.file, ".md"), func(t *testing.T) {
			t.Parallel()
			if doc.file != "README.md" {
				slowtest.Only(t, slowtest.Docs)
			}
			if allows := networked[doc.file]; allows != "" && os.Getenv(allows) == "" {
				t.Skipf("its packages come from the network: %s=1 runs it", allows)
			}
			for runtime := range strings.FieldsSeq(doc.needs) {
				switch _, err := exec.LookPath(runtime); {
				case err == nil:
				case os.Getenv("CI") != "": // .ci/run installs it
					t.Fatalf("the commands of %s need it: %v", doc.file, err)
				default:
					t.Skipf("the commands of %s need it: %v", doc.file, err)
				}
			}
			todo := steps(t, doc.file)
			if len(todo) == 0 {
				t.Fatal("no block is run")
			}
			asksAdministrator := func(b block) bool {
				return b.mark == "run" &&
					strings.Contains(b.text, administrator)
			}
			s := newShell(t, doc.ownDatabase, slices.ContainsFunc(todo, asksAdministrator))
			if strings.HasPrefix(doc.file, "sdk/") {
				s.copyTree(t, "sdk")
			}
			for i := range todo {
				do(t, s, &todo[i])
			}
		})
	}
}

// do runs a block that must succeed and print its excerpts, and returns its output.
func do(t *testing.T, s *shell, b *block) string {
	t.Helper()
	output, ok := s.run(t, b.text)
	if !ok {
		t.Fatalf("%s: this does not work:\n%s\nit prints:\n%s%s", b.at(), b.text, output, s.logs())
	}
	t.Logf("%s:\n%s", b.at(), output)
	for _, excerpt := range b.shows {
		if line := missing(excerpt.text, output); line != "" {
			t.Errorf("%s: the output does not have the line at the expected position\n%s\nbut is\n%s",
				excerpt.at(), line, output)
		}
	}
	return output
}

// logs returns the ends of the logs that the blocks have written, to explain a failure.
func (s *shell) logs() string {
	var out strings.Builder
	paths, _ := filepath.Glob(filepath.Join(s.dir, "*.log")) // the pattern is valid
	for _, path := range paths {
		text, _ := os.ReadFile(path)
		out.WriteString("\n" + filepath.Base(path) + ":\n" + string(text[max(0, len(text)-2000):]))
	}
	return out.String()
}

// A block that is not run says why.
func TestBlocksAreRunOrSayWhy(t *testing.T) {
	t.Parallel()
	for _, file := range documents(t) {
		for _, b := range blocks(t, file) {
			if b.lang == "sql" {
				t.Errorf("%s: write SQL so that it can be pasted: a sh block with psql \"$A2AD_DATABASE_URL\" <<'SQL'",
					b.at())
			}
			if b.lang == "sh" && b.mark != "run" && (b.mark != "not run" || b.arg == "") {
				t.Errorf("%s: put <!-- run --> or <!-- not run: why --> above this block", b.at())
			}
			if b.mark == "run" && !slices.ContainsFunc(commands, func(c commanded) bool { return c.file == file }) {
				t.Errorf("%s: the commands of this document are not run: put it into the list above TestDocuments",
					b.at())
			}
		}
	}
}

func TestExcerpts(t *testing.T) {
	t.Parallel()
	const output = "id  7-0a1b2c3d\nat 2026-11-20T10:00:00.123Z of 01a1f881-d222-7efb-9074-a08db157cc79\n\nb   c\nend"
	for _, tc := range []struct{ excerpt, missing string }{
		{"id 7-99999999\nend\n", ""},
		{"at 2025-01-01T00:00:00.000Z of 00000000-d222-7efb-9074-a08db157cc79\n", ""},
		{"id 8-99999999\n", "id 8-99999999"},
		{"…\nb c\n", ""},
		{"a… of …\n----+---\n", ""},
		{"end\nb c\n", "b c"},
		{"en\n", "en"},
	} {
		if got := missing(tc.excerpt, output); got != tc.missing {
			t.Errorf("missing(%q) = %q, want %q", tc.excerpt, got, tc.missing)
		}
	}
}

func TestMarks(t *testing.T) {
	t.Parallel()
	text := strings.ReplaceAll("<!-- run -->\n'''sh\na\n'''\n\n<!-- run -->\n'''sh\nb\n'''\n- item\n\n"+
		"  <!-- not run: no -->\n  '''sh\n  c\n    d\n  '''\n'''text\n'''\n", "'''", "```")
	got, err := parse("f", text)
	if err != nil {
		t.Fatal(err)
	}
	want := []block{
		{file: "f", line: 3, lang: "sh", mark: "run", text: "a\n"},
		{file: "f", line: 8, lang: "sh", mark: "run", text: "b\n"},
		{file: "f", line: 14, lang: "sh", mark: "not run", arg: "no", text: "c\n  d\n", indent: "  "},
		{file: "f", line: 18, lang: "text"},
	}
	if len(got) != len(want) {
		t.Fatalf("%d blocks, want %d", len(got), len(want))
	}
	for i := range want {
		g, w := got[i], want[i]
		if g.at() != w.at() || g.lang != w.lang || g.mark != w.mark || g.arg != w.arg || g.text != w.text ||
			g.indent != w.indent {
			t.Errorf("block %d is %+v, want %+v", i, g, w)
		}
	}
	for _, bad := range []string{"```sh\na\n", "<!-- run -->\n\n", "<!-- runs -->\n"} {
		if _, err := parse("f", bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
