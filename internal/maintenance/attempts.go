package maintenance

import (
	"context"
	"log/slog"
	"time"

	"github.com/a2ad/a2ad/internal/store/tasks"
)

// AttemptSweeper removes the attempts of tasks that ended long ago and are kept.
type AttemptSweeper struct {
	Store  *tasks.Store
	Keep   time.Duration // since the end of the task; 0: without limit
	Every  time.Duration
	Logger *slog.Logger
}

const attemptBatch = 2000

// Run sweeps every interval until ctx is done.
func (s *AttemptSweeper) Run(ctx context.Context) error {
	if s.Keep <= 0 {
		<-ctx.Done()
		return nil
	}
	return repeat(ctx, s.Every, s.round)
}

// round reads the attempts of tasks that are old enough. It does not read attempts again that it has removed.
func (s *AttemptSweeper) round(ctx context.Context) {
	w := tasks.AttemptSweep{Keep: s.Keep, Batch: attemptBatch}
	removed := 0
	for more := true; more; {
		var n int
		var err error
		began := time.Now()
		if n, more, err = s.Store.SweepAttempts(ctx, &w); err != nil && ctx.Err() == nil {
			s.Logger.WarnContext(ctx, "sweep attempts", "err", err)
		}
		if removed += n; more && !pause(ctx, max(2*time.Since(began), retirePause)) {
			return
		}
	}
	if removed > 0 {
		s.Logger.InfoContext(ctx, "removed attempts of tasks that ended long ago", "attempts", removed)
	}
}
