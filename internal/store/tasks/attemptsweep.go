package tasks

import (
	"bytes"
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

	imported bool // it has come to the tasks whose ids do not tell when they were created
}

// span returns the ids of the tasks to read: those of tasks that are old enough, and then those that other servers have
// made, which are random. As in RetireImported, nearly all of them are far beyond those that this server makes now.
func (w *AttemptSweep) span(now time.Time) (after, before a2a.ID) {
	if !w.imported {
		return w.After, db.IDAt(now.Add(-w.Keep))
	}
	after = db.IDAt(now.Add(aheadOfAll))
	if bytes.Compare(w.After[:], after[:]) > 0 {
		after = w.After
	}
	return after, lastID
}

// next moves the position, and reports whether there may be more to read.
func (w *AttemptSweep) next(row *dbsqlc.AttemptsForgetRow) bool {
	w.After, w.Epoch = row.TaskID.Bytes, row.Epoch
	switch {
	case int(row.Found) == w.Batch:
		return true
	case !w.imported:
		w.After, w.Epoch, w.imported = a2a.ID{}, 0, true
		return true
	}
	return false
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
		after, before := w.span(now)
		r, err := q.AttemptsForget(ctx, dbsqlc.AttemptsForgetParams{
			After: db.PGID(after), AfterEpoch: w.Epoch, Before: db.PGID(before),
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
	return int(row.Gone), w.next(row), nil
}
