package e2e_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// awaitWaiting returns when the replica waits for its database and logs why.
func (r *replica) awaitWaiting(why string) {
	r.t.Helper()
	line := r.awaitLog("waiting for the database", func(l logLine) bool { return strings.Contains(l.str("err"), why) })
	r.base, r.admin = "http://"+line.str("api"), "http://"+line.str("admin")
}

// checkWaiting checks the answers of a replica that waits for its database.
func (r *replica) checkWaiting(why string) {
	r.t.Helper()
	if status, text := r.health("/livez"); status != http.StatusOK {
		r.t.Errorf("/livez = %d %s", status, text)
	}
	if status, text := r.health("/readyz"); status != http.StatusServiceUnavailable ||
		!strings.Contains(text, "database: ") || !strings.Contains(text, why) {
		r.t.Errorf("/readyz = %d %s, want why: %s", status, text, why)
	}
	resp, err := http.Post(r.base+"/agents/echo", "application/json",
		strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"x"}}`))
	if err != nil {
		r.t.Errorf("the API while the database is unreachable: %v", err)
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		r.t.Errorf("the API answers %s while the database is unreachable", resp.Status)
	}
}

// The server waits, says so, and serves as soon as it can, on the same addresses.
func TestServeStartsWhileTheDatabaseIsUnreachable(t *testing.T) {
	t.Parallel()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	srv := storetest.NewServer(t, nil)
	c := clusterOn(t, storetest.NewOn(t, srv))
	if err := srv.Kill(syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	r := spawn(t, "early", c.env("early", "A2AD_ADMIN_LISTEN=127.0.0.1:0"))
	c.replicas = append(c.replicas, r)
	r.awaitWaiting("connect")
	r.checkWaiting("connect")
	base, admin := r.base, r.admin
	if err := srv.Restart(bounded(t)); err != nil {
		t.Fatal(err)
	}
	c.db.Reset()
	r.awaitReady()
	if r.base != base || r.admin != admin {
		t.Errorf("it serves at %s and %s, and waited at %s and %s", r.base, r.admin, base, admin)
	}
	until(t, "it is ready", func() bool { status, _ := r.health("/readyz"); return status == http.StatusOK })
	c.awaitState(submit(t, c.client(r, "echo"), say("hello")), "COMPLETED")
	r.stop()
}

// A server that waits for its database stops when it is told to, and not before.
func TestServeStopsWhileItWaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	c := newCluster(t)
	u, err := url.Parse(c.url)
	if err != nil {
		t.Fatal(err)
	}
	u.Path += "_none"
	r := spawn(t, "early", c.env("early", "A2AD_ADMIN_LISTEN=127.0.0.1:0", "A2AD_DATABASE_URL="+u.String()))
	r.awaitWaiting("does not exist")
	r.checkWaiting("does not exist")
	r.stop()
}

// The server waits for a schema that fits while an operator migrates.
func TestServeWaitsForASchema(t *testing.T) {
	t.Parallel()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	for name, tt := range map[string]struct{ change, back, want string }{
		"too new": {fmt.Sprintf("UPDATE a2a.schema_floor SET version = %d", operate.SchemaVersion()+1),
			"UPDATE a2a.schema_floor SET version = 1", "upgrade a2ad"},
		"too old": {
			fmt.Sprintf("DELETE FROM public.a2a_goose_version WHERE version_id = %d", operate.SchemaVersion()),
			fmt.Sprintf("INSERT INTO public.a2a_goose_version (version_id, is_applied) VALUES (%d, true)",
				operate.SchemaVersion()), "a2ad migrate up",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			if _, err := c.db.Exec(t.Context(), tt.change); err != nil {
				t.Fatal(err)
			}
			r := spawn(t, "early", c.env("early", "A2AD_ADMIN_LISTEN=127.0.0.1:0"))
			c.replicas = append(c.replicas, r)
			r.awaitWaiting(tt.want)
			r.checkWaiting(tt.want)
			if _, err := c.db.Exec(t.Context(), tt.back); err != nil {
				t.Fatal(err)
			}
			r.awaitReady()
			r.stop()
		})
	}
}

// resetter forwards connections to PostgreSQL, and resets one of them after a number of requests.
type resetter struct {
	network, addr string
	conn, after   int
	wg            sync.WaitGroup
	fired         chan struct{}
}

func (p *resetter) serve(ln net.Listener) {
	for n := 1; ; n++ {
		client, err := ln.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.pass(client.(*net.TCPConn), n == p.conn) })
	}
}

func (p *resetter) pass(client *net.TCPConn, resets bool) {
	defer client.Close()
	server, err := net.Dial(p.network, p.addr)
	if err != nil {
		return
	}
	defer server.Close()
	p.wg.Go(func() {
		io.Copy(client, server) //nolint:errcheck // the other side notices
		client.CloseWrite()     //nolint:errcheck // as above
	})
	buf := make([]byte, 1<<16)
	for requests := 0; ; requests++ {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		if resets && requests == p.after {
			client.SetLinger(0) //nolint:errcheck // then it is closed without a reset
			close(p.fired)
			return
		}
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
	}
}

// Any of the first connections may be reset.
func TestServeStartsDespiteConnectionResets(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	to, err := pgconn.ParseConfig(c.url)
	if err != nil {
		t.Fatal(err)
	}
	limit := make(chan struct{}, 3) // concurrent processes
	for conn := 1; conn <= 7; conn++ {
		for after := range 4 {
			t.Run(fmt.Sprintf("connection %d after %d requests", conn, after), func(t *testing.T) {
				t.Parallel()
				limit <- struct{}{}
				defer func() { <-limit }()
				ln, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				p := &resetter{conn: conn, after: after, fired: make(chan struct{})}
				p.network, p.addr = pgconn.NetworkAddress(to.Host, to.Port)
				done := make(chan struct{})
				go func() { defer close(done); p.serve(ln); p.wg.Wait() }()
				name := fmt.Sprintf("r%d-%d", conn, after)
				u := url.URL{Scheme: "postgres", User: url.UserPassword(to.User, to.Password), Host: ln.Addr().String(),
					Path: "/" + to.Database, RawQuery: "sslmode=disable"}
				r := spawn(t, name, c.env(name, "A2AD_DATABASE_URL="+u.String()))
				defer func() {
					r.end()
					ln.Close()
					<-done
				}()
				r.log.expectErrors()
				r.awaitReady()
				r.stop()
			})
		}
	}
}
