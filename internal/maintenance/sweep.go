package maintenance

import (
	"context"
	"log/slog"
	"time"

	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// WebhookSweeper bounds the tables of webhooks: without it the ledger would keep every failed attempt, and each
// webhook that a client sets and deletes would leave a row.
type WebhookSweeper struct {
	Store  *webhooks.Store
	Keep   time.Duration // see store.PushSweep
	Forget time.Duration // see store.PushSweep
	Every  time.Duration
	Logger *slog.Logger
}

const sweepBatch = 500

// Run sweeps every interval until ctx is done.
func (s *WebhookSweeper) Run(ctx context.Context) error { return repeat(ctx, s.Every, s.round) }

func (s *WebhookSweeper) round(ctx context.Context) {
	for more := true; more && ctx.Err() == nil; {
		var err error
		more, err = s.Store.Sweep(ctx, webhooks.SweepPolicy{Keep: s.Keep, Forget: s.Forget, Batch: sweepBatch})
		if err != nil && ctx.Err() == nil {
			s.Logger.WarnContext(ctx, "sweep webhooks", "err", err)
		}
	}
}
