package notify_test

import (
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// proxy is between a Listener and PostgreSQL. While it is frozen it accepts bytes and forwards none, and closes
// nothing, like a cut cable or a firewall.
type proxy struct {
	network, addr string // of PostgreSQL
	ln            net.Listener
	wg            sync.WaitGroup

	mu     sync.Mutex
	frozen bool              // guarded by mu
	conns  []net.Conn        // guarded by mu; both sides of all connections
	dead   map[net.Conn]bool // guarded by mu
}

func newProxy(t *testing.T, host string, port uint16) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{ln: ln, dead: make(map[net.Conn]bool)}
	p.network, p.addr = pgconn.NetworkAddress(host, port)
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = ln.Close()
		p.mu.Lock()
		for _, c := range p.conns {
			_ = c.Close()
		}
		p.mu.Unlock()
		p.wg.Wait()
	})
	return p
}

// freeze makes every open connection dead, without end. With all, new connections are dead too, until thaw.
func (p *proxy) freeze(all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = all
	for _, c := range p.conns {
		p.dead[c] = true
	}
}

// thaw lets new connections through again.
func (p *proxy) thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = false
}

func (p *proxy) accept() {
	for {
		client, err := p.ln.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial(p.network, p.addr)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.dead[client], p.dead[server] = p.frozen, p.frozen
		p.mu.Unlock()
		p.wg.Go(func() { p.forward(client, server) })
		p.wg.Go(func() { p.forward(server, client) })
	}
}

// forward copies until one side ends, which a dead connection does not pass on.
func (p *proxy) forward(from, to net.Conn) {
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		dead := p.dead[from]
		p.mu.Unlock()
		switch {
		case dead && err != nil:
			return
		case dead:
		case err != nil:
			_ = to.Close()
			return
		default:
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
	}
}
