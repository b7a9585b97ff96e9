package maintenance

import (
	"context"
	"log/slog"
	"time"

	"github.com/a2ad/a2ad/internal/backoff"
	"github.com/a2ad/a2ad/internal/store"
)

// Sweeper forgets what nobody will ask for again: the ids under which workers far away have
// sent batches.
type Sweeper struct {
	Store  *store.Store
	Logger *slog.Logger
}

const (
	sweepEvery  = 10 * time.Minute
	sweepBatch  = 5000
	batchIDsFor = 24 * time.Hour // a worker that repeats a batch does so at once, or after a crash of its own
)

// Run sweeps until ctx is done.
func (s *Sweeper) Run(ctx context.Context) error {
	timer := time.NewTimer(backoff.Jitter(sweepEvery, nil))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		for n := sweepBatch; n == sweepBatch && ctx.Err() == nil; {
			var err error
			if n, err = s.Store.ForgetBatches(ctx, batchIDsFor, sweepBatch); err != nil && ctx.Err() == nil {
				s.Logger.WarnContext(ctx, "forget batch ids", "err", err)
			}
		}
		timer.Reset(backoff.Jitter(sweepEvery, nil))
	}
}
