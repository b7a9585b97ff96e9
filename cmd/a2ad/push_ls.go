package main

import (
	"context"
	"fmt"
	"time"

	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/term"
)

// PushLsCmd is `a2ad push ls`.
type PushLsCmd struct {
	Task   string `placeholder:"TASK" help:"Only webhooks of this task."`
	Tenant string `placeholder:"T" help:"Only webhooks of this tenant."`
	Owner  string `placeholder:"O" help:"Only webhooks of this owner."`
	Origin string `placeholder:"ORIGIN" help:"Only webhooks to this destination: scheme://host:port."`
	State  string `enum:",${webhook_states}" default:"" placeholder:"STATE" help:"@webhook_states"`
	Before string `placeholder:"ID" help:"Only webhooks older than this one: the next page."`
	Limit  int    `default:"50" placeholder:"N" help:"At most this many webhooks (default 50)."`
	Service
	Output
}

// Validate is called by the parser.
func (c *PushLsCmd) Validate() error { return checkLimit(c.Limit) }

// pushRow is one webhook. Its JSON does not change silently.
type pushRow = admin.Webhook

// Run lists.
func (c *PushLsCmd) Run(ctx context.Context, app *App) error {
	q := admin.WebhookQuery{
		Task: c.Task, Tenant: c.Tenant, Owner: c.Owner, Origin: c.Origin, State: c.State, Cursor: c.Before,
	}
	if _, err := optionalTaskID(c.Task); err != nil {
		return err
	}
	if c.Before != "" {
		if err := checkWebhookID(c.Before); err != nil {
			return err
		}
	}
	return c.withAdmin(ctx, app, func(api *admin.Client) error {
		rows, err := pages(c.Limit, func(most int) (rows []pushRow, more bool, err error) {
			q.Limit = most
			var page admin.WebhookList
			err = api.Get(ctx, "/webhooks", q, &page)
			q.Cursor = page.Next
			return page.Webhooks, page.Next != "", err
		})
		if err != nil {
			return err
		}
		if err := printPushes(app, c.json(), rows); err != nil {
			return err
		}
		if len(rows) == c.Limit && !c.json() {
			app.Note("next page: --before " + rows[len(rows)-1].ID)
		}
		return nil
	})
}

var pushHead = []string{
	"WEBHOOK", "TASK", "ID", "TENANT/OWNER", "STATE", "DELIVERED", "NEXT ATTEMPT", "URL", "REASON",
}

func printPushes(app *App, asJSON bool, rows []pushRow) error {
	optional := []string{"REASON", "ID", "NEXT ATTEMPT", "DELIVERED", "TENANT/OWNER", "TASK"}
	return term.List(&app.Console, asJSON, pushHead, optional, rows, func(r pushRow) []string {
		return []string{
			r.ID, r.TaskID, term.Cell(r.ConfigID), term.Cell(r.Tenant + "/" + r.Owner), describeWebhook(&r),
			fmt.Sprintf("%d/%d", r.Cursor, r.Head), nextAttempt(&r), term.Cell(r.URL), term.Cell(r.Reason),
		}
	})
}

// nextAttempt is the time of the webhook's next try, which is never before that of its destination.
func nextAttempt(r *pushRow) string {
	switch {
	case r.NextAttemptAt == nil || r.DeletedAt != nil || r.State != "active" || r.DisabledAt != nil:
		return "-"
	case r.OpenUntil != nil && r.OpenUntil.After(*r.NextAttemptAt):
		return term.MomentOf(r.OpenUntil)
	}
	return term.MomentOf(r.NextAttemptAt)
}

// describeWebhook says in few words what a webhook does.
func describeWebhook(r *pushRow) string {
	switch {
	case r.DeletedAt != nil:
		return "deleted"
	case r.State == "active" && r.DisabledAt != nil:
		return "destination disabled"
	case r.State == "active" && r.OpenUntil != nil && r.OpenUntil.After(time.Now()):
		return "circuit open"
	}
	return r.State
}
