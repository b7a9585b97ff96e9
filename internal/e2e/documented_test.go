package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"

	"github.com/a2ad/a2ad/internal/devpg"
)

// documented returns the blocks of a page that this test runs, according to their marks, in order. SQL is what a
// block pastes into psql; commands are all other blocks.
func documented(t *testing.T, page string) (statements, commands []string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "how-to", page))
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)<!-- not run: [^\n]*internal/e2e runs it, " + t.Name() + " -->\n```sh\n(.*?)\n```")
	pasted := regexp.MustCompile(`(?s)^[^\n]*\bpsql\b[^\n]* <<'SQL'\n(.*)\nSQL$`)
	for _, m := range block.FindAllStringSubmatch(string(data), -1) {
		if sql := pasted.FindStringSubmatch(m[1]); sql != nil {
			statements = append(statements, sql[1])
		} else {
			commands = append(commands, m[1])
		}
	}
	return statements, commands
}

// shell runs such a block in dir, as the given user, with PostgreSQL's programs in the path and env.
func shell(t *testing.T, block, dir string, as *syscall.Credential, env ...string) {
	t.Helper()
	cmd := exec.CommandContext(bounded(t), "bash", "-euo", "pipefail", "-c", block)
	cmd.Dir = dir
	bin, err := devpg.FindBinaries(os.Getenv("A2AD_PG_BINDIR"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append([]string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + dir}, env...)
	if as != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", block, err, out)
	}
}

// needPrograms skips a test of documented commands where the tested server comes without the client programs they call
// (`make test-pg`). Programs of an older version refuse to work with a newer server. Anywhere else they must be there.
func needPrograms(t *testing.T, names ...string) {
	t.Helper()
	bin, err := devpg.FindBinaries(os.Getenv("A2AD_PG_BINDIR"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(bin, name)); err == nil {
			continue
		}
		if os.Getenv("A2AD_TEST_PG_SERVER_ONLY") != "" {
			t.Skipf("this PostgreSQL has no %s; `make test` runs this test with the programs of the distribution", name)
		}
		t.Fatalf("no %s in %s", name, bin)
	}
}
