package db

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/a2ad/a2ad/internal/store/db/dbsqlc"
)

// ErrLends means that a pooler between here and PostgreSQL lends server connections for a transaction or a statement.
// Then a client may get the role and the settings of another, and LISTEN does not work.
var ErrLends = errors.New("a pooler between here and PostgreSQL lends its connections by transaction or statement, " +
	"and a2ad needs them by session: " +
	"let the database URL name PostgreSQL itself, or a pool in session mode (PgBouncer: pool_mode = session)")

// probes is how often Lends tries: other clients of the pooler may hide from one try that it lends.
const probes = 3

// PlainConfig returns settings for a connection that any pooler accepts: without prepared statements, and with no
// setting but a name in the startup message.
func PlainConfig(url, application string, timeout time.Duration) (*pgx.ConnConfig, error) {
	pc, err := pgxpool.ParseConfig(url) // it accepts pool settings in the URL
	if err != nil {
		return nil, badURL{Redact(err)}
	}
	cfg := pc.ConnConfig
	cfg.ConnectTimeout = timeout
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	cfg.RuntimeParams["application_name"] = application
	return cfg, nil
}

// RefuseLender fails with ErrLends if url leads to such a pooler. It changes nothing there.
func RefuseLender(ctx context.Context, url, application string, patience time.Duration) error {
	cfg, err := PlainConfig(url, application, patience)
	if err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return Redact(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	switch lends, err := Lends(ctx, conn, func() (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, cfg) }); {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("a pooler between here and PostgreSQL gave no second connection within %s: "+
			"its pool is too small (PgBouncer: default_pool_size)", 2*patience)
	case err != nil:
		return fmt.Errorf("look for a pooler: %w", Redact(err))
	case lends:
		return ErrLends
	}
	return nil
}

// Lends reports whether a connection keeps its server process only for the time of a transaction. conn must not be in
// one; connect opens another connection like it.
//
// PostgreSQL tells each connection its process id at the start. A pooler sends an id of its own, because it must route
// cancel requests. A pooler that lends shows when another connection is in a transaction: that one gets the process of
// the first, or the first gets a new one.
func Lends(ctx context.Context, conn *pgx.Conn, connect func() (*pgx.Conn, error)) (bool, error) {
	first, err := Backend(ctx, conn)
	if err != nil || uint32(first.Pid) == conn.PgConn().PID() {
		return false, err
	}
	for range probes {
		other, err := connect()
		if err != nil {
			return false, err
		}
		lent, err := lentWhile(ctx, conn, other, first.Pid)
		other.Close(context.WithoutCancel(ctx))
		if lent || err != nil {
			return lent, err
		}
	}
	return false, nil
}

func lentWhile(ctx context.Context, conn, other *pgx.Conn, pid int32) (bool, error) {
	tx, err := other.Begin(ctx)
	if IsCode(err, "08P01") { // the pooler lends by statement: there are no transactions
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // nothing hangs on it
	held, err := Backend(ctx, tx)
	if err != nil {
		return false, err
	}
	now, err := Backend(ctx, conn)
	return now.Pid != pid || held.Pid == pid, err
}

// Backend reads which process of the server a connection has, and as which role.
func Backend(ctx context.Context, conn Conn) (dbsqlc.InspectBackendRow, error) {
	return dbsqlc.New(conn).InspectBackend(ctx)
}
