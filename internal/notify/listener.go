package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/backoff"
)

// closeTimeout bounds how long a stopping Listener waits for connections to close.
const closeTimeout = time.Second

// ListenerConfig says how a Listener works. Replica, Hub and Connect are required.
type ListenerConfig struct {
	Replica string // the name of this process; payloads that it sent itself are ignored
	Hub     *Hub   // receives the wake-ups

	// Connect opens the Listener's own connection, directly to the server: LISTEN has no effect through a pooler that
	// assigns connections per transaction.
	Connect func(ctx context.Context) (*pgx.Conn, error)

	// Alive returns an error if the server does not answer; nil means a Ping, which is a transaction.
	Alive func(ctx context.Context, conn *pgx.Conn) error

	PingInterval   time.Duration  // between two checks of the connection; 0 means 5 s
	PingTimeout    time.Duration  // for the answer; 0 means 2 s
	ConnectTimeout time.Duration  // for connecting and LISTEN; 0 means 5 s
	Backoff        backoff.Policy // between connections; the zero value means 100 ms to 2 s
	Log            *slog.Logger   // nil means slog.Default
}

func (c ListenerConfig) withDefaults() (ListenerConfig, error) {
	if err := validReplica(c.Replica); err != nil {
		return c, err
	}
	if c.Hub == nil || c.Connect == nil {
		return c, errors.New("notify: no Hub or no Connect function")
	}
	if c.Alive == nil {
		c.Alive = func(ctx context.Context, conn *pgx.Conn) error { return conn.Ping(ctx) }
	}
	if c.PingInterval <= 0 {
		c.PingInterval = 5 * time.Second
	}
	if c.PingTimeout <= 0 {
		c.PingTimeout = 2 * time.Second
	}
	if c.ConnectTimeout <= 0 {
		c.ConnectTimeout = 5 * time.Second
	}
	if c.Backoff == (backoff.Policy{}) {
		c.Backoff = backoff.Policy{Base: 100 * time.Millisecond, Max: 2 * time.Second}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c, nil
}

// Listener turns the notifications of other processes into wake-ups of a Hub.
type Listener struct {
	cfg     ListenerConfig
	ready   chan struct{} // closed by Run after the first LISTEN
	healthy atomic.Bool

	connects, received, own, unreadable atomic.Uint64

	cleanups []<-chan struct{} // closed by pgx when a lost connection is cleaned up; Run only
}

// NewListener returns a Listener that connects only when it runs. It fails if the config lacks a required field.
func NewListener(cfg ListenerConfig) (*Listener, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Listener{cfg: cfg, ready: make(chan struct{})}, nil
}

// Ready returns a channel that is closed after the first LISTEN: from then on every notification arrives, or is
// replaced by a WakeAll.
func (l *Listener) Ready() <-chan struct{} { return l.ready }

// Healthy reports whether the Listener listens now, as far as it knows: the last successful check of its connection
// is at most ping interval + ping timeout old.
func (l *Listener) Healthy() bool { return l.healthy.Load() }

// ListenerStats are counters since the start.
type ListenerStats struct {
	Reconnects uint64 // successful LISTENs after the first
	Received   uint64 // notifications, all kinds
	Own        uint64 // sent by this replica, and ignored
	Unreadable uint64 // in an unknown form, and treated as All
}

// Stats returns the counters. It is safe for concurrent use.
func (l *Listener) Stats() ListenerStats {
	s := ListenerStats{Received: l.received.Load(), Own: l.own.Load(), Unreadable: l.unreadable.Load()}
	if n := l.connects.Load(); n > 0 {
		s.Reconnects = n - 1
	}
	return s
}

// Run listens until ctx is done, and then returns nil. A lost connection or an unreachable server is no failure: Run
// retries without end, and waiters poll in the meantime. An outage is logged when it begins and when it ends.
func (l *Listener) Run(ctx context.Context) error {
	defer l.awaitCleanups()
	var attempt int
	var lost bool
	for {
		conn, err := l.connect(ctx)
		if err == nil {
			if lost {
				l.cfg.Log.Info("wake-ups are received again", "reconnects", l.Stats().Reconnects)
				lost = false
			}
			up := time.Now()
			err = l.follow(ctx, conn)
			l.healthy.Store(false)
			l.close(ctx, conn)
			if time.Since(up) > l.cfg.Backoff.Max { // otherwise the server may close each connection immediately
				attempt = 0
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		if !lost {
			l.cfg.Log.Warn("wake-ups cannot be received, polling instead", "err", err)
			lost = true
		}
		sleep(ctx, l.cfg.Backoff.Delay(attempt, nil))
		attempt++
	}
}

// connect returns a connection that listens.
func (l *Listener) connect(ctx context.Context) (*pgx.Conn, error) {
	limited, cancel := context.WithTimeoutCause(ctx, l.cfg.ConnectTimeout, ErrTimeout)
	defer cancel()
	conn, err := l.cfg.Connect(limited)
	if err != nil {
		return nil, fmt.Errorf("connect listener: %w", because(limited, err))
	}
	if _, err := conn.Exec(limited, "LISTEN "+Channel); err != nil {
		l.close(ctx, conn)
		return nil, fmt.Errorf("listen: %w", because(limited, err))
	}
	return conn, nil
}

// follow wakes all waiters, and then the ones that the notifications name, until conn fails or ctx is done.
func (l *Listener) follow(ctx context.Context, conn *pgx.Conn) error {
	l.cfg.Hub.WakeAll() // after LISTEN: a commit before this is seen by the reads that follow
	l.healthy.Store(true)
	if l.connects.Add(1) == 1 {
		close(l.ready)
	}
	for {
		if err := l.receive(ctx, conn); err != nil {
			return fmt.Errorf("wait for notification: %w", err)
		}
		if err := l.ping(ctx, conn); err != nil {
			return fmt.Errorf("ping listener: %w", err)
		}
	}
}

// receive handles notifications for one ping interval.
func (l *Listener) receive(ctx context.Context, conn *pgx.Conn) error {
	limited, cancel := context.WithTimeout(ctx, l.cfg.PingInterval)
	defer cancel()
	for {
		n, err := conn.WaitForNotification(limited)
		if n != nil {
			l.handle(n.Payload)
		}
		switch {
		case err == nil:
		case ctx.Err() == nil && limited.Err() != nil && !conn.IsClosed():
			return nil
		default:
			return err
		}
	}
}

func (l *Listener) ping(ctx context.Context, conn *pgx.Conn) error {
	limited, cancel := context.WithTimeoutCause(ctx, l.cfg.PingTimeout, ErrTimeout)
	defer cancel()
	return because(limited, l.cfg.Alive(limited, conn))
}

func (l *Listener) handle(payload string) {
	l.received.Add(1)
	replica, keys, ok := parse(payload)
	switch {
	case !ok:
		l.unreadable.Add(1)
		l.cfg.Hub.WakeAll()
	case replica == l.cfg.Replica:
		l.own.Add(1)
	case slices.Contains(keys, All):
		l.cfg.Hub.WakeAll()
	default:
		l.cfg.Hub.Wake(keys...)
	}
}

// close ends conn. If pgx has given it up already, pgx cleans it up in the background, for up to 15 s. Then close only
// makes that faster, because reconnecting must not wait for it.
func (l *Listener) close(ctx context.Context, conn *pgx.Conn) {
	done := conn.PgConn().CleanupDone()
	if conn.IsClosed() {
		_ = conn.PgConn().Conn().Close() // it is dead already
		l.cleanups = slices.DeleteFunc(l.cleanups, closed)
		l.cleanups = append(l.cleanups, done)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_ = conn.Close(ctx) // the server sees the end of the connection either way
}

func closed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// awaitCleanups waits for pgx to clean up lost connections, up to a timeout.
func (l *Listener) awaitCleanups() {
	timeout := time.NewTimer(closeTimeout)
	defer timeout.Stop()
	for _, done := range l.cleanups {
		select {
		case <-done:
		case <-timeout.C:
			return
		}
	}
}
