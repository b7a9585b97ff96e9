package maintenance

import (
	"context"
	"log/slog"
	"time"

	"github.com/a2ad/a2ad/internal/store/access"
)

// ActionSweeper bounds the audit log: attempts to sign in with wrong keys add a row per minute and address.
type ActionSweeper struct {
	Store       *access.Store
	Keep        time.Duration // see store.ActionSweep
	KeepSignIns time.Duration // see store.ActionSweep
	Every       time.Duration
	Logger      *slog.Logger
}

const actionBatch = 5000

// Run sweeps every interval until ctx is done.
func (s *ActionSweeper) Run(ctx context.Context) error { return repeat(ctx, s.Every, s.round) }

func (s *ActionSweeper) round(ctx context.Context) {
	removed := 0
	for more := true; more && ctx.Err() == nil; {
		var n int
		var err error
		n, more, err = s.Store.SweepActions(ctx, access.ActionSweep{
			Keep: s.Keep, KeepSignIns: s.KeepSignIns, Batch: actionBatch,
		})
		if removed += n; err != nil && ctx.Err() == nil {
			s.Logger.WarnContext(ctx, "sweep the audit log", "err", err)
		}
	}
	if removed > 0 {
		s.Logger.InfoContext(ctx, "removed old actions from the audit log", "actions", removed)
	}
}
