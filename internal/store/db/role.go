package db

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db/dbsqlc"
)

// Roles of the database, made by the migrations. Under roleApp the row policies show what
// belongs to the caller that a transaction names, and nothing to one that names none.
const (
	RoleApp    = "a2a_app"
	RoleWorker = "a2a_worker"
)

// setUp gives a new connection its role, whatever its login is, and its settings. They are not part of the startup
// message, where poolers refuse settings that they do not know.
func setUp(ctx context.Context, conn *pgx.Conn, role string, settings map[string]string) error {
	names, values := []string{"role"}, []string{role}
	for name, value := range settings {
		names, values = append(names, name), append(values, value)
	}
	return RoleError(dbsqlc.New(conn).SessionSet(ctx, names, values), conn, role)
}

// RoleError says what to do when a role cannot be set.
func RoleError(err error, conn *pgx.Conn, role string) error {
	switch {
	case IsCode(err, "22023"):
		return fmt.Errorf("the database has no role %s: run a2ad migrate up", role)
	case IsCode(err, "42501"):
		return fmt.Errorf("the login may not be %s: as an administrator, GRANT %s, %s TO %q",
			role, RoleApp, RoleWorker, conn.Config().User)
	}
	return err
}

// As returns the connection for queries of a caller. The row policies show only the caller's rows, whatever a query
// asks for. Each query is a transaction of its own, and one round trip. A query that reads rows of tasks names the
// tasks: they are checked once for each table. Rows of other tasks are checked one by one. Together they use at most
// three quarters of the pool of requests, so a part is left for streams and sign-ins.
func (s *DB) As(c Caller, tasks ...a2a.ID) Conn {
	return requestDB{store: s, set: setCaller, args: c.settings(tasks...), part: s.calls}
}

// Reads returns the connection for reads of tasks without a caller, for streams and webhooks after access was checked.
// They use the pool of requests, because in the pool of runs they would delay runs. They use at most half of it, and
// searches a quarter (Browse), so that requests have the rest.
func (s *DB) Reads() Conn {
	return requestDB{store: s, set: setReader, part: s.reads}
}

// SignIns returns the connection for queries that identify a caller, on the pool of requests. They wait for no share of
// it: both requests and streams begin with them.
func (s *DB) SignIns() Conn {
	return requestDB{store: s, set: setReader}
}

// requestDB sends a statement before each query that sets the role and, for a caller, the settings that the row
// policies read. Without a BEGIN the two statements are one transaction, and role and settings end with it. So a
// caller's query never runs in another role, whatever the connection did before.
type requestDB struct {
	store *DB
	set   string
	args  []any
	part  *share // is entered first; nil: the whole pool
}

const (
	setCaller = "SELECT set_config('role', '" + RoleApp + "', true), set_config('a2a.tenant', $1, true), " +
		"set_config('a2a.owner', $2, true), set_config('a2a.sharing', $3, true), " +
		"set_config('a2a.tasks', $4, true)"
	setReader = "SELECT set_config('role', '" + RoleWorker + "', true)"
)

var errRequestsRead = errors.New("queries of requests only read")

// Exec always fails: requests write as the worker role, with tenant and owner as arguments.
func (requestDB) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, errRequestsRead
}

// Query runs a query. The connection is free when the rows are closed.
func (d requestDB) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	conn, free, err := d.acquire(ctx)
	if err != nil {
		return nil, err
	}
	var b pgx.Batch
	b.Queue(d.set, d.args...)
	var rows pgx.Rows
	s, err := send(ctx, conn, d.store.cfg.Tracer, &b, sql, args)
	if err == nil {
		rows, err = s.rows(free) //nolint:rowserrcheck // whoever reads the rows does
	}
	if err != nil {
		free()
		return nil, err
	}
	return rows, nil
}

// acquire acquires a connection. The function that it returns releases it; calling that again does nothing.
func (d requestDB) acquire(ctx context.Context) (conn *pgxpool.Conn, free func(), err error) {
	part := d.part
	if patienceOf(ctx) == ofStream {
		part = d.store.reads
	}
	leave, err := d.store.enter(ctx, part)
	if err != nil {
		return nil, nil, err
	}
	conn, err = d.store.api.Acquire(ctx)
	if err != nil {
		leave()
		return nil, nil, err
	}
	return conn, sync.OnceFunc(func() { conn.Release(); leave() }), nil
}

// busy is the error of a wait for a connection that lasted too long.
func busy(ctx, wait context.Context, err error) error {
	if wait.Err() != nil && ctx.Err() == nil {
		return a2a.Error{
			Code: a2a.CodeUnavailable, Message: "the server is busy",
		}.With(fmt.Errorf("no free connection: %w", err))
	}
	return err
}

// QueryRow runs a query for one row.
func (d requestDB) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := d.Query(ctx, sql, args...) //nolint:rowserrcheck // Scan does
	return requestRow{rows, err}
}

// requestRow is the first of the rows.
type requestRow struct {
	rows pgx.Rows
	err  error
}

// Scan reads the row, or returns pgx.ErrNoRows.
func (r requestRow) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}
