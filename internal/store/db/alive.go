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
