package interop

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/a2aproject/a2a-go/a2a"
	"github.com/jackc/pgx/v5"
)

// a2ad in front of agents that keep no state: those of official SDKs, and other a2ads.

// counter is the counting agent, a process that keeps tasks in memory, behind a cable.
type counter struct {
	t     *testing.T
	cable *cable
	start func(url string) *exec.Cmd
	cmd   *exec.Cmd
	gone  chan struct{} // closed when cmd has ended
	log   *lines
}

// counters are the agents of both SDKs.
var counters = map[string]func(t *testing.T) func(url string) *exec.Cmd{
	"1.0": func(t *testing.T) func(string) *exec.Cmd {
		t.Helper()
		binary, err := buildCounter()
		if err != nil {
			t.Fatal(err)
		}
		return func(url string) *exec.Cmd {
			return exec.Command(binary, "-listen", "127.0.0.1:0", "-url", url, "-pause", counterPause.String())
		}
	},
	"0.3": func(*testing.T) func(string) *exec.Cmd {
		return func(url string) *exec.Cmd {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), oldCounterEnv+"="+url)
			return cmd
		}
	},
}

// buildCounter builds the agent of examples/front-go, as its README does.
var buildCounter = sync.OnceValues(func() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), buildLimit)
	defer cancel()
	binary := filepath.Join(tests.dir, "front-go")
	out, err := exec.CommandContext(ctx, "go", "build", "-C", filepath.Join("..", "..", "examples", "front-go"), "-o",
		binary, ".").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build examples/front-go: %w\n%s", err, out)
	}
	return binary, nil
})

func newCounter(t *testing.T, start func(url string) *exec.Cmd) *counter {
	t.Helper()
	c := &counter{t: t, cable: newCable(t), start: start, log: &lines{}}
	t.Cleanup(c.kill)
	c.restart()
	return c
}

func (c *counter) url() string { return "http://" + c.cable.addr() }

func (c *counter) restart() {
	c.t.Helper()
	ready := make(chan string, 1)
	c.cmd, c.gone = c.start(c.url()), make(chan struct{})
	c.cmd.Stderr = &tee{c.log, ready}
	c.cmd.SysProcAttr = childAttr()
	started := make(chan error, 1)
	go func(cmd *exec.Cmd, gone chan struct{}) {
		runtime.LockOSThread() // see startReplica
		defer runtime.UnlockOSThread()
		defer close(gone)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // it is killed
		}
	}(c.cmd, c.gone)
	if err := <-started; err != nil {
		c.t.Fatalf("start the counter: %v", err)
	}
	select {
	case at := <-ready:
		c.cable.plug(strings.TrimPrefix(at, "http://"))
	case <-c.gone:
		c.t.Fatalf("the counter has ended: %s", c.log)
	case <-testContext(c.t).Done():
		c.t.Fatalf("the counter is not ready: %s", c.log)
	}
}

// kill is kill -9. It closes the agent's connections.
func (c *counter) kill() {
	_ = c.cmd.Process.Kill()
	<-c.gone
}

// runs returns the number of the agent's runs, over all restarts.
func (c *counter) runs() int { return strings.Count(c.log.String(), "run task=") }

// lines is the output of processes.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// tee reports the first address in the output.
type tee struct {
	*lines
	ready chan<- string
}

func (w *tee) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(p)
	if _, at, ok := strings.Cut(string(p), "ready url="); ok {
		at, _, _ = strings.Cut(at, "\n")
		w.ready <- at
	}
	return len(p), nil
}

// front is an a2ad with one agent, "front", that calls an upstream agent.
type front struct {
	*address
	database string
}

func newFront(t *testing.T, card, more string) *front {
	t.Helper()
	if _, err := url.Parse(card); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := fmt.Sprintf("name: front\ndescription: In front of another.\nexecutor:\n  a2a: {card: %q, "+
		"poll_interval: 100ms%s}\n", card, more)
	if err := os.WriteFile(filepath.Join(dir, "front.yaml"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &front{database: newDatabase(t)}
	f.address = newAddressOn(t, f.database, append([]string{"--agents", dir}, quick...)...)
	return f
}

// column reads texts from a database.
func column(t *testing.T, database, sql string, args ...any) []string {
	t.Helper()
	ctx := testContext(t)
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// attempts returns the outcomes of the attempts that count. A busy server may also release a run that could not write.
func (f *front) attempts(t *testing.T, task a2a.TaskID) []string {
	t.Helper()
	return column(t, f.database,
		`SELECT coalesce(outcome, 'runs') FROM audit.attempt
		WHERE task_id::text = $1 AND outcome IS DISTINCT FROM 'released' ORDER BY token`, string(task))
}

func upTo(n int) (list []string) {
	for i := range n {
		list = append(list, strconv.Itoa(i+1))
	}
	return list
}

// counting starts a task that counts to n and reads its stream up to the third number.
func counting(t *testing.T, f *front, n int) (p *peer, id a2a.TaskID, s *events) {
	t.Helper()
	p = dialAt(t, f.url(), "/agents/front")
	s = p.stream(message(strconv.Itoa(n)))
	for range 3 {
		s.untilChunk("numbers", false)
	}
	return p, s.seen[0].TaskInfo().TaskID, s
}

func eachCounter(t *testing.T, test func(t *testing.T, c *counter, f *front)) {
	t.Helper()
	for version, start := range counters {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := newCounter(t, start(t))
			test(t, c, newFront(t, c.url()+"/.well-known/agent-card.json", ""))
		})
	}
}

func TestFrontForwardsTurnsOfAnSDKAgent(t *testing.T) {
	t.Parallel()
	eachCounter(t, func(t *testing.T, c *counter, f *front) {
		p := dialAt(t, f.url(), "/agents/front")
		task := p.send(message("count"))
		if task.Status.State != a2a.TaskStateInputRequired {
			t.Fatalf("the state is %s, want input-required", task.Status.State)
		}
		if got := text(t, task.Status.Message.Parts[0]); got != "How far shall I count?" {
			t.Errorf("the question is %q", got)
		}
		task = p.send(reply(task, "3"))
		checkState(t, task, a2a.TaskStateCompleted)
		checkSame(t, "the numbers", texts(t, task, "numbers"), upTo(3))
		if n := c.runs(); n != 2 {
			t.Errorf("the agent was run %d times, want once for each message", n)
		}
	})
}

func TestFrontOfAnSDKAgentSurvivesItsOwnKill(t *testing.T) {
	t.Parallel()
	eachCounter(t, func(t *testing.T, c *counter, f *front) {
		p, id, s := counting(t, f, 30)
		f.kill()
		_ = s.failure()
		f.start(t)
		p.resubscribe(id).untilState(a2a.TaskStateCompleted)
		checkSame(t, "the numbers", texts(t, p.get(id), "numbers"), upTo(30))
		if n := c.runs(); n != 1 {
			t.Errorf("the agent was run %d times, want 1", n)
		}
		checkSame(t, "attempts", f.attempts(t, id), []string{"expired", "completed"})
	})
}

func TestFrontOfAnSDKAgentSurvivesACut(t *testing.T) {
	t.Parallel()
	eachCounter(t, func(t *testing.T, c *counter, f *front) {
		p, id, s := counting(t, f, 30)
		c.cable.cut()
		s.untilState(a2a.TaskStateCompleted)
		checkSame(t, "the numbers", texts(t, p.get(id), "numbers"), upTo(30))
		if n := c.runs(); n != 1 {
			t.Errorf("the agent was run %d times, want 1", n)
		}
		checkSame(t, "attempts", f.attempts(t, id), []string{"completed"})
	})
}

func TestFrontOfAnSDKAgentSurvivesTheKillOfTheAgent(t *testing.T) {
	t.Parallel()
	eachCounter(t, func(t *testing.T, c *counter, f *front) {
		p, id, s := counting(t, f, 12)
		c.kill()
		c.restart()
		s.untilState(a2a.TaskStateCompleted)
		checkSame(t, "the numbers", texts(t, p.get(id), "numbers"), upTo(12))
		if n := c.runs(); n != 2 {
			t.Errorf("the agent was run %d times, want 2", n)
		}
		checkSame(t, "attempts", f.attempts(t, id), []string{"retry", "completed"})
	})
}

func TestFrontForwardsACancel(t *testing.T) {
	t.Parallel()
	eachCounter(t, func(t *testing.T, c *counter, f *front) {
		p, id, s := counting(t, f, 1000)
		if _, err := p.CancelTask(testContext(t), &a2a.TaskIDParams{ID: id}); err != nil {
			t.Fatal(err)
		}
		s.untilState(a2a.TaskStateCanceled)
		f.stop(t) // waits for runs
		if n := strings.Count(c.log.String(), "cancel task="); n != 1 {
			t.Errorf("the agent was canceled %d times, want once:\n%s", n, c.log)
		}
	})
}

// One a2ad is in front of another one.
func TestChainOfTwo(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"0.3", "1.0"} {
		for _, victim := range []string{"front", "upstream", "cable"} {
			t.Run(version+" kill "+victim, func(t *testing.T) {
				t.Parallel()
				database := newDatabase(t)
				up, g := newAddressOn(t, database, quick...), newGate(t)
				f := newFront(t, up.url()+scriptAgent+"/.well-known/agent-card.json", ", version: "+version)
				p := dialAt(t, f.url(), "/agents/front")
				s := p.stream(script(op{"op": "status", "text": "thinking"}, chunks("a", 10), g.op(), chunks("b", 20),
					op{"op": "complete", "text": "done"}))
				s.untilChunk("a", true)
				id := s.seen[0].TaskInfo().TaskID
				g.waitReached(t)
				switch victim {
				case "front":
					f.kill()
					_ = s.failure()
					f.start(t)
					s = p.resubscribe(id)
				case "upstream":
					up.kill()
					up.start(t)
				case "cable":
					up.cable.cut()
				}
				g.open()
				s.untilState(a2a.TaskStateCompleted)
				task := p.get(id)
				checkSame(t, "a", texts(t, task, "a"), numbered("a", 10))
				checkSame(t, "b", texts(t, task, "b"), numbered("b", 20))
				if got := text(t, task.Status.Message.Parts[0]); got != "done" {
					t.Errorf("the last words are %q", got)
				}
				said := 0
				for _, m := range task.History {
					if part, ok := m.Parts[0].(a2a.TextPart); ok && part.Text == "thinking" {
						said++
					}
				}
				if said != 1 {
					t.Errorf("%q was said %d times", "thinking", said)
				}
				if got := column(t, database, `SELECT id::text FROM audit.task`); len(got) != 1 {
					t.Errorf("the upstream has %d tasks, want 1", len(got))
				}
				want := []string{"completed"}
				if victim == "front" {
					want = []string{"expired", "completed"}
				}
				checkSame(t, "attempts", f.attempts(t, id), want)
			})
		}
	}
}
