package main

import (
	"context"
	"strings"

	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/term"
)

// APIKeyLsCmd is `a2ad apikey ls`.
type APIKeyLsCmd struct {
	Tenant   string `placeholder:"T" help:"Only keys of this tenant."`
	Database `group:"database"`
	Output
}

// Run lists.
func (c *APIKeyLsCmd) Run(ctx context.Context, app *App) error {
	return c.withStore(ctx, app, func(s *store.Store) error {
		keys, err := s.Access.Keys(ctx)
		if err != nil {
			return err
		}
		var rows []keyRow
		for i := range keys {
			if c.Tenant == "" || keys[i].Tenant == c.Tenant {
				rows = append(rows, newKeyRow(&keys[i]))
			}
		}
		return printKeys(app, c.json(), rows)
	})
}

func printKeys(app *App, asJSON bool, rows []keyRow) error {
	head := []string{"KEY", "TENANT/OWNER", "SCOPES", "AGENTS", "NAME", "CREATED", "LAST USED", "EXPIRES", "REVOKED"}
	return term.Rows(&app.Console, asJSON, head, rows, func(r keyRow) []string {
		return []string{
			r.ID, term.Cell(r.Tenant + "/" + r.Owner), term.Cell(strings.Join(r.Scopes, ",")),
			term.Cell(keyAgents(r.Agents)), term.Cell(r.Name), term.Moment(r.CreatedAt),
			term.MomentOf(r.LastUsedAt), term.MomentOf(r.ExpiresAt), term.MomentOf(r.RevokedAt),
		}
	})
}
