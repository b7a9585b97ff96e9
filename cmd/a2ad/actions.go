package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/term"
)

// ActionsCmd is `a2ad actions`.
type ActionsCmd struct {
	Task     string `placeholder:"ID" help:"Only actions on this task."`
	Action   string `placeholder:"NAME" help:"Only this action, for example task.cancel."`
	Actor    string `placeholder:"TEXT" help:"${actor_help}"`
	Tenant   string `placeholder:"T" help:"Only actions about this tenant."`
	Since    Moment `placeholder:"TIME" help:"Only actions since then: a time, or how long ago (24h)."`
	Until    Moment `placeholder:"TIME" help:"Only actions before then."`
	Before   int64  `placeholder:"ID" help:"Only actions older than this one: the next page."`
	Limit    int    `default:"50" placeholder:"N" help:"At most this many actions (default 50)."`
	Database `group:"database"`
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
type actionRow struct {
	ID     int64           `json:"id"`
	At     time.Time       `json:"at"`
	Actor  string          `json:"actor"`
	Action string          `json:"action"`
	Tenant string          `json:"tenant,omitempty"`
	Owner  string          `json:"owner,omitempty"`
	TaskID string          `json:"taskId,omitempty"`
	Detail json.RawMessage `json:"detail"`
}

func newActionRow(a *access.Recorded) actionRow {
	row := actionRow{
		ID: a.ID, At: a.At, Actor: a.Actor, Action: a.Name, Tenant: a.Tenant, Owner: a.Owner, Detail: a.Detail,
	}
	if !a.Task.IsZero() {
		row.TaskID = a.Task.String()
	}
	return row
}

// Run lists.
func (c *ActionsCmd) Run(ctx context.Context, app *App) error {
	return c.withStore(ctx, app, func(s *store.Store) error {
		task, err := optionalTaskID(c.Task)
		if err != nil {
			return err
		}
		found, err := s.Access.Actions(ctx, access.ActionFilter{
			Task: task, Name: c.Action, Tenant: c.Tenant, Actor: c.Actor,
			Since: c.Since.Time, Until: c.Until.Time, Before: c.Before, Limit: c.Limit,
		})
		if err != nil {
			return err
		}
		rows := make([]actionRow, len(found))
		for i := range found {
			rows[i] = newActionRow(&found[i])
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

func printActions(app *App, asJSON bool, rows []actionRow) error {
	head := []string{"TIME", "ACTOR", "ACTION", "TENANT/OWNER", "TASK", "DETAIL"}
	optional := []string{"DETAIL", "TASK", "TENANT/OWNER"}
	return term.List(&app.Console, asJSON, head, optional, rows, func(r actionRow) []string {
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
