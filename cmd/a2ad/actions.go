package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/term"
)

// ActionsCmd is `a2ad actions`.
type ActionsCmd struct {
	Task     string `placeholder:"ID" help:"Only what was done to this task."`
	Action   string `placeholder:"NAME" help:"Only this action, task.cancel for example."`
	Actor    string `placeholder:"TEXT" help:"Only actors that begin like this: operator, \"key k1\", replica, address."`
	Tenant   string `placeholder:"T" help:"Only what was about this tenant."`
	Since    Moment `placeholder:"TIME" help:"Only from then on: a time, or how long ago (24h)."`
	Until    Moment `placeholder:"TIME" help:"Only before then."`
	Before   int64  `placeholder:"ID" help:"Only older ones than this: the next page."`
	Limit    int    `default:"50" placeholder:"N" help:"At most so many (default 50)."`
	Database `group:"database"`
	Output
}

// Help is shown below the usage line.
func (*ActionsCmd) Help() string {
	return `The audit log: sign-ins that failed, keys, cancels, and whatever operators do. Newest first. The log cannot be changed. The same is in the view audit.action.`
}

// Validate is called by the parser.
func (c *ActionsCmd) Validate() error { return checkLimit(c.Limit) }

// actionFilter selects actions; zero values select all.
type actionFilter struct {
	Task, Name, Actor, Tenant string
	Since, Until              time.Time
	Before                    int64
	Limit                     int
}

// actionRow is one action. The JSON is for programs and does not change silently.
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

// Run lists.
func (c *ActionsCmd) Run(ctx context.Context, app *App) error {
	f := actionFilter{Task: c.Task, Name: c.Action, Actor: c.Actor, Tenant: c.Tenant, Since: c.Since.Time, Until: c.Until.Time, Before: c.Before, Limit: c.Limit}
	return c.withOperator(ctx, app, func(op operator) error {
		rows, err := op.Actions(ctx, f)
		if err != nil {
			return err
		}
		head := []string{"TIME", "ACTOR", "ACTION", "TENANT/OWNER", "TASK", "DETAIL"}
		err = term.Rows(&app.Console, c.json(), head, rows, func(r actionRow) []string {
			detail := string(r.Detail)
			if detail == "{}" {
				detail = ""
			}
			whose := ""
			if r.Tenant != "" || r.Owner != "" {
				whose = strings.TrimSuffix(r.Tenant+"/"+r.Owner, "/")
			}
			return []string{term.Moment(r.At), term.Cell(r.Actor), term.Cell(r.Action), term.Cell(whose), term.Cell(r.TaskID), term.Cell(detail)}
		})
		if err == nil && len(rows) == c.Limit && !c.json() {
			fmt.Fprintf(app.Stderr, "the next page: --before %d\n", rows[len(rows)-1].ID)
		}
		return err
	})
}
