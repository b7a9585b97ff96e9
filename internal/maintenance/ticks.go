package maintenance

import (
	"context"
	"log/slog"
	"time"

	"github.com/a2ad/a2ad/internal/store/schedules"
)

// TickSweeper removes old records of the ticks of schedules.
type TickSweeper struct {
	Store  *schedules.Store
	Keep   time.Duration // 0: without limit
	Every  time.Duration
	Logger *slog.Logger
}

const tickBatch = 2000

// Run sweeps every interval until ctx is done.
func (s *TickSweeper) Run(ctx context.Context) error {
	if s.Keep <= 0 {
		<-ctx.Done()
		return nil
	}
	return repeat(ctx, s.Every, s.round)
}

func (s *TickSweeper) round(ctx context.Context) {
	for n := tickBatch; n == tickBatch && ctx.Err() == nil; {
		var err error
		if n, err = s.Store.Sweep(ctx, s.Keep, tickBatch); err != nil && ctx.Err() == nil {
			s.Logger.WarnContext(ctx, "sweep ticks", "err", err)
		}
	}
}
