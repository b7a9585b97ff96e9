package db

import (
	"context"
	"time"
)

// RepeatRead is repeated for what reads, into variables of its caller. What writes uses repeated.
func (s *DB) RepeatRead(ctx context.Context, f func() error) error {
	_, err := Repeat(ctx, s, func(int) (struct{}, error) { return struct{}{}, f() })
	return err
}

// Repeat runs f again while the connection fails, for as long as a crashed PostgreSQL needs
// to come back, but no longer than a caller should wait to be refused. It returns the value of the try that succeeded. f must
// be safe to run twice; it is told which try it is, from 1.
func Repeat[T any](ctx context.Context, s *DB, f func(try int) (T, error)) (T, error) {
	const tries = 8
	end := time.Now().Add(s.cfg.ConnectTimeout)
	var none T
	wait := 20 * time.Millisecond
	for try := 1; ; try++ {
		v, err := f(try)
		if err == nil {
			return v, nil
		}
		if !ConnectionLost(err) || try == tries || ctx.Err() != nil || time.Now().After(end) {
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
