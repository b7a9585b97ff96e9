package store

import (
	"context"
	"fmt"

	"github.com/a2ad/a2ad/internal/store/dbsqlc"
)

// anchored acts on what WaitsAnchor has moved, after the commit: tasks of these agents, and webhooks, which have no
// name there. A full batch may not have been all.
func (s *Store) anchored(ctx context.Context, agents []string, batch int) error {
	moved := 0
	for {
		moved += len(agents)
		woken := make(map[string]bool)
		for _, agent := range agents {
			if !woken[agent] {
				woken[agent] = true
				key := "ready:" + agent
				if agent == "" {
					key = KeyPush
				}
				s.cfg.Wake(key)
			}
		}
		if len(agents) < batch {
			break
		}
		var err error
		if agents, err = dbsqlc.New(s.work).WaitsAnchor(ctx, int32(batch)); err != nil {
			return fmt.Errorf("anchor waits: %w", unavailable(err))
		}
	}
	if moved > 0 {
		s.cfg.Logger.WarnContext(ctx, "the database's clock was set back: what waited for a time in the future begins to wait anew", "tasks_and_webhooks", moved)
	}
	return nil
}
