package e2e_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/store/storetest"
)

// The primary becomes read-only and its standby is promoted, but the old primary lives and keeps its connections, as it
// may behind a proxy or at a managed failover. The replicas move their pools, listeners and watches.
func TestDemotionThatKeepsConnectionsLosesNothing(t *testing.T) {
	t.Parallel()
	p := newPair(t, nil)
	c := clusterOn(t, &storetest.DB{URL: p.url})
	c.cutOK = true // a stream whose log cannot be read ends, and is resumed
	p.synchronize(c)
	a, b := c.start("a"), c.start("b")
	l := c.startLoad(8, a, b)
	l.progress(30)
	a.log.expectErrors()
	b.log.expectErrors()
	old, err := pgx.Connect(bounded(t), p.first.URL(p.db))
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close(bounded(t))
	count := func(sql string) (n int) {
		t.Helper()
		if err := old.QueryRow(bounded(t), sql).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	p.exec(p.first, `ALTER SYSTEM SET default_transaction_read_only = on`)
	p.exec(p.first, `SELECT pg_reload_conf()`)
	until(t, "the last change of the old primary is complete", func() bool {
		return count(`SELECT count(*) FROM pg_stat_activity WHERE backend_xid IS NOT NULL`) == 0
	})
	p.exec(p.second, `SELECT pg_promote(true)`)
	c.db.Reset()
	logTook(t, "the first answers after the demotion", l.progress(8))
	until(t, "no replica has a connection to the old primary", func() bool {
		return count(`SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'a2ad-%'`) == 0
	})
	l.progress(30)
	l.finish()
	for _, role := range []string{"listener", "watch"} {
		n := one[int](c, `SELECT count(*) FROM pg_stat_activity WHERE application_name IN ($1, $2)`,
			"a2ad-a-"+role, "a2ad-b-"+role)
		if n != 2 {
			t.Errorf("%d connections of a %s to the new primary, want 2", n, role)
		}
	}
	if got := one[string](c, `SELECT current_setting('port')`); got != p.port {
		t.Errorf("the fault did not happen: the database is at port %s, not %s", got, p.port)
	}
}

// PgBouncer tells its clients for ever what the first session of a pool was told. A replica believes the database.
func TestPoolerThatRemembersReadOnlyIsUsed(t *testing.T) {
	t.Parallel()
	c, p := startPooler(t, "default_pool_size = 20")
	set := func(value string) {
		t.Helper()
		for _, sql := range []string{
			"ALTER ROLE " + serverLogin + " SET default_transaction_read_only = " + value,
			"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '" + serverLogin + "'",
		} {
			if _, err := c.db.Exec(bounded(t), sql); err != nil {
				t.Fatal(err)
			}
		}
	}
	told := func() (value string) {
		t.Helper()
		until(t, "the pooler has a session", func() bool {
			conn, err := pgx.Connect(bounded(t), p.url("session"))
			if err != nil {
				return false
			}
			defer conn.Close(bounded(t))
			value = conn.PgConn().ParameterStatus("default_transaction_read_only")
			return conn.Ping(bounded(t)) == nil
		})
		return value
	}
	set("on")
	if got := told(); got != "on" {
		t.Fatalf("the pooler says %q", got)
	}
	set("off")
	if got := told(); got != "on" {
		t.Fatalf("the pooler says %q: it does not remember", got)
	}
	a := c.start("a", "A2AD_DATABASE_URL="+p.url("session"), "A2AD_ADMIN_LISTEN=127.0.0.1:0")
	l := c.startLoad(2, a)
	l.progress(20)
	l.finish()
	if got := a.scrape().sum("a2ad_listener_up"); got != 1 {
		t.Errorf("the listener is up: %v", got)
	}
}
