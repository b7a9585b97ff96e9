package storetest

import (
	"bytes"
	"maps"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/a2ad/a2ad/internal/store"
)

// Proxy passes bytes between a store and PostgreSQL, and breaks all connections at a moment that a test chooses.
type Proxy struct {
	network, addr string // of PostgreSQL
	ln            net.Listener
	wg            sync.WaitGroup
	connecting    sync.Mutex // held while a connection is made, and from a fault until its Then returns

	mu     sync.Mutex
	fault  *Fault                // guarded by mu; the next one
	refuse int                   // guarded by mu; how many more connections are refused
	conns  map[net.Conn]struct{} // guarded by mu; both sides of all connections
	silent map[net.Conn]struct{} // guarded by mu; those of them that pass nothing on
	opened int                   // guarded by mu; connections that were made
	breaks int                   // guarded by mu; how often all connections were broken
	frozen bool                  // guarded by mu; new connections are silent, too
}

// Fault is what happens to the first request that matches.
type Fault struct {
	Match    func(request []byte) bool
	Answered bool // PostgreSQL gets the request, and only its answer is lost
	Frozen   bool // the connections stay open, and pass nothing on any more
	Repeat   bool // it also happens to every later request that matches, until the proxy is disarmed
	Refuse   int  // how many connections are refused after it
	// Then, if not nil, is called after the connections are broken and before the first new one. It must make none.
	Then func()

	fired chan struct{}
	fire  func() // closes fired
}

// BehindProxy opens the store of another replica r1, which reaches the database through the proxy.
func (f *Fixture) BehindProxy(t *testing.T) (*store.Store, *Proxy) {
	t.Helper()
	p, url := NewProxy(t, f.URL)
	return f.Replica("r1", func(c *store.Config) { c.URL, c.PoolSize = url, 2 }), p
}

// WantFired waits for the fault, and fails the test if it does not happen.
func WantFired(t *testing.T, fired <-chan struct{}) {
	t.Helper()
	select {
	case <-fired:
	case <-time.After(5 * time.Minute):
		t.Fatal("the fault did not happen: the test tests nothing")
	}
}

// NewProxy starts a proxy in front of a database and returns the database's URL through it. It ends with the test.
func NewProxy(t *testing.T, databaseURL string) (p *Proxy, proxied string) {
	t.Helper()
	cfg, err := pgconn.ParseConfig(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p = &Proxy{ln: ln, conns: make(map[net.Conn]struct{}), silent: make(map[net.Conn]struct{})}
	p.network, p.addr = pgconn.NetworkAddress(cfg.Host, cfg.Port)
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = ln.Close()
		p.BreakAll(0)
		p.wg.Wait()
	})
	u := url.URL{Scheme: "postgres", Host: ln.Addr().String(), Path: "/" + cfg.Database, RawQuery: "sslmode=disable"}
	if u.User = url.User(cfg.User); cfg.Password != "" {
		u.User = url.UserPassword(cfg.User, cfg.Password)
	}
	return p, u.String()
}

// Move makes new connections lead to another database. The others stay where they are, as they do behind a proxy that
// does not end them at a failover.
func (p *Proxy) Move(t *testing.T, databaseURL string) {
	t.Helper()
	cfg, err := pgconn.ParseConfig(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.network, p.addr = pgconn.NetworkAddress(cfg.Host, cfg.Port)
}

// Arm lets f happen to the next request that it matches. fired is closed when it has happened.
func (p *Proxy) Arm(f Fault) (fired <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.fired = make(chan struct{})
	f.fire = sync.OnceFunc(func() { close(f.fired) })
	p.fault = &f
	return f.fired
}

// Disarm lets all requests pass from now on.
func (p *Proxy) Disarm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = nil
}

// IsExecute reports whether a request executes a prepared statement. pgx sends a request in one piece, so its first
// message tells.
func IsExecute(request []byte) bool { return request[0] == 'B' }

// IsCommit reports whether a request is a COMMIT.
func IsCommit(request []byte) bool { return bytes.Contains(request, []byte("commit\x00")) }

func (p *Proxy) accept() {
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
		answer := make(chan *Fault, 1)
		p.wg.Go(func() { p.requests(client, server, answer) })
		p.wg.Go(func() { p.answers(server, client, answer) })
	}
}

// connect returns a connection to PostgreSQL for a new client, or nil if the client is refused.
func (p *Proxy) connect(client net.Conn) net.Conn {
	p.connecting.Lock()
	defer p.connecting.Unlock()
	p.mu.Lock()
	refused := p.refuse > 0
	if refused {
		p.refuse--
	}
	breaks, network, addr := p.breaks, p.network, p.addr
	p.mu.Unlock()
	if refused {
		return nil
	}
	server, err := net.Dial(network, addr)
	if err != nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.breaks != breaks {
		_ = server.Close()
		return nil
	}
	p.conns[client], p.conns[server] = struct{}{}, struct{}{}
	p.opened++
	if p.frozen {
		p.silent[client], p.silent[server] = struct{}{}, struct{}{}
	}
	return server
}

func (p *Proxy) requests(client, server net.Conn, answer chan<- *Fault) {
	defer server.Close()
	buf := make([]byte, 1<<20)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		if p.isSilent(client) {
			continue
		}
		if f := p.next(buf[:n]); f != nil {
			if !f.Answered {
				p.inject(f)
				continue
			}
			answer <- f
		}
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (p *Proxy) answers(server, client net.Conn, lost <-chan *Fault) {
	defer client.Close()
	buf := make([]byte, 1<<16)
	for {
		n, err := server.Read(buf)
		if p.isSilent(server) && err == nil {
			continue
		}
		if err != nil {
			return
		}
		select {
		case f := <-lost: // the answer to the request that matched
			p.inject(f)
			continue
		default:
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}

// next returns the fault if the request matches it.
func (p *Proxy) next(request []byte) *Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.fault
	if f == nil || !f.Match(request) {
		return nil
	}
	if !f.Repeat {
		p.fault = nil
	}
	return f
}

// inject breaks the connections before it calls Then. Otherwise the transaction whose COMMIT was lost would keep its
// locks, and a Then that needs them would wait until idle_in_transaction_session_timeout or its own lock_timeout ends.
func (p *Proxy) inject(f *Fault) {
	p.connecting.Lock()
	defer p.connecting.Unlock()
	if f.Frozen {
		p.freeze()
	} else {
		p.BreakAll(f.Refuse)
	}
	if f.Then != nil {
		f.Then()
	}
	f.fire()
}

// BreakAll closes all connections, and refuses that many new ones.
func (p *Proxy) BreakAll(refuse int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = refuse
	p.breaks++
	for c := range p.conns {
		_ = c.Close()
		delete(p.conns, c)
	}
}

// FreezeAll makes all connections pass nothing on, and new ones neither, until Thaw.
func (p *Proxy) FreezeAll() {
	p.freeze()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = true
}

// Thaw lets new connections work. The others stay silent.
func (p *Proxy) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = false
}

// freeze makes the present connections pass nothing on, as when a machine loses its power.
func (p *Proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.Copy(p.silent, p.conns)
}

// isSilent reports whether what is read from a connection is dropped.
func (p *Proxy) isSilent(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, silent := p.silent[conn]
	return silent
}

// Opened returns how many connections the proxy has made to PostgreSQL.
func (p *Proxy) Opened() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.opened
}
