package db

import (
	"context"
	"time"
)

// demotion reports whether another server may accept what this one has refused because it is read-only.
func (s *DB) demotion(err error) bool { return IsCode(err, "25006") && !s.reach.readOnly.Load() }

// RepeatRead is Repeat for reads into variables of the caller. Writes use Repeat.
func (s *DB) RepeatRead(ctx context.Context, f func() error) error {
	_, err := repeat(ctx, s, func(int) (struct{}, error) { return struct{}{}, f() }, nil)
	return err
}

// Repeat runs f again while the connection fails. It tries for as long as a crashed PostgreSQL needs to restart, but
// not longer than a caller should wait for an error. It returns the value of the try that succeeded. f must be safe to
// run twice; its argument is the number of the try, from 1. A later try may find what an earlier one has stored, and
// succeed without a write: so it is confirmed.
func Repeat[T any](ctx context.Context, s *DB, f func(try int) (T, error)) (T, error) {
	return repeat(ctx, s, f, s.Confirm)
}

func repeat[T any](
	ctx context.Context, s *DB, f func(try int) (T, error), confirm func(context.Context) error,
) (T, error) {
	const tries = 8
	end := time.Now().Add(s.cfg.ConnectTimeout)
	var none T
	wait := 20 * time.Millisecond
	for try := 1; ; try++ {
		v, err := f(try)
		if err == nil && try > 1 && confirm != nil {
			err = confirm(ctx)
		}
		if err == nil {
			return v, nil
		}
		if !ConnectionLost(err) && !s.demotion(err) || try == tries || ctx.Err() != nil || time.Now().After(end) {
			return none, Unavailable(err)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return none, Unavailable(err)
		}
		wait = min(2*wait, 500*time.Millisecond)
	}
}
