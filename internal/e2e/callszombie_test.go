package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// lateScript is an agent whose first run waits for the test, and then reports what is in LATE. Its later runs report
// what is in HEIR, and complete after a wait.
const lateScript = `
read -r run
case $run in
*'"by"'*)
  echo woke >> "$EFFECTS"
  echo '{"statusUpdate":{"status":{"state":"TASK_STATE_COMPLETED"}}}';;
*'"epoch":1,'*)
  echo began >> "$EFFECTS"; read -r line < "$FIFO"
  printf '%s\n' "$LATE"; echo late >> "$EFFECTS";;
*) printf '%s\n' "$HEIR";;
esac
`

// lateAgent plays lateScript.
type lateAgent struct {
	c       *cluster
	effects string
	fifo    *os.File // the first runs wait until it is closed
}

// lateAgent adds an agent. late and heir are events, in JSON.
func (c *cluster) lateAgent(name string, late, heir []string) *lateAgent {
	c.t.Helper()
	dir := c.t.TempDir()
	script, effects, fifo := filepath.Join(dir, "agent.sh"), filepath.Join(dir, "effects"), filepath.Join(dir, "fifo")
	for file, text := range map[string]string{script: lateScript, effects: ""} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			c.t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		c.t.Fatal(err)
	}
	open, err := os.OpenFile(fifo, os.O_RDWR, 0) // without a reader, an open to write alone would wait
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = open.Close() }) // usually the test has closed it
	c.agent(name, fmt.Sprintf("name: %s\ndescription: Is late.\nexecutor: {exec: {command: [/bin/sh, %s], "+
		"env: {EFFECTS: %s, FIFO: %s, LATE: %q, HEIR: %q}}}\n",
		name, script, effects, fifo, strings.Join(late, "\n"), strings.Join(heir, "\n")))
	return &lateAgent{c, effects, open}
}

// awaitDone waits until runs of the agent have done something n times.
func (a *lateAgent) awaitDone(what string, n int) {
	a.c.t.Helper()
	until(a.c.t, fmt.Sprintf("%q %d times in %s", what, n, a.effects), func() bool {
		text, err := os.ReadFile(a.effects)
		return err == nil && strings.Count(string(text), what+"\n") == n
	})
}

const completes = `{"statusUpdate":{"status":{"state":"TASK_STATE_COMPLETED"}}}`

// callOf returns the events with which a run calls a task of an agent and waits for it.
func callOf(key, agent string) []string {
	return []string{
		fmt.Sprintf(`{"call":{"key":%q,"agent":%q,"message":{"parts":[{"text":"x"}]}}}`, key, agent),
		fmt.Sprintf(`{"wait":{"key":"end of %s","tasks":[%q]}}`, key, key),
	}
}

// families returns all that the tables of calls say.
func (c *cluster) families() string {
	c.t.Helper()
	return one[string](c, `SELECT concat_ws('; ',
		(SELECT string_agg(concat_ws(' ', id, state, parent_id, parent_step), ', ' ORDER BY id) FROM audit.task),
		(SELECT string_agg(concat_ws(' ', task_id, seq, key, kind, token, worker, child_id, ended_at, result), ', '
			ORDER BY task_id, seq) FROM audit.step),
		(SELECT string_agg(concat_ws(' ', task_id, step, due_at, calls, pending), ', ' ORDER BY task_id)
			FROM audit.wait))`)
}

// A replica is frozen while it runs a task that will call another one, and two tasks that were called. Their agents
// report when another replica has rescued the tasks, has called another task, and waits for signals. After the thaw,
// the replica makes no task, records no step, and does not end the wait of the task that called the two.
func TestZombieMakesNoCallAndEndsNone(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.payer("pays", bySignal, false)
	caller := c.lateAgent("caller", callOf("zombie", "echo"), callOf("heir", "pays"))
	called := c.lateAgent("called", []string{completes}, []string{`{"wait":{"key":"pause",` + bySignal + `}}`})
	effects := c.boss("boss", "called", "")
	a := c.start("a")
	first, second := submit(t, c.client(a, "caller"), say("x")), submit(t, c.client(a, "boss"), say("x"))
	caller.awaitDone("began", 1)
	called.awaitDone("began", 2)
	a.log.expectErrors()
	a.freeze()
	b := c.start("b")
	until(t, "all tasks wait", func() bool { return one[int](c, `SELECT count(*)::int FROM audit.wait`) == 5 })
	for _, agent := range []*lateAgent{caller, called} {
		if err := agent.fifo.Close(); err != nil {
			t.Fatal(err)
		}
	}
	caller.awaitDone("late", 1)
	called.awaitDone("late", 2)
	before := c.families()
	a.thaw()
	zombies := column[string](c, `SELECT id::text FROM audit.task WHERE agent IN ('caller', 'called')`)
	for _, task := range zombies {
		line := a.awaitLog("run", func(l logLine) bool { return l.str("task_id") == task })
		if line.str("outcome") != "lost" {
			t.Errorf("the zombie records %v, want the outcome lost", line)
		}
	}
	if after := c.families(); len(zombies) != 3 || after != before {
		t.Errorf("after the thaw of %d runs there is\n%s\nbefore\n%s", len(zombies), after, before)
	}
	for _, task := range column[string](c, `SELECT task_id::text FROM audit.wait WHERE on_signal IS NOT NULL`) {
		if got := c.sendSignal(b, task); got != http.StatusOK {
			t.Errorf("the signal to %s: %d", task, got)
		}
	}
	c.awaitState(first, "COMPLETED")
	c.awaitState(second, "COMPLETED")
	caller.awaitDone("woke", 1)
	called.awaitDone("woke", 2)
	text, err := os.ReadFile(effects)
	if err != nil || string(text) != "woke\n" {
		t.Errorf("the task that called the two did %q, %v, want that it woke once", text, err)
	}
}

// A remote worker reports a call, and the end of a called task, under leases that others have by then. Both are
// refused, and nothing is stored.
func TestRemoteZombieMakesNoCallAndEndsNone(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.agent("far", remoteAgent("far"))
	a := c.start("a")
	report := func(run remoteRun, events ...string) int {
		t.Helper()
		return c.post(a, fmt.Sprintf("/worker/v1/runs/%s/%d/events", run.TaskID, run.Epoch),
			`{"events":[`+strings.Join(events, ",")+`]}`).status
	}
	parent := submit(t, c.client(a, "far"), say("x"))
	zombie := c.claimRun(a, "far")
	heir := c.claimRun(a, "far") // after the lease of the zombie
	if got := report(heir, callOf("heir", "far")...); got != http.StatusOK {
		t.Fatalf("the call: %d", got)
	}
	zombieChild := c.claimRun(a, "far")
	child := c.claimRun(a, "far")
	if zombie.TaskID != parent || heir.TaskID != parent || zombieChild.TaskID == parent || child.TaskID == parent {
		t.Fatalf("%s calls, but the runs are %v, %v, %v, %v", parent, zombie, heir, zombieChild, child)
	}
	before := c.families()
	for what, got := range map[string]int{
		"a call":                    report(zombie, callOf("zombie", "echo")...),
		"the call of its heir":      report(zombie, callOf("heir", "far")...),
		"the end of a called task":  report(zombieChild, completes),
		"the end of a calling task": report(zombie, completes),
	} {
		if got != http.StatusConflict {
			t.Errorf("%s by a zombie: %d, want 409", what, got)
		}
	}
	if after := c.families(); after != before {
		t.Errorf("after the reports of the zombies there is\n%s\nbefore\n%s", after, before)
	}
	if got := report(child, completes); got != http.StatusOK {
		t.Errorf("the end of the called task: %d", got)
	}
	if got := report(c.claimRun(a, "far"), completes); got != http.StatusOK {
		t.Errorf("the end of the calling task: %d", got)
	}
}
