package e2e_test

import (
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/store/storetest"
)

// health asks a replica for its health and returns status and text.
func (r *replica) health(path string) (int, string) {
	resp, err := http.Get(r.admin + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// A load balancer asks for readiness while the database stops and the replica drains.
func TestReadinessFollowsTheDatabaseAndTheDrain(t *testing.T) {
	t.Parallel()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	srv := storetest.NewServer(t, nil)
	c := clusterOn(t, storetest.NewOn(t, srv))
	a := c.start("a", "A2AD_ADMIN_LISTEN=127.0.0.1:0", "A2AD_DRAIN_TIMEOUT=4s")
	await := func(want int, says string) {
		t.Helper()
		until(t, "readiness says "+says, func() bool {
			status, text := a.health("/readyz")
			return status == want && strings.Contains(text, says)
		})
		if status, text := a.health("/livez"); status != http.StatusOK {
			t.Errorf("liveness says %d %s while readiness says %s", status, text, says)
		}
	}
	await(http.StatusOK, "database: ok")
	a.log.expectErrors()
	if err := srv.Kill(syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	await(http.StatusServiceUnavailable, "database: ")
	if err := srv.Restart(bounded(t)); err != nil {
		t.Fatal(err)
	}
	c.db.Reset()
	await(http.StatusOK, "database: ok")

	task := submit(t, c.client(a, "script"), play(`{"op":"sleep","ms":4000}`))
	c.runner(task)
	a.signal(syscall.SIGTERM)
	await(http.StatusServiceUnavailable, "drain: ")
	a.awaitExit()
	if got := c.attempts(task); len(got) != 1 || got[0] != "a released" {
		t.Errorf("attempts %v, want one that was released", got)
	}
	c.start("b")
}

// A proxy that polls /readyz has A2AD_DRAIN_DELAY to notice; requests are answered meanwhile.
func TestStopIsAnnouncedBeforeItHappens(t *testing.T) {
	t.Parallel()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	const delay = 3 * time.Second
	c := newCluster(t)
	a := c.start("a", "A2AD_ADMIN_LISTEN=127.0.0.1:0", "A2AD_DRAIN_DELAY="+delay.String())
	start := time.Now()
	a.signal(syscall.SIGTERM)
	until(t, "readiness announces the stop", func() bool {
		status, text := a.health("/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(text, "drain: ")
	})
	a.awaitLog("stopping", func(l logLine) bool { return strings.Contains(l.str("cause"), "signal") })
	task := send(t, c.client(a, "echo"), say("still there")).TaskID
	a.awaitExit()
	if took := time.Since(start); took < delay {
		t.Errorf("it stopped after %s, before a proxy could notice", took)
	}
	if got := c.attempts(task); len(got) != 1 || got[0] != "a completed" {
		t.Errorf("attempts %v, want one that ended", got)
	}
	c.start("b")
}
