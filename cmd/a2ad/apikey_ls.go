package main

import (
	"context"
	"strings"

	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/term"
)

// APIKeyLsCmd is `a2ad apikey ls`.
type APIKeyLsCmd struct {
	Tenant string `placeholder:"T" help:"Only keys of this tenant."`
	Service
	Output
}

// Run lists.
func (c *APIKeyLsCmd) Run(ctx context.Context, app *App) error {
	return c.withAdmin(ctx, app, func(api *admin.Client) error {
		var list admin.KeyList
		if err := api.Get(ctx, "/keys", admin.KeyQuery{Tenant: c.Tenant}, &list); err != nil {
			return err
		}
		return printKeys(app, c.json(), list.Keys)
	})
}

func printKeys(app *App, asJSON bool, rows []keyRow) error {
	head := []string{"KEY", "TENANT/OWNER", "SCOPES", "AGENTS", "NAME", "CREATED", "LAST USED", "EXPIRES", "REVOKED"}
	optional := []string{"CREATED", "AGENTS", "LAST USED", "NAME", "REVOKED", "EXPIRES"}
	return term.List(&app.Console, asJSON, head, optional, rows, func(r keyRow) []string {
		return []string{
			r.ID, term.Cell(r.Tenant + "/" + r.Owner), term.Cell(strings.Join(r.Scopes, ",")),
			term.Cell(keyAgents(r.Agents)), term.Cell(r.Name), term.Moment(r.CreatedAt),
			term.MomentOf(r.LastUsedAt), term.MomentOf(r.ExpiresAt), term.MomentOf(r.RevokedAt),
		}
	})
}
