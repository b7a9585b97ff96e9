package notify

import (
	"context"
	"log/slog"
	"time"
)

// Losses wakes every waiter after another process has died: the wake-ups of its last commits may be lost. It is for
// waiters that cannot poll, because their query would read everything.
type Losses struct {
	Hub *Hub
	// Dead returns the processes that have ended without a last flush, as far as is known. A process has another name
	// after each start.
	Dead  func(ctx context.Context) ([]string, error)
	Every time.Duration // between two calls of Dead
	Log   *slog.Logger
}

// Run looks for dead processes until ctx is done. Those that it finds first are older than its waiters.
func (l *Losses) Run(ctx context.Context) error {
	tick := time.NewTicker(l.Every)
	defer tick.Stop()
	var known map[string]struct{} // nil: not read yet
	for {
		dead, err := l.Dead(ctx)
		switch {
		case err == nil:
			known = l.compare(known, dead)
		case ctx.Err() == nil:
			l.Log.WarnContext(ctx, "look for servers that have died", "err", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// compare wakes all waiters if a process has died that is not known, and returns those that are dead.
func (l *Losses) compare(known map[string]struct{}, dead []string) map[string]struct{} {
	now := make(map[string]struct{}, len(dead))
	more := false
	for _, name := range dead {
		_, old := known[name]
		now[name], more = struct{}{}, more || !old
	}
	if known != nil && more {
		l.Hub.WakeAll()
	}
	return now
}
