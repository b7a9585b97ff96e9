package store

import (
	"context"
	"fmt"
	"time"

	"github.com/a2ad/a2ad/internal/store/dbsqlc"
)

// ActionSweep says what SweepActions removes. The database keeps failed sign-ins for a day and the rest for 30 days in any case.
type ActionSweep struct {
	Keep        time.Duration // age of what was done; 0: for ever
	KeepSignIns time.Duration // age of failed sign-ins; 0: as long as the rest
	Batch       int           // rows of each kind at once
}

// SweepActions removes a batch of what was done long ago from the audit log, which has an entry for that, and returns
// how much that was. If another process is at it already it does nothing. more says that there may be more.
func (s *Store) SweepActions(ctx context.Context, w ActionSweep) (n int, more bool, err error) {
	n, err = inTx(ctx, s.work, func(tx *Tx) (int, error) {
		free, err := tx.tryChore(ctx, choreActions)
		if err != nil || !free {
			return 0, err
		}
		gone, err := dbsqlc.New(tx).ActionsForget(ctx, dbsqlc.ActionsForgetParams{Keep: pgInterval(w.Keep), KeepSignins: pgInterval(w.KeepSignIns), Batch: int32(w.Batch)})
		if err != nil {
			return 0, err
		}
		tx.After(func() { s.CountSwept(SweepOfActions, int(gone)) })
		if gone == 0 {
			return 0, nil
		}
		return int(gone), record(ctx, tx, Action{Name: ActionAuditRetire, Detail: map[string]any{"actions": gone}})
	})
	if err != nil {
		return 0, false, fmt.Errorf("sweep the audit log: %w", unavailable(err))
	}
	return n, n >= w.Batch, nil
}
