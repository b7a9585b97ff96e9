package e2e_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	adminapi "github.com/a2ad/a2ad/internal/admin"
)

// workers returns what "worker ls" shows, by name.
func (c *cluster) workers() map[string]adminapi.Worker {
	c.t.Helper()
	stdout, stderr, code := c.operate(nil, "worker", "ls", "-o", "json")
	if code != 0 {
		c.t.Fatalf("worker ls: exit code %d: %s", code, stderr)
	}
	all := map[string]adminapi.Worker{}
	for line := range strings.Lines(stdout) {
		var w adminapi.Worker
		if err := json.Unmarshal([]byte(line), &w); err != nil {
			c.t.Fatal(err)
		}
		all[w.Name] = w
	}
	return all
}

// Replicas and remote workers without work are listed with their versions. A replica that stops is no longer listed.
// One that is killed is listed as gone.
func TestIdleWorkersAreListed(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.agent("remote", remoteAgent("remote"))
	a, b := c.start("a", "A2AD_WORKERS=7"), c.start("b")
	recorded := func(name string) bool {
		return len(column[string](c, "SELECT name FROM a2a.workers WHERE name = $1", name)) > 0
	}
	until(t, "the first heartbeat", func() bool { return recorded("a") && recorded("b") })
	w := c.workers()["a"]
	if !w.Replica || w.State != "idle" || w.Version == "" || w.Slots != 7 || w.Servers != 1 || w.Host == "" ||
		w.StartedAt == nil || w.HeartbeatAt == nil {
		t.Errorf("the idle replica: %+v", w)
	}
	waited := make(chan httpAnswer, 1)
	go func() { waited <- c.claim(a, "remote", 60) }() // longer than the time between two heartbeats
	until(t, "a heartbeat with the remote worker", func() bool { return recorded("w") })
	w = c.workers()["w"]
	if w.Replica || w.State != "idle" || !strings.HasPrefix(w.Version, "Go-http-client/") || w.Tenant != "default" ||
		len(w.Asks) != 1 || w.Asks[0] != "remote" {
		t.Errorf("the idle remote worker: %+v", w)
	}
	a.stop()
	if answer := <-waited; answer.status != http.StatusOK {
		t.Errorf("the claim that waited is answered with %d", answer.status)
	}
	if recorded("a") {
		t.Error("the replica that stopped is still recorded")
	}
	b.kill()
	// The test does not wait until the last heartbeat is old.
	const age = `UPDATE a2a.workers SET seen_at = seen_at - interval '1 minute' WHERE name = 'b'`
	if _, err := c.db.Exec(bounded(t), age); err != nil {
		t.Fatal(err)
	}
	until(t, "the connections of the killed replica end", func() bool {
		return len(column[string](c, `SELECT application_name FROM pg_stat_activity
			WHERE application_name LIKE 'a2ad-b-%'`)) == 0
	})
	if w := c.workers()["b"]; w.State != "gone" || !w.Replica {
		t.Errorf("the killed replica: %+v", w)
	}
}
