package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/a2ad/a2ad/internal/store/storetest"
)

// bossScript calls two tasks of an agent and waits for both. With leave it completes at once, and leaves them.
const bossScript = `
read -r run
case $run in *'"by":"tasks"'*)
  echo woke >> "$EFFECTS"
  echo '{"statusUpdate":{"status":{"state":"TASK_STATE_COMPLETED"}}}'; exit;;
esac
for n in 1 2; do
  echo '{"call":{"key":"sub#'$n'","agent":"'$AGENT'","message":{"parts":[{"text":"x"}]}}}'
done
if [ -n "$LEAVE" ]; then echo '{"statusUpdate":{"status":{"state":"TASK_STATE_COMPLETED"}}}'; exit; fi
echo '{"wait":{"key":"both","tasks":["sub#1","sub#2"]}}'
`

// boss adds an agent that calls another one, and returns the file in which it notes that it woke.
func (c *cluster) boss(name, agent, leave string) (effects string) {
	c.t.Helper()
	dir := c.t.TempDir()
	script, effects := filepath.Join(dir, "agent.sh"), filepath.Join(dir, "effects")
	for file, text := range map[string]string{script: bossScript, effects: ""} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			c.t.Fatal(err)
		}
	}
	c.agent(name, fmt.Sprintf("name: %s\ndescription: Calls.\n"+
		"executor: {exec: {command: [/bin/sh, %s], env: {EFFECTS: %s, AGENT: %s, LEAVE: '%s'}}}\n",
		name, script, effects, agent, leave))
	return effects
}

// callMoment is a statement of calls during which a replica dies.
type callMoment struct {
	table, op, condition string
	leave                bool // the task ends without waiting for those that it has called
}

var callMoments = map[string]callMoment{
	"StepsAppend":  {table: "task_steps", op: "INSERT", condition: "NEW.kind = 3"},
	"TaskSubmit":   {table: "tasks", op: "INSERT", condition: "NEW.depth > 0"},
	"CallsEnd":     {table: "task_steps", op: "UPDATE", condition: "NEW.kind = 3"},
	"CallsEnd due": {table: "task_waits", op: "UPDATE", condition: "NEW.calls IS NOT NULL"},
	"OrphansAdd":   {table: "task_orphans", op: "INSERT", condition: "true", leave: true},
	"CancelOrphan": {table: "task_orphans", op: "DELETE", condition: "true", leave: true},
}

// called is the agent that the boss calls at a moment, and how the called tasks end.
func (m *callMoment) called() (agent, leave, ends string) {
	if m.leave {
		return "sleepy", "yes", "CANCELED CANCELED"
	}
	return "echo", "", "COMPLETED COMPLETED"
}

// end waits for the ends of a task and of those that it has called, and checks that each was called once, and that the
// task continued once.
func (m *callMoment) end(c *cluster, effects, task string) {
	c.t.Helper()
	c.awaitState(task, "COMPLETED")
	_, _, ends := m.called()
	const children = `SELECT coalesce(string_agg(state, ' '), '') FROM audit.task WHERE parent_id::text = $1`
	until(c.t, "the called tasks have ended", func() bool { return one[string](c, children, task) == ends })
	const calls = `SELECT count(*)::int FROM audit.step WHERE task_id::text = $1 AND kind = 'call'
		AND result ->> 'state' IS NOT NULL AND ended_at IS NOT NULL`
	if n := one[int](c, calls, task); n != 2 {
		c.t.Errorf("%d calls have a result, want 2", n)
	}
	text, err := os.ReadFile(effects)
	if err != nil {
		c.t.Fatal(err)
	}
	if woke := strings.Count(string(text), "woke"); !m.leave && woke != 1 {
		c.t.Errorf("the task continued %d times, want once", woke)
	}
}

// A replica dies in each statement of calls, or after the COMMIT whose answer it does not get. Each call makes one
// task, and the task that waits for them continues once. A task that ends cancels those that it has called.
func TestKilledReplicaAmongCalls(t *testing.T) {
	t.Parallel()
	for name, m := range callMoments {
		for _, atCommit := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/commit=%t", name, atCommit), func(t *testing.T) {
				t.Parallel()
				c := newCluster(t)
				c.payer("sleepy", `"for":"1h"`, false)
				agent, leave, _ := m.called()
				effects := c.boss("boss", agent, leave)
				a := c.start("a")
				g := c.rowGateWhen(m.table, m.op, m.condition, atCommit)
				task := submit(t, c.client(a, "boss"), say("x"))
				g.held()
				a.kill()
				g.open()
				c.restart(a)
				m.end(c, effects, task)
			})
		}
	}
}

// PostgreSQL is shut down at once in each statement of calls, and killed in the COMMIT after it. The replica lives.
func TestPostgresCrashAmongCalls(t *testing.T) {
	t.Parallel()
	srv := storetest.NewServer(t, nil)
	c := clusterOn(t, storetest.NewOn(t, srv))
	c.payer("sleepy", `"for":"1h"`, false)
	signals := map[bool]syscall.Signal{false: syscall.SIGQUIT, true: syscall.SIGKILL}
	bossOf := func(name string, atCommit bool) string {
		return fmt.Sprintf("%s-%t", strings.ToLower(strings.ReplaceAll(name, " ", "-")), atCommit)
	}
	effects := map[string]string{}
	for name, m := range callMoments {
		for atCommit := range signals {
			agent, leave, _ := m.called()
			boss := bossOf(name, atCommit)
			effects[boss] = c.boss(boss, agent, leave)
		}
	}
	a := c.start("a")
	a.log.expectErrors()
	for atCommit, sig := range signals {
		for name, m := range callMoments {
			boss := bossOf(name, atCommit)
			g := c.rowGateWhen(m.table, m.op, m.condition, atCommit)
			task := submit(t, c.client(a, boss), say("x"))
			g.held()
			if err := srv.Kill(sig); err != nil {
				t.Fatal(err)
			}
			if err := srv.Restart(bounded(t)); err != nil {
				t.Fatal(err)
			}
			c.db.Reset()
			g.remove()
			m.end(c, effects[boss], task)
		}
	}
}
