package tasks

import (
	"context"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// endings are tasks that a statement has ended without a run, and the webhooks that must learn of it.
type endings struct {
	ids   []pgtype.UUID
	fold  []pgtype.UUID
	heads webhooks.HeadMoves
}

// add adds a task that has ended. Its artifacts are to be folded if the statement says so.
func (e *endings) add(task pgtype.UUID, folded, hasPush bool) {
	e.ids = append(e.ids, task)
	if folded {
		e.fold = append(e.fold, task)
	}
	e.heads.Add(task, hasPush, true)
}

// finishEndings completes a transaction that has ended tasks without a run: it deletes their checkpoints, folds their
// artifacts, ends their calls, and moves the heads of webhooks.
func (s *Store) finishEndings(ctx context.Context, tx *db.Tx, e *endings) error {
	q := dbsqlc.New(tx)
	if len(e.ids) > 0 {
		if err := q.CheckpointsDelete(ctx, e.ids); err != nil {
			return err
		}
	}
	if len(e.fold) > 0 {
		if err := q.ArtifactFold(ctx, e.fold); err != nil {
			return err
		}
	}
	if len(e.ids) > 0 { // after the artifacts, which parents get
		if err := s.endFamily(ctx, tx, familyOf(e.ids)); err != nil {
			return err
		}
	}
	return e.heads.Move(ctx, tx)
}
