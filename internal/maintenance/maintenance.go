// Package maintenance does the periodic work: it rescues the tasks of lost workers and removes old data. Every
// replica runs it, and the database lets one work at a time, with a bounded batch per transaction. So nothing depends
// on a particular replica being alive.
package maintenance

import (
	"context"
	"log/slog"
	"time"

	"github.com/a2ad/a2ad/internal/backoff"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// Rescuer rescues tasks whose lease has expired, or whose server is gone.
type Rescuer struct {
	Store    *tasks.Store
	Sessions *tasks.Sessions       // nil: only leases tell
	Policies func() []tasks.Policy // called each time, because agents change
	Others   tasks.Policy          // of agents without a policy
	Every    time.Duration
	Logger   *slog.Logger
}

const (
	rescueBatch = 500
	rescueMost  = 10 // intervals between two searches, at most, however long a search takes
	// suspectEvery is how often it looks whether a server is gone that seems to be.
	suspectEvery = 250 * time.Millisecond
)

// Run searches every interval until ctx is done, and less often if a search takes long.
func (r *Rescuer) Run(ctx context.Context) error {
	timer := time.NewTimer(backoff.Jitter(r.Every, nil))
	defer timer.Stop()
	var share backoff.Share // a search reads all leases, also dead rows that an old snapshot keeps
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
			n, err = r.Store.RescueGone(ctx, r.Sessions, r.Policies(), r.Others, rescueBatch)
			switch {
			case err != nil && ctx.Err() == nil:
				r.Logger.WarnContext(ctx, "rescue", "err", err)
			case n > 0:
				r.Logger.InfoContext(ctx, "rescued tasks of lost workers", "tasks", n)
			}
		}
		wait := share.Wait(time.Since(began), r.Every, rescueMost*r.Every)
		if r.Sessions != nil && r.Sessions.Suspects() {
			wait = min(wait, suspectEvery)
		}
		timer.Reset(backoff.Jitter(wait, nil))
	}
}
