package e2e_test

import (
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/store/storetest"
)

// One backend is killed; PostgreSQL then drops all connections and recovers.
func TestKilledBackendResetsPostgres(t *testing.T) {
	t.Parallel()
	srv := storetest.NewServer(t, nil)
	c := clusterOn(t, storetest.NewOn(t, srv))
	c.cutOK = true
	a, b := c.start("a"), c.start("b")
	l := c.startLoad(8, a, b)
	l.progress(20)
	a.log.expectErrors()
	b.log.expectErrors()
	pids := c.backends(a, "worker")
	if len(pids) == 0 {
		t.Fatal("there is no backend to kill")
	}
	if err := syscall.Kill(int(pids[0]), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// The time that PostgreSQL takes to end its processes and to recover is not a2ad's.
	until(t, "PostgreSQL notices", func() bool {
		log, err := srvLog(srv.LogFile())
		return err == nil && strings.Contains(log, "was terminated by signal 9")
	})
	c.db.Reset()
	until(t, "PostgreSQL answers again", func() bool {
		_, err := query[int](c, `SELECT 1`)
		return err == nil
	})
	logTook(t, "the first answers after the reset", l.progress(8))
	l.progress(20)
	l.finish()
}

// Connections of the replicas are terminated all the time.
func TestBackendsKilledUnderLoad(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.cutOK = true
	a, b := c.start("a"), c.start("b")
	l := c.startLoad(8, a, b)
	l.progress(20)
	a.log.expectErrors()
	b.log.expectErrors()
	tick := time.NewTicker(100 * time.Millisecond) // the rate of the kills
	defer tick.Stop()
	kills := 0
	for range 40 {
		kills += one[int](c, `
			SELECT count(pg_terminate_backend(v.pid)) FROM (
			  SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'a2ad-%'
			ORDER BY random() LIMIT 1
			) v`)
		<-tick.C
	}
	if kills < 20 {
		t.Fatalf("%d connections were ended, want about 40", kills)
	}
	logTook(t, "answers after the storm", l.progress(8))
	l.finish()
	failed, all := 0, 0
	for _, r := range []*replica{a, b} {
		all += r.log.count(func(line logLine) bool { return line.str("msg") == "request" })
		failed += r.log.count(func(line logLine) bool {
			return line.str("msg") == "request" &&
				line.num("status") >= 500
		})
	}
	t.Logf("%d kills, %d requests, %d of them failed", kills, all, failed)
	// The replicas repeat what is safe to repeat.
	if failed > 1+all/100 {
		t.Errorf("%d of %d requests failed, want at most about 1 in 100", failed, all)
	}
}

// The replicas are killed at random moments and started again.
func TestReplicasKilledUnderLoad(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.cutOK = true
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	draw := rand.New(rand.NewPCG(seed, 0))
	set := &replicas{list: []*replica{c.start("a"), c.start("b")}}
	l := c.startLoadOn(8, set)
	for range 5 {
		l.progress(5 + draw.Int64N(20))
		i := draw.IntN(2)
		old := set.at(i)
		old.kill()
		set.replace(i, c.restart(old))
	}
	l.progress(10)
	l.finish()
	if n := one[int](c, `SELECT count(*) FROM audit.attempt WHERE outcome = 'expired'`); n == 0 {
		t.Log("no kill hit a run")
	}
}
