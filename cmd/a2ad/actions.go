package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/term"
)

// ActionsCmd is `a2ad actions`.
type ActionsCmd struct {
	Task   string `placeholder:"ID" help:"Only actions on this task."`
	Action string `placeholder:"NAME" help:"Only this action, for example task.cancel."`
	Actor  string `placeholder:"TEXT" help:"@actor"`
	Tenant string `placeholder:"T" help:"Only actions about this tenant."`
	Since  Moment `placeholder:"TIME" help:"Only actions since then: a time, or how long ago (24h)."`
	Until  Moment `placeholder:"TIME" help:"Only actions before then."`
	Before int64  `placeholder:"ID" help:"Only actions older than this one: the next page."`
	Limit  int    `default:"50" placeholder:"N" help:"At most this many actions (default 50)."`
	Service
	Output
}

// Help is shown below the usage line.
func (*ActionsCmd) Help() string {
	return `The audit log, newest first: failed sign-ins, keys, cancels, and everything that operators do. ` +
		`The log cannot be changed. The view audit.action shows the same.`
}

// Validate is called by the parser.
func (c *ActionsCmd) Validate() error { return checkLimit(c.Limit) }

// actionRow is one action. Its JSON does not change silently.
type actionRow = admin.Action

// Run lists.
func (c *ActionsCmd) Run(ctx context.Context, app *App) error {
	if _, err := optionalTaskID(c.Task); err != nil {
		return err
	}
	return c.withAdmin(ctx, app, func(api *admin.Client) error {
		rows, err := c.list(ctx, api)
		if err != nil {
			return err
		}
		if err := printActions(app, c.json(), rows); err != nil {
			return err
		}
		if len(rows) == c.Limit && !c.json() {
			app.Note(fmt.Sprintf("next page: --before %d", rows[len(rows)-1].ID))
		}
		return nil
	})
}

func (c *ActionsCmd) list(ctx context.Context, api *admin.Client) ([]actionRow, error) {
	q := admin.ActionQuery{
		Task: c.Task, Action: c.Action, Tenant: c.Tenant, Actor: c.Actor, Since: c.Since.Time, Until: c.Until.Time,
	}
	if c.Before > 0 {
		q.Cursor = strconv.FormatInt(c.Before, 10)
	}
	return pages(c.Limit, func(most int) (rows []actionRow, more bool, err error) {
		q.Limit = most
		var page admin.ActionList
		err = api.Get(ctx, "/actions", q, &page)
		q.Cursor = page.Next
		return page.Actions, page.Next != "", err
	})
}

func printActions(app *App, asJSON bool, rows []actionRow) error {
	head := []string{"TIME", "ACTOR", "ACTION", "TENANT/OWNER", "TASK", "DETAIL"}
	optional := []string{"DETAIL", "TASK", "TENANT/OWNER"}
	return term.Records(&app.Console, asJSON, head, optional, rows, func(r actionRow) []string {
		detail := string(r.Detail)
		if detail == "{}" {
			detail = ""
		}
		owner := ""
		if r.Tenant != "" || r.Owner != "" {
			owner = strings.TrimSuffix(r.Tenant+"/"+r.Owner, "/")
		}
		return []string{
			term.Moment(r.At), term.Cell(r.Actor), term.Cell(r.Action), term.Cell(owner), term.Cell(r.TaskID),
			term.Cell(detail),
		}
	})
}
