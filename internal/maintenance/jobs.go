package maintenance

import (
	"context"
	"log/slog"
	"time"

	"github.com/a2ad/a2ad/internal/store/jobs"
)

// JobSweeper removes bulk jobs that ended long ago.
type JobSweeper struct {
	Store  *jobs.Store
	Keep   time.Duration // 0: without limit
	Every  time.Duration
	Logger *slog.Logger
}

const jobBatch = 2000

// Run sweeps every interval until ctx is done.
func (s *JobSweeper) Run(ctx context.Context) error {
	if s.Keep <= 0 {
		<-ctx.Done()
		return nil
	}
	return repeat(ctx, s.Every, s.round)
}

func (s *JobSweeper) round(ctx context.Context) {
	for n := jobBatch; n == jobBatch && ctx.Err() == nil; {
		var err error
		if n, err = s.Store.Sweep(ctx, s.Keep, jobBatch); err != nil && ctx.Err() == nil {
			s.Logger.WarnContext(ctx, "sweep bulk jobs", "err", err)
		}
	}
}
