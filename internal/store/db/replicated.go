package db

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// With synchronous replication a commit waits until a standby has it. PostgreSQL ends that wait early if it is asked to
// cancel the statement or to end the connection, or if it crashes. The transaction is then committed on this server,
// others see it, and a failover loses it. Two rules follow:
//
//   - A commit that was not waited for is not acknowledged: PostgreSQL answers it with success, and says the truth in a
//     warning. The pools turn the warning into an error, after which the outcome is unknown.
//   - Nothing is acknowledged only because it was found stored: Confirm waits until it is on a standby, too.

// errUnreplicated is the outcome of a commit that was not waited for.
var errUnreplicated = errors.New("the wait for a synchronous standby was canceled: a failover may lose the commit")

// unreplicated is the key of the mark on a connection whose last commit was not waited for.
const unreplicated = "a2ad-unreplicated"

// note marks a connection. The text of the warning depends on the language of the server; the function does not.
func note(c *pgconn.PgConn, n *pgconn.Notice) {
	if n.Routine == "SyncRepWaitForLSN" {
		c.CustomData()[unreplicated] = true
	}
}

// replicated returns err, or errUnreplicated if the statement that has just ended was committed without its wait.
func replicated(conn *pgxpool.Conn, err error) error {
	data := conn.Conn().PgConn().CustomData()
	if data[unreplicated] == nil {
		return err
	}
	delete(data, unreplicated)
	return errors.Join(err, errUnreplicated)
}

// Confirm waits until a synchronous standby has everything that was visible when it was called. It is for answers that
// rest on what an earlier transaction has stored, while they write nothing. Without synchronous standbys it costs one
// commit.
func (s *DB) Confirm(ctx context.Context) error {
	ctx, cancel := s.Detached(ctx)
	defer cancel()
	_, err := s.work.Exec(ctx, emitRecord)
	return err
}

// emitRecord writes a record that nobody reads: a transaction that writes nothing does not wait. Its first line names
// it, as sqlc does with others.
const emitRecord = "-- name: Confirm :exec\nSELECT pg_catalog.pg_logical_emit_message(true, 'a2ad', '')"
