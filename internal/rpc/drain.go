package rpc

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// freshTimeout is how long a connection may stay without a request when the server stops.
const freshTimeout = time.Second

// fresh holds the connections that have been accepted and have brought nothing yet. A server
// that shuts down would drop the request of one unanswered, or wait seconds for one that
// brings none, such as clients keep ready.
type fresh struct {
	mu    sync.Mutex
	conns map[net.Conn]struct{} // guarded by mu
	empty chan struct{}         // guarded by mu; made by settle, closed when no connection is left
}

// track is told of every change of a connection.
func (f *fresh) track(c net.Conn, s http.ConnState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s == http.StateNew {
		if f.conns == nil {
			f.conns = make(map[net.Conn]struct{})
		}
		f.conns[c] = struct{}{}
		return
	}
	delete(f.conns, c)
	if len(f.conns) == 0 && f.empty != nil {
		close(f.empty)
		f.empty = nil
	}
}

// settle returns when each connection has brought a request. No more may be accepted. Those
// that bring none are closed after a while.
func (f *fresh) settle(limit time.Duration) {
	f.mu.Lock()
	if len(f.conns) == 0 {
		f.mu.Unlock()
		return
	}
	empty := make(chan struct{})
	f.empty = empty
	f.mu.Unlock()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-empty:
	case <-timer.C:
		f.mu.Lock()
		defer f.mu.Unlock()
		f.empty = nil
		for c := range f.conns {
			c.Close()
		}
	}
}
