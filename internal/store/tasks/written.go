package tasks

import (
	"context"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
)

// written finds out whether an earlier try, whose answer was lost, has written a batch that is refused now. Then the
// tasks that it called are stored, too, and start. If they are not, another request has written the batch.
func (s *Store) written(ctx context.Context, a *pendingBatch) (*appended, error) {
	ctx, cancel := s.db.Detached(ctx)
	defer cancel()
	return db.Autocommit(ctx, s.db.Work(), func(tx *db.Tx) (*appended, error) {
		q := dbsqlc.New(tx)
		out, err := a.find(ctx, q)
		if err != nil || out == nil {
			return nil, err
		}
		called, err := stored(ctx, q, a.calls, a.slots)
		if err != nil {
			return nil, err
		}
		s.tellAppended(tx, a, out)
		if len(called) > 0 {
			s.tellCreated(tx, a.calls, called)
		}
		return out, nil
	})
}

// find returns the batch as it was written; nil: it was not. A checkpoint alone leaves no trace, so it counts as not
// written.
func (a *pendingBatch) find(ctx context.Context, q *dbsqlc.Queries) (*appended, error) {
	out := &appended{dbsqlc.EventAppendRow{Base: a.lease.LastSeq, HasPush: a.lease.HasPush}}
	var found bool
	var err error
	switch {
	case len(a.rows) > 0:
		found, err = a.findEvents(ctx, q, out)
	case a.batch.ID != "":
		found, err = q.BatchWritten(ctx, dbsqlc.BatchWrittenParams{
			TaskID: db.PGID(a.lease.TaskID), Epoch: a.lease.Epoch, BatchID: a.batch.ID,
		})
	case a.added > 0:
		found, err = a.findSteps(ctx, q)
	}
	if err != nil || !found {
		return nil, err
	}
	return out, nil
}

// findEvents looks for the events of the batch: the first one follows the newest one that the run knew of.
func (a *pendingBatch) findEvents(ctx context.Context, q *dbsqlc.Queries, out *appended) (bool, error) {
	rows, err := q.EventsAfter(ctx, dbsqlc.EventsAfterParams{
		TaskID: db.PGID(a.lease.TaskID), After: a.lease.LastSeq, Bytes: noLimit, Max: int32(len(a.rows)),
	})
	if err != nil || len(rows) == 0 || rows[0].EventUid.Bytes != a.uids[0] {
		return false, err
	}
	last := rows[len(rows)-1]
	out.LastAt = last.CommittedAt
	if last.State != nil {
		out.State = *last.State
		asked := a.rows[len(a.rows)-1].state
		out.Requeued = asked > int16(a2a.StateWorking) && asked != *last.State
	}
	return true, nil
}

// findSteps looks for the new steps of a batch without events: the first one follows the newest one that the run knew
// of.
func (a *pendingBatch) findSteps(ctx context.Context, q *dbsqlc.Queries) (bool, error) {
	step := a.firstNew()
	rows, err := q.StepsKeyed(ctx, db.PGID(a.lease.TaskID), []string{step.Key})
	return err == nil && len(rows) > 0 && rows[0].Epoch == a.lease.Epoch && int(rows[0].Seq) == step.Seq, err
}

func (a *pendingBatch) firstNew() *a2a.StepRecord {
	for i := range a.batch.Steps {
		if s := &a.batch.Steps[i]; !a.recorded(s) {
			return s
		}
	}
	return nil
}
