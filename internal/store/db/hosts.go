package db

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// The URL may name several hosts, of which one accepts writes. The driver tries them one after the other, and waits for
// ConnectTimeout at each that does not answer. That would delay every new connection while such a host is the first. So
// Watch asks all hosts at the same time, and new connections begin with the host that it has found.

// hostPort is one host of the URL.
type hostPort struct {
	host string
	port uint16
}

// hosts knows which host of the URL to try first.
type hosts struct{ first atomic.Pointer[hostPort] }

// choices returns the ways to reach each host, in the order of the URL: with and without TLS, for example.
func choices(c *pgconn.Config) (list [][]*pgconn.FallbackConfig) {
	all := append([]*pgconn.FallbackConfig{{Host: c.Host, Port: c.Port, TLSConfig: c.TLSConfig}}, c.Fallbacks...)
	for _, one := range all {
		at := slices.IndexFunc(list, func(l []*pgconn.FallbackConfig) bool {
			return l[0].Host == one.Host && l[0].Port == one.Port
		})
		if at < 0 {
			list = append(list, []*pgconn.FallbackConfig{one})
		} else {
			list[at] = append(list[at], one)
		}
	}
	return list
}

// use makes a connection try these ways, in their order.
func use(c *pgconn.Config, ways []*pgconn.FallbackConfig) {
	c.Host, c.Port, c.TLSConfig, c.Fallbacks = ways[0].Host, ways[0].Port, ways[0].TLSConfig, ways[1:]
}

// order puts the host that was found first.
func (h *hosts) order(c *pgconn.Config) {
	first := h.first.Load()
	if first == nil || len(c.Fallbacks) == 0 {
		return
	}
	list := choices(c)
	slices.SortStableFunc(list, func(a, b []*pgconn.FallbackConfig) int {
		return rank(first, a[0]) - rank(first, b[0])
	})
	use(c, slices.Concat(list...))
}

func rank(first *hostPort, c *pgconn.FallbackConfig) int {
	if c.Host == first.host && c.Port == first.port {
		return 0
	}
	return 1
}

// connect connects to all hosts of cfg at the same time, and returns the first connection to one that has what the URL
// asks for. The others are closed.
func (h *hosts) connect(ctx context.Context, cfg *pgx.ConnConfig) (*pgx.Conn, error) {
	list := choices(&cfg.Config)
	if len(list) == 1 || cfg.ValidateConnect == nil { // any host will do: then the order is that of the URL
		return pgx.ConnectConfig(ctx, cfg)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		at   int
		conn *pgx.Conn
		err  error
	}
	answers := make(chan answer)
	for i, ways := range list {
		one := cfg.Copy()
		use(&one.Config, ways)
		go func() {
			conn, err := pgx.ConnectConfig(ctx, one)
			answers <- answer{i, conn, err}
		}()
	}
	var found *pgx.Conn
	errs := make([]error, len(list))
	for range list {
		switch a := <-answers; {
		case a.err != nil:
			errs[a.at] = a.err
		case found != nil:
			_ = a.conn.Close(ctx) // it is not used
		default:
			found = a.conn
			h.first.Store(&hostPort{list[a.at][0].Host, list[a.at][0].Port})
			cancel()
		}
	}
	if found != nil {
		return found, nil
	}
	return nil, errors.Join(errs...)
}
