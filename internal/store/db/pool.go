package db

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// cancelAfter is how long a statement may continue after its caller stopped waiting, before it is canceled. Short
	// statements end by themselves, which costs less.
	cancelAfter = 250 * time.Millisecond
	// canceledIn is how long after the end of its context a statement may take to end. Then its connection is given up.
	canceledIn = time.Second
	// freshFor is how long an idle connection is used without a proof that it is alive.
	freshFor = time.Second
)

// The sizes of the small pools.
const (
	claimConns = 1 // of PoolSize
	renewConns = 2 // in addition to PoolSize
)

// openPools creates the pools. They connect when they are used.
func (s *DB) openPools() error {
	work := max(s.cfg.PoolSize-s.cfg.PoolSize/2-claimConns, 2)
	api := max(s.cfg.PoolSize-work-claimConns, 1)
	for _, p := range []struct {
		pool  **Pool
		name  string
		role  string
		size  int
		plans map[string]string // beside those of all
	}{
		{&s.api, "api", RoleApp, api, nil}, {&s.work, "worker", RoleWorker, work, nil},
		{&s.claims, "claim", RoleWorker, claimConns, claimPlans}, {&s.renews, "renew", RoleWorker, renewConns, nil},
	} {
		var err error
		if *p.pool, err = s.open(p.name, p.role, p.size, p.plans); err != nil {
			return err
		}
	}
	s.api.wait = s.cfg.AcquireTimeout
	s.openShares()
	return nil
}

// pools returns all of them.
func (s *DB) pools() []*Pool {
	var list []*Pool
	for _, p := range []*Pool{s.api, s.work, s.claims, s.renews} {
		if p != nil {
			list = append(list, p)
		}
	}
	return list
}

// plans makes every statement keep its first plan, and makes that plan use indexes. By default PostgreSQL plans
// statements with array arguments again each time, which takes longer than running them. A plan that is kept must not
// be one for the empty tables of the first minute. A statement that searches asks for another plan (PlanForArguments).
var plans = map[string]string{"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "jit": "off"}

// claimPlans restricts claims to index lookups. The statistics of a queue are useless: after an ANALYZE of a table with
// many dead rows the planner did not use the index, and the claim rate fell by a factor of thirty. For grouped writes
// the same settings would be quadratic.
var claimPlans = map[string]string{"enable_bitmapscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off"}

func (s *DB) open(name, role string, size int, more map[string]string) (*Pool, error) {
	pc, err := pgxpool.ParseConfig(s.cfg.URL)
	if err != nil {
		return nil, badURL{Redact(err)}
	}
	p := &Pool{
		store: s, name: name, reach: &s.reach, connect: s.cfg.ConnectTimeout,
		wait: s.cfg.AcquireTimeout + s.cfg.StatementTimeout,
	}
	p.dialer = newDialer(s.cfg.StatementTimeout+answerGrace, s.cfg.PacketTimeout, s.connLost)
	pc.MaxConns = int32(size)
	s.configure(pc.ConnConfig, name, p.dialer)
	pc.ConnConfig.Tracer = s.cfg.Tracer
	pc.ConnConfig.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{
			Conn: c, CancelRequestDelay: cancelAfter, DeadlineDelay: canceledIn,
		}
	}
	settings := map[string]string{
		"search_path":                         "pg_catalog",
		"statement_timeout":                   ms(s.cfg.StatementTimeout),
		"lock_timeout":                        ms(s.cfg.LockTimeout),
		"idle_in_transaction_session_timeout": ms(s.cfg.IdleTxTimeout),
		"a2a.opens_queries":                   "on", // see migration 38
	}
	maps.Copy(settings, plans)
	maps.Copy(settings, more)
	pc.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		s.hosts.order(&c.Config)
		return nil
	}
	pc.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error { return setUp(ctx, conn, role, settings) }
	pc.ShouldPing = func(_ context.Context, idle pgxpool.ShouldPingParams) bool {
		return idle.IdleDuration > freshFor && !p.alive(idle.Conn)
	}
	p.conns, err = pgxpool.NewWithConfig(context.Background(), pc)
	return p, err
}

// ms is a duration as PostgreSQL reads it.
func ms(d time.Duration) string { return fmt.Sprintf("%dms", d.Milliseconds()) }

// configure applies the settings that all connections have in common.
func (s *DB) configure(cc *pgx.ConnConfig, name string, d *dialer) {
	cc.ConnectTimeout = s.cfg.ConnectTimeout
	cc.DialFunc = d.DialContext
	cc.OnNotice = note
	cc.RuntimeParams["application_name"] = "a2ad-" + s.cfg.Replica + "-" + name
}

// ConnConfig returns the settings for a connection outside the pools, for the listener. Its silence is not bounded: a
// wait for notifications has no end, and the listener proves by itself that its connection is alive.
func (s *DB) ConnConfig(role string) *pgx.ConnConfig {
	pc, err := pgxpool.ParseConfig(s.cfg.URL) // takes the settings of pools, which may be in the URL
	if err != nil {
		panic("store: a URL that was parsed before: " + Redact(err).Error())
	}
	s.configure(pc.ConnConfig, role, newDialer(0, s.cfg.PacketTimeout, s.connLost))
	s.hosts.order(&pc.ConnConfig.Config)
	return pc.ConnConfig
}

// Pool is a pool of connections whose every use ends in good time, whatever the network does. It waits at most wait for
// a free connection, at most connect for a new one to a silent database, and at most what its dialer allows for a
// silent connection. While the database is known to be unreachable, it refuses at once. It has the form of dbsqlc.DBTX.
// With a Patient context it waits as long as that lasts for a free connection.
type Pool struct {
	store  *DB
	name   string
	conns  *pgxpool.Pool
	dialer *dialer
	reach  *reach

	connect time.Duration // wait for a new connection
	wait    time.Duration // wait for a free connection
}

// alive reports whether an idle connection answers.
func (p *Pool) alive(conn *pgx.Conn) bool {
	c := conn.PgConn().Conn()
	if c.SetDeadline(time.Now().Add(pingWait)) != nil {
		return false
	}
	if err := Alive(context.Background(), conn); err != nil {
		p.dialer.lost(true) // the other idle connections are probably broken too
		return false
	}
	return c.SetDeadline(time.Time{}) == nil
}

// Acquire takes a connection.
func (p *Pool) Acquire(ctx context.Context) (*pgxpool.Conn, error) {
	if err := p.reach.refuse(); err != nil {
		return nil, err
	}
	wait, cancel := patiently(ctx, p.wait)
	defer cancel()
	defer p.endInVain(wait, cancel)()
	conn, err := p.conns.Acquire(wait)
	if err != nil {
		if wait.Err() == nil {
			p.reach.doubt()
			if isAway(err) && p.reach.quiet(bridged) {
				p.reach.giveUp()
			}
		}
		if away := p.reach.refuse(); away != nil && ctx.Err() == nil {
			return nil, away
		}
		return nil, busy(ctx, wait, err)
	}
	return conn, nil
}

// endInVain ends a wait for a new connection that takes too long, while no other connection gets an answer of the
// database either. It stops when stop is called. A new connection may take several tries, with and without TLS and for
// several hosts, each that long. A wait for connections that are in use continues.
func (p *Pool) endInVain(wait context.Context, end context.CancelFunc) (stop func() bool) {
	var timer *time.Timer
	timer = time.AfterFunc(time.Hour, func() {
		switch {
		case wait.Err() != nil:
		case p.reach.refuse() != nil:
			end()
		case p.conns.Stat().ConstructingConns() > 0 && p.reach.quiet(watchEvery/2):
			p.reach.giveUp()
			end()
		default:
			timer.Reset(watchAway)
		}
	})
	timer.Reset(p.connect) // the function reads timer only from now on
	return timer.Stop
}

// Exec runs a statement.
func (p *Pool) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	conn, err := p.Acquire(ctx)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	defer conn.Release()
	tag, err := conn.Exec(ctx, sql, args...)
	return tag, replicated(conn, err)
}

// Query runs a query. The connection is free when the rows are closed.
func (p *Pool) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	conn, err := p.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := conn.Query(ctx, sql, args...) //nolint:rowserrcheck // whoever reads the rows does
	if err != nil {
		conn.Release()
		return nil, err
	}
	return &heldRows{Rows: rows, end: func(err error) error {
		err = replicated(conn, err)
		conn.Release()
		return err
	}}, nil
}

// QueryRow runs a query for one row.
func (p *Pool) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := p.Query(ctx, sql, args...) //nolint:rowserrcheck // Scan does
	return requestRow{rows, err}
}

// heldRows are rows whose end has something to do once, such as to free their connection.
type heldRows struct {
	pgx.Rows
	end    func(error) error // gets the error of the rows, and returns that of the statement
	closed bool
	err    error // of the statement, once the rows are closed
}

// Next reads a row. After the last one, the rows are closed.
func (r *heldRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

// Err returns the error of the rows, and is complete once they are closed.
func (r *heldRows) Err() error {
	if r.closed {
		return r.err
	}
	return r.Rows.Err()
}

// Close ends the rows.
func (r *heldRows) Close() {
	if r.closed {
		return
	}
	r.Rows.Close()
	r.closed, r.err = true, r.end(r.Rows.Err())
}

// Ping reports whether the server answers.
func (p *Pool) Ping(ctx context.Context) error {
	conn, err := p.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return Alive(ctx, conn.Conn())
}

// PoolStat is the state of one connection pool.
type PoolStat struct {
	Name string // as in application_name: "api", "worker", "claim", "renew"
	*pgxpool.Stat
	Waits    int64         // for a connection, or until one was opened
	WaitTime time.Duration // of all of these
	Canceled int64         // waits that were given up
}

// Pools returns the states of the connection pools.
func (s *DB) Pools() []PoolStat {
	var list []PoolStat
	for _, p := range s.pools() {
		conns := p.conns.Stat()
		stat := PoolStat{
			p.name, conns, conns.EmptyAcquireCount(), conns.EmptyAcquireWaitTime(), conns.CanceledAcquireCount(),
		}
		if p == s.api {
			s.waits.addTo(&stat)
		}
		list = append(list, stat)
	}
	return list
}
