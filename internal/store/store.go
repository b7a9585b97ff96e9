// Package store holds every fact that a2ad keeps in PostgreSQL: one method for a fact,
// one transaction for a method.
//
// What a method reports as written is durable. It wakes whoever waits for the change
// after the commit, never before, through the Wake function it is given; it knows
// nothing of how wakes travel, of agents' programs or of the protocol's versions.
package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
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
}

// ErrUnusable says that the database cannot be used now, though the settings may be right: it is away, refuses the login, or has
// another schema.
var ErrUnusable = errors.New("the database cannot be used now")

// unusable marks an error as ErrUnusable, and leaves its text.
type unusable struct{ error }

func (e unusable) Unwrap() error        { return e.error }
func (e unusable) Is(target error) bool { return target == ErrUnusable }

// badURL is the error of a URL that cannot be read.
type badURL struct{ error }

func (e badURL) Error() string { return "parse the database URL: " + e.error.Error() }
func (e badURL) Unwrap() error { return e.error }

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

// opened is the error of Open.
func opened(err error) error {
	var url badURL
	if !errors.Is(err, ErrLends) && !errors.As(err, &url) {
		err = unusable{err}
	}
	return fmt.Errorf("connect: %w", err)
}

// redact drops what a parse error quotes: the URL may hold a password. A file that the URL names, a
// certificate say, is no secret.
func redact(err error) error {
	var pe *pgconn.ParseConfigError
	if !errors.As(err, &pe) {
		return err
	}
	var file *fs.PathError
	if errors.As(err, &file) {
		return file
	}
	return errors.New("not a PostgreSQL connection string")
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

// lost reports whether err came from the connection and not from the statement: whether
// the statement took effect is then unknown.
func lost(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, pgx.ErrNoRows) {
		return false
	}
	var e *a2a.Error
	if errors.As(err, &e) {
		return false
	}
	var ce *pgconn.ConnectError
	if errors.As(err, &ce) {
		return true // there was no connection, whatever PostgreSQL says why
	}
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		switch pe.Code[:2] {
		case "57": // operator intervention: shutdown, crash, terminated backend
			return pe.Code != "57014"
		case "08", "53": // connection, insufficient resources
			return true
		}
		return pe.Code == "25P03" || pe.Code == "40P01" || pe.Code == "40001"
	}
	return true
}

// repeat is repeated for what reads, into variables of its caller. What writes uses repeated.
func (s *Store) repeat(ctx context.Context, f func() error) error {
	_, err := repeated(ctx, s, func(int) (struct{}, error) { return struct{}{}, f() })
	return err
}

// repeated runs f again while the connection fails, for as long as a crashed PostgreSQL needs
// to come back, but no longer than a caller should wait to be refused. It returns the value of the try that succeeded. f must
// be safe to run twice; it is told which try it is, from 1.
func repeated[T any](ctx context.Context, s *Store, f func(try int) (T, error)) (T, error) {
	const tries = 8
	end := time.Now().Add(s.cfg.ConnectTimeout)
	var none T
	wait := 20 * time.Millisecond
	for try := 1; ; try++ {
		v, err := f(try)
		if err == nil {
			return v, nil
		}
		if !lost(err) || try == tries || ctx.Err() != nil || time.Now().After(end) {
			return none, unavailable(err)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return none, unavailable(err)
		}
		wait = min(2*wait, 500*time.Millisecond)
	}
}

// unavailable gives an error of the connection, or of a PostgreSQL that is read-only for a
// while, as in the middle of a failover, the code that callers may act on.
func unavailable(err error) error {
	if a2a.CodeOf(err) != a2a.CodeUnavailable && (lost(err) || isCode(err, "25006", "58")) {
		return a2a.Error{Code: a2a.CodeUnavailable, Message: "the database is not available"}.With(err)
	}
	return err
}

func isCode(err error, codes ...string) bool {
	var pe *pgconn.PgError
	if !errors.As(err, &pe) {
		return false
	}
	for _, c := range codes {
		if pe.Code == c || len(c) == 2 && pe.Code[:2] == c {
			return true
		}
	}
	return false
}

// NewTaskID makes the id of a new task.
func NewTaskID() a2a.ID { return a2a.ID(uuid.Must(uuid.NewV7())) }

// NewUID makes a random uid for an event or a message.
func NewUID() (id a2a.ID) {
	rand.Read(id[:])
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id
}

func pgID(id a2a.ID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }

func pgIDs(ids []a2a.ID) []pgtype.UUID {
	out := make([]pgtype.UUID, len(ids))
	for i, id := range ids {
		out[i] = pgID(id)
	}
	return out
}

func pgTime(t time.Time) pgtype.Timestamptz { return pgtype.Timestamptz{Time: t, Valid: !t.IsZero()} }

func pgInterval(d time.Duration) pgtype.Interval {
	return pgtype.Interval{Microseconds: d.Microseconds(), Valid: d > 0}
}

// wireTime is how a stored time goes on the wire: UTC, whole milliseconds.
func wireTime(t pgtype.Timestamptz) time.Time { return t.Time.UTC().Truncate(time.Millisecond) }
