package db

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// sent is a statement that was sent together with one that prepares its transaction, in one round trip. It is traced
// like a statement alone: pgx traces only the whole batch, or only the end.
type sent struct {
	pgx.BatchResults // the next one is that of the statement
	end              func(pgconn.CommandTag, error)
}

// send sends the batch and then the statement, and reads the result of the batch, which has one statement.
func send(
	ctx context.Context, conn *pgxpool.Conn, tracer pgx.QueryTracer, batch *pgx.Batch, sql string, args []any,
) (sent, error) {
	ctx = tracer.TraceQueryStart(ctx, conn.Conn(), pgx.TraceQueryStartData{SQL: sql, Args: args})
	s := sent{end: func(tag pgconn.CommandTag, err error) {
		tracer.TraceQueryEnd(ctx, conn.Conn(), pgx.TraceQueryEndData{CommandTag: tag, Err: err})
	}}
	batch.Queue(sql, args...)
	s.BatchResults = conn.SendBatch(ctx, batch)
	if _, err := s.BatchResults.Exec(); err != nil {
		return s, s.refuse(err)
	}
	return s, nil
}

// refuse ends a statement that has no result.
func (s sent) refuse(err error) error {
	s.Close()
	s.end(pgconn.CommandTag{}, err)
	return err
}

// exec reads the result of a statement without rows.
func (s sent) exec() (pgconn.CommandTag, error) {
	tag, err := s.BatchResults.Exec()
	if closed := s.Close(); err == nil {
		err = closed
	}
	s.end(tag, err)
	return tag, err
}

// rows returns the rows of the statement. free is called when they are closed.
func (s sent) rows(free func()) (pgx.Rows, error) {
	rows, err := s.BatchResults.Query() //nolint:rowserrcheck // whoever reads the rows does
	if err != nil {
		return nil, s.refuse(err)
	}
	return &heldRows{Rows: rows, end: func(err error) error {
		if closed := s.Close(); err == nil { // pgx traces the end of the statement
			err = closed
		}
		free()
		return err
	}}, nil
}
