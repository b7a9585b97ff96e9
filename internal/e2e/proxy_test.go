package e2e_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
)

// nextPort is the next candidate of freePort, below the ports that the kernel gives to clients.
var nextPort = struct {
	sync.Mutex
	n int
}{n: 12000 + os.Getpid()%3000*2}

// freePort returns an address that is not in use, and that no other call returns.
func freePort(t *testing.T) string {
	t.Helper()
	nextPort.Lock()
	defer nextPort.Unlock()
	for range 1000 {
		nextPort.n++
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", nextPort.n))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return l.Addr().String()
	}
	t.Fatal("no free port")
	return ""
}

// fixed are the listeners of a replica that has to restart at the same addresses.
type fixed struct{ api, grpc, admin string }

func (f fixed) env() []string {
	return []string{"A2AD_DRAIN_DELAY=3s", "A2AD_LISTEN=" + f.api, "A2AD_GRPC_LISTEN=" + f.grpc,
		"A2AD_ADMIN_LISTEN=" + f.admin}
}

// proxied is a proxy that tests call like a replica.
type proxied struct {
	*replica
	grpc   string // address
	health string // URL
}

// startProxy starts HAProxy with the file of docker-compose.yml, for these two replicas.
func startProxy(t *testing.T, at []fixed) *proxied {
	t.Helper()
	program, err := exec.LookPath("haproxy")
	if err != nil {
		if os.Getenv("CI") != "" { // .ci/run installs it
			t.Fatal(err)
		}
		t.Skipf("this needs HAProxy: %v", err)
	}
	data, err := os.ReadFile(filepath.Join("..", "..", "deploy", "compose", "haproxy.cfg"))
	if err != nil {
		t.Fatal(err)
	}
	api, grpc, health := freePort(t), freePort(t), freePort(t)
	replace := []string{"bind :8080\n", "bind " + api + "\n", "bind :8081 ",
		"bind " + grpc + " ", "bind :8404\n", "bind " + health + "\n"}
	for i, f := range at {
		name := fmt.Sprintf("a2ad-%d", i+1)
		_, port, _ := strings.Cut(f.admin, ":")
		replace = append(replace, "server "+name+" "+name+":8080", "server "+name+" "+f.api+" port "+port,
			"server "+name+" "+name+":8081", "server "+name+" "+f.grpc)
	}
	path := filepath.Join(t.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(path, []byte(strings.NewReplacer(replace...).Replace(string(data))), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := exec.Command(program, "-db", "-f", path)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
		if t.Failed() {
			t.Logf("the proxy says:\n%s", log.String())
		}
	})
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	until(t, "the proxy finds a replica", func() bool {
		status, _ := get("http://" + health + "/healthz")
		return status == http.StatusOK
	})
	return &proxied{&replica{t: t, name: "proxy", base: "http://" + api}, grpc, "http://" + health}
}

// Two replicas run behind the proxy of docker-compose.yml. Events pass without buffering; a killed replica costs no
// client an event, and a drained one causes no errors.
func TestProxyHidesReplicaFailures(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.cutOK = true // a stream of a killed replica ends, and is resumed
	at := []fixed{
		{freePort(t), freePort(t), freePort(t)},
		{freePort(t), freePort(t), freePort(t)},
	}
	r := []*replica{c.start("a2ad-1", at[0].env()...), c.start("a2ad-2", at[1].env()...)}
	proxy := startProxy(t, at)

	// The script waits for the gate, which opens when its events have arrived.
	g := newGate(t)
	task := submit(t, c.client(proxy.replica, "script"),
		play(`{"op":"chunk","id":"a","n":3},`+g.op()+`,{"op":"chunk","id":"b","n":3}`))
	events := follow(t, c.client(proxy.replica, "script").Resubscribe(bounded(t), task, client.StreamOptions{}),
		func(ev client.Event) bool {
			if atLast(ev, "a", 2) {
				g.open()
			}
			return false
		})
	endsWith(t, events, a2a.StateCompleted)
	if diff := cmp.Diff(chunkTexts("b", 3), chunks(events, "b")); diff != "" {
		t.Errorf("chunks (-want +got):\n%s", diff)
	}
	speaksGRPC(t, proxy.grpc)

	l := c.startLoad(6, proxy.replica)
	l.progress(20)
	for i := range r {
		r[i].kill()
		within(t, "answers without the killed replica", l.progress(6), 10*time.Second)
		r[i] = c.restart(r[i])
		proxy.awaitBoth()
		l.progress(10)
	}
	l.finish()

	// One replica drains after the other, as in an upgrade: no client may see an error.
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				cl := c.client(proxy.replica, "echo")
				cl.Tries = -1
				if _, err := cl.Send(bounded(t), client.SendParams{Message: say(fmt.Sprintf("%d %d", i, n)),
					NoWait: true}); err != nil {
					t.Errorf("request %d of client %d while a replica is replaced: %v", n, i, err)
					return
				}
			}
		})
	}
	for i := range r {
		r[i].stop()
		r[i] = c.restart(r[i])
		proxy.awaitBoth()
	}
	close(stop)
	wg.Wait()
}

// awaitBoth returns when the proxy sends requests to both replicas.
func (p *proxied) awaitBoth() {
	p.t.Helper()
	until(p.t, "the proxy finds both replicas ready", func() bool {
		_, metrics := get(p.health + "/metrics")
		return strings.Count(metrics, `haproxy_server_status{proxy="replicas",server="a2ad-1",state="UP"} 1`+"\n")+
			strings.Count(metrics, `haproxy_server_status{proxy="replicas",server="a2ad-2",state="UP"} 1`+"\n") == 2
	})
}

func get(url string) (int, string) {
	resp, err := http.Get(url)
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

// speaksGRPC makes a gRPC call with nothing but HTTP/2.
func speaksGRPC(t *testing.T, address string) {
	t.Helper()
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &p}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(bounded(t), http.MethodPost,
		"http://"+address+"/lf.a2a.v1.A2AService/ListTasks", bytes.NewReader(make([]byte, 5)))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"Content-Type": "application/grpc", "Te": "trailers",
		"A2a-Version": "1.0"} {
		req.Header.Set(name, value)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	if got := resp.Trailer.Get("Grpc-Status"); got != "0" {
		t.Errorf("gRPC through the proxy: status %q %q, header %v, trailer %v", resp.Status, got, resp.Header,
			resp.Trailer)
	}
}
