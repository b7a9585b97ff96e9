package e2e_test

import (
	"bytes"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// chaosProxy stands between the replicas and PostgreSQL. It loses commits, and everything on connections that it
// freezes.
type chaosProxy struct {
	network, target string // address of PostgreSQL
	ln              net.Listener
	wg              sync.WaitGroup

	mu    sync.Mutex
	links map[*chaosLink]struct{} // guarded by mu
	drops []*chaosDrop            // guarded by mu; each applies to the next request that matches
	trap  *chaosTrap              // guarded by mu; nil: none
	lost  int                     // guarded by mu; requests and answers dropped
}

// chaosLink is a connection through the proxy.
type chaosLink struct {
	client, server net.Conn
	name           string // guarded by the proxy's mu; the connection's application_name
	frozen         bool   // guarded by the proxy's mu; what arrives is dropped silently
	// guarded by the proxy's mu; the next answer of PostgreSQL is lost, with the connection
	mute bool
}

// chaosDrop says what happens to a request.
type chaosDrop struct {
	match    func(request []byte) bool
	answered bool // PostgreSQL receives it, but its answer is lost
}

// chaosTrap freezes all connections at the next request of a matching one.
type chaosTrap struct {
	suffix   string // of the matching connections' application_name
	commit   bool   // only at a COMMIT
	answered bool   // PostgreSQL receives the statement, but its answer is lost
	sprung   func()
}

// The first message of a request identifies it: the driver sends a request in one piece.
func isCommit(request []byte) bool    { return bytes.Contains(request, []byte("commit\x00")) }
func isStatement(request []byte) bool { return request[0] == 'B' }

// newChaosProxy returns a proxy in front of the database at a URL, and the URL of the database through the proxy.
func newChaosProxy(t *testing.T, database string) (p *chaosProxy, proxied string) {
	t.Helper()
	cfg, err := pgconn.ParseConfig(database)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p = &chaosProxy{ln: ln, links: make(map[*chaosLink]struct{})}
	p.network, p.target = pgconn.NetworkAddress(cfg.Host, cfg.Port)
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = ln.Close()
		p.each(func(l *chaosLink) { l.close() })
		p.wg.Wait()
	})
	u := url.URL{Scheme: "postgres", User: url.User(cfg.User), Host: ln.Addr().String(), Path: "/" + cfg.Database,
		RawQuery: "sslmode=disable"}
	if cfg.Password != "" {
		u.User = url.UserPassword(cfg.User, cfg.Password)
	}
	return p, u.String()
}

func (l *chaosLink) close() {
	_ = l.client.Close() // either may be closed already
	_ = l.server.Close()
}

func (p *chaosProxy) each(f func(*chaosLink)) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		f(l)
	}
	return len(p.links)
}

// freeze makes the existing connections pass nothing on, and returns their number. New ones work. With cut,
// PostgreSQL sees them end, as if the replicas' machine had been cut off; otherwise it waits like the replicas.
func (p *chaosProxy) freeze(cut bool) int {
	return p.each(func(l *chaosLink) {
		l.frozen = true
		if cut {
			_ = l.server.Close()
		}
	})
}

// set sets a trap, whose sprung is called before the channel is closed. With answered, PostgreSQL executes the request
// and keeps its sessions; otherwise they end.
func (p *chaosProxy) set(trap chaosTrap) (sprung <-chan struct{}) {
	done := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	then := trap.sprung
	trap.sprung = func() { then(); close(done) }
	p.trap = &trap
	return done
}

// catches reports whether a request springs the trap. The proxy's mu is held.
func (t *chaosTrap) catches(l *chaosLink, data []byte) bool {
	return strings.HasSuffix(l.name, t.suffix) && bytes.IndexByte([]byte("BPQ"), data[0]) >= 0 &&
		(!t.commit || isCommit(data))
}

// spring freezes all connections. mu is held.
func (p *chaosProxy) spring(trap *chaosTrap) {
	for l := range p.links {
		l.frozen = true
		if !trap.answered {
			_ = l.server.Close()
		}
	}
	p.trap = nil
	trap.sprung()
}

// drop loses the next n matching requests, and their connections.
func (p *chaosProxy) drop(n int, d chaosDrop) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range n {
		p.drops = append(p.drops, &d)
	}
}

// dropped cancels pending drops, and returns how many happened since the last call.
func (p *chaosProxy) dropped() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.lost
	p.drops, p.lost = nil, 0
	return n
}

func (p *chaosProxy) accept() {
	for {
		client, err := p.ln.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial(p.network, p.target)
		if err != nil { // PostgreSQL is down
			_ = client.Close()
			continue
		}
		l := &chaosLink{client: client, server: server}
		p.mu.Lock()
		p.links[l] = struct{}{}
		p.mu.Unlock()
		p.wg.Go(func() { p.pump(l, client, server, p.requested) })
		p.wg.Go(func() { p.pump(l, server, client, p.answered) })
	}
}

// pump copies bytes until either side ends, as long as pass allows it.
func (p *chaosProxy) pump(l *chaosLink, from, to net.Conn, pass func(l *chaosLink, data []byte) (forward, cut bool)) {
	buf := make([]byte, 1<<17)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			forward, cut := pass(l, buf[:n])
			if cut {
				break
			}
			if forward {
				if _, err := to.Write(buf[:n]); err != nil && !p.isFrozen(l) {
					break
				}
			}
		}
		if err != nil {
			if p.isFrozen(l) && from == l.server {
				return // the replica sees nothing
			}
			break
		}
	}
	l.close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

func (p *chaosProxy) isFrozen(l *chaosLink) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return l.frozen
}

func (p *chaosProxy) requested(l *chaosLink, data []byte) (forward, cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.frozen {
		return false, false
	}
	if l.name == "" {
		_, rest, _ := bytes.Cut(data, []byte("application_name\x00"))
		name, _, _ := bytes.Cut(rest, []byte{0})
		l.name = string(name)
	}
	if t := p.trap; t != nil && t.catches(l, data) {
		p.spring(t)
		return t.answered, false
	}
	if len(p.drops) == 0 || !p.drops[0].match(data) {
		return true, false
	}
	d := p.drops[0]
	p.drops = p.drops[1:]
	p.lost++
	l.mute = d.answered
	return true, !d.answered
}

func (p *chaosProxy) answered(l *chaosLink, _ []byte) (forward, cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !l.frozen, l.mute && !l.frozen
}
