package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/term"
)

// APIKeyRevokeCmd is `a2ad apikey revoke`.
type APIKeyRevokeCmd struct {
	IDs    []string `arg:"" name:"id" help:"Ids of the keys."`
	Reason string   `placeholder:"TEXT" help:"Why, for the audit log."`
	Service
	Output
}

// Run revokes one key after another.
func (c *APIKeyRevokeCmd) Run(ctx context.Context, app *App) error {
	return c.withAdmin(ctx, app, func(api *admin.Client) error {
		return each(ctx, app, c.IDs, func(id string) error {
			if id == "" {
				return errors.New("the id of a key is empty")
			}
			var row keyRow
			err := api.Post(ctx, "/keys/"+url.PathEscape(id)+"/revoke", admin.Why{Reason: c.Reason}, &row)
			if err != nil {
				return fmt.Errorf("key %s: %w", id, err)
			}
			if c.json() {
				return term.JSON(app.Stdout, row)
			}
			_, err = fmt.Fprintf(app.Stdout, "%s revoked\n", row.ID)
			return err
		})
	})
}
