package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
)

// gateway is HAProxy with the file for tenants on several deployments.
type gateway struct {
	*replica
	t      *testing.T
	socket string
	tenant string // the map
}

// startGateway starts the gateway. Its backends are main, with two replicas, and second, with one.
func startGateway(t *testing.T, places map[string]string, main []fixed, second fixed) *gateway {
	t.Helper()
	program, err := exec.LookPath("haproxy")
	if err != nil {
		if os.Getenv("CI") != "" { // .ci/run installs it
			t.Fatal(err)
		}
		t.Skipf("this needs HAProxy: %v", err)
	}
	data, err := os.ReadFile(filepath.Join("..", "..", "deploy", "haproxy", "tenants.cfg"))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "gateway") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	g := &gateway{t: t, socket: filepath.Join(dir, "s"), tenant: filepath.Join(dir, "tenants.map")}
	var list strings.Builder
	for host, backend := range places {
		fmt.Fprintln(&list, host, backend)
	}
	api := freePort(t)
	replace := []string{"bind :8080\n", "bind " + api + "\n", "/etc/haproxy/tenants.map", g.tenant,
		"/run/haproxy/tenants.sock", g.socket, "    server a2ad-second-2 a2ad-second-2:8080\n", ""}
	for i, f := range append(main[:2:2], second) {
		name := []string{"a2ad-main-1", "a2ad-main-2", "a2ad-second-1"}[i]
		_, port, _ := strings.Cut(f.admin, ":")
		replace = append(replace, "server "+name+" "+name+":8080", "server "+name+" "+f.api+" port "+port)
	}
	config := filepath.Join(dir, "haproxy.cfg")
	for name, text := range map[string]string{
		config: strings.NewReplacer(replace...).Replace(string(data)), g.tenant: list.String(),
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	cmd := exec.Command(program, "-db", "-f", config)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
		if t.Failed() {
			t.Logf("the gateway says:\n%s", log.String())
		}
	})
	g.replica = &replica{t: t, name: "gateway", base: "http://" + api}
	until(t, "the gateway finds the deployments", func() bool {
		state, err := g.ask("show servers state")
		return err == nil && strings.Count(state, " 2 0 1 ") >= 3 // up
	})
	return g
}

// ask sends a command to the gateway.
func (g *gateway) ask(command string) (string, error) {
	conn, err := net.Dial("unix", g.socket)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, command+"\n"); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	return strings.TrimSpace(string(answer)), err
}

// place sends the requests of a host to a backend from now on.
func (g *gateway) place(host, backend string) {
	g.t.Helper()
	if answer, err := g.ask("set map " + g.tenant + " " + host + " " + backend); err != nil || answer != "" {
		g.t.Fatalf("set map: %v: %s", err, answer)
	}
}

// asHost is a transport for requests to one host name.
type asHost struct {
	host string
	next http.RoundTripper
}

func (a asHost) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Host = a.host
	return a.next.RoundTrip(req)
}

// tenantOf is a tenant that uses the gateway.
type tenantOf struct {
	c    *cluster // where the tenant is at the end: what its clients see is compared with it
	g    *gateway
	host string
	key  string
}

func (x *tenantOf) client() *client.Client {
	rec := &recorder{
		log: x.c.log, next: asHost{x.host, x.c.http}, pick: func(int) *replica { return x.g.replica },
		name: fmt.Sprintf("reader %d", x.c.readers.Add(1)),
	}
	return &client.Client{
		URL: "http://gateway/agents/script", HTTP: &http.Client{Transport: rec}, Retry: x.c.retry, APIKey: x.key,
	}
}

// load starts clients of the tenant.
func (x *tenantOf) load(clients int) *load {
	x.c.t.Helper()
	ctx, cancel := context.WithCancel(bounded(x.c.t))
	l := &load{c: x.c, stop: cancel}
	seed := rand.Uint64()
	x.c.t.Logf("%s: seed %d", x.host, seed)
	for i := range clients {
		draw := rand.New(rand.NewPCG(seed, uint64(i)))
		l.wg.Go(func() {
			defer l.moved.happened()
			for n := 0; ctx.Err() == nil; n++ {
				key := fmt.Sprintf("%s: client %d, request %d", x.host, i, n)
				u := &user{load: l, draw: draw, key: key, cl: x.client()}
				if err := u.act(context.WithoutCancel(ctx)); err != nil {
					x.c.t.Errorf("%s: %v", u.key, err)
					return
				}
				l.done.Add(1)
				l.moved.happened()
			}
		})
	}
	x.c.t.Cleanup(cancel)
	return l
}

// movedRows is what the commands print.
type movedRows struct {
	Tenant string         `json:"tenant"`
	Rows   map[string]int `json:"rows"`
	SHA256 string         `json:"sha256"`
}

func (c *cluster) moveCommand(args ...string) (m movedRows) {
	c.t.Helper()
	out, notes, code := c.operate(nil, append([]string{"tenant"}, append(args, "-o", "json")...)...)
	if err := json.Unmarshal([]byte(out), &m); code != 0 || err != nil {
		c.t.Fatalf("a2ad tenant %v: code %d, %v\n%s%s", args, code, err, out, notes)
	}
	return m
}

// killed starts a command and kills it once it is so far.
func (c *cluster) killed(what string, soFar func() bool, args ...string) {
	c.t.Helper()
	binary, err := build()
	if err != nil {
		c.t.Fatal(err)
	}
	cmd := exec.Command(binary, append([]string{"tenant"}, args...)...)
	cmd.Env = []string{"A2AD_DATABASE_URL=" + c.url}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	until(c.t, what, soFar)
	_ = cmd.Process.Kill()
	if err := cmd.Wait(); err == nil {
		c.t.Errorf("a2ad tenant %v had ended before it was killed", args)
	}
}

const tenantState = `SELECT coalesce((SELECT state || ' ' || pages FROM a2a.tenant_moves WHERE tenant = 'acme'), '')`

// A tenant moves between two deployments while its clients and those of another tenant continue. The commands are
// killed on the way. Nothing that was acknowledged is lost, and streams continue with the same events.
func TestTenantMovesUnderLoad(t *testing.T) {
	t.Parallel()
	from, to := newCluster(t), newCluster(t)
	from.cutOK, to.cutOK = true, true // the streams of the tenant end at the old place
	at := make([]fixed, 3)
	for i := range at {
		at[i] = fixed{freePort(t), freePort(t), freePort(t)}
	}
	for i, c := range []*cluster{from, from, to} {
		c.start(fmt.Sprintf("r%d", i+1), append(at[i].env(), "A2AD_AUTH=required")...)
	}
	g := startGateway(t, map[string]string{"acme.example.com": "main"}, at[:2], at[2])
	acme := &tenantOf{to, g, "acme.example.com", from.apiKey("acme", "ann", "tasks:read,tasks:write")}
	beta := &tenantOf{from, g, "beta.example.com", from.apiKey("beta", "bob", "tasks:read,tasks:write")}
	from.key, to.key = beta.key, acme.key

	asked := send(t, acme.client(), play(`{"op":"chunk","id":"a","n":3},{"op":"input"},{"op":"chunk","id":"b","n":3}`))
	opts := client.StreamOptions{LastEventID: "1-0"}
	before, err := collect(acme.client().Resubscribe(bounded(t), asked.TaskID, opts),
		func(ev client.Event) bool { return ev.State == a2a.StateInputRequired })
	if err != nil {
		t.Fatal(err)
	}
	moving, staying := acme.load(4), beta.load(2)
	moving.progress(60)
	staying.progress(10)

	file := filepath.Join(t.TempDir(), "acme.jsonl")
	from.killed("the tenant is leaving", func() bool { return one[string](from, tenantState) != "" },
		"export", "acme", "--to", file)
	exported := from.moveCommand("export", "acme", "--to", file)
	staying.progress(10)

	release := to.holdTable("a2a.idempotency_keys")
	to.killed("the first page is imported", func() bool {
		state := one[string](to, tenantState)
		return strings.HasPrefix(state, "arriving ") && state != "arriving 0"
	}, "import", "--from", file)
	release()
	for range 2 { // the second one finds that the first one has done it
		imported := to.moveCommand("import", "--from", file)
		if diff := cmp.Diff(exported, imported); diff != "" {
			t.Errorf("the import differs from the export (-export +import):\n%s", diff)
		}
	}
	if got := one[int](to, `SELECT count(*) FROM audit.task WHERE tenant = 'acme'`); got != exported.Rows["tasks"] {
		t.Errorf("%d tasks have arrived, want %d", got, exported.Rows["tasks"])
	}
	if n := one[int](from, `SELECT count(*) FROM a2a.tasks WHERE tenant = 'acme'`); n > 0 {
		t.Errorf("%d tasks have stayed", n)
	}
	g.place("acme.example.com", "second")
	moving.progress(40)
	staying.progress(10)
	moving.finish()
	staying.finish()

	// A stream continues after the last event that the client saw at the old place.
	opts.LastEventID = before[len(before)-1].ID
	if got, err := acme.client().Send(bounded(t), client.SendParams{Message: reply(asked.TaskID, "yes")}); err != nil {
		t.Error(err)
	} else if got.State != a2a.StateCompleted {
		t.Errorf("the answered task is %s", got.State)
	}
	after := follow(t, acme.client().Resubscribe(bounded(t), asked.TaskID, opts), nil)
	endsWith(t, after, a2a.StateCompleted)
	if diff := cmp.Diff(chunkTexts("b", 3), chunks(after, "b")); diff != "" {
		t.Errorf("chunks after the move (-want +got):\n%s", diff)
	}
	from.moveCommand("forget", "acme", "--yes")
	if n := one[int](from, `SELECT count(*) FROM a2a.tenant_rows`); n > 0 {
		t.Errorf("%d rows are still kept", n)
	}
}

// holdTable lets no statement write to a table until release is called.
func (c *cluster) holdTable(table string) (release func()) {
	c.t.Helper()
	tx, err := c.db.Begin(bounded(c.t))
	if err == nil {
		_, err = tx.Exec(bounded(c.t), "LOCK TABLE "+table+" IN SHARE MODE")
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return func() { _ = tx.Rollback(context.WithoutCancel(c.t.Context())) }
}
