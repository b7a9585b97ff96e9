package db

import (
	"context"
	"time"
)

const setBrowser = "SELECT set_config('role', '" + RoleWorker + "', true), " +
	"set_config('transaction_read_only', 'on', true), set_config('statement_timeout', $1, true)"

// Browse runs searches of people, whose filters are not known in advance: each statement is planned for its
// arguments and may take up to limit. They run on the pool of requests, in the part of it that Reads uses. So they
// delay no run, and requests of callers have the rest of the pool.
func (s *DB) Browse(ctx context.Context, limit time.Duration, f func(tx *Tx) error) error {
	wait, cancel := context.WithTimeout(ctx, s.cfg.AcquireTimeout)
	defer cancel()
	if err := s.readRoom.Acquire(wait, 1); err != nil {
		return busy(ctx, wait, err)
	}
	defer s.readRoom.Release(1)
	_, err := InTxWithin(ctx, s.api, limit, func(tx *Tx) (none struct{}, err error) {
		if _, err := tx.Exec(ctx, setBrowser, ms(limit)); err != nil {
			return none, err
		}
		if err := tx.PlanForArguments(ctx); err != nil {
			return none, err
		}
		return none, f(tx)
	})
	return err
}
