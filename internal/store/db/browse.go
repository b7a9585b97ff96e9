package db

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const setBrowser = "SELECT set_config('role', '" + RoleWorker + "', true), " +
	"set_config('transaction_read_only', 'on', true), set_config('statement_timeout', $1, true)"

// errBrowsedTooLong is of a search that was given up: Blocked reports true.
var errBrowsedTooLong = errors.New("the search took too long")

// Browse runs searches of people, whose filters are not known in advance: each statement is planned for its arguments.
// All of f may take up to limit, and f runs its statements with the context that it gets. Searches use a quarter of the
// pool of requests, as a part of what callers may use. So they delay no run and no stream, and few requests.
func (s *DB) Browse(ctx context.Context, limit time.Duration, f func(ctx context.Context, tx *Tx) error) error {
	return s.browse(ctx, s.searches, limit, f)
}

// Lookup is Browse for what is found by its id, so that slow searches do not delay it. It uses the part of the pool
// that Reads uses.
func (s *DB) Lookup(ctx context.Context, limit time.Duration, f func(ctx context.Context, tx *Tx) error) error {
	return s.browse(ctx, s.reads, limit, f)
}

func (s *DB) browse(
	ctx context.Context, part *share, limit time.Duration, f func(ctx context.Context, tx *Tx) error,
) error {
	leave, err := s.enter(ctx, part)
	if err != nil {
		return err
	}
	defer leave()
	_, err = InTxWithin(ctx, s.api, limit, func(tx *Tx) (none struct{}, err error) {
		within, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		if err = prepareBrowse(within, tx, limit); err == nil {
			err = f(within, tx)
		}
		switch {
		case err == nil || within.Err() == nil || ctx.Err() != nil:
		case tx.isClosed(): // PostgreSQL did not even answer that it canceled the statement
			s.connLost(true)
		default:
			err = fmt.Errorf("%w: %w", errBrowsedTooLong, err)
		}
		return none, err
	})
	return err
}

func prepareBrowse(ctx context.Context, tx *Tx, limit time.Duration) error {
	if _, err := tx.Exec(ctx, setBrowser, ms(limit)); err != nil {
		return err
	}
	return tx.PlanForArguments(ctx)
}
