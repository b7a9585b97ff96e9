package e2e_test

import (
	"slices"
	"strings"
	"testing"
)

// An agent that an operator has paused waits in all replicas, also for messages to a replica with free slots. Other
// agents work, and its tasks run when it is resumed.
func TestPausedAgentWaitsInAllReplicas(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	operate := func(args ...string) {
		t.Helper()
		if stdout, stderr, code := c.operate(nil, args...); code != 0 {
			t.Fatalf("a2ad %s: exit code %d: %s%s", strings.Join(args, " "), code, stdout, stderr)
		}
	}
	operate("agent", "pause", "echo", "--reason", "a test")
	var waiting []string
	for _, r := range []*replica{a, b} {
		// A replica that does not know of the pause yet may start a task as it stores it.
		until(t, r.name+" knows of the pause", func() bool {
			waiting = append(waiting, submit(t, c.client(r, "echo"), say("x")))
			return c.state(waiting[len(waiting)-1]) == "SUBMITTED"
		})
	}
	const atRest = `SELECT id::text FROM audit.task WHERE agent = 'echo' AND state = 'SUBMITTED' ORDER BY id`
	stopped := column[string](c, atRest)
	for _, r := range []*replica{a, b} { // both work
		send(t, c.client(r, "script"), play(`{"op":"complete"}`))
	}
	if still := column[string](c, atRest); !slices.Equal(still, stopped) {
		t.Errorf("tasks of the paused agent were claimed: there were %q, and are %q", stopped, still)
	}
	operate("agent", "resume", "echo")
	for _, task := range waiting {
		c.awaitState(task, "COMPLETED")
	}
}

// A replica whose attempt hangs is drained: the other one gets its task, and it claims no more.
func TestDrainedReplicaGivesItsTasksToOthers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a")
	g := newGate(t)
	task := submit(t, c.client(a, "script"), play(g.op()))
	g.await(1)
	b := c.start("b")
	stdout, stderr, code := c.operate(nil, "worker", "drain", "a", "--expire", "--reason", "it hangs")
	if code != 0 || stdout != "a drained, 1 lease ended\n" {
		t.Fatalf("drain: exit code %d: %s%s", code, stdout, stderr)
	}
	g.await(2)
	g.open()
	c.awaitState(task, "COMPLETED")
	for range 5 {
		send(t, c.client(b, "echo"), say("x"))
	}
	workers := column[string](c, `SELECT DISTINCT worker FROM audit.attempt WHERE outcome = 'completed'`)
	if !slices.Equal(workers, []string{"b"}) {
		t.Errorf("tasks were completed by %q", workers)
	}
}
