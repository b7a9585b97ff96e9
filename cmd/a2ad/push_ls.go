package main

import (
	"context"
	"fmt"
	"time"

	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/term"
)

// PushLsCmd is `a2ad push ls`.
type PushLsCmd struct {
	Task     string `placeholder:"TASK" help:"Only webhooks of this task."`
	Tenant   string `placeholder:"T" help:"Only webhooks of this tenant."`
	Owner    string `placeholder:"O" help:"Only webhooks of this owner."`
	Origin   string `placeholder:"ORIGIN" help:"Only webhooks to this destination: scheme://host:port."`
	State    string `enum:",${webhook_states}" default:"" placeholder:"STATE" help:"${webhook_states_help}"`
	Before   string `placeholder:"ID" help:"Only webhooks older than this one: the next page."`
	Limit    int    `default:"50" placeholder:"N" help:"At most this many webhooks (default 50)."`
	Database `group:"database"`
	Output
}

// Validate is called by the parser.
func (c *PushLsCmd) Validate() error { return checkLimit(c.Limit) }

// pushRow is one webhook. Its JSON does not change silently.
type pushRow struct {
	ID            string     `json:"id"`
	TaskID        string     `json:"taskId"`
	ConfigID      string     `json:"configId"`
	Tenant        string     `json:"tenant"`
	Owner         string     `json:"owner"`
	URL           string     `json:"url"`
	Origin        string     `json:"origin"`
	State         string     `json:"state"`
	Reason        string     `json:"reason,omitempty"`
	Cursor        int64      `json:"cursor"` // the newest event that was delivered
	Head          int64      `json:"head"`   // the newest event
	Attempt       int        `json:"attempt"`
	NextAttemptAt *time.Time `json:"nextAttemptAt,omitempty"`
	CreatedAt     time.Time  `json:"createdAt"`
	DeletedAt     *time.Time `json:"deletedAt,omitempty"`
	OpenUntil     *time.Time `json:"destinationRestsUntil,omitempty"`
	DisabledAt    *time.Time `json:"destinationDisabledAt,omitempty"`
}

func newPushRow(p *webhooks.Row) pushRow {
	return pushRow{
		ID: p.Row.String(), TaskID: p.Task.String(), ConfigID: p.ConfigID, Tenant: p.Tenant, Owner: p.Owner,
		URL: p.URL, Origin: p.Origin, State: p.State, Reason: p.Reason, Cursor: p.Cursor, Head: p.Head,
		Attempt: p.Attempt, NextAttemptAt: orNil(p.NextAttemptAt), CreatedAt: p.CreatedAt,
		DeletedAt: orNil(p.DeletedAt), OpenUntil: orNil(p.OpenUntil), DisabledAt: orNil(p.DisabledAt),
	}
}

func (c *PushLsCmd) filter() (f webhooks.Filter, err error) {
	f = webhooks.Filter{Tenant: c.Tenant, Owner: c.Owner, Origin: c.Origin, State: c.State, Limit: c.Limit}
	if f.Task, err = optionalTaskID(c.Task); err != nil {
		return f, err
	}
	if c.Before != "" {
		f.Before, err = parseWebhookID(c.Before)
	}
	return f, err
}

// Run lists.
func (c *PushLsCmd) Run(ctx context.Context, app *App) error {
	return c.withStore(ctx, app, func(s *store.Store) error {
		f, err := c.filter()
		if err != nil {
			return err
		}
		found, err := s.Webhooks.List(ctx, f)
		if err != nil {
			return err
		}
		rows := make([]pushRow, len(found))
		for i := range found {
			rows[i] = newPushRow(&found[i])
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
	return term.Rows(&app.Console, asJSON, pushHead, rows, func(r pushRow) []string {
		return []string{
			r.ID, r.TaskID, term.Cell(r.ConfigID), term.Cell(r.Tenant + "/" + r.Owner), r.show(),
			fmt.Sprintf("%d/%d", r.Cursor, r.Head), r.next(), term.Cell(r.URL), term.Cell(r.Reason),
		}
	})
}

// next is the time of the webhook's next try, which is never before that of its destination.
func (r *pushRow) next() string {
	switch {
	case r.NextAttemptAt == nil || r.DeletedAt != nil || r.State != "active" || r.DisabledAt != nil:
		return "-"
	case r.OpenUntil != nil && r.OpenUntil.After(*r.NextAttemptAt):
		return term.MomentOf(r.OpenUntil)
	}
	return term.MomentOf(r.NextAttemptAt)
}

// show says in few words what a webhook does.
func (r *pushRow) show() string {
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
