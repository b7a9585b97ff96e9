package maintenance

import (
	"context"
	"log/slog"
	"time"

	"github.com/a2ad/a2ad/internal/backoff"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/wake"
)

// Calls cancels tasks whose parent has ended. It also repairs calls that a server of an earlier version has ended
// without telling the parent.
type Calls struct {
	Store  *tasks.Store
	Wait   func(key string) (wake <-chan struct{}, stop func()) // subscribes to wake-ups
	Logger *slog.Logger

	next tasks.CallPosition // from which the next sweep continues; owned by Run
}

const (
	callsEvery = time.Minute
	callsBatch = 1000
)

// Run works until ctx is done.
func (c *Calls) Run(ctx context.Context) error {
	woken, stop := c.Wait(wake.Orphans)
	defer stop()
	timer := time.NewTimer(0) // a server that was stopped may have left some
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-woken:
		case <-timer.C:
			c.sweep(ctx)
			timer.Reset(backoff.Jitter(callsEvery, nil))
		}
		c.cancel(ctx)
	}
}

// cancel cancels the tasks whose parent has ended.
func (c *Calls) cancel(ctx context.Context) {
	for more := true; more && ctx.Err() == nil; {
		var err error
		if more, err = c.Store.CancelOrphan(ctx); err != nil && ctx.Err() == nil {
			c.Logger.WarnContext(ctx, "cancel the tasks that an ended task has called", "err", err)
		}
	}
}

// sweep looks at some of the calls that have not ended.
func (c *Calls) sweep(ctx context.Context) {
	out, err := c.Store.SweepCalls(ctx, c.next, callsBatch)
	c.next = out.Next
	switch {
	case err != nil && ctx.Err() == nil:
		c.Logger.WarnContext(ctx, "sweep calls", "err", err)
	case out.Repaired > 0:
		c.Logger.InfoContext(ctx, "calls repaired: their tasks had ended without telling each other",
			"calls", out.Repaired)
	}
}
