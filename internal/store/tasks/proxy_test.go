package tasks_test

import (
	"bytes"
	"maps"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// proxy stands between a store and PostgreSQL, and breaks all connections at a chosen moment.
type proxy struct {
	network, addr string // of PostgreSQL
	ln            net.Listener
	wg            sync.WaitGroup
	door          sync.Mutex // held while a connection is made, and from a loss until then returns

	mu    sync.Mutex
	fault *fault                // guarded by mu; the next one
	away  int                   // guarded by mu; connections to be refused
	conns map[net.Conn]struct{} // guarded by mu; both sides of all connections
	dead  map[net.Conn]struct{} // guarded by mu; those of them that pass nothing on
	count int                   // guarded by mu; connections that were made
	still bool                  // guarded by mu; new connections are dead too
}

// fault is what happens to the first request that match finds.
type fault struct {
	match    func(request []byte) bool
	answered bool   // PostgreSQL gets the request and only its answer is lost
	frozen   bool   // the connections stay open, and nothing passes through them any more
	again    bool   // and to every later one, until the proxy is disarmed
	away     int    // how many connections are refused then
	then     func() // if not nil, called after the loss and before the first new connection, so it makes none
	fired    chan struct{}
	fire     func() // closes fired
}

func newProxy(t *testing.T, databaseURL string) (p *proxy, proxied string) {
	t.Helper()
	cfg, err := pgconn.ParseConfig(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p = &proxy{ln: ln, conns: make(map[net.Conn]struct{}), dead: make(map[net.Conn]struct{})}
	p.network, p.addr = pgconn.NetworkAddress(cfg.Host, cfg.Port)
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = ln.Close()
		p.breakAll(0)
		p.wg.Wait()
	})
	u := url.URL{Scheme: "postgres", Host: ln.Addr().String(), Path: "/" + cfg.Database, RawQuery: "sslmode=disable"}
	if u.User = url.User(cfg.User); cfg.Password != "" {
		u.User = url.UserPassword(cfg.User, cfg.Password)
	}
	return p, u.String()
}

// arm makes f happen to the next request that it matches.
func (p *proxy) arm(f fault) (fired <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.fired = make(chan struct{})
	f.fire = sync.OnceFunc(func() { close(f.fired) })
	p.fault = &f
	return f.fired
}

// disarm lets all requests pass from now on.
func (p *proxy) disarm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = nil
}

// What a request is, by its first message: pgx sends a request in one piece.
func execute(request []byte) bool { return request[0] == 'B' }
func commit(request []byte) bool  { return bytes.Contains(request, []byte("commit\x00")) }

func (p *proxy) accept() {
	for {
		client, err := p.ln.Accept()
		if err != nil {
			return
		}
		server := p.connect(client)
		if server == nil {
			_ = client.Close()
			continue
		}
		answer := make(chan *fault, 1)
		p.wg.Go(func() { p.requests(client, server, answer) })
		p.wg.Go(func() { p.answers(server, client, answer) })
	}
}

// connect returns a connection to PostgreSQL for a new client, or nil if there is none.
func (p *proxy) connect(client net.Conn) net.Conn {
	p.door.Lock()
	defer p.door.Unlock()
	p.mu.Lock()
	refused := p.away > 0
	if refused {
		p.away--
	}
	p.mu.Unlock()
	if refused {
		return nil
	}
	server, err := net.Dial(p.network, p.addr)
	if err != nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[client], p.conns[server] = struct{}{}, struct{}{}
	p.count++
	if p.still {
		p.dead[client], p.dead[server] = struct{}{}, struct{}{}
	}
	return server
}

func (p *proxy) requests(client, server net.Conn, answer chan<- *fault) {
	defer server.Close()
	buf := make([]byte, 1<<20)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		if p.silent(client) {
			continue
		}
		if f := p.take(buf[:n]); f != nil {
			if !f.answered {
				p.happen(f)
				continue
			}
			answer <- f
		}
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (p *proxy) answers(server, client net.Conn, lose <-chan *fault) {
	defer client.Close()
	buf := make([]byte, 1<<16)
	for {
		n, err := server.Read(buf)
		if p.silent(server) && err == nil {
			continue
		}
		if err != nil {
			return
		}
		select {
		case f := <-lose: // what PostgreSQL says now, it says after the commit
			p.happen(f)
			continue
		default:
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (p *proxy) take(request []byte) *fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.fault
	if f == nil || !f.match(request) {
		return nil
	}
	if !f.again {
		p.fault = nil
	}
	return f
}

// happen breaks the connections before it calls then. Otherwise the transaction whose COMMIT was lost would keep its
// locks, and a then that needs them would wait until idle_in_transaction_session_timeout or its own lock_timeout ends.
func (p *proxy) happen(f *fault) {
	p.door.Lock()
	defer p.door.Unlock()
	if f.frozen {
		p.freeze()
	} else {
		p.breakAll(f.away)
	}
	if f.then != nil {
		f.then()
	}
	f.fire()
}

// freeze makes every connection that there is pass nothing on: a machine that lost its power, or a firewall that forgot them.
func (p *proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.Copy(p.dead, p.conns)
}

// freezeAll is freeze for connections to come too, until thaw, after which new ones work.
func (p *proxy) freezeAll(still bool) {
	p.freeze()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.still = still
}

func (p *proxy) silent(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, dead := p.dead[conn]
	return dead
}

// made returns how many connections there have been.
func (p *proxy) made() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

func (p *proxy) breakAll(away int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = away
	for c := range p.conns {
		_ = c.Close()
		delete(p.conns, c)
	}
}
