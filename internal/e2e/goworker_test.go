package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
)

// goWorker is a process of the library for Go. What its steps do is lines of a file.
type goWorker struct {
	c       *cluster
	url     string
	effects string
	cmd     *exec.Cmd
}

// buildGoWorker builds the worker once. The library is a module of its own, so that its users get no other one.
var buildGoWorker = sync.OnceValues(func() (string, error) {
	if err := makeBuildDir(); err != nil {
		return "", err
	}
	binary := filepath.Join(buildDir, "goworker")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", binary, "./internal/testworker")
	cmd.Dir = filepath.Join("..", "..", "sdk", "go")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return binary, nil
})

// goWorker starts a worker, which runs until the test ends.
func (c *cluster) goWorker(at *replica) *goWorker {
	g := &goWorker{c: c, url: at.base, effects: filepath.Join(c.t.TempDir(), "effects")}
	g.start()
	c.t.Cleanup(func() { g.end(syscall.SIGKILL) })
	return g
}

func (g *goWorker) start() {
	binary, err := buildGoWorker()
	if err != nil {
		g.c.t.Fatal(err)
	}
	g.cmd = exec.Command(binary, g.effects)
	g.cmd.Env = []string{"A2AD_URL=" + g.url}
	if err := g.cmd.Start(); err != nil {
		g.c.t.Fatal(err)
	}
}

func (g *goWorker) end(sig syscall.Signal) {
	_ = g.cmd.Process.Signal(sig) // Wait reports what became of it
	_ = g.cmd.Wait()              // a killed process is an error
}

// done returns what the steps have done.
func (g *goWorker) done() []string {
	data, err := os.ReadFile(g.effects)
	if err != nil && !os.IsNotExist(err) {
		g.c.t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")[:strings.Count(string(data), "\n")]
}

// Tasks of the library for Go continue after kills and stops of the worker and a kill of a server, and nothing that was
// recorded is done again.
func TestGoWorkersContinue(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	const tasks, steps = 6, 20
	c.agent("far", remoteAgent("far")+"limits: {lease_ttl: 2s, max_attempts: 100, backoff: 50ms}\n")
	a, b := c.start("a", admin), c.start("b", admin)
	g := c.goWorker(b)
	cl := c.client(b, "far")
	var ids []string
	for range tasks {
		ids = append(ids, submit(t, cl, say(fmt.Sprint(steps))))
	}
	for round, sig := range []syscall.Signal{
		syscall.SIGKILL, syscall.SIGTERM, syscall.SIGKILL, syscall.SIGTERM, syscall.SIGKILL,
	} {
		seen := len(g.done())
		until(t, "work", func() bool { n := len(g.done()); return n > seen || n >= tasks*steps })
		if round == 2 {
			a.kill()
		}
		g.end(sig)
		g.start()
	}
	for _, id := range ids {
		c.awaitState(id, "INPUT_REQUIRED")
		more := say("yes")
		more.TaskID = id
		submit(t, cl, more)
	}
	want := ""
	for i := range steps {
		want += fmt.Sprint(i, " ")
	}
	for _, id := range ids {
		c.awaitState(id, "COMPLETED")
		got, err := cl.Get(bounded(t), id, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got.State != a2a.StateCompleted || client.Text(got.Parts) != fmt.Sprint(steps, " yes") {
			t.Errorf("the task ended with %s", got.Raw)
		}
		text := ""
		for _, p := range got.Artifacts[0].Parts {
			text += p.Text
		}
		if text != want {
			t.Errorf("the answer is %q, want %q", text, want)
		}
	}
	// At each of 5 ends, a step of each task may have been done and not recorded.
	if n := len(g.done()); n < tasks*steps || n > tasks*(steps+5) {
		t.Errorf("%d steps were done, want %d, and at most one more a task and end", n, tasks*steps)
	}
}

// A canceled task ends the function's context.
func TestGoWorkerSeesCancels(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.agent("far", remoteAgent("far")+"limits: {lease_ttl: 1s}\n")
	a := c.start("a", admin)
	g := c.goWorker(a)
	cl := c.client(a, "far")
	task := submit(t, cl, say("wait"))
	until(t, "the function", func() bool { return len(g.done()) == 1 })
	if _, err := cl.Cancel(bounded(t), task); err != nil {
		t.Fatal(err)
	}
	until(t, "the end of the context", func() bool { return len(g.done()) == 2 })
	if want := []string{"begun", "a2ad: the task was canceled"}; !slices.Equal(g.done(), want) {
		t.Errorf("the worker saw %q, want %q", g.done(), want)
	}
}
