package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
)

// documented returns the blocks of docs/operations.md that this test runs, as their marks say, in their order.
func documented(t *testing.T, lang string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)<!-- not run: [^\n]*internal/e2e runs it, " + t.Name() + " -->\n```" + lang + "\n(.*?)\n```")
	var list []string
	for _, m := range block.FindAllStringSubmatch(string(data), -1) {
		list = append(list, m[1])
	}
	return list
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
