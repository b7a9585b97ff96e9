package interop

import (
	"io"
	"net"
	"sync"
	"testing"
)

// cable is the network between clients and a server. It keeps its address while servers change, and can be cut.
type cable struct {
	listener net.Listener
	work     sync.WaitGroup

	mu     sync.Mutex
	server string                // guarded by mu; "" when no server is connected
	conns  map[net.Conn]struct{} // guarded by mu; both ends; nil after end
}

func newCable(t *testing.T) *cable {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{listener: l, conns: make(map[net.Conn]struct{})}
	c.work.Go(c.accept)
	t.Cleanup(func() {
		_ = l.Close() // nothing is lost with it
		c.end()
		c.work.Wait()
	})
	return c
}

func (c *cable) addr() string { return c.listener.Addr().String() }

// plug connects a server; connections to an earlier one stay open.
func (c *cable) plug(server string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server = server
}

// cut closes every connection at once. New ones can be made.
func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.conns {
		_ = conn.Close() // it may be closed already
	}
}

// end cuts the cable for good: new connections are closed too.
func (c *cable) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
}

func (c *cable) accept() {
	for {
		client, err := c.listener.Accept()
		if err != nil {
			return
		}
		c.mu.Lock()
		server := c.server
		c.mu.Unlock()
		peer, err := net.Dial("tcp", server)
		if err != nil {
			_ = client.Close() // like a host without a server
			continue
		}
		if c.keep(client, peer) {
			c.work.Go(func() { c.copy(peer, client) })
			c.work.Go(func() { c.copy(client, peer) })
		}
	}
}

func (c *cable) keep(conns ...net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range conns {
		if c.conns == nil {
			_ = conn.Close() // the test is over
			continue
		}
		c.conns[conn] = struct{}{}
	}
	return c.conns != nil
}

// copy copies one direction until either end closes, and then closes the other.
func (c *cable) copy(to, from net.Conn) {
	_, _ = io.Copy(to, from) // the ends see the error themselves
	_ = to.Close()
	_ = from.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.conns, to)
	delete(c.conns, from)
}
