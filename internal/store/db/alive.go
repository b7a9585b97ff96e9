package db

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// Alive returns an error, and closes conn, if the server does not answer. It proves as much as an empty statement does,
// and is no transaction: an idle replica asks several times a second.
func Alive(ctx context.Context, conn *pgx.Conn) error {
	p := conn.PgConn().StartPipeline(ctx)
	err := p.Sync()
	if err == nil {
		_, err = p.GetResults()
	}
	return errors.Join(err, p.Close())
}

// errReadOnly is of a connection that answers but may change nothing.
var errReadOnly = errors.New("the database accepts no changes: it is a standby, or read-only")

// AliveWriter is Alive for a connection on which changes must be possible. It costs a statement only if the server has
// told the connection, with one of its answers (GUC_REPORT), that they are not.
func AliveWriter(ctx context.Context, conn *pgx.Conn) error {
	if err := Alive(ctx, conn); err != nil {
		return err
	}
	c := conn.PgConn()
	if c.ParameterStatus("in_hot_standby") != "on" && c.ParameterStatus("default_transaction_read_only") != "on" {
		return nil
	}
	return writes(ctx, conn) // a pooler may have told it long ago, about another session
}

// writes returns errReadOnly if a transaction of the connection may change nothing.
func writes(ctx context.Context, conn *pgx.Conn) error {
	var readOnly bool
	err := conn.QueryRow(ctx, "SELECT current_setting('transaction_read_only')::boolean").Scan(&readOnly)
	if err == nil && readOnly {
		err = errReadOnly
	}
	return err
}
