package tasks_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// beat records a heartbeat.
func beat(f *storetest.Fixture, h *tasks.Heartbeat) {
	f.T.Helper()
	if err := f.Tasks.Heartbeat(f.T.Context(), h); err != nil {
		f.T.Fatal(err)
	}
}

// known returns the workers that are recorded.
func known(f *storetest.Fixture) string {
	f.T.Helper()
	return storetest.Value[string](f, `
		SELECT coalesce(string_agg(concat_ws(' ', nullif(tenant, ''), name, version, array_to_string(agents, '+')), ', '
		  ORDER BY tenant, name, instance), '') FROM a2a.workers`)
}

func TestHeartbeatRecordsServersAndRemoteWorkers(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	beat(f, heartbeat("r1", "w2", "w1"))
	again := heartbeat("r1", "w1")
	again.Remote[0].Version, again.Remote[0].Agents, again.Version = "a2ad-go/2.0", []string{"other"}, "2.0.0"
	f.Exec("UPDATE a2a.workers SET started_at = started_at - interval '1 hour'")
	beat(f, again)
	want := "r1 2.0.0 , acme w1 a2ad-go/2.0 other, acme w2 a2ad-go/1.0 agent+other"
	want = strings.ReplaceAll(want, "agent", storetest.Agent)
	if got := known(f); got != want {
		t.Errorf("recorded %q, want %q", got, want)
	}
	const sinceStart = `SELECT min(seen_at - started_at) >= interval '1 hour' FROM a2a.workers WHERE name <> 'w2'`
	if !storetest.Value[bool](f, sinceStart) {
		t.Error("a heartbeat changed the time of the first one")
	}
	// Another server of the same name is another row, and each removes only its own.
	second := heartbeat("r1")
	second.Instance = "another start"
	beat(f, second)
	if n := storetest.Value[int](f, "SELECT count(*)::int FROM a2a.workers WHERE name = 'r1'"); n != 2 {
		t.Errorf("two servers of one name are %d rows", n)
	}
	if err := f.Tasks.Leave(t.Context(), "r1", again.Instance); err != nil {
		t.Fatal(err)
	}
	left := storetest.Value[string](f, "SELECT instance FROM a2a.workers WHERE name = 'r1'")
	if left != second.Instance {
		t.Errorf("the server %q is left", left)
	}
}

// A client that invents names fills neither the table nor the place of workers that are known.
func TestTenantHasALimitedNumberOfRemoteWorkers(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	beat(f, heartbeat("r1", "zz"))
	invented := func(prefix string) (names []string) {
		for i := range tasks.MostRemoteWorkers {
			names = append(names, fmt.Sprintf("%s%04d", prefix, i))
		}
		return names
	}
	for _, prefix := range []string{"a", "b"} {
		beat(f, heartbeat("r1", invented(prefix)...))
	}
	newer := heartbeat("r1", "zz", "new")
	newer.Remote[0].Version = "newer"
	newer.Remote = append(newer.Remote, tasks.RemoteWorker{Tenant: "corp", Name: "new"})
	beat(f, newer)
	if n := storetest.Value[int](f, "SELECT count(*)::int FROM a2a.workers WHERE tenant = 'acme'"); n !=
		tasks.MostRemoteWorkers {
		t.Errorf("%d remote workers of the tenant are recorded, want %d", n, tasks.MostRemoteWorkers)
	}
	if got := storetest.Value[string](f, "SELECT version FROM a2a.workers WHERE name = 'zz'"); got != "newer" {
		t.Errorf("the known worker of the full tenant has the version %q, want that of the last heartbeat", got)
	}
	if got := storetest.Value[string](f, "SELECT tenant FROM a2a.workers WHERE name = 'new'"); got != "corp" {
		t.Errorf("the new name is recorded for %q, want only the tenant with room", got)
	}
}

func TestWorkersAreForgotten(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	beat(f, heartbeat("r1", "old", "late", "here"))
	f.Exec(`UPDATE a2a.workers SET seen_at = clock_timestamp() - interval '2 hours' WHERE name = 'old'`)
	// It was recorded before the clock was set back.
	f.Exec(`UPDATE a2a.workers SET seen_at = clock_timestamp() + interval '2 hours' WHERE name = 'late'`)
	if err := f.Tasks.ForgetWorkers(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	got := storetest.Value[string](f, "SELECT string_agg(name, ' ' ORDER BY name) FROM a2a.workers")
	if got != "here r1" {
		t.Errorf("left are %q, want those that were in touch", got)
	}
}

// TestServersThatHaveNotLeftAreDead: only those whose heartbeats have stopped, and no remote workers.
func TestServersThatHaveNotLeftAreDead(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	for _, name := range []string{"dead", "stopped", "here"} {
		beat(f, heartbeat(name, "w-"+name))
	}
	f.Exec(`UPDATE a2a.workers SET seen_at = seen_at - interval '1 minute'`)
	beat(f, heartbeat("here"))
	if err := f.Tasks.Leave(t.Context(), "stopped", "stopped's start"); err != nil {
		t.Fatal(err)
	}
	dead, err := f.Tasks.DeadServers(t.Context())
	if err != nil || len(dead) != 1 || dead[0] != "dead's start" {
		t.Errorf("dead are %q, %v", dead, err)
	}
}
