package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/term"
)

// APIKeyRevokeCmd is `a2ad apikey revoke`.
type APIKeyRevokeCmd struct {
	IDs      []string `arg:"" name:"id" help:"Ids of the keys."`
	Database `group:"database"`
	Output
}

// Run revokes one key after another.
func (c *APIKeyRevokeCmd) Run(ctx context.Context, app *App) error {
	return c.withStore(ctx, app, func(s *store.Store) error {
		return each(ctx, app, c.IDs, func(id string) error {
			row, err := revokeKey(ctx, s, id)
			if err != nil {
				return err
			}
			if c.json() {
				return term.JSON(app.Stdout, row)
			}
			_, err = fmt.Fprintf(app.Stdout, "%s revoked\n", row.ID)
			return err
		})
	})
}

func revokeKey(ctx context.Context, s *store.Store, id string) (keyRow, error) {
	if err := s.Access.RevokeKey(ctx, id); err != nil {
		return keyRow{}, fmt.Errorf("key %s: %w", id, err)
	}
	keys, err := s.Access.Keys(ctx)
	if err != nil {
		return keyRow{}, err
	}
	i := slices.IndexFunc(keys, func(k access.Key) bool { return k.ID == id })
	if i < 0 {
		return keyRow{}, fmt.Errorf("key %s: %w", id, access.ErrNoKey)
	}
	return newKeyRow(&keys[i]), nil
}
