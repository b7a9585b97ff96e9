package tasks

import (
	"context"
	"fmt"

	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
	"github.com/a2ad/a2ad/internal/wake"
)

// wakeAnchored registers wake-ups for the waits that WaitsAnchor has moved: tasks of these agents, and webhooks, whose
// name is empty.
func wakeAnchored(tx *db.Tx, agents []string) {
	for _, agent := range agents {
		if agent == "" {
			tx.Wake(wake.Webhooks)
		} else {
			tx.Wake(wake.Ready(agent))
		}
	}
}

// anchorRest moves the other waits that began in the future, if the first batch of n was full.
func (s *Store) anchorRest(ctx context.Context, n, batch int) error {
	moved := n
	for n >= batch {
		var err error
		n, err = db.Autocommit(ctx, s.db.Work(), func(tx *db.Tx) (int, error) {
			agents, err := dbsqlc.New(tx).WaitsAnchor(ctx, int32(batch))
			wakeAnchored(tx, agents)
			return len(agents), err
		})
		if err != nil {
			return fmt.Errorf("anchor waits: %w", db.Unavailable(err))
		}
		moved += n
	}
	if moved > 0 {
		s.db.Logger().WarnContext(ctx,
			"the database's clock was set back: what waited for a time in the future begins to wait anew",
			"tasks_and_webhooks", moved)
	}
	return nil
}
