package db

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
)

// DialFunc opens a connection.
type DialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// Dialer returns the function with which a pool opens connections, on top of dial.
func Dialer(limit time.Duration, lost func(silent bool), dial DialFunc) DialFunc {
	d := newDialer(limit, time.Second, lost)
	d.dial = dial
	return d.DialContext
}

// SetRequestWait changes how long a request waits for a free connection.
func SetRequestWait(d *DB, limit time.Duration) { d.api.wait = limit }

// OnEveryPool calls do with a connection of each pool, and with the name of the pool.
func OnEveryPool(ctx context.Context, d *DB, do func(pool string, conn *pgx.Conn) error) error {
	for _, p := range d.pools() {
		conn, err := p.Acquire(ctx)
		if err != nil {
			return err
		}
		err = do(p.name, conn.Conn())
		conn.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

// FillRequests takes every connection of the pool of requests until release is called.
func FillRequests(ctx context.Context, d *DB) (release func(), err error) { return fill(ctx, d.api) }

// FillWork takes every connection of the pool of runs until release is called.
func FillWork(ctx context.Context, d *DB) (release func(), err error) { return fill(ctx, d.work) }

func fill(ctx context.Context, p *Pool) (release func(), err error) {
	var free []func()
	release = func() {
		for _, f := range free {
			f()
		}
	}
	for range p.conns.Config().MaxConns {
		conn, err := p.Acquire(ctx)
		if err != nil {
			release()
			return nil, err
		}
		free = append(free, conn.Release)
	}
	return release, nil
}

// FillReads takes the whole share of the pool of requests that reads without a caller may use.
func FillReads(d *DB) (release func()) { return fillShare(d.reads) }

// FillCalls takes the whole share of the pool of requests that reads for callers may use, with its connections.
func FillCalls(ctx context.Context, d *DB) (release func(), err error) {
	var free []func()
	release = func() {
		for _, f := range free {
			f()
		}
	}
	for d.calls.TryAcquire(1) {
		free = append(free, func() { d.calls.Release(1) })
		conn, err := d.api.Acquire(ctx)
		if err != nil {
			release()
			return nil, err
		}
		free = append(free, conn.Release)
	}
	return release, nil
}

// FillSearches takes the whole share of the pool of requests that searches may use.
func FillSearches(d *DB) (release func()) { return fillShare(d.searches) }

func fillShare(part *share) (release func()) {
	n := int64(0)
	for part.TryAcquire(1) {
		n++
	}
	return func() { part.Release(n) }
}

// FoundHost returns the host that new connections try first, or "".
func FoundHost(d *DB) string {
	if first := d.hosts.first.Load(); first != nil {
		return fmt.Sprintf("%s:%d", first.host, first.port)
	}
	return ""
}
