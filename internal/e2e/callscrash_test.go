package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
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

// A replica dies in each statement of calls, or after the COMMIT whose answer it does not get. Each call makes one
// task, and the task that waits for them continues once. A task that ends cancels those that it has called.
func TestKilledReplicaAmongCalls(t *testing.T) {
	t.Parallel()
	for name, m := range callMoments {
		for _, atCommit := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/commit=%t", name, atCommit), func(t *testing.T) {
				t.Parallel()
				c := newCluster(t)
				agent, leave, ends := "echo", "", "COMPLETED COMPLETED"
				if m.leave {
					agent, leave, ends = "sleepy", "yes", "CANCELED CANCELED"
					c.payer("sleepy", `"for":"1h"`, false)
				}
				effects := c.boss("boss", agent, leave)
				a := c.start("a")
				g := c.rowGateWhen(m.table, m.op, m.condition, atCommit)
				task := submit(t, c.client(a, "boss"), say("x"))
				g.held()
				a.kill()
				g.open()
				c.restart(a)
				c.awaitState(task, "COMPLETED")
				const children = `SELECT coalesce(string_agg(state, ' '), '') FROM audit.task
					WHERE parent_id::text = $1`
				until(t, "the called tasks have ended", func() bool { return one[string](c, children, task) == ends })
				text, err := os.ReadFile(effects)
				if err != nil {
					t.Fatal(err)
				}
				if woke := strings.Count(string(text), "woke"); !m.leave && woke != 1 {
					t.Errorf("the task continued %d times, want once", woke)
				}
			})
		}
	}
}
