// Package store holds every fact that a2ad keeps in PostgreSQL: one method for a fact,
// one transaction for a method.
//
// What a method reports as written is durable. It wakes whoever waits for the change
// after the commit, never before, through the Wake function it is given; it knows
// nothing of how wakes travel, of agents' programs or of the protocol's versions.
package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/semaphore"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/dbsqlc"
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
	PacketTimeout    time.Duration // wait for the database's machine to acknowledge what was sent, where the system can do that
	Logger           *slog.Logger
	// Wake is called after a commit with the keys of what changed: "ready:<agent>",
	// "cancel:<worker>", KeyAPIKeys. It must not block.
	Wake func(keys ...string)
	// Actor is who is behind what nobody else is named for in the audit log; default
	// "replica " and the name of the replica.
	Actor string
	// Tracer is told of every statement; nil: nobody is.
	Tracer pgx.QueryTracer
	// Take gives a new task of an agent to the worker of this process, if it has room and no
	// other task waits; nil: never. It must not block.
	Take func(agent string) (Slot, bool)
	// Committed is called after a commit that wrote events of a task, with those events, or
	// with none where the store does not know them. It must not block, nor change them.
	Committed func(task a2a.ID, events []a2a.Entry)
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
	if c.Take == nil {
		c.Take = func(string) (Slot, bool) { return Slot{}, false }
	}
	if c.Committed == nil {
		c.Committed = func(a2a.ID, []a2a.Entry) {}
	}
}

// Store is safe for concurrent use.
type Store struct {
	cfg     Config
	api     *pool // reads for requests: see as, reads and signIns
	work    *pool // grouped writes, what runs read, the operator
	claims  *pool // claims: one connection, with plans of its own
	renews  *pool // renewals of leases: what else goes on must not delay them
	reach   reach
	submits *combiner[submission, made]
	keyed   *combiner[submission, made]           // those with an idempotency key may wait for another's commit
	appends [2]*combiner[pendingBatch, *appended] // by task, so that a task's events keep their order
	laner   laner
	totals  totals
	pushes  pushFloor
	turns   pushTurns
	// readRoom is what reads of the pool of requests may use of it that are not for one caller.
	readRoom *semaphore.Weighted

	counters counters
	sweeps   [sweepKinds]sweepCounter
}

// Open connects. It fails with ErrUnusable if the database cannot be reached, or with ErrLends, but does not look
// at the schema.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg.setDefaults()
	err := refuseLender(ctx, cfg.URL, "a2ad-"+cfg.Replica+"-probe", cfg.AcquireTimeout)
	if err != nil {
		return nil, opened(err)
	}
	s := &Store{cfg: cfg}
	s.reach.suspect = make(chan struct{}, 1)
	if err := s.openPools(); err != nil {
		s.Close()
		return nil, fmt.Errorf("connect: %w", err)
	}
	for _, p := range s.pools() {
		if err := p.Ping(ctx); err != nil {
			s.Close()
			return nil, opened(redact(err))
		}
	}
	s.submits = newCombiner(s.flushSubmits, submissionSize, combineItems/4, cfg.Logger)
	s.keyed = newCombiner(s.flushSubmits, submissionSize, 0, cfg.Logger)
	s.laner = laner{owners: make(map[laneKey]*laneOwner), heads: make(map[string]*laneHeads)}
	for i := range s.appends {
		s.appends[i] = newCombiner(s.flushAppends, appendSize, 0, cfg.Logger)
	}
	return s, nil
}

// Close waits for the connections in use and closes them.
func (s *Store) Close() {
	for _, p := range s.pools() {
		p.conns.Close()
	}
}

// Notify sends wake payloads to every listening replica.
func (s *Store) Notify(ctx context.Context, payloads []string) error {
	return unavailable(dbsqlc.New(s.work).Notify(ctx, payloads))
}

var errTimeout = errors.New("database took too long")

// detached returns a context for work whose result others wait for as well: it outlives the
// request that happens to carry it out, but not by much.
func (s *Store) detached(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := s.cfg.AcquireTimeout + s.cfg.StatementTimeout
	return context.WithTimeoutCause(context.WithoutCancel(ctx), limit, errTimeout)
}
