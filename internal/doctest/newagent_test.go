package doctest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/slowtest"
)

// Each project that `a2ad new agent` makes works as its README says, and passes its own tests. `make test` runs the one
// that needs no other runtime, and the targets of the libraries the others.
func TestNewAgents(t *testing.T) {
	t.Parallel()
	for language, needs := range map[string]string{
		"python": "A2AD_TEST_PIP", "typescript": "A2AD_TEST_NPM", "go": "", "shell": "",
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			if language != "shell" {
				slowtest.Only(t, slowtest.Docs)
			}
			if _, err := exec.LookPath("jq"); err != nil && language == "shell" && os.Getenv("CI") == "" {
				t.Skipf("the project needs it: %v", err) // .ci/run installs it
			}
			if needs != "" && os.Getenv(needs) == "" {
				t.Skipf("its packages come from the network: %s=1 runs it", needs)
			}
			s := newShell(t, false, false)
			s.copyTree(t, "sdk")
			do(t, s, &block{text: "./bin/a2ad new agent greeter --lang " + language + "; cd greeter\n"})
			followNewAgent(t, s, filepath.Join(s.dir, "greeter", "README.md"))
		})
	}
}

// followNewAgent runs the blocks of the README: those before "## Run" to their end, then the server and the worker in
// the background, then the client.
func followNewAgent(t *testing.T, s *shell, readme string) {
	t.Helper()
	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	before, _, found := strings.Cut(string(text), "\n## Run\n")
	if !found {
		t.Fatalf("no section Run in\n%s", text)
	}
	all, err := parse("README.md", string(text))
	if err != nil {
		t.Fatal(err)
	}
	tests := strings.Count(before, "```sh\n")
	for i := range all[:tests] {
		do(t, s, &all[i])
	}
	for i, b := range all[tests : len(all)-1] {
		b.text = fmt.Sprintf("{ %s; } >../background-%d.log 2>&1 &\n", strings.TrimSuffix(b.text, "\n"), i)
		if i == 0 {
			b.text += "curl -fs --retry 99 --retry-connrefused --retry-delay 1 " +
				"http://127.0.0.1:9090/readyz >/dev/null\n"
		}
		do(t, s, &b)
	}
	send := &all[len(all)-1]
	send.text = strings.TrimSuffix(send.text, "\n") + " || test $? = 4\n"
	asked := do(t, s, send)
	if !strings.Contains(asked, "Hello, Ann!") || !strings.Contains(asked, "Louder?") {
		t.Errorf("it does not greet and ask:\n%s", asked)
	}
	_, answer, _ := strings.Cut(asked, "[to answer: ")
	answer, _, found = strings.Cut(answer, "]\n")
	if !found {
		t.Fatalf("it does not say how to answer:\n%s", asked)
	}
	send.text = strings.Replace(answer, "…", "yes", 1) + "\n"
	answered := do(t, s, send)
	if !strings.Contains(answered, "HELLO, ANN!") || !strings.Contains(answered, "[completed]") ||
		!strings.Contains(answered, "Done.") {
		t.Errorf("it does not end as its test says:\n%s", answered)
	}
}
