package maintenance

import (
	"context"
	"log/slog"
	"time"

	"github.com/a2ad/a2ad/internal/store/tasks"
)

// UsageSummer moves the usage that runs have reported into the sums by day, and removes old sums. The sums that are
// read contain what it has not moved yet, so it may be late.
type UsageSummer struct {
	Store  *tasks.Store
	Keep   time.Duration // of the sums; 0: without limit
	Logger *slog.Logger
}

const (
	usageEvery = time.Minute
	usageBatch = 5000
)

// Run works every minute until ctx is done.
func (u *UsageSummer) Run(ctx context.Context) error { return repeat(ctx, usageEvery, u.round) }

func (u *UsageSummer) round(ctx context.Context) {
	for n := usageBatch; n == usageBatch && ctx.Err() == nil; {
		var err error
		if n, err = u.Store.SumUsage(ctx, usageBatch); err != nil && ctx.Err() == nil {
			u.Logger.WarnContext(ctx, "sum usage", "err", err)
		}
	}
	if u.Keep <= 0 {
		return
	}
	for n := usageBatch; n == usageBatch && ctx.Err() == nil; {
		var err error
		if n, err = u.Store.SweepUsage(ctx, u.Keep, usageBatch); err != nil && ctx.Err() == nil {
			u.Logger.WarnContext(ctx, "sweep usage", "err", err)
		}
	}
}
