//go:build linux && patroni

package e2e_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/devpg"
)

// patroniNodes are three machines with Patroni and PostgreSQL, and one with etcd and the replicas of a2ad, in a
// private network.
type patroniNodes struct {
	t   *testing.T
	dir string
	bin string // of PostgreSQL
}

const (
	patroniHome   = "10.77.0.254" // address of etcd, the proxy and a2ad
	patroniPeople = "postgres"    // user that runs the nodes
)

func nodeAddr(n int) string { return fmt.Sprintf("10.77.0.%d", n) }
func nodeMAC(n int) string  { return fmt.Sprintf("02:00:00:00:77:%02x", n) }

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// newPatroniNodes creates the network, in namespaces that end with the process, and starts etcd and the nodes.
func newPatroniNodes(t *testing.T) *patroniNodes {
	t.Helper()
	bin, err := devpg.FindBinaries(os.Getenv("A2AD_PG_BINDIR"))
	if err != nil {
		t.Fatal(err)
	}
	p := &patroniNodes{t: t, dir: "/tmp/a2ad-patroni", bin: bin}
	if err := os.MkdirAll(p.dir, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll("/run/netns", 0o755); err != nil {
		t.Fatal(err)
	}
	run(t, "mount", "--make-rprivate", "/")
	// keeps a slow disk of this machine out of the measurement
	run(t, "mount", "-t", "tmpfs", "-o", "mode=0711", "tmpfs", p.dir)
	run(t, "mount", "-t", "tmpfs", "tmpfs", "/run/netns")
	p.network()
	p.start("", "etcd", "--data-dir", filepath.Join(p.dir, "etcd"), "--listen-client-urls",
		"http://"+patroniHome+":2379",
		"--advertise-client-urls", "http://"+patroniHome+":2379", "--listen-peer-urls", "http://127.0.0.1:2380")
	for n := 1; n <= 3; n++ {
		p.node(n)
	}
	return p
}

// network joins the nodes by a bridge. They have static neighbor entries, as behind a router: packets to a node that
// is cut off get no answer, not even an error.
func (p *patroniNodes) network() {
	run(p.t, "ip", "link", "set", "lo", "up")
	run(p.t, "ip", "link", "add", "br0", "address", nodeMAC(254), "type", "bridge")
	run(p.t, "ip", "addr", "add", patroniHome+"/24", "dev", "br0")
	run(p.t, "ip", "link", "set", "br0", "up")
	for n := 1; n <= 3; n++ {
		ns, out := fmt.Sprintf("n%d", n), fmt.Sprintf("v%d", n)
		run(p.t, "ip", "netns", "add", ns)
		run(p.t, "ip", "link", "add", out, "type", "veth", "peer", "name", "eth0", "netns", ns)
		run(p.t, "ip", "link", "set", out, "master", "br0", "up")
		run(p.t, "ip", "-n", ns, "link", "set", "lo", "up")
		run(p.t, "ip", "-n", ns, "link", "set", "eth0", "address", nodeMAC(n), "up")
		run(p.t, "ip", "-n", ns, "addr", "add", nodeAddr(n)+"/24", "dev", "eth0")
		for _, other := range []int{1, 2, 3, 254} {
			if other != n {
				run(p.t, "ip", "-n", ns, "neigh", "replace", nodeAddr(other), "lladdr", nodeMAC(other), "nud",
					"permanent", "dev", "eth0")
			}
		}
		run(p.t, "ip", "neigh", "replace", nodeAddr(n), "lladdr", nodeMAC(n), "nud", "permanent", "dev", "br0")
	}
}

// start runs a program in the network of a node or of the test. It ends with the test, which owns the process
// namespace.
func (p *patroniNodes) start(ns, name string, args ...string) {
	p.t.Helper()
	log, err := os.Create(filepath.Join(p.dir, name+ns+".log"))
	if err != nil {
		p.t.Fatal(err)
	}
	all := append([]string{name}, args...)
	if ns != "" {
		all = append([]string{"ip", "netns", "exec", ns, "setpriv", "--reuid", patroniPeople, "--regid", patroniPeople,
			"--init-groups"}, all...)
	}
	cmd := exec.Command(all[0], all[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, p.dir
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
		_ = log.Close()
		if p.t.Failed() {
			text, _ := os.ReadFile(log.Name())
			p.t.Logf("%s %s:\n%s", name, ns, text[max(0, len(text)-3000):])
		}
	})
}

// node starts Patroni with its default settings and synchronous replication, so that everything acknowledged is on
// two nodes.
func (p *patroniNodes) node(n int) {
	p.t.Helper()
	name, addr := fmt.Sprintf("n%d", n), nodeAddr(n)
	home := filepath.Join(p.dir, name)
	if err := os.Mkdir(home, 0o700); err != nil {
		p.t.Fatal(err)
	}
	config := fmt.Sprintf(`
scope: a2ad
name: %[1]s
restapi: {listen: '%[2]s:8008', connect_address: '%[2]s:8008'}
etcd3: {host: '%[3]s:2379'}
bootstrap:
  dcs:
    synchronous_mode: true
    postgresql: {use_pg_rewind: true, parameters: {max_connections: 200}}
  initdb: [{encoding: UTF8}, {locale: C}, data-checksums]
postgresql:
  listen: '%[2]s:5432'
  connect_address: '%[2]s:5432'
  data_dir: %[4]s/data
  bin_dir: %[5]s
  pgpass: %[4]s/pgpass
  authentication:
    superuser: {username: postgres, password: x}
    replication: {username: replicator, password: x}
    rewind: {username: rewind, password: x}
  pg_hba:
    - local all all trust
    - host all all 10.77.0.0/24 trust
    - host replication all 10.77.0.0/24 trust
    - host all all 127.0.0.1/32 trust
  parameters: {unix_socket_directories: %[4]s}
`, name, addr, patroniHome, home, p.bin)
	path := filepath.Join(home, "patroni.yml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		p.t.Fatal(err)
	}
	run(p.t, "chown", "-R", patroniPeople+":", home)
	p.start(name, "patroni", path)
}

// proxy starts HAProxy as Patroni's documentation recommends: it follows the leader, and closes connections to a
// former leader.
func (p *patroniNodes) proxy() (addr string) {
	p.t.Helper()
	config := `
global
    maxconn 500
defaults
    mode tcp
    timeout connect 4s
    timeout client 30m
    timeout server 30m
    timeout check 5s
listen primary
    bind ` + patroniHome + `:5000
    option httpchk OPTIONS /primary
    http-check expect status 200
    default-server inter 3s fall 3 rise 2 on-marked-down shutdown-sessions
`
	for n := 1; n <= 3; n++ {
		config += fmt.Sprintf("    server n%d %s:5432 maxconn 200 check port 8008\n", n, nodeAddr(n))
	}
	path := filepath.Join(p.dir, "haproxy.cfg")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		p.t.Fatal(err)
	}
	p.start("", "haproxy", "-db", "-f", path)
	return patroniHome + ":5000"
}

var patroniClient = &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// is asks a node for its role: primary, or sync for the synchronous standby.
func (p *patroniNodes) is(n int, what string) bool {
	resp, err := patroniClient.Get("http://" + nodeAddr(n) + ":8008/" + what)
	if err != nil {
		return false
	}
	_ = resp.Body.Close() // nothing was read
	return resp.StatusCode == http.StatusOK
}

// leader returns the primary node, or 0. It skips the node but.
func (p *patroniNodes) leader(but int) int {
	for n := 1; n <= 3; n++ {
		if n != but && p.is(n, "primary") {
			return n
		}
	}
	return 0
}

// awaitWhole returns the leader once the two others follow it, one of them synchronously.
func (p *patroniNodes) awaitWhole() (leader int) {
	p.t.Helper()
	untilFor(p.t, 2*patience, "there are a leader, a synchronous standby and a third node", func() bool {
		leader = p.leader(0)
		if leader == 0 {
			return false
		}
		sync, replica := 0, 0
		for n := 1; n <= 3; n++ {
			if n != leader && p.is(n, "sync") {
				sync++
			}
			if n != leader && p.is(n, "replica?lag=1MB") {
				replica++
			}
		}
		return sync == 1 && replica == 2
	})
	return leader
}

// pids returns all processes of a node.
func (p *patroniNodes) pids(n int) (list []int) {
	for _, field := range strings.Fields(run(p.t, "ip", "netns", "pids", fmt.Sprintf("n%d", n))) {
		if pid, err := strconv.Atoi(field); err == nil {
			list = append(list, pid)
		}
	}
	return list
}

// pause stops every process of a node, like a machine that stalls. Its kernel still acknowledges packets.
func (p *patroniNodes) pause(n int) (heal func()) {
	signal := func(sig syscall.Signal) {
		for _, pid := range p.pids(n) {
			_ = syscall.Kill(pid, sig) // it may have ended
		}
	}
	signal(syscall.SIGSTOP)
	return func() { signal(syscall.SIGCONT) }
}

// cut takes a node off the network: packets to it are dropped silently.
func (p *patroniNodes) cut(n int) (heal func()) {
	port := fmt.Sprintf("v%d", n)
	run(p.t, "ip", "link", "set", port, "nomaster")
	return func() { run(p.t, "ip", "link", "set", port, "master", "br0") }
}

func oneWord(text string) string { return string(bytes.Join(bytes.Fields([]byte(text)), []byte(" "))) }
