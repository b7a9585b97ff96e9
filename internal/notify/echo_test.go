package notify_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/a2ad/a2ad/internal/notify"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// echoing returns an Echo that notifies over a pool, and a channel that gets its calls.
func echoing(pool *pgxpool.Pool) (echo func(context.Context, string) error, calls chan struct{}) {
	calls = make(chan struct{}, 1000)
	return func(ctx context.Context, payload string) error {
		_, err := pool.Exec(ctx, "SELECT pg_notify('a2ad', $1)", payload)
		calls <- struct{}{}
		return err
	}, calls
}

// The connection answers, but leads to where nobody sends any more: the old primary after a failover. The listener
// connects again, and finds the database to which its notifications go.
func TestListenerThatHearsNothingConnectsAgain(t *testing.T) {
	t.Parallel()
	old, pg := storetest.New(t), storetest.New(t)
	before, _ := echoing(old.Pool(t))
	after, _ := echoing(pg.Pool(t))
	log := newLevels()
	var failedOver atomic.Bool
	_, hub := running(t, notify.ListenerConfig{
		Connect: func(ctx context.Context) (*pgx.Conn, error) {
			if failedOver.Load() {
				return pgx.Connect(ctx, pg.URL)
			}
			return pgx.Connect(ctx, old.URL)
		},
		Echo: func(ctx context.Context, payload string) error {
			if failedOver.Load() {
				return after(ctx, payload)
			}
			return before(ctx, payload)
		},
		PingInterval: 20 * time.Millisecond, PingTimeout: 100 * time.Millisecond, Log: slog.New(log),
	})
	wake, stop := hub.Wait("task:a")
	defer stop()
	failedOver.Store(true)
	await(t, "wake after the reconnect", wake)
	if got := <-log.lost; !strings.Contains(got, "did not arrive") {
		t.Errorf("log %q does not say why", got)
	}
	await(t, "all-clear", log.back)
}

// A notification that cannot be sent says nothing about the connection that listens.
func TestEchoThatFailsKeepsTheConnection(t *testing.T) {
	t.Parallel()
	pg := storetest.New(t)
	calls := make(chan struct{}, 1000)
	l, _ := running(t, notify.ListenerConfig{
		Connect: func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, pg.URL) },
		Echo: func(context.Context, string) error {
			calls <- struct{}{}
			return errors.New("the pool is busy")
		},
		PingInterval: time.Millisecond, PingTimeout: time.Millisecond,
		Alive: func(context.Context, *pgx.Conn) error { return nil },
	})
	for range 5 {
		await(t, "echo", calls)
	}
	if n := l.Stats().Reconnects; n != 0 || !l.Healthy() {
		t.Errorf("%d reconnects, healthy %t", n, l.Healthy())
	}
}

// A listener whose own notifications arrive sends none to hear them, but at the start.
func TestListenerThatHearsItselfSendsNoEcho(t *testing.T) {
	t.Parallel()
	pg := storetest.New(t)
	pool := pg.Pool(t)
	echo, echoes := echoing(pool)
	checked := make(chan struct{}, 10)
	l, _ := running(t, notify.ListenerConfig{
		Connect:      func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, pg.URL) },
		Alive:        func(context.Context, *pgx.Conn) error { checked <- struct{}{}; return nil },
		Echo:         echo,
		PingInterval: time.Hour, PingTimeout: time.Minute,
	})
	await(t, "check", checked)
	await(t, "echo", echoes)
	for range 3 {
		own := l.Stats().Own
		exec(t, pool, "SELECT pg_notify('a2ad', 'here task:a')")
		for l.Stats().Own == own {
			runtime.Gosched()
		}
		l.Doubt()
		await(t, "check", checked)
	}
	l.Doubt()
	await(t, "check", checked) // the check before ended without an echo, and nothing has arrived since
	await(t, "echo", echoes)
	if len(echoes) > 0 {
		t.Error("an echo was sent though notifications arrived")
	}
	l.Doubt()
	await(t, "check", checked) // the echo has arrived
	if n := l.Stats().Reconnects; n != 0 {
		t.Errorf("%d reconnects", n)
	}
}

// Behind a pooler that gives sessions to others, every connection is deaf: the listener must not look healthy between.
func TestDeafListenerIsNotHealthy(t *testing.T) {
	t.Parallel()
	pg, other := storetest.New(t), storetest.New(t)
	echo, calls := echoing(other.Pool(t))
	log := newLevels()
	l := start(t, &notify.ListenerConfig{
		Connect: func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, pg.URL) },
		Alive:   func(context.Context, *pgx.Conn) error { return nil },
		Echo: func(ctx context.Context, payload string) error {
			return echo(context.WithoutCancel(ctx), payload) // it is sent, however slow the machine is
		},
		PingTimeout: time.Millisecond, Log: slog.New(log),
	})
	await(t, "log entry", log.lost)
	for range 20 {
		await(t, "echo", calls)
		if l.Healthy() {
			t.Error("a listener that never heard itself is healthy")
		}
	}
	if len(log.lost)+len(log.back) > 0 {
		t.Errorf("%d and %d more log entries about one outage", len(log.lost), len(log.back))
	}
	select {
	case <-l.Ready():
		t.Error("ready")
	default:
	}
}

func TestDoubtChecksTheConnectionAtOnce(t *testing.T) {
	t.Parallel()
	pg := storetest.New(t)
	checked := make(chan struct{}, 10)
	l, _ := running(t, notify.ListenerConfig{
		Connect:      func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, pg.URL) },
		Alive:        func(context.Context, *pgx.Conn) error { checked <- struct{}{}; return nil },
		PingInterval: time.Hour,
	})
	await(t, "check", checked)
	for range 3 {
		l.Doubt()
		await(t, "check", checked)
	}
	if n := l.Stats().Reconnects; n != 0 {
		t.Errorf("%d reconnects", n)
	}
}
