package maintenance

import (
	"context"
	"log/slog"
	"time"

	"github.com/a2ad/a2ad/internal/backoff"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/wake"
)

// Waits puts tasks whose wait is over into the queue, and fails those whose deadline passes meanwhile. It sleeps until
// the next one is due, by the database's clock.
type Waits struct {
	Store *tasks.Store
	Wait  func(key string) (wake <-chan struct{}, stop func()) // subscribes to wake-ups
	// Every is how often to look without a wake-up, which may be lost.
	Every  time.Duration
	Logger *slog.Logger
}

const (
	waitsBatch = 500
	waitsPause = 20 * time.Millisecond // while other transactions have locked what is due
)

// Run works until ctx is done.
func (w *Waits) Run(ctx context.Context) error {
	woken, stop := w.Wait(wake.Waits)
	defer stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-woken:
		case <-timer.C:
		}
		timer.Reset(w.round(ctx))
	}
}

// round ends the waits that are due, and returns when to look again.
func (w *Waits) round(ctx context.Context) time.Duration {
	for {
		in, ok, err := w.Store.NextWait(ctx)
		switch {
		case err != nil:
			if ctx.Err() == nil {
				w.Logger.WarnContext(ctx, "look for waits that are over", "err", err)
			}
			return backoff.Jitter(min(w.Every, time.Second), nil)
		case !ok:
			return backoff.Jitter(w.Every, nil)
		case in > 0:
			return min(in, backoff.Jitter(w.Every, nil))
		}
		n, err := w.Store.EndWaits(ctx, waitsBatch)
		if err == nil {
			var failed int
			failed, err = w.Store.FailWaits(ctx, waitsBatch)
			n += failed
		}
		if err != nil && ctx.Err() == nil {
			w.Logger.WarnContext(ctx, "end waits", "err", err)
		}
		if n == 0 {
			return waitsPause
		}
	}
}
