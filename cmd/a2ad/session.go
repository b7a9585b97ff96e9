package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/term"
)

// SessionCmd is `a2ad session`.
type SessionCmd struct {
	Ls     SessionLsCmd     `cmd:"" group:"commands" help:"List the sessions of the console."`
	Revoke SessionRevokeCmd `cmd:"" group:"commands" help:"End sessions of the console."`
}

// SessionLsCmd is `a2ad session ls`.
type SessionLsCmd struct {
	Tenant string `placeholder:"T" help:"Only sessions of this tenant."`
	Owner  string `placeholder:"O" help:"Only sessions of this owner."`
	Service
	Output
}

// Run lists.
func (c *SessionLsCmd) Run(ctx context.Context, app *App) error {
	return c.withAdmin(ctx, app, func(api *admin.Client) error {
		var list admin.SessionList
		if err := api.Get(ctx, "/sessions", admin.SessionQuery{Tenant: c.Tenant, Owner: c.Owner}, &list); err != nil {
			return err
		}
		head := []string{"SESSION", "SIGNED IN AS", "TENANT/OWNER", "SCOPES", "BEGAN", "LAST USED", "ENDS"}
		return term.Rows(&app.Console, c.json(), head, list.Sessions, func(s admin.Session) []string {
			return []string{
				s.ID, term.Cell(s.Actor), term.Cell(s.Tenant + "/" + s.Owner), term.Cell(strings.Join(s.Scopes, ",")),
				term.Moment(s.CreatedAt), term.Moment(s.UsedAt), term.Moment(s.ExpiresAt),
			}
		})
	})
}

// SessionRevokeCmd is `a2ad session revoke`.
type SessionRevokeCmd struct {
	ID     string `arg:"" optional:"" help:"Id of the session."`
	Tenant string `placeholder:"T" help:"Tenant of the owner whose sessions end."`
	Owner  string `placeholder:"O" help:"Owner whose sessions all end."`
	Reason string `placeholder:"TEXT" help:"Why, for the audit log."`
	Service
	Output
}

// Help is shown below the usage line.
func (*SessionRevokeCmd) Help() string {
	return `Ends sessions on all replicas. The person can sign in again: to keep it out, first withdraw its rights ` +
		`at the identity provider, or revoke its API key. The exit code is 1 if there was no such session.`
}

// Validate is called by the parser.
func (c *SessionRevokeCmd) Validate() error {
	both := c.Tenant != "" && c.Owner != ""
	if c.ID == "" && !both || c.ID != "" && c.Tenant+c.Owner != "" {
		return errors.New("give the ID of a session, or --tenant and --owner")
	}
	return nil
}

// Run ends the sessions.
func (c *SessionRevokeCmd) Run(ctx context.Context, app *App) error {
	return c.withAdmin(ctx, app, func(api *admin.Client) error {
		var done admin.RevokedSessions
		err := api.Post(ctx, "/sessions/revoke", admin.RevokeSessions{
			Why: admin.Why{Reason: c.Reason}, ID: c.ID, Tenant: c.Tenant, Owner: c.Owner,
		}, &done)
		if err != nil {
			return err
		}
		if done.Sessions == 0 {
			return errors.New("no such session; it may have ended")
		}
		if c.json() {
			return term.JSON(app.Stdout, done)
		}
		_, err = fmt.Fprintf(app.Stdout, "%s ended\n", term.Count(done.Sessions, "session"))
		return err
	})
}
