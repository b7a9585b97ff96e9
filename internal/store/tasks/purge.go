package tasks

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
)

// PurgeFilter says what to remove: one task, all tasks of an owner of a tenant, or those of a context of that owner. A
// filter that selects everything is refused.
type PurgeFilter struct {
	Task      a2a.ID
	Tenant    string
	Owner     string
	ContextID string

	Most int // Purge stops after at least this many, and a page of them; 0: all
}

func (f *PurgeFilter) check() error {
	if f.Task.IsZero() && (f.Tenant == "" || f.Owner == "") {
		return errors.New("purge: name a task, or a tenant and an owner")
	}
	return nil
}

const purgePage = 200

// Purge removes tasks in any state and everything about them, and returns how many. Running tasks are canceled first.
// After it returns, no request to their webhooks starts. It may be repeated after an error.
func (s *Store) Purge(ctx context.Context, f PurgeFilter) (int, error) {
	if err := f.check(); err != nil {
		return 0, err
	}
	purged := 0
	for after := (a2a.ID{}); ; {
		var rows []dbsqlc.PurgeScanRow
		err := s.db.Search(ctx, func(tx *db.Tx) (err error) {
			q := dbsqlc.New(tx)
			rows, err = q.PurgeScan(ctx, dbsqlc.PurgeScanParams{
				After: db.PGID(after), ID: pgtype.UUID{Bytes: f.Task, Valid: !f.Task.IsZero()}, Tenant: f.Tenant,
				Owner: f.Owner, ContextID: f.ContextID, Max: purgePage,
			})
			return err
		})
		if err != nil {
			return purged, fmt.Errorf("purge: %w", db.Unavailable(err))
		}
		if len(rows) == 0 || f.Most > 0 && purged >= f.Most {
			return purged, nil
		}
		after = rows[len(rows)-1].ID.Bytes
		n, err := s.purge(ctx, rows)
		purged += n
		if err != nil {
			return purged, fmt.Errorf("purge: %w", err)
		}
	}
}

func (s *Store) purge(ctx context.Context, rows []dbsqlc.PurgeScanRow) (int, error) {
	ids, gone := make([]pgtype.UUID, len(rows)), make([]a2a.ID, len(rows))
	for i, r := range rows {
		ids[i], gone[i] = r.ID, r.ID.Bytes
		if a2a.State(r.State).Terminal() {
			continue
		}
		_, err := s.Cancel(ctx, db.Caller{Tenant: r.Tenant, Owner: r.Owner}, "", r.ID.Bytes)
		if c := a2a.CodeOf(err); err != nil && c != a2a.CodeTaskNotCancelable && c != a2a.CodeTaskNotFound {
			return 0, err
		}
	}
	if err := s.webhooks.EndOfTasks(ctx, gone); err != nil {
		return 0, err
	}
	return db.InTxOnce(ctx, s.db, func(tx *db.Tx) (int, error) {
		q := dbsqlc.New(tx)
		if _, err := q.PurgeLock(ctx, ids); err != nil {
			return 0, err
		}
		gone, err := q.TaskDelete(ctx, ids)
		if err != nil {
			return 0, err
		}
		for _, r := range gone {
			if err := access.Record(ctx, tx, access.Action{
				Name: access.ActionTaskPurge, Tenant: r.Tenant, Owner: r.Owner, Task: r.ID.Bytes,
			}); err != nil {
				return 0, err
			}
		}
		return len(gone), nil
	})
}

// CountPurge returns how many tasks Purge would remove now.
func (s *Store) CountPurge(ctx context.Context, f PurgeFilter) (int64, error) {
	if err := f.check(); err != nil {
		return 0, err
	}
	var n int64
	err := s.db.Browse(ctx, s.db.StatementTimeout(), func(ctx context.Context, tx *db.Tx) (err error) {
		q := dbsqlc.New(tx)
		n, err = q.PurgeCount(ctx, dbsqlc.PurgeCountParams{
			ID: pgtype.UUID{Bytes: f.Task, Valid: !f.Task.IsZero()}, Tenant: f.Tenant, Owner: f.Owner,
			ContextID: f.ContextID,
		})
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("count tasks: %w", db.Unavailable(err))
	}
	return n, nil
}
