// Package maintenance does what no request and no run does: it takes tasks from workers that
// are no longer heard of. Every replica runs it; the database lets one work at a time, a
// bounded batch per transaction, so that nothing depends on one of them being alive.
package maintenance

import (
	"context"
	"log/slog"
	"time"

	"github.com/a2ad/a2ad/internal/backoff"
	"github.com/a2ad/a2ad/internal/store"
)

// Rescuer frees tasks whose lease ran out.
type Rescuer struct {
	Store       *store.Store
	Policies    func() []store.Policy // asked each time, because agents change
	MaxAttempts int                   // of agents without a policy
	Every       time.Duration
	Logger      *slog.Logger
}

const (
	rescueBatch = 500
	rescueMost  = 10 // intervals, however long a look takes
)

// Run looks every interval until ctx is done, less often where a look takes long.
func (r *Rescuer) Run(ctx context.Context) error {
	timer := time.NewTimer(backoff.Jitter(r.Every, nil))
	defer timer.Stop()
	var share backoff.Share // it reads all leases, also dead ones that somebody's snapshot keeps
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		var began time.Time
		for n := rescueBatch; n == rescueBatch; {
			var err error
			began = time.Now()
			n, err = r.Store.Rescue(ctx, r.Policies(), r.MaxAttempts, rescueBatch)
			switch {
			case err != nil && ctx.Err() == nil:
				r.Logger.WarnContext(ctx, "rescue", "err", err)
			case n > 0:
				r.Logger.InfoContext(ctx, "rescued tasks of lost workers", "tasks", n)
			}
		}
		timer.Reset(backoff.Jitter(share.Wait(time.Since(began), r.Every, rescueMost*r.Every), nil))
	}
}
