package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/seal"
)

// operate runs an operator's command on the cluster's database, and returns its output and exit code.
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

// unlogged is a client whose tasks may be gone at the end.
func (c *cluster) unlogged(r *replica, agent string) *client.Client {
	return &client.Client{URL: r.base + "/agents/" + agent, HTTP: &http.Client{Transport: c.http}, Retry: c.retry}
}

// The canceled task stays, and a new one does its work.
func TestOperatorRetriesATask(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a")
	g := newGate(t)
	cl := c.client(a, "script")
	old := submit(t, cl, play(g.op(), `{"op":"artifact","id":"a","text":"done"}`))
	g.await(0)
	if _, notes, code := c.operate(nil, "task", "retry", old); code != 1 || !strings.Contains(notes, "working") {
		t.Errorf("retry of a running task: exit code %d, %s", code, notes)
	}
	if out, notes, code := c.operate(nil, "task", "cancel", old); code != 0 || out != old+" canceled\n" {
		t.Fatalf("cancel: exit code %d, %s%s", code, out, notes)
	}
	g.open()
	out, notes, code := c.operate(nil, "task", "retry", old)
	_, again, arrow := strings.Cut(strings.TrimSpace(out), old+" → ")
	if code != 0 || !arrow || again == old {
		t.Fatalf("retry: exit code %d, %s%s", code, out, notes)
	}
	var got client.Result
	until(t, "the new task is completed", func() bool {
		var err error
		got, err = cl.Get(bounded(t), again, -1) // visible to the task's owner
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
		t.Errorf("retry of a completed task: exit code %d, %s", code, notes)
	}
	show, _, code := c.operate(nil, "task", "show", old)
	for _, want := range []string{"task.cancel", "task.retry {\"new\":\"" + again, "attempt 1, epoch 1: canceled",
		"default/anonymous"} {
		if code != 0 || !strings.Contains(show, want) {
			t.Errorf("task show has no %q:\n%s", want, show)
		}
	}
}

// A purge removes running, waiting and ended tasks next to a running server.
func TestOperatorPurgesAnOwner(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a")
	g := newGate(t)
	cl := c.unlogged(a, "script")
	running := submit(t, cl, play(g.op()))
	g.await(0)
	if got, err := cl.Send(bounded(t), client.SendParams{Message: play(`{"op":"complete"}`)}); err != nil ||
		got.State != a2a.StateCompleted {
		t.Fatalf("%s, %v", got.State, err)
	}
	asks, err := cl.Send(bounded(t), client.SendParams{Message: play(`{"op":"input","text":"?"}`)})
	if err != nil || asks.State != a2a.StateInputRequired {
		t.Fatalf("%s, %v", asks.State, err)
	}
	if _, notes, code := c.operate(nil, "task", "purge", running); code != 2 || !strings.Contains(notes, "--yes") {
		t.Errorf("without --yes: exit code %d, %s", code, notes)
	}
	if out, notes, code := c.operate(nil, "task", "purge", "--yes", asks.TaskID); code != 0 ||
		out != asks.TaskID+" purged\n" {
		t.Errorf("one: exit code %d, %s%s", code, out, notes)
	}
	if out, notes, code := c.operate(nil, "task", "purge", "--yes", "--tenant", "default", "--owner", "anonymous", "-o",
		"json"); code != 0 || !strings.Contains(out, `"purged":2`) {
		t.Errorf("an owner's: exit code %d, %s%s", code, out, notes)
	}
	g.open()
	if _, err := cl.Get(bounded(t), running, -1); !refused(err, -32001) {
		t.Errorf("a purged task: %v", err)
	}
	if n := one[int](c, `SELECT count(*) FROM audit.task`); n != 0 {
		t.Errorf("%d tasks are left", n)
	}
	if n := one[int](c,
		`SELECT count(*) FROM audit.action WHERE action = 'task.purge' AND actor LIKE 'operator %'`); n != 3 {
		t.Errorf("%d purges are recorded, want 3", n)
	}
	out, _, code := c.operate(nil, "actions", "--action", "task.purge", "-o", "json")
	if code != 0 || strings.Count(out, "\n") != 3 {
		t.Errorf("actions: exit code %d\n%s", code, out)
	}
}

// Clients that wait for a purged task get an answer, even if a replica could not read its end.
func TestWaitingClientsLearnOfAPurge(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	front, _ := c.start("front", "A2AD_WORKERS=0", "A2AD_LEASE_TTL=30s"), c.start("worker")
	var wg sync.WaitGroup
	answers := make([]httpAnswer, 2)
	for i, method := range []string{"message/stream", "message/send"} {
		wg.Go(func() {
			answers[i] = c.rpc(front, "script", method,
				`{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"data",`+
					`"data":{"script":[{"op":"hang"}]}}]},"configuration":{"blocking":true}}`)
		})
	}
	until(t, "both tasks run", func() bool {
		n, err := query[int](c, `SELECT count(*) FROM audit.task WHERE lease_worker IS NOT NULL`)
		return err == nil && n == 2
	})
	front.freeze()
	if out, notes, code := c.operate(nil, "task", "purge", "--yes", "--tenant", "default", "--owner",
		"anonymous"); code != 0 || out != "2 tasks purged\n" {
		t.Errorf("purge: exit code %d, %s%s", code, out, notes)
	}
	front.thaw()
	wg.Wait()
	if got := string(answers[0].body); strings.Contains(got, "canceled") {
		t.Errorf("the stream is %s", got)
	}
	if answers[1].code != -32001 {
		t.Errorf("the send is answered with %s", answers[1].body)
	}
}

// awaitFollower waits until an operator's command follows a task.
func (c *cluster) awaitFollower() {
	c.t.Helper()
	until(c.t, "an operator follows the task", func() bool {
		const follows = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
			AND application_name LIKE 'a2ad-operator-%' AND query LIKE '-- name: TasksAhead%'`
		n, err := query[int](c, follows)
		return err == nil && n > 0
	})
}

// A watch after the last event of an ended task shows the result, whatever number the operator names; for a running
// task it shows what follows.
func TestWatchAfterTheLastEvent(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a")
	ended := submit(t, c.client(a, "script"), play(`{"op":"fail","text":"out of paper"}`))
	c.awaitState(ended, "FAILED")
	for _, after := range []string{"3", "99"} {
		if out, notes, code := c.operate(nil, "task", "watch", ended, "--after", after); code != 3 ||
			out != "out of paper\n" {
			t.Errorf("after event %s of 3: exit code %d, %s%s", after, code, out, notes)
		}
	}
	g := newGate(t)
	runs := submit(t, c.client(a, "script"), play(g.op(), `{"op":"artifact","id":"a","text":"done"}`))
	g.await(0)
	var wg sync.WaitGroup
	wg.Go(func() {
		if out, notes, code := c.operate(nil, "task", "watch", runs, "--after", "99"); code != 0 || out != "done\n" {
			t.Errorf("watch of a running task: exit code %d, %s%s", code, out, notes)
		}
	})
	c.awaitFollower()
	g.open()
	wg.Wait()
}

// The end of a removed task is removed with it, possibly before any reader saw it.
func TestWatchOfARemovedTask(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	task := submit(t, c.unlogged(c.start("a", "A2AD_WORKERS=0"), "script"), play(`{"op":"complete"}`))
	var wg sync.WaitGroup
	wg.Go(func() {
		if out, notes, code := c.operate(nil, "task", "watch", task); code != 1 ||
			!strings.Contains(notes, "was removed") {
			t.Errorf("exit code %d, %s%s", code, out, notes)
		}
	})
	c.awaitFollower()
	// In one statement: a purge cancels first, and a reader may see the end before it is gone.
	remove := `DO $$ DECLARE name text; BEGIN
		FOR name IN SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
		AND a.attname = 'task_id' WHERE c.relnamespace = 'a2a'::regnamespace AND c.relkind = 'r' LOOP
			EXECUTE format('DELETE FROM a2a.%I WHERE task_id = %L', name, '` + task + `');
		END LOOP;
		DELETE FROM a2a.tasks WHERE id = '` + task + `';
	END $$`
	if _, err := c.db.Exec(t.Context(), remove); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
}

// The task is shown instead of the events that retention has removed.
func TestWatchOfARetiredLog(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a", "A2AD_LOG_RETENTION=100ms", "A2AD_RETIRE_INTERVAL=100ms")
	task := submit(t, c.client(a, "script"), play(`{"op":"artifact","id":"a","text":"done"}`))
	until(t, "the log of the task is gone", func() bool {
		n, err := query[int64](c, `SELECT first_seq FROM audit.task WHERE id::text = $1`, task)
		return err == nil && n > 1
	})
	if out, notes, code := c.operate(nil, "task", "watch", task, "--after", "1"); code != 0 || out != "done\n" ||
		!strings.Contains(notes, "[task "+task+"]") {
		t.Errorf("exit code %d, %s%s", code, out, notes)
	}
	a.stop()
	c.start("calm")
}

// Each command that changes something is recorded, with its target.
func TestOperatorActionsAreRecorded(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	k1, k2 := seal.Generate("k1"), seal.Generate("k2")
	sink := newHookSink(t, func(int, *http.Request) bool { return true })
	a := c.start("a", append(hooking(k1), "A2AD_PUSH_RETRY=0", "A2AD_PUSH_BREAKER=1,1h,1h")...)
	hooked := c.sendHooked(a, `{"url":"`+sink.URL+`/x","token":"tok"}`, `{"op":"fail","text":"no"}`)
	other := submit(t, c.unlogged(a, "script"), play(`{"op":"input","text":"?"}`))
	c.awaitRest()
	until(t, "the webhook is dead", func() bool {
		n, err := query[int](c, `SELECT count(*) FROM audit.push_config WHERE state = 'dead'`)
		return err == nil && n == 1
	})
	do := func(args ...string) string {
		t.Helper()
		out, notes, code := c.operate([]string{"A2AD_KEYS=" + k2 + "," + k1}, args...)
		if code != 0 {
			t.Fatalf("a2ad %v: exit code %d, %s%s", args, code, out, notes)
		}
		return out
	}
	var key struct{ ID string }
	if err := json.Unmarshal([]byte(do("apikey", "create", "--tenant", "acme", "--owner", "ann", "-o", "json")),
		&key); err != nil {
		t.Fatal(err)
	}
	do("apikey", "revoke", key.ID)
	do("task", "cancel", other)
	again := strings.TrimPrefix(strings.TrimSpace(do("task", "retry", "--no-webhooks", hooked)), hooked+" → ")
	do("task", "purge", "--yes", again)
	do("push", "enable", "--tenant", "default", sink.URL)
	var hook struct{ ID string }
	if err := json.Unmarshal([]byte(do("push", "ls", "-o", "json")), &hook); err != nil {
		t.Fatal(err)
	}
	do("push", "replay", hook.ID)
	do("keys", "rewrap")
	for _, want := range []struct{ action, task, detail string }{
		{"key.create", "", key.ID}, {"key.revoke", "", key.ID}, {"task.cancel", other, ""},
		{"task.retry", hooked, again}, {"task.purge", again, ""},
		{"push.enable", "", sink.URL}, {"push.replay", hooked, hook.ID}, {"keys.rewrap", "", `"key":"k2"`},
	} {
		const recorded = `SELECT count(*) FROM audit.action WHERE actor LIKE 'operator %@%' AND action = $1
			AND coalesce(task_id::text, '') = $2 AND position($3 IN detail::text) > 0`
		if n := one[int](c, recorded, want.action, want.task, want.detail); n != 1 {
			t.Errorf("%d rows have %+v, want 1", n, want)
		}
	}
}

// The doctor finds a running server healthy, from its listeners to its connections.
func TestDoctorOfARunningServer(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("fine", "A2AD_ADMIN_LISTEN=127.0.0.1:0")
	env := []string{
		"A2AD_LISTEN=" + strings.TrimPrefix(a.base, "http://"),
		"A2AD_ADMIN_LISTEN=" + strings.TrimPrefix(a.admin, "http://"), "A2AD_AGENTS=" + c.agents, "A2AD_AUTH=none",
		"A2AD_DB_POOL=8",
	}
	out, notes, _ := c.operate(env, "doctor", "-o", "json")
	found := map[string]string{}
	for line := range strings.Lines(out) {
		var x struct{ Check, Level, Text string }
		if err := json.Unmarshal([]byte(line), &x); err != nil {
			t.Fatalf("%v: %s%s", err, out, notes)
		}
		// The tests' database is not durable, and its login has too many rights.
		if x.Level == "fault" && x.Check != "durability" {
			t.Errorf("%s", line)
		}
		found[x.Level+" "+x.Check] += x.Text
	}
	for _, want := range []string{"ok settings", "ok agents", "ok api", "ok admin", "ok schema", "ok roles",
		"ok rights", "ok pooler"} {
		if found[want] == "" {
			t.Errorf("no %s:\n%s", want, out)
		}
	}
	if !strings.Contains(out, "connected now: fine") {
		t.Errorf("the doctor does not see the server:\n%s", out)
	}
	stats, _, code := c.operate(nil, "stats", "-o", "json")
	if code != 0 || !strings.Contains(stats, `"replicas":[{"name":"fine",`) {
		t.Errorf("stats: exit code %d\n%s", code, stats)
	}
}
