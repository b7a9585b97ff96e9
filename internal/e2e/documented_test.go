package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
)

// documented returns the blocks of docs/how-to/runbook.md that this test runs, as their marks say, in their order.
// SQL is what a block pastes into psql; commands are all other blocks.
func documented(t *testing.T) (statements, commands []string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "how-to", "runbook.md"))
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

// shell runs such a block: in dir, as somebody, with the programs of PostgreSQL in the path and env.
func shell(t *testing.T, block, dir string, as *syscall.Credential, env ...string) {
	t.Helper()
	cmd := exec.CommandContext(bounded(t), "bash", "-euo", "pipefail", "-c", block)
	cmd.Dir = dir
	cmd.Env = append([]string{"PATH=" + filepath.Dir(pgProgram(t, "psql")) + ":" + os.Getenv("PATH"), "HOME=" + dir}, env...)
	if as != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", block, err, out)
	}
}
