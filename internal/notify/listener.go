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

	// Alive returns an error if the connection is not to be used any more, for example because the server does not
	// answer; nil means a Ping, which is a transaction.
	Alive func(ctx context.Context, conn *pgx.Conn) error

	// Echo sends a notification of this process the way that all its notifications are sent. The Listener must receive
	// it: an answer of the server proves only that there is one. nil: the Listener does not try. An error of Echo says
	// nothing about the Listener.
	Echo func(ctx context.Context, payload string) error

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
	ready   chan struct{} // closed by Run once the Listener listens
	healthy atomic.Bool

	connects, received, own, unreadable atomic.Uint64

	doubts chan struct{} // capacity 1: the connection is to be checked now

	lost     bool              // an outage has been logged; Run only
	cleanups []<-chan struct{} // closed by pgx when a lost connection is cleaned up; Run only
}

// NewListener returns a Listener that connects only when it runs. It fails if the config lacks a required field.
func NewListener(cfg ListenerConfig) (*Listener, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Listener{cfg: cfg, ready: make(chan struct{}), doubts: make(chan struct{}, 1)}, nil
}

// Doubt makes the Listener check its connection now. It does not block.
func (l *Listener) Doubt() {
	select {
	case l.doubts <- struct{}{}:
	default:
	}
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
	for {
		conn, err := l.connect(ctx)
		if err == nil {
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
		if !l.lost {
			l.cfg.Log.Warn("wake-ups cannot be received, polling instead", "err", err)
			l.lost = true
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
	heard := l.own.Load()
	for {
		if err := l.ping(ctx, conn); err != nil {
			return fmt.Errorf("ping listener: %w", err)
		}
		if err := l.hear(ctx, conn, heard); err != nil {
			return fmt.Errorf("wait for notification: %w", err)
		}
		l.hears()
		heard = l.own.Load()
		if err := l.receiveUntilPing(ctx, conn); err != nil {
			return fmt.Errorf("wait for notification: %w", err)
		}
	}
}

// hears records that the connection receives notifications.
func (l *Listener) hears() {
	if l.healthy.Swap(true) {
		return
	}
	if l.connects.Add(1) == 1 {
		close(l.ready)
	}
	if l.lost {
		l.cfg.Log.Info("wake-ups are received again", "reconnects", l.Stats().Reconnects)
		l.lost = false
	}
}

// receiveUntilPing handles notifications until the next ping is due, or the connection is doubted.
func (l *Listener) receiveUntilPing(ctx context.Context, conn *pgx.Conn) error {
	limited, cancel := context.WithTimeout(ctx, l.cfg.PingInterval)
	defer cancel()
	go func() {
		select {
		case <-l.doubts:
			cancel()
		case <-limited.Done():
		}
	}()
	return l.receive(ctx, limited, conn, func() bool { return false })
}

// receive handles notifications until limited, a child of ctx, is done, or enough reports true.
func (l *Listener) receive(ctx, limited context.Context, conn *pgx.Conn, enough func() bool) error {
	for !enough() {
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
	return nil
}

// errDeaf is of a connection that answers but receives nothing: it leads to a server that does not accept changes any
// more, or a pooler has given its session to others.
var errDeaf = errors.New("the connection answers, but a notification of this process did not arrive")

// hear returns errDeaf if no notification of this process arrives: none has beside the first heard ones, and one more
// does not. That one is sent beside, because a busy pool must not delay those that arrive.
func (l *Listener) hear(ctx context.Context, conn *pgx.Conn, heard uint64) error {
	arrived := func() bool { return l.own.Load() > heard }
	if l.cfg.Echo == nil || arrived() {
		return nil
	}
	limited, cancel := context.WithTimeoutCause(ctx, l.cfg.PingTimeout, ErrTimeout)
	sent := make(chan error, 1)
	go func() {
		defer cancel() // it may have been sent only now: the time for its arrival begins
		sent <- l.cfg.Echo(limited, escape(l.cfg.Replica)+" "+echoKey)
	}()
	err := l.receive(ctx, limited, conn, arrived)
	if failed := <-sent; err != nil || failed != nil {
		return err
	}
	limited, cancel = context.WithTimeout(ctx, l.cfg.PingTimeout)
	defer cancel()
	if err := l.receive(ctx, limited, conn, arrived); err != nil || arrived() {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errDeaf
}

// echoKey is a key that nobody waits for.
const echoKey = "echo"

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
