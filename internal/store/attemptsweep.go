package store

import (
	"context"
	"fmt"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/dbsqlc"
)

const choreAttempts = 6

// AttemptSweep says what SweepAttempts removes, and where it goes on.
type AttemptSweep struct {
	Keep  time.Duration // since the end of the task
	Batch int           // attempts to look at, at most
	After a2a.ID        // task of the last attempt that was looked at
	Epoch int64         // of that attempt
}

// SweepAttempts removes a batch of attempts of tasks that ended long ago and are kept, and returns how many. more says that there may
// be more: go on with w, which it has moved on. If another process is at it already it does nothing.
func (s *Store) SweepAttempts(ctx context.Context, w *AttemptSweep) (n int, more bool, err error) {
	row, err := committed(ctx, s.work, func(q *dbsqlc.Queries) (out *dbsqlc.AttemptsForgetRow, err error) {
		free, err := q.ChoreLock(ctx, choreClass, choreAttempts)
		if err != nil || !free {
			return nil, err
		}
		now, err := q.Now(ctx)
		if err != nil {
			return nil, err
		}
		r, err := q.AttemptsForget(ctx, dbsqlc.AttemptsForgetParams{
			After: pgID(w.After), AfterEpoch: w.Epoch, Before: pgID(IDAt(now.Time.Add(-w.Keep))), Max: int32(w.Batch), Keep: pgInterval(w.Keep),
		})
		return &r, err
	})
	if err != nil {
		return 0, false, fmt.Errorf("sweep attempts: %w", unavailable(err))
	}
	if row == nil {
		return 0, false, nil
	}
	s.counters.swept(SweepOfAttempts, int(row.Gone))
	w.After, w.Epoch = row.TaskID.Bytes, row.Epoch
	return int(row.Gone), int(row.Looked) == w.Batch, nil
}
