package main

import (
	"context"
	"strconv"

	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/term"
)

// PushDestinationsCmd is `a2ad push destinations`.
type PushDestinationsCmd struct {
	Tenant string `placeholder:"T" help:"Only destinations of webhooks of this tenant."`
	Origin string `placeholder:"ORIGIN" help:"Only this destination: scheme://host:port."`
	Limit  int    `default:"50" placeholder:"N" help:"At most this many destinations (default 50)."`
	Service
	Output
}

// Help is shown below the usage line.
func (*PushDestinationsCmd) Help() string {
	return `BACKLOG counts the events that the active webhooks have to deliver. ` +
		`DEAD counts webhooks that have used up their retries: "a2ad push replay" lets them deliver again.`
}

// Validate is called by the parser.
func (c *PushDestinationsCmd) Validate() error { return checkLimit(c.Limit) }

// Run lists.
func (c *PushDestinationsCmd) Run(ctx context.Context, app *App) error {
	return c.withAdmin(ctx, app, func(api *admin.Client) error {
		q, left := admin.DestinationQuery{Tenant: c.Tenant, Origin: c.Origin}, false
		rows, err := pages(c.Limit, func(most int) (rows []admin.Destination, more bool, err error) {
			q.Limit = most
			var page admin.DestinationList
			err = api.Get(ctx, "/destinations", q, &page)
			q.Cursor, left = page.Next, page.Next != ""
			return page.Destinations, left, err
		})
		if err != nil {
			return err
		}
		if err := printDestinations(app, c.json(), rows); err != nil {
			return err
		}
		if left && !c.json() {
			app.Note("there are more: use --tenant, or a larger --limit")
		}
		return nil
	})
}

func printDestinations(app *App, asJSON bool, rows []admin.Destination) error {
	head := []string{
		"TENANT", "DESTINATION", "STATE", "BACKLOG", "ACTIVE", "DEAD", "FAILURES", "NEXT ATTEMPT", "LAST ERROR",
	}
	optional := []string{"ACTIVE", "LAST ERROR", "NEXT ATTEMPT", "FAILURES"}
	return term.List(&app.Console, asJSON, head, optional, rows, func(r admin.Destination) []string {
		return []string{
			term.Cell(r.Tenant), term.Cell(r.Origin), describeDestination(&r), term.Number(r.Backlog),
			term.Number(r.Active), term.Number(r.Dead), strconv.Itoa(r.Failures), term.MomentOf(r.NextAt),
			term.Cell(r.LastError),
		}
	})
}

// describeDestination says in few words whether a destination is called.
func describeDestination(r *admin.Destination) string {
	switch {
	case r.DisabledAt != nil:
		return "disabled"
	case r.OpenUntil != nil:
		return "circuit open"
	case r.Failures > 0:
		return "failing"
	}
	return "ok"
}
