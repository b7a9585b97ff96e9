package rpc

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// idleTimeout is how long a connection may stay without a request when the server stops.
const idleTimeout = time.Second

// fresh holds the connections that have been accepted and have brought nothing yet. A server
// that shuts down would drop the request of one unanswered, or wait seconds for one that
// brings none, such as clients keep ready.
type idleConns struct {
	mu    sync.Mutex
	conns map[net.Conn]struct{} // guarded by mu
	empty chan struct{}         // guarded by mu; made by wait, closed when no connection is left
}

// track is told of every change of a connection.
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

// settle returns when each connection has brought a request. No more may be accepted. Those
// that bring none are closed after a while.
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
