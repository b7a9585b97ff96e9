package db

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/a2ad/a2ad/internal/a2a"
)

const (
	// watchEvery is how often Watch asks whether the database answers, watchAway how often while it does not, and
	// watchLeast is the shortest wait between two checks, when another connection has failed.
	watchEvery = time.Second
	watchAway  = 100 * time.Millisecond
	watchLeast = 20 * time.Millisecond
	// bridged is how long the database may be unreachable before callers are refused at once. Callers wait for a
	// restart or a switchover that takes no longer.
	bridged = 1500 * time.Millisecond
	// provenFor is how long after its last answer a pool is ready without being asked.
	provenFor = 5 * time.Second
)

// reach records whether the database is reachable. The pools share it.
type reach struct {
	away    atomic.Pointer[error] // why it is unreachable; nil: it is reachable, as far as known
	suspect chan struct{}         // capacity 1: a caller could not reach it
	// the database answers Watch and accepts no changes
	readOnly atomic.Bool
	// when idle connections were last closed because one of them may change nothing, in nanoseconds
	demoted atomic.Int64
	// how often a session has asked for the presence lock, and whether that of Watch holds it, as far as known
	presenceLocks atomic.Int64
	present       atomic.Bool
	// when Watch had its last answer, in nanoseconds by the local clock; 0: Watch does not run
	answered atomic.Int64
}

var errSwallowed = errors.New("no new connection to the database is made, and no existing one gets an answer")

// quiet reports whether the database has not answered Watch for this long after a poll was due.
func (r *reach) quiet(late time.Duration) bool {
	at := r.answered.Load()
	return at != 0 && time.Since(time.Unix(0, at)) > watchEvery+late
}

// giveUp refuses callers until Watch has an answer, because a caller could not get a new connection.
func (r *reach) giveUp() {
	err := errSwallowed
	r.away.CompareAndSwap(nil, &err)
	r.doubt()
}

// refuse returns the error for callers while the database is known to be unreachable.
func (r *reach) refuse() error {
	if err := r.away.Load(); err != nil {
		return a2a.Error{Code: a2a.CodeUnavailable, Message: "the database is not available"}.With(*err)
	}
	return nil
}

// doubt makes Watch poll now.
func (r *reach) doubt() {
	select {
	case r.suspect <- struct{}{}:
	default:
	}
}

// connLost is called for connections that broke or were silent for too long. The other connections are probably broken
// too, so idle ones are closed before a caller uses them.
func (s *DB) connLost(silent bool) {
	if silent {
		s.dropIdle()
	}
	s.reach.doubt()
}

// demotedEvery is the shortest time between two times that connections are closed because one may change nothing.
const demotedEvery = time.Second

// mayBeDemoted is called for errors that a server gives which is not, or no more, the one that accepts changes. Another
// may accept them by now, while the connections to the old one stay open: all are closed, and Watch looks for it.
func (s *DB) mayBeDemoted() {
	last, now := s.reach.demoted.Load(), time.Now().UnixNano()
	lately := time.Duration(now-last) < demotedEvery
	if !lately && !s.reach.readOnly.Load() && s.reach.demoted.CompareAndSwap(last, now) {
		s.dropIdle()
		s.cfg.Moved()
	}
	s.reach.doubt()
}

// dropIdle closes idle connections, and those in use when they are free.
func (s *DB) dropIdle() {
	for _, p := range s.pools() {
		p.conns.Reset()
	}
}

// Watch polls the database on a connection of its own until ctx is done. While the database is unreachable, every call
// is refused at once.
func (s *DB) Watch(ctx context.Context) error {
	w := watcher{store: s}
	defer w.close()
	s.reach.answered.Store(time.Now().UnixNano()) // Open has had an answer
	defer s.reach.answered.Store(0)
	for {
		begin := time.Now()
		err := w.check(ctx)
		if ctx.Err() != nil {
			return nil
		}
		wait := watchEvery
		if w.judge(ctx, begin, err) {
			wait = watchAway
		}
		if !s.pause(ctx, wait) {
			return nil
		}
	}
}

// pause waits until the next poll is due. It reports false if ctx has ended.
func (s *DB) pause(ctx context.Context, wait time.Duration) bool {
	least, most := time.NewTimer(watchLeast), time.NewTimer(wait)
	defer least.Stop()
	defer most.Stop()
	select {
	case <-least.C:
	case <-ctx.Done():
		return false
	}
	select {
	case <-most.C:
	case <-s.reach.suspect:
	case <-ctx.Done():
		return false
	}
	return true
}

// watcher is the state of Watch.
type watcher struct {
	store *DB
	conn  *pgx.Conn // nil: none
	since time.Time // the begin of the first try in a row that failed
}

// check polls the database, over a new connection if the old one does not answer.
func (w *watcher) check(ctx context.Context) error {
	if w.conn != nil {
		err := AliveWriter(ctx, w.conn)
		if err == nil {
			err = w.lockPresence(ctx)
		}
		if err == nil || ctx.Err() != nil {
			return nil
		}
		w.close() // another server may accept changes by now
		if !w.store.reach.readOnly.Load() {
			w.store.dropIdle()
			w.store.cfg.Moved()
		}
	}
	cfg, err := PlainConfig(w.store.cfg.URL, "", w.store.cfg.ConnectTimeout)
	if err != nil {
		return err
	}
	w.store.configure(cfg, "watch", newDialer(pingWait, w.store.cfg.PacketTimeout, func(bool) {}))
	conn, err := w.store.hosts.connect(ctx, cfg)
	if err != nil {
		return Redact(err)
	}
	w.conn = conn
	err = writes(ctx, conn) // a pooler may answer for a database that does not
	if err == nil {
		err = w.lockPresence(ctx)
	}
	if err != nil && !errors.Is(err, errReadOnly) {
		w.close()
	}
	return err
}

// judge records the result of a poll, and reports whether the database is unreachable.
func (w *watcher) judge(ctx context.Context, begin time.Time, err error) (away bool) {
	s := w.store
	was := s.reach.away.Load() != nil
	if !isAway(err) {
		w.since = time.Time{}
		s.reach.answered.Store(time.Now().UnixNano())
		if was {
			s.dropIdle()
			s.reach.away.Store(nil)
			s.cfg.Logger.InfoContext(ctx, "the database can be reached again")
		}
		readOnly := errors.Is(err, errReadOnly)
		switch was := s.reach.readOnly.Swap(readOnly); {
		case readOnly && !was:
			s.cfg.Logger.WarnContext(ctx, "the database accepts no changes; connections to it are closed", "err", err)
		case was && !readOnly:
			s.dropIdle()
			s.cfg.Moved()
			s.cfg.Logger.InfoContext(ctx, "the database accepts changes again")
		}
		return false
	}
	if w.since.IsZero() {
		w.since = begin
	}
	if was || time.Since(w.since) >= bridged {
		s.reach.away.Store(&err)
		if !was {
			s.cfg.Logger.WarnContext(ctx, "the database cannot be reached; calls are refused meanwhile", "err", err)
		}
	}
	return true
}

func (w *watcher) close() {
	if w.conn == nil {
		return
	}
	w.store.reach.present.Store(false)
	ctx, cancel := context.WithTimeout(context.Background(), lastWords)
	defer cancel()
	_ = w.conn.Close(ctx) // the server sees the end of the connection either way
	w.conn = nil
}

// isAway reports whether an error means that no usable PostgreSQL answers. A server that refuses a new connection, for
// this login or because all slots are in use, may still serve other connections.
func isAway(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	if errors.Is(err, errReadOnly) {
		return false
	}
	var pe *pgconn.PgError
	return !errors.As(err, &pe) || pe.Code[:2] == "57" || pe.Code[:2] == "08"
}

// Ready reports whether the database accepts changes and serves every pool: each has had an answer lately, or gets one
// now.
func (s *DB) Ready(ctx context.Context) error {
	if err := s.reach.away.Load(); err != nil {
		return *err
	}
	if s.reach.readOnly.Load() {
		return errReadOnly
	}
	for _, p := range s.pools() {
		heard := p.dialer.heard.Load() // zero until the pool is used first
		quiet := time.Since(time.Unix(0, heard))
		if quiet < provenFor {
			continue
		}
		if err := p.Ping(ctx); err != nil {
			ever := "so far"
			if heard != 0 {
				ever = "for " + quiet.Round(time.Second).String()
			}
			return fmt.Errorf("no answer to the %s connections %s: %w", p.name, ever, err)
		}
	}
	return nil
}

// Ping reports whether the database answers.
func (s *DB) Ping(ctx context.Context) error {
	if err := s.work.Ping(ctx); err != nil {
		return fmt.Errorf("ping: %w", err)
	}
	return nil
}
