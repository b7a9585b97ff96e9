package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/access/dbsqlc"
	"github.com/a2ad/a2ad/internal/store/db"
)

// SavedView is a filter of tasks that an operator has named, for all operators.
type SavedView struct {
	Name    string
	Query   string // of the URL of the list of tasks
	SavedBy string // the actor, as in Action
	SavedAt time.Time
}

// MaxSavedViews is how many views there may be.
const MaxSavedViews = 50

// ErrViewNotSaved says that a view has the same name, or that there are MaxSavedViews.
var ErrViewNotSaved = a2a.Errorf(a2a.CodeInvalidParams,
	"a view with this name exists, or there are %d views already: remove one first", MaxSavedViews)

// SaveView stores a view of the actor of ctx. It returns ErrViewNotSaved if it may not be added.
func (s *Store) SaveView(ctx context.Context, name, query string) error {
	by := Action{}.Attributed(ctx)
	err := db.DoInTx(ctx, s.db.Work(), func(tx *db.Tx) error {
		_, err := dbsqlc.New(tx).SavedViewInsert(ctx, dbsqlc.SavedViewInsertParams{
			Name: name, Query: query, SavedBy: cmp.Or(by.Actor, tx.Actor()), Most: MaxSavedViews,
		})
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrViewNotSaved
		}
		if err != nil {
			return err
		}
		return Record(ctx, tx, Action{Name: ActionViewSave, Detail: map[string]any{"view": name, "query": query}})
	})
	if err != nil {
		return fmt.Errorf("save view: %w", db.Unavailable(err))
	}
	return nil
}

// RemoveView removes a view, and reports whether there was one.
func (s *Store) RemoveView(ctx context.Context, name string) (removed bool, err error) {
	removed, err = db.InTx(ctx, s.db.Work(), func(tx *db.Tx) (bool, error) {
		query, err := dbsqlc.New(tx).SavedViewRemove(ctx, name)
		if errors.Is(err, pgx.ErrNoRows) {
			return false, tx.Confirm(ctx)
		}
		if err != nil {
			return false, err
		}
		detail := map[string]any{"view": name, "query": query}
		return true, Record(ctx, tx, Action{Name: ActionViewRemove, Detail: detail})
	})
	if err != nil {
		return false, fmt.Errorf("remove view: %w", db.Unavailable(err))
	}
	return removed, nil
}

// SavedViews returns all views by name.
func (s *Store) SavedViews(ctx context.Context) ([]SavedView, error) {
	var rows []dbsqlc.A2aSavedView
	err := s.db.Lookup(ctx, s.db.StatementTimeout(), func(ctx context.Context, tx *db.Tx) (err error) {
		rows, err = dbsqlc.New(tx).SavedViews(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list views: %w", db.Unavailable(err))
	}
	out := make([]SavedView, len(rows))
	for i, r := range rows {
		out[i] = SavedView{Name: r.Name, Query: r.Query, SavedBy: r.SavedBy, SavedAt: r.SavedAt.Time.UTC()}
	}
	return out, nil
}
