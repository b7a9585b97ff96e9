package db

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// poolTx is a transaction on a connection that outlives the request. If the request has ended, the transaction is
// rolled back, and the connection stays open. BEGIN is sent together with the first statement, in one round trip.
// It has the form of dbsqlc.DBTX.
type poolTx struct {
	conn   *pgxpool.Conn
	tracer pgx.QueryTracer
	begun  pgx.Tx // nil before the first statement
}

// begin takes a connection for a transaction. Commit and rollback free it.
func (p *Pool) begin(ctx context.Context) (*poolTx, error) {
	conn, err := p.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return &poolTx{conn: conn, tracer: p.store.cfg.Tracer}, nil
}

// first sends BEGIN and the first statement.
func (t *poolTx) first(ctx context.Context, sql string, args []any) (sent, error) {
	var b pgx.Batch
	b.BeginTx(pgx.TxOptions{})
	s, err := send(ctx, t.conn, t.tracer, &b, sql, args)
	t.begun = s.Tx()
	return s, err
}

// Exec runs a statement.
func (t *poolTx) Exec(ctx context.Context, sql string, args ...any) (tag pgconn.CommandTag, err error) {
	if t.begun != nil {
		return t.begun.Exec(ctx, sql, args...)
	}
	s, err := t.first(ctx, sql, args)
	if err != nil {
		return tag, err
	}
	return s.exec()
}

// Query runs a query. The rows must be closed before the next statement.
func (t *poolTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if t.begun != nil {
		return t.begun.Query(ctx, sql, args...) //nolint:rowserrcheck // whoever reads the rows does
	}
	s, err := t.first(ctx, sql, args)
	if err != nil {
		return nil, err
	}
	return s.rows(func() {}) //nolint:rowserrcheck // whoever reads the rows does
}

// QueryRow runs a query for one row.
func (t *poolTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := t.Query(ctx, sql, args...) //nolint:rowserrcheck // Scan does
	return requestRow{rows, err}
}

// commit commits, or rolls back if ctx has ended. It is not canceled: that would end the wait for a standby.
func (t *poolTx) commit(ctx context.Context) error {
	defer t.conn.Release()
	if t.begun == nil {
		return context.Cause(ctx)
	}
	if ctx.Err() != nil {
		t.begun.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // nothing was committed either way
		return context.Cause(ctx)
	}
	return replicated(t.conn, t.begun.Commit(context.WithoutCancel(ctx)))
}

// rollback does nothing after a commit.
func (t *poolTx) rollback(ctx context.Context) {
	defer t.conn.Release()
	if t.begun != nil {
		t.begun.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // the connection is closed if it fails
	}
}
