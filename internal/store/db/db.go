// Package db is the base of the store's packages: pools of connections with their roles, transactions whose effects run
// after the commit, classes of errors, and ids.
//
// It knows no tables: each package of the store has its own tables and statements.
package db

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/store/db/dbsqlc"
)

// Config says how to reach the database. Zero durations and sizes take their defaults.
type Config struct {
	URL              string
	Replica          string // names this process in application_name and as a worker
	PoolSize         int    // connections, 16
	StatementTimeout time.Duration
	LockTimeout      time.Duration
	IdleTxTimeout    time.Duration
	AcquireTimeout   time.Duration // wait for a free connection
	ConnectTimeout   time.Duration // wait for a new connection; while there is none, callers wait as long
	// wait for the database's machine to acknowledge what was sent, where the system can do that
	PacketTimeout time.Duration
	Logger        *slog.Logger
	// Wake is called after a commit with the keys of what changed: see package wake. It must not block.
	Wake func(keys ...string)
	// Actor is named in the audit log for actions without another actor; default "replica " and the
	// name of the replica.
	Actor string
	// Tracer, if not nil, is called for every statement.
	Tracer pgx.QueryTracer
	// Moved is called when connections were closed because another server may be the one to use. It must not block.
	Moved func()
}

func (c *Config) setDefaults() {
	c.PoolSize = max(c.PoolSize, 0)
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{
		{&c.StatementTimeout, 8 * time.Second}, {&c.LockTimeout, 5 * time.Second},
		{&c.IdleTxTimeout, 5 * time.Second}, {&c.AcquireTimeout, 5 * time.Second},
		{&c.ConnectTimeout, 2 * time.Second}, {&c.PacketTimeout, 5 * time.Second},
	} {
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	if c.PoolSize == 0 {
		c.PoolSize = 16
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Actor == "" {
		c.Actor = "replica " + c.Replica
	}
	if c.Wake == nil {
		c.Wake = func(...string) {}
	}
	if c.Moved == nil {
		c.Moved = func() {}
	}
}

// DB is the database as the store's packages use it: pools of connections for different work, transactions with
// effects, and whether the database is reachable. It is safe for concurrent use.
type DB struct {
	cfg      Config
	instance string // names this start of the process
	api      *Pool  // reads for requests: see As, Reads and SignIns
	work     *Pool  // grouped writes, reads of runs, the operator
	claims   *Pool  // claims: one connection, with plans of its own
	renews   *Pool  // renewals of leases: other work must not delay them
	reach    reach
	hosts    hosts
	// How much of the pool of requests may be used by reads for one caller, by those of streams and webhooks, and by
	// searches of people.
	calls, reads, searches *share
	waits                  waits

	sweeps [sweepKinds]sweepCounter
}

// Work is the pool for grouped writes, for the reads of runs and for the operator.
func (s *DB) Work() *Pool { return s.work }

// Claims is the pool of the claims of tasks: one connection that only makes index plans.
func (s *DB) Claims() *Pool { return s.claims }

// Renews is the pool for renewals of leases, so that other work does not delay them.
func (s *DB) Renews() *Pool { return s.renews }

// Logger is where the store's packages log.
func (s *DB) Logger() *slog.Logger { return s.cfg.Logger }

// Replica names this process.
func (s *DB) Replica() string { return s.cfg.Replica }

// StatementTimeout is how long a statement may take.
func (s *DB) StatementTimeout() time.Duration { return s.cfg.StatementTimeout }

// Open connects. It fails with ErrUnusable if the database cannot be reached, or with ErrLends if a pooler is in the
// way. It does not check the schema.
func Open(ctx context.Context, cfg Config) (*DB, error) {
	cfg.setDefaults()
	err := RefuseLender(ctx, cfg.URL, "a2ad-"+cfg.Replica+"-probe", cfg.AcquireTimeout)
	if err != nil {
		return nil, opened(err)
	}
	s := &DB{cfg: cfg, instance: rand.Text()}
	s.cfg.Tracer = demotions{s, cfg.Tracer}
	s.reach.suspect = make(chan struct{}, 1)
	if err := s.openPools(); err != nil {
		s.Close()
		return nil, fmt.Errorf("connect: %w", err)
	}
	for _, p := range []*Pool{s.api, s.work} { // each role; the other pools connect when they are used
		if err := p.Ping(ctx); err != nil {
			s.Close()
			return nil, opened(Redact(err))
		}
	}
	return s, nil
}

// Close waits for the connections in use and closes them.
func (s *DB) Close() {
	for _, p := range s.pools() {
		p.conns.Close()
	}
}

// Notify sends wake payloads to every listening replica.
func (s *DB) Notify(ctx context.Context, payloads []string) error {
	return Unavailable(dbsqlc.New(s.work).Notify(ctx, payloads))
}

// ErrTimeout is the cause of contexts that bound work on the database.
var ErrTimeout = errors.New("database took too long")

// Detached returns a context for work whose result several requests wait for. It outlives the request that does the
// work, up to a limit.
func (s *DB) Detached(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := s.cfg.AcquireTimeout + s.cfg.StatementTimeout
	return context.WithTimeoutCause(context.WithoutCancel(ctx), limit, ErrTimeout)
}
