package tasks

import (
	"context"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
)

// failIn fails tasks that the transaction has locked and taken from where they waited, each with its text as the
// message, and returns how many.
func (s *Store) failIn(ctx context.Context, tx *db.Tx, ids []pgtype.UUID, texts []string) (int, error) {
	if len(ids) == 0 {
		return 0, nil
	}
	rows, err := dbsqlc.New(tx).TasksFail(ctx, dbsqlc.TasksFailParams{
		Ids: ids, Texts: texts,
		FoldEvents: foldEvents, FoldMostEvents: foldMostEvents, FoldMostBytes: foldMostBytes,
	})
	if err != nil {
		return 0, err
	}
	var e endings
	for _, r := range rows {
		s.tell(tx, r.ID.Bytes)
		e.add(r.ID, r.Folded, r.HasPush)
	}
	tx.After(func() { s.counters.enter(a2a.StateFailed, len(rows)) })
	return len(rows), s.finishEndings(ctx, tx, &e)
}
