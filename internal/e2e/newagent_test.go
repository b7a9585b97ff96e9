package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/scaffold"
)

// newAgentLanguages are those whose projects need no packages from the network. `make scaffold-test` runs all.
func newAgentLanguages() []string {
	if os.Getenv("A2AD_TEST_SCAFFOLD") != "" {
		return scaffold.Languages
	}
	return []string{"go", "shell"}
}

// What `a2ad new agent` makes is tested and runs by the commands that it prints.
func TestNewAgents(t *testing.T) {
	t.Parallel()
	for _, lang := range newAgentLanguages() {
		t.Run(lang, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			clone, err := filepath.Abs(filepath.Join("..", ".."))
			if err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(t.TempDir(), "hello")
			stdout, stderr, code := c.operate(nil,
				"new", "agent", "hello", "--lang", lang, "--dir", dir, "--clone", clone)
			if code != 0 {
				t.Fatalf("a2ad new agent: %s", stderr)
			}
			steps := scaffold.Project{Name: "hello", Lang: lang, Clone: clone, A2AD: "a2ad"}.Steps()
			server := slices.IndexFunc(steps, func(s scaffold.Step) bool {
				return strings.HasPrefix(s.Command, "a2ad dev")
			})
			for _, s := range steps[:server] {
				if !strings.Contains(stdout, s.Command) {
					t.Errorf("the output does not have %q:\n%s", s.Command, stdout)
				}
				if out, err := inProject(dir, s.Command).CombinedOutput(); err != nil {
					t.Fatalf("%s: %v\n%s", s.Command, err, out)
				}
			}
			a := c.start("a", admin, "A2AD_AGENTS="+filepath.Join(dir, "agent.yaml"))
			if runs := steps[server+1 : len(steps)-1]; len(runs) > 0 {
				startInProject(t, dir, runs[0].Command, "A2AD_URL="+a.base)
			}
			converse(c, a)
		})
	}
}

// converse gives the agent a task, answers its question, and checks what it said.
func converse(c *cluster, a *replica) {
	c.t.Helper()
	cl := c.client(a, "hello")
	task := submit(c.t, cl, say("Ann"))
	// The command that starts the agent may compile it first.
	untilFor(c.t, 4*patience, "the question of the agent", func() bool { return c.state(task) == "INPUT_REQUIRED" })
	answer := say("fine")
	answer.TaskID = task
	submit(c.t, cl, answer)
	c.awaitState(task, "COMPLETED")
	got, err := cl.Get(bounded(c.t), task, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	if said := client.Text(got.Parts); said != "Good to know that you are fine." {
		c.t.Errorf("the agent said %q", said)
	}
	if len(got.Artifacts) != 1 || client.Text(got.Artifacts[0].Parts) != "Hello, Ann!\n" {
		c.t.Errorf("the artifacts are %+v", got.Artifacts)
	}
}

func inProject(dir, command string) *exec.Cmd {
	cmd := exec.Command("sh", "-c", command)
	cmd.Dir = dir
	return cmd
}

// startInProject runs a command, and what it starts, until the test ends.
func startInProject(t *testing.T, dir, command string, env ...string) {
	t.Helper()
	cmd := inProject(dir, command)
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // its group; it may have ended
		_ = cmd.Wait()                                      // a killed process is an error
	})
}
