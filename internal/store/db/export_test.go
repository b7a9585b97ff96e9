package db

import (
	"context"
	"net"
	"time"
)

// Dialer returns what a pool dials with, on top of dial.
func Dialer(limit time.Duration, lost func(silent bool), dial func(ctx context.Context, network, addr string) (net.Conn, error)) func(ctx context.Context, network, addr string) (net.Conn, error) {
	d := newDialer(limit, time.Second, lost)
	d.dial = dial
	return d.DialContext
}
