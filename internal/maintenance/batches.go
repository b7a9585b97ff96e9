package maintenance

import (
	"context"
	"log/slog"
	"time"

	"github.com/a2ad/a2ad/internal/store/tasks"
)

// BatchSweeper removes old ids under which remote workers have sent batches.
type BatchSweeper struct {
	Store  *tasks.Store
	Logger *slog.Logger
}

const (
	batchesEvery  = 10 * time.Minute
	batchesAtOnce = 5000
	batchIDsFor   = 24 * time.Hour // a worker repeats a batch immediately, or after its own crash
)

// Run sweeps until ctx is done.
func (s *BatchSweeper) Run(ctx context.Context) error { return repeat(ctx, batchesEvery, s.round) }

func (s *BatchSweeper) round(ctx context.Context) {
	for n := batchesAtOnce; n == batchesAtOnce && ctx.Err() == nil; {
		var err error
		if n, err = s.Store.ForgetBatches(ctx, batchIDsFor, batchesAtOnce); err != nil && ctx.Err() == nil {
			s.Logger.WarnContext(ctx, "forget batch ids", "err", err)
		}
	}
}
