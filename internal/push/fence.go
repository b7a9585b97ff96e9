package push

import (
	"context"
	"errors"
	"net"
	"net/http/httptrace"
	"sync/atomic"
)

// errNotHeld says that the lease of a delivery ran out before its request was over.
var errNotHeld = errors.New("the lease ran out before the request was over")

// fencedConn is a connection to a receiver that sends nothing for a request whose lease has
// run out. It asks right before each write, so that a process that stood still, at whatever
// place, finds out before a byte leaves it. A connection is one request's at a time; while it
// is nobody's, or is being made, it is not fenced: a handshake is no request.
type fencedConn struct {
	net.Conn
	held atomic.Pointer[func() bool]
}

func (c *fencedConn) Write(p []byte) (int, error) {
	if held := c.held.Load(); held != nil && !(*held)() {
		return 0, errNotHeld
	}
	return c.Conn.Write(p)
}

// fenced makes connections that can be fenced.
func fenced(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &fencedConn{Conn: conn}, nil
	}
}

// fence returns a trace that fences the connection which a request gets. It is asked before
// anything of the request is written.
func fence(held func() bool) *httptrace.ClientTrace {
	return &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		conn := i.Conn
		for {
			switch c := conn.(type) {
			case *fencedConn:
				if held == nil {
					c.held.Store(nil)
				} else {
					c.held.Store(&held)
				}
				return
			case interface{ NetConn() net.Conn }: // TLS
				conn = c.NetConn()
			default:
				return
			}
		}
	}}
}
