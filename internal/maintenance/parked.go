package maintenance

import (
	"context"
	"log/slog"
	"time"

	"github.com/a2ad/a2ad/internal/store/tasks"
)

// ParkedSweeper fails tasks that have been parked for as long as they may.
type ParkedSweeper struct {
	Store  *tasks.Store
	Logger *slog.Logger
}

const (
	parkedEvery = 15 * time.Second
	parkedBatch = 200
)

// Run sweeps until ctx is done.
func (s *ParkedSweeper) Run(ctx context.Context) error { return repeat(ctx, parkedEvery, s.round) }

func (s *ParkedSweeper) round(ctx context.Context) {
	failed := 0
	for n := parkedBatch; n == parkedBatch && ctx.Err() == nil; {
		var err error
		if n, err = s.Store.ExpireParked(ctx, parkedBatch); err != nil && ctx.Err() == nil {
			s.Logger.WarnContext(ctx, "fail parked tasks", "err", err)
		}
		failed += n
	}
	if failed > 0 {
		s.Logger.InfoContext(ctx, "tasks were parked for too long, and have failed", "tasks", failed)
	}
}
