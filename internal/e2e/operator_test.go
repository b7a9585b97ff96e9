package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
)

// operate runs a command of the operator on the cluster's database, and returns what it
// printed and its exit code.
func (c *cluster) operate(env []string, args ...string) (stdout, stderr string, code int) {
	c.t.Helper()
	binary, err := build()
	if err != nil {
		c.t.Fatalf("build a2ad: %v", err)
	}
	var out, notes bytes.Buffer
	cmd := exec.CommandContext(bounded(c.t), binary, args...)
	cmd.Env = append([]string{"A2AD_DATABASE_URL=" + c.url}, env...)
	cmd.Stdout, cmd.Stderr = &out, &notes
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatalf("a2ad %v: %v", args, err)
	}
	return out.String(), notes.String(), cmd.ProcessState.ExitCode()
}

// unlogged is a client whose tasks may be gone in the end.
func (c *cluster) unlogged(r *replica, agent string) *client.Client {
	return &client.Client{URL: r.base + "/agents/" + agent, HTTP: &http.Client{Transport: c.http}, Retry: c.retry}
}

// TestOperatorRetriesATask: the task that was canceled stays, a new one does its work.
func TestOperatorRetriesATask(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a")
	g := newGate(t)
	cl := c.client(a, "script")
	old := submit(t, cl, play(g.op(), `{"op":"artifact","id":"a","text":"done"}`))
	g.await(0)
	if _, notes, code := c.operate(nil, "task", "retry", old); code != 1 || !strings.Contains(notes, "working") {
		t.Errorf("of a task that goes on: exit code %d, %s", code, notes)
	}
	if out, notes, code := c.operate(nil, "task", "cancel", old); code != 0 || out != old+" canceled\n" {
		t.Fatalf("cancel: exit code %d, %s%s", code, out, notes)
	}
	g.open()
	out, notes, code := c.operate(nil, "task", "retry", old)
	again := strings.TrimSpace(out)
	if code != 0 || again == old {
		t.Fatalf("retry: exit code %d, %s%s", code, out, notes)
	}
	var got client.Result
	until(t, "the new task is completed", func() bool {
		var err error
		got, err = cl.Get(bounded(t), again, -1) // its owner sees it
		return err == nil && got.State == a2a.StateCompleted
	})
	before, err := cl.Get(bounded(t), old, -1)
	if err != nil || before.State != a2a.StateCanceled || got.ContextID != before.ContextID {
		t.Errorf("the old task: %+v, %v; the new one is in context %s", before, err, got.ContextID)
	}
	if !bytes.Contains(got.Raw, []byte(`"referenceTaskIds":["`+old+`"]`)) {
		t.Errorf("the new task does not refer to the old one: %s", got.Raw)
	}
	if _, notes, code := c.operate(nil, "task", "retry", again); code != 1 || !strings.Contains(notes, "completed") {
		t.Errorf("of a completed task: exit code %d, %s", code, notes)
	}
	show, _, code := c.operate(nil, "task", "show", old)
	for _, want := range []string{"task.cancel", "task.retry {\"new\":\"" + again, "attempt 1, epoch 1: canceled", "default/anonymous"} {
		if code != 0 || !strings.Contains(show, want) {
			t.Errorf("task show has no %q:\n%s", want, show)
		}
	}
}

// TestOperatorPurgesAnOwner removes what runs, waits and has ended, beside a server.
func TestOperatorPurgesAnOwner(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a")
	g := newGate(t)
	cl := c.unlogged(a, "script")
	running := submit(t, cl, play(g.op()))
	g.await(0)
	if got, err := cl.Send(bounded(t), client.SendParams{Message: play(`{"op":"complete"}`)}); err != nil || got.State != a2a.StateCompleted {
		t.Fatalf("%s, %v", got.State, err)
	}
	asks, err := cl.Send(bounded(t), client.SendParams{Message: play(`{"op":"input","text":"?"}`)})
	if err != nil || asks.State != a2a.StateInputRequired {
		t.Fatalf("%s, %v", asks.State, err)
	}
	if _, notes, code := c.operate(nil, "task", "purge", running); code != 2 || !strings.Contains(notes, "--yes") {
		t.Errorf("without --yes: exit code %d, %s", code, notes)
	}
	if out, notes, code := c.operate(nil, "task", "purge", "--yes", asks.TaskID); code != 0 || out != asks.TaskID+" purged\n" {
		t.Errorf("one: exit code %d, %s%s", code, out, notes)
	}
	if out, notes, code := c.operate(nil, "task", "purge", "--yes", "--tenant", "default", "--owner", "anonymous", "-o", "json"); code != 0 || !strings.Contains(out, `"purged":2`) {
		t.Errorf("an owner's: exit code %d, %s%s", code, out, notes)
	}
	g.open()
	if _, err := cl.Get(bounded(t), running, -1); !refused(err, -32001) {
		t.Errorf("a purged task: %v", err)
	}
	if n := one[int](c, `SELECT count(*) FROM audit.task`); n != 0 {
		t.Errorf("%d tasks are left", n)
	}
	if n := one[int](c, `SELECT count(*) FROM audit.action WHERE action = 'task.purge' AND actor LIKE 'operator %'`); n != 3 {
		t.Errorf("%d purges are recorded, want 3", n)
	}
	out, _, code := c.operate(nil, "actions", "--action", "task.purge", "-o", "json")
	if code != 0 || strings.Count(out, "\n") != 3 {
		t.Errorf("actions: exit code %d\n%s", code, out)
	}
}

// TestDoctorOfARunningServer finds it well, from its listeners to its connections.
func TestDoctorOfARunningServer(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("fine", "A2AD_ADMIN_LISTEN=127.0.0.1:0")
	env := []string{
		"A2AD_LISTEN=" + strings.TrimPrefix(a.base, "http://"), "A2AD_ADMIN_LISTEN=" + strings.TrimPrefix(a.admin, "http://"), "A2AD_AGENTS=" + c.agents, "A2AD_AUTH=none",
		"A2AD_DB_POOL=8",
	}
	out, notes, _ := c.operate(env, "doctor", "-o", "json")
	found := map[string]string{}
	for line := range strings.Lines(out) {
		var x struct{ Check, Level, Text string }
		if err := json.Unmarshal([]byte(line), &x); err != nil {
			t.Fatalf("%v: %s%s", err, out, notes)
		}
		// The database of the tests is not one that keeps what it is given, nor is its login modest.
		if x.Level == "fault" && x.Check != "durability" {
			t.Errorf("%s", line)
		}
		found[x.Level+" "+x.Check] += x.Text
	}
	for _, want := range []string{"ok settings", "ok agents", "ok api", "ok admin", "ok schema", "ok roles", "ok rights", "ok pooler"} {
		if found[want] == "" {
			t.Errorf("no %s:\n%s", want, out)
		}
	}
	if !strings.Contains(out, "connected now: fine") {
		t.Errorf("it does not see the server:\n%s", out)
	}
	stats, _, code := c.operate(nil, "stats", "-o", "json")
	if code != 0 || !strings.Contains(stats, `"replicas":[{"name":"fine",`) {
		t.Errorf("stats: exit code %d\n%s", code, stats)
	}
}
