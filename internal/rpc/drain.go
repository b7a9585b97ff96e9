package rpc

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// idleTimeout is how long a connection may stay without a request once the server stops.
const idleTimeout = time.Second

// idleConns holds the accepted connections that have sent nothing yet, such as the spare
// connections of clients. At shutdown net/http would drop the first request of such a connection,
// or wait seconds for one that never comes.
type idleConns struct {
	mu    sync.Mutex
	conns map[net.Conn]struct{} // guarded by mu
	empty chan struct{}         // guarded by mu; made by wait, closed when no connection is left
}

// track receives every change of state of a connection.
func (c *idleConns) track(conn net.Conn, s http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s == http.StateNew {
		if c.conns == nil {
			c.conns = make(map[net.Conn]struct{})
		}
		c.conns[conn] = struct{}{}
		return
	}
	delete(c.conns, conn)
	if len(c.conns) == 0 && c.empty != nil {
		close(c.empty)
		c.empty = nil
	}
}

// wait returns when each connection has sent a request. No more connections may be accepted by
// then. It closes those that send nothing within limit.
func (c *idleConns) wait(limit time.Duration) {
	c.mu.Lock()
	if len(c.conns) == 0 {
		c.mu.Unlock()
		return
	}
	empty := make(chan struct{})
	c.empty = empty
	c.mu.Unlock()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-empty:
	case <-timer.C:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.empty = nil
		for conn := range c.conns {
			conn.Close()
		}
	}
}
