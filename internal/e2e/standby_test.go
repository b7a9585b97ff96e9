package e2e_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// sceneReplication has a standby that replays nothing, a slot that keeps WAL, an archive that fails, and commits that
// wait for a standby that does not exist.
func sceneReplication(s *stage) {
	p := newPair(s.t, map[string]string{"archive_mode": "on", "archive_command": "false"})
	s = &stage{clusterOn(s.t, &storetest.DB{URL: p.url}), s.seen}
	p.exec(p.second, `SELECT pg_wal_replay_pause()`)
	p.exec(p.first, `SELECT pg_create_physical_replication_slot('unused', true)`)
	p.exec(p.first, `CREATE TABLE written AS SELECT generate_series(1, 1000)`)
	p.exec(p.first, `SELECT pg_switch_wal()`)
	a := s.start("a", admin)
	s.shows(unseen, a, rose("a2ad_db_standby_lag_bytes", "standby", "s2"),
		rose("a2ad_db_slot_bytes", "slot", "unused"), became(1, "a2ad_db_archive_failing"))
	before := a.scrape()
	a.log.expectErrors() // writes hang
	p.exec(p.first, `ALTER SYSTEM SET synchronous_standby_names = 'ANY 2 (s2, s3)'`)
	p.exec(p.first, `SELECT pg_reload_conf()`)
	s.shows(before, a, became(1, "a2ad_db_sync_standbys_missing"))
	p.exec(p.first, `ALTER SYSTEM RESET synchronous_standby_names`)
	p.exec(p.first, `SELECT pg_reload_conf()`)
}

// Commands that only read give the same output on a standby, and say by how much it lags. Others change nothing, and
// say that the database is a standby.
func TestOperatorsReadFromAStandby(t *testing.T) {
	t.Parallel()
	p := newPair(t, nil)
	c := clusterOn(t, &storetest.DB{URL: p.url})
	a := c.start("a")
	task := submit(t, c.client(a, "script"), play(`{"op":"complete","text":"done"}`))
	follow(t, c.client(a, "script").Resubscribe(bounded(t), task, client.StreamOptions{}), nil)
	a.stop()
	p.caughtUp(c)
	standby := []string{"A2AD_DATABASE_URL=" + p.second.URL(p.db)}
	for _, args := range [][]string{
		{"task", "ls", "-o", "json"}, {"task", "ls", "--text", "done", "-o", "json"}, // the table has ages
		{"task", "show", task}, {"task", "watch", task}, {"stats"}, {"agent", "ls"}, {"worker", "ls"},
		{"push", "ls"}, {"push", "destinations"},
		{"schedule", "ls"}, {"apikey", "ls"}, {"actions"},
	} {
		want, _, wantCode := c.operate(nil, args...)
		got, notes, code := c.operate(standby, args...)
		if args[0] == "stats" { // a standby has no statistics of tables
			want, _, _ = strings.Cut(want, "Database ")
			got, _, _ = strings.Cut(got, "Database ")
		}
		if diff := cmp.Diff(want, got); diff != "" || code != wantCode {
			t.Errorf("%v: exit code %d on the primary, %d on the standby (-primary +standby):\n%s",
				args, wantCode, code, diff)
		}
		if !strings.Contains(notes, "the database is a standby: it") {
			t.Errorf("%v: no note about the standby: %s", args, notes)
		}
	}
	for _, args := range [][]string{
		{"task", "cancel", task}, {"agent", "pause", "script", "--reason", "x"},
		{"worker", "drain", "a", "--reason", "x"},
		{"apikey", "create", "--tenant", "t", "--owner", "o", "--scopes", "tasks:read"},
	} {
		_, notes, code := c.operate(standby, args...)
		refused := strings.Contains(notes, "the database accepts no changes")
		if code == 0 || !refused || strings.Contains(notes, "SQLSTATE") {
			t.Errorf("%v: exit code %d, %s", args, code, notes)
		}
	}
}
