package push

import (
	"context"
	"errors"
	"net"
	"net/http/httptrace"
	"sync/atomic"
)

// errLeaseExpired says that the lease of a delivery expired before its request ended.
var errLeaseExpired = errors.New("the lease expired before the request ended")

// dialFunc is the type of net.Dialer.DialContext.
type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// fencedConn is a connection to a receiver that sends nothing for a request whose lease has expired. It checks right
// before each write, so that a process that was suspended at any point finds out before a byte leaves it. A connection
// serves one request at a time. While it is idle, or being made, it is not fenced: a handshake is no request.
type fencedConn struct {
	net.Conn
	leaseValid atomic.Pointer[func() bool]
}

func (c *fencedConn) Write(p []byte) (int, error) {
	if valid := c.leaseValid.Load(); valid != nil && !(*valid)() {
		return 0, errLeaseExpired
	}
	return c.Conn.Write(p)
}

// fenced makes connections that can be fenced.
func fenced(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &fencedConn{Conn: conn}, nil
	}
}

// fence returns a trace that fences the connection that a request gets, before anything of the request is written.
func fence(leaseValid func() bool) *httptrace.ClientTrace {
	return &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		conn := i.Conn
		for {
			switch c := conn.(type) {
			case *fencedConn:
				if leaseValid == nil {
					c.leaseValid.Store(nil)
				} else {
					c.leaseValid.Store(&leaseValid)
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
