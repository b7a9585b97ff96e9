package tasks

import (
	"context"
	"fmt"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
)

// AttemptSweep says what SweepAttempts removes, and where it continues.
type AttemptSweep struct {
	Keep  time.Duration // since the end of the task
	Batch int           // attempts to read, at most
	After a2a.ID        // task of the last attempt that was read
	Epoch int64         // of that attempt
}

// SweepAttempts removes a batch of attempts of tasks that ended long ago and still exist, and returns how many. more
// says that there may be more: call it again with w, whose position it has moved. If another process is doing this, it
// does nothing.
func (s *Store) SweepAttempts(ctx context.Context, w *AttemptSweep) (n int, more bool, err error) {
	row, err := db.InTx(ctx, s.db.Work(), func(tx *db.Tx) (out *dbsqlc.AttemptsForgetRow, err error) {
		q := dbsqlc.New(tx)
		free, err := tx.TryChore(ctx, db.ChoreAttempts)
		if err != nil || !free {
			return nil, err
		}
		now, err := tx.Now(ctx)
		if err != nil {
			return nil, err
		}
		r, err := q.AttemptsForget(ctx, dbsqlc.AttemptsForgetParams{
			After: db.PGID(w.After), AfterEpoch: w.Epoch, Before: db.PGID(db.IDAt(now.Add(-w.Keep))),
			Max: int32(w.Batch), Keep: db.PGInterval(w.Keep),
		})
		if err != nil {
			return nil, err
		}
		tx.After(func() { s.db.CountSwept(db.SweepOfAttempts, int(r.Gone)) })
		return &r, nil
	})
	if err != nil {
		return 0, false, fmt.Errorf("sweep attempts: %w", db.Unavailable(err))
	}
	if row == nil {
		return 0, false, nil
	}
	w.After, w.Epoch = row.TaskID.Bytes, row.Epoch
	return int(row.Gone), int(row.Found) == w.Batch, nil
}
