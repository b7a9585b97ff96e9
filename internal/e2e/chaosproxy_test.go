package e2e_test

import (
	"bytes"
	"net"
	"sync"
	"testing"
)

// chaosProxy stands between the replicas and PostgreSQL. It loses commits, and what passes through connections that it freezes.
type chaosProxy struct {
	target string // address of PostgreSQL
	ln     net.Listener
	wg     sync.WaitGroup

	mu    sync.Mutex
	links map[*chaosLink]struct{} // guarded by mu
	drops []*chaosDrop            // guarded by mu; each happens to the next request that it matches
	lost  int                     // guarded by mu; requests and answers that were dropped
}

// chaosLink is a connection through the proxy.
type chaosLink struct {
	client, server net.Conn
	frozen         bool // guarded by the proxy's mu; what comes is thrown away, and nobody is told
	mute           bool // guarded by the proxy's mu; the next answer of PostgreSQL is lost, and with it the connection
}

// chaosDrop is what happens to a request.
type chaosDrop struct {
	match    func(request []byte) bool
	answered bool // PostgreSQL gets it, and its answer is lost
}

// What a request is, by its first message: the driver sends it in one piece.
func isCommit(request []byte) bool    { return bytes.Contains(request, []byte("commit\x00")) }
func isStatement(request []byte) bool { return request[0] == 'B' }

func newChaosProxy(t *testing.T, target string) *chaosProxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &chaosProxy{target: target, ln: ln, links: make(map[*chaosLink]struct{})}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = ln.Close()
		p.each(func(l *chaosLink) { l.close() })
		p.wg.Wait()
	})
	return p
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

// freeze makes the connections that there are pass nothing on, and returns how many. New ones work. With cut
// PostgreSQL sees them end, as if the machine of the replicas had been cut off; else it waits as the replicas do.
func (p *chaosProxy) freeze(cut bool) int {
	return p.each(func(l *chaosLink) {
		l.frozen = true
		if cut {
			_ = l.server.Close()
		}
	})
}

// drop loses the next n requests that match, and their connections.
func (p *chaosProxy) drop(n int, d chaosDrop) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range n {
		p.drops = append(p.drops, &d)
	}
}

// dropped forgets what was to be dropped, and returns how much was since the last call.
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
		server, err := net.Dial("tcp", p.target)
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

// pump carries bytes until either side ends, where pass lets it.
func (p *chaosProxy) pump(l *chaosLink, from, to net.Conn, pass func(l *chaosLink, data []byte) (on, over bool)) {
	buf := make([]byte, 1<<17)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			on, over := pass(l, buf[:n])
			if over {
				break
			}
			if on {
				if _, err := to.Write(buf[:n]); err != nil && !p.isFrozen(l) {
					break
				}
			}
		}
		if err != nil {
			if p.isFrozen(l) && from == l.server {
				return // the replica is not told
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

func (p *chaosProxy) requested(l *chaosLink, data []byte) (on, over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.frozen {
		return false, false
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

func (p *chaosProxy) answered(l *chaosLink, _ []byte) (on, over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !l.frozen, l.mute && !l.frozen
}
