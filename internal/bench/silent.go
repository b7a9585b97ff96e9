package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"
)

// silent measures how long sends fail after all connections to PostgreSQL fell silent, as when its machine loses power
// and another takes its address over.
func (b *bench) silent(ctx context.Context) error {
	database, drop, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer drop()
	key, err := b.key(ctx, database)
	if err != nil {
		return err
	}
	gate, proxied, err := newGate(ctx, database)
	if err != nil {
		return err
	}
	defer gate.close()
	s, err := b.serve(ctx, "bench-silent", proxied)
	if err != nil {
		return err
	}
	defer s.stop()
	var worst []float64
	for range b.number(5, 2) {
		took, err := gate.outage(ctx, s.addr(), key)
		if err != nil {
			return err
		}
		worst = append(worst, took.Seconds())
	}
	f := figure{Name: "sends again after all connections fell silent", Unit: "s", Target: atMost(12)}.series(worst)
	f.Detail = fmt.Sprintf("the last of %d senders", silentSenders)
	b.report.add(f)
	return nil
}

const silentSenders = 8

// outage silences the connections of a server while clients send, and returns when all of them had a message accepted
// that they sent after that.
func (g *gate) outage(ctx context.Context, addr, key string) (time.Duration, error) {
	began, fallen := make(chan struct{}, silentSenders), make(chan struct{})
	send, ctx := errgroup.WithContext(ctx)
	for i := range silentSenders {
		send.Go(func() error {
			announce := sync.OnceFunc(func() { began <- struct{}{} })
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for n := 0; ; n++ {
				after := isClosed(fallen)
				if trySend(ctx, addr, key, fmt.Sprintf("silent-%d-%d", i, n)) == nil {
					if after {
						return nil
					}
					announce()
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
		})
	}
	for range silentSenders {
		select {
		case <-began:
		case <-ctx.Done():
			return 0, send.Wait()
		}
	}
	start := time.Now()
	g.silence()
	close(fallen)
	err := send.Wait()
	return time.Since(start), err
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// trySend sends a message over a new connection.
func trySend(ctx context.Context, addr, key, id string) error {
	c, err := dial(ctx, addr, "/", key, 16<<10)
	if err != nil {
		return err
	}
	defer c.close()
	answer, err := c.do(sendRequest("message/send", id, textPart("hello"), ""))
	if err == nil && !bytes.Contains(answer, []byte(`"result"`)) {
		err = fmt.Errorf("refused: %.300s", answer)
	}
	return err
}

// gate passes bytes between a server and PostgreSQL, and can make the present connections pass nothing on.
type gate struct {
	ln            net.Listener
	network, addr string // of PostgreSQL
	wg            sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn    // guarded by mu; clients and servers of all connections
	quiet chan struct{} // guarded by mu; closed when the present connections fall silent
}

// newGate returns a gate in front of a database and the URL that leads through it.
func newGate(ctx context.Context, database string) (*gate, string, error) {
	cfg, err := pgconn.ParseConfig(database)
	if err != nil {
		return nil, "", err
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	g := &gate{ln: ln, quiet: make(chan struct{})}
	g.network, g.addr = pgconn.NetworkAddress(cfg.Host, cfg.Port)
	g.wg.Go(func() { g.accept(ctx) })
	through := url.URL{Scheme: "postgres", User: url.UserPassword(cfg.User, cfg.Password), Host: ln.Addr().String(),
		Path: "/" + cfg.Database, RawQuery: "sslmode=disable"}
	return g, through.String(), nil
}

func (g *gate) accept(ctx context.Context) {
	for {
		client, err := g.ln.Accept()
		if err != nil {
			return
		}
		server, err := (&net.Dialer{}).DialContext(ctx, g.network, g.addr)
		if err != nil {
			client.Close()
			continue
		}
		g.mu.Lock()
		g.conns = append(g.conns, client, server)
		quiet := g.quiet
		g.mu.Unlock()
		g.wg.Go(func() { pass(server, client, quiet) })
		g.wg.Go(func() { pass(client, server, quiet) })
	}
}

// pass copies until one side ends. Once quiet is closed, it drops what it reads.
func pass(to, from net.Conn, quiet <-chan struct{}) {
	defer to.Close()
	_, _ = io.Copy(writer(func(b []byte) (int, error) {
		select {
		case <-quiet:
			return len(b), nil
		default:
			return to.Write(b)
		}
	}), from)
}

type writer func(b []byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

// silence makes the present connections pass nothing on. New ones work.
func (g *gate) silence() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.quiet)
	g.quiet = make(chan struct{})
}

func (g *gate) close() {
	g.ln.Close()
	g.mu.Lock()
	for _, c := range g.conns {
		c.Close()
	}
	g.mu.Unlock()
	g.wg.Wait()
}
