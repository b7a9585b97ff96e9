package access

import (
	"context"
	"fmt"
	"time"

	"github.com/a2ad/a2ad/internal/store/access/dbsqlc"
	"github.com/a2ad/a2ad/internal/store/db"
)

// ActionSweep says what SweepActions removes. The database keeps failed sign-ins for a day and the rest for 30 days in
// any case.
type ActionSweep struct {
	Keep        time.Duration // age of actions; 0: for ever
	KeepSignIns time.Duration // age of failed sign-ins; 0: as long as the rest
	Batch       int           // rows of each kind at once
}

// SweepActions removes a batch of old actions from the audit log, records that there, and returns how many. If another
// process is doing this, it does nothing. more says that there may be more.
func (s *Store) SweepActions(ctx context.Context, w ActionSweep) (n int, more bool, err error) {
	n, err = db.InTx(ctx, s.db.Work(), func(tx *db.Tx) (int, error) {
		free, err := tx.TryChore(ctx, db.ChoreActions)
		if err != nil || !free {
			return 0, err
		}
		gone, err := dbsqlc.New(tx).ActionsForget(ctx, dbsqlc.ActionsForgetParams{
			Keep: db.PGInterval(w.Keep), KeepSignins: db.PGInterval(w.KeepSignIns), Batch: int32(w.Batch),
		})
		if err != nil {
			return 0, err
		}
		tx.After(func() { s.db.CountSwept(db.SweepOfActions, int(gone)) })
		if gone == 0 {
			return 0, nil
		}
		return int(gone), Record(ctx, tx, Action{Name: ActionAuditRetire, Detail: map[string]any{"actions": gone}})
	})
	if err != nil {
		return 0, false, fmt.Errorf("sweep the audit log: %w", db.Unavailable(err))
	}
	return n, n >= w.Batch, nil
}
