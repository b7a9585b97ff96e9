package e2e_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/a2ad/a2ad/internal/devpg"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// three are a primary and two standbys, created as the documentation of failover says.
type three struct {
	t        *testing.T
	make     string // the block that copies a server
	user, db string
	servers  map[string]*devpg.Server
	ports    map[string]string
}

// conninfo is how a standby connects to a server, as in the document but for the password.
func (s *three) conninfo(name string) string {
	return "host=127.0.0.1 port=" + s.ports[name] + " user=" + s.user
}

func (s *three) url(name string) string { return s.servers[name].URL(s.db) }

// number runs a query on one server.
func (s *three) number(name, sql string) (n int64) {
	s.t.Helper()
	conn, err := pgx.Connect(bounded(s.t), s.url(name))
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close(bounded(s.t))
	if err := conn.QueryRow(bounded(s.t), sql).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// add makes a server a standby of another one.
func (s *three) add(name, of string) {
	s.t.Helper()
	dir, as := owned(s.t, s.servers[of])
	_, port, err := net.SplitHostPort(freePort(s.t))
	if err != nil {
		s.t.Fatal(err)
	}
	home := filepath.Join(dir, "pg")
	shell(s.t, "mkdir pg && chmod 700 pg\n"+s.make, dir, as, "PGDATA="+filepath.Join(home, "data"), "NAME="+name,
		"PRIMARY="+s.conninfo(of))
	srv, err := devpg.Start(bounded(s.t), devpg.Config{
		Dir: home, BinDir: os.Getenv("A2AD_PG_BINDIR"),
		Params: map[string]string{"listen_addresses": "127.0.0.1", "port": port},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := srv.Stop(bounded(s.t)); err != nil {
			s.t.Error(err)
		}
	})
	s.servers[name], s.ports[name] = srv, port
}

// An operator who follows the documentation has a primary with synchronous standbys, promotes the one that has
// everything acknowledged when the primary dies, and ends with three synchronous servers again. Replicas continue by
// themselves, and nothing is lost.
func TestFailoverStepByStep(t *testing.T) {
	t.Parallel()
	needPrograms(t, "pg_basebackup", "psql")
	statements, commands := documented(t, "fail-over.md")
	if len(statements) != 4 || len(commands) != 1 {
		t.Fatalf("the document has %d and %d blocks", len(statements), len(commands))
	}
	synchronous, howFar, promote, follow := statements[0], strings.TrimSuffix(statements[1], ";"), statements[2],
		statements[3]
	first, _, port := primary(t, nil)
	name, err := pgxpool.ParseConfig(storetest.NewOn(t, first).URL)
	if err != nil {
		t.Fatal(err)
	}
	s := &three{
		t: t, make: commands[0], user: name.ConnConfig.User, db: name.ConnConfig.Database,
		servers: map[string]*devpg.Server{"s1": first}, ports: map[string]string{"s1": port},
	}
	s.add("s2", "s1")
	s.add("s3", "s1")
	for name := range s.servers {
		asAdministrator(t, s.url(name), synchronous)
	}
	c := clusterOn(t,
		&storetest.DB{URL: fmt.Sprintf("postgres://%s@127.0.0.1:%s,127.0.0.1:%s,127.0.0.1:%s/%s?"+
			"target_session_attrs=read-write", s.user, s.ports["s1"], s.ports["s2"], s.ports["s3"], s.db)})
	c.cutOK = true // a stream whose log cannot be read ends, and is resumed
	bothSynchronous := func() {
		t.Helper()
		until(t, "both standbys are synchronous", func() bool {
			n, err := query[int](c,
				`SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = 'quorum'`)
			return err == nil && n == 2
		})
	}
	bothSynchronous()

	a, b := c.start("a"), c.start("b")
	l := c.startLoad(4, a, b)
	l.progress(20)
	// From here on only s3 has everything acknowledged.
	sender := one[int32](c, `SELECT pid FROM pg_stat_replication WHERE application_name = 's2'`)
	if err := syscall.Kill(int(sender), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	until(t, "the sender is in state T", func() bool { return procState(int(sender)) == "T" })
	l.progress(30)
	a.log.expectErrors()
	b.log.expectErrors()
	if err := syscall.Kill(int(sender), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := first.Kill(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	far := map[string]int64{}
	for _, name := range []string{"s2", "s3"} {
		far[name] = s.number(name, "SELECT bytes::bigint FROM ("+howFar+") x")
	}
	if far["s3"] <= far["s2"] {
		t.Fatalf("the standbys are at %v: s3 should be ahead", far)
	}
	asAdministrator(t, s.url("s3"), promote)
	asAdministrator(t, s.url("s2"), strings.NewReplacer("host=db2 user=… password=…", s.conninfo("s3"),
		"application_name=s3", "application_name=s2").Replace(follow))
	c.db.Reset()
	logTook(t, "the first answers after the failover", l.progress(8))
	s.add("s1", "s3")
	bothSynchronous()
	l.progress(20)
	l.finish()
	if got := one[string](c, `SELECT current_setting('port')`); got != s.ports["s3"] {
		t.Errorf("the database is at port %s, want %s, the port of s3", got, s.ports["s3"])
	}
}
