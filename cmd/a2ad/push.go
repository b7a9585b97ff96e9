package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/a2ad/a2ad/internal/term"
)

// PushCmd is `a2ad push`.
type PushCmd struct {
	Ls       PushLsCmd       `cmd:"" group:"commands" help:"List webhooks, newest first."`
	Attempts PushAttemptsCmd `cmd:"" group:"commands" help:"Show every attempt at a webhook."`
	Replay   PushReplayCmd   `cmd:"" group:"commands" help:"Deliver again, or go on with a webhook that has given up."`
	Enable   PushEnableCmd   `cmd:"" group:"commands" help:"Call a destination again that rests or is disabled."`
}

// pushRow is one webhook. The JSON is for programs and does not change silently.
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
	Cursor        int64      `json:"cursor"` // events up to it are settled
	Head          int64      `json:"head"`   // newest event
	Attempt       int        `json:"attempt"`
	NextAttemptAt *time.Time `json:"nextAttemptAt,omitempty"`
	CreatedAt     time.Time  `json:"createdAt"`
	DeletedAt     *time.Time `json:"deletedAt,omitempty"`
	OpenUntil     *time.Time `json:"destinationRestsUntil,omitempty"`
	DisabledAt    *time.Time `json:"destinationDisabledAt,omitempty"`
}

// pushTryRow is one attempt.
type pushTryRow struct {
	From      int64     `json:"from"` // it covers the events behind From
	Seq       int64     `json:"seq"`  // up to Seq
	Outcome   string    `json:"outcome"`
	Attempt   int       `json:"attempt"`
	Trigger   string    `json:"trigger"` // auto, or manual: an operator asked for it
	StartedAt time.Time `json:"startedAt"`
	Ms        int64     `json:"ms"`
	RemoteIP  string    `json:"remoteIp,omitempty"`
	Status    int       `json:"status,omitempty"`
	Class     string    `json:"class,omitempty"`
	Reason    string    `json:"reason,omitempty"`
	Answer    string    `json:"answer,omitempty"`
}

// pushFilter selects webhooks; empty values select all.
type pushFilter struct {
	Task, Tenant, Owner, Origin, State string
	Before                             string // id: only older ones
	Limit                              int
}

// PushLsCmd is `a2ad push ls`.
type PushLsCmd struct {
	Task     string `placeholder:"TASK" help:"Only webhooks of this task."`
	Tenant   string `placeholder:"T" help:"Only webhooks of this tenant."`
	Owner    string `placeholder:"O" help:"Only webhooks of this owner."`
	Origin   string `placeholder:"ORIGIN" help:"Only webhooks to this destination: scheme://host:port."`
	State    string `enum:",active,done,dead,disabled" default:"" placeholder:"STATE" help:"Only webhooks in this state: active, done, dead or disabled."`
	Before   string `placeholder:"ID" help:"Only webhooks older than this one: the next page."`
	Limit    int    `default:"50" placeholder:"N" help:"At most so many (default 50)."`
	Database `group:"database"`
	Output
}

// Validate is called by the parser.
func (c *PushLsCmd) Validate() error { return checkLimit(c.Limit) }

// Run lists.
func (c *PushLsCmd) Run(ctx context.Context, app *App) error {
	return c.withOperator(ctx, app, func(op operator) error {
		rows, err := op.Pushes(ctx, pushFilter{Task: c.Task, Tenant: c.Tenant, Owner: c.Owner, Origin: c.Origin, State: c.State, Before: c.Before, Limit: c.Limit})
		if err != nil {
			return err
		}
		if len(rows) == c.Limit && !c.json() {
			defer fmt.Fprintf(app.Stderr, "the next page: --before %s\n", rows[len(rows)-1].ID)
		}
		head := []string{"WEBHOOK", "TASK", "ID", "TENANT/OWNER", "STATE", "SETTLED", "NEXT TRY", "URL", "REASON"}
		return term.Rows(&app.Console, c.json(), head, rows, func(r pushRow) []string {
			return []string{
				r.ID, r.TaskID, term.Cell(r.ConfigID), term.Cell(r.Tenant + "/" + r.Owner), r.show(), fmt.Sprintf("%d/%d", r.Cursor, r.Head),
				r.next(), term.Cell(r.URL), term.Cell(r.Reason),
			}
		})
	})
}

// next is when the webhook is tried next: not before its destination is.
func (r *pushRow) next() string {
	switch {
	case r.NextAttemptAt == nil || r.DeletedAt != nil || r.State != "active" || r.DisabledAt != nil:
		return "-"
	case r.OpenUntil != nil && r.OpenUntil.After(*r.NextAttemptAt):
		return term.MomentOf(r.OpenUntil)
	}
	return term.MomentOf(r.NextAttemptAt)
}

// show says in one word what a webhook does.
func (r *pushRow) show() string {
	switch {
	case r.DeletedAt != nil:
		return "deleted"
	case r.State == "active" && r.DisabledAt != nil:
		return "destination disabled"
	case r.State == "active" && r.OpenUntil != nil && r.OpenUntil.After(time.Now()):
		return "destination rests"
	}
	return r.State
}

// PushAttemptsCmd is `a2ad push attempts`.
type PushAttemptsCmd struct {
	ID       string `arg:"" help:"Webhook, as push ls shows it."`
	Limit    int    `default:"50" placeholder:"N" help:"At most so many, the newest (default 50)."`
	Database `group:"database"`
	Output
}

// Validate is called by the parser.
func (c *PushAttemptsCmd) Validate() error { return checkLimit(c.Limit) }

// Run lists.
func (c *PushAttemptsCmd) Run(ctx context.Context, app *App) error {
	return c.withOperator(ctx, app, func(op operator) error {
		rows, err := op.PushAttempts(ctx, c.ID, c.Limit)
		if err != nil {
			return err
		}
		head := []string{"STARTED", "EVENTS", "TRY", "TRIGGER", "OUTCOME", "STATUS", "MS", "REASON"}
		return term.Rows(&app.Console, c.json(), head, rows, func(r pushTryRow) []string {
			status := "-"
			if r.Status != 0 {
				status = strconv.Itoa(r.Status)
			}
			return []string{
				term.Moment(r.StartedAt), fmt.Sprintf("%d-%d", r.From+1, r.Seq), strconv.Itoa(r.Attempt), r.Trigger, r.Outcome, status, strconv.FormatInt(r.Ms, 10), term.Cell(r.Reason),
			}
		})
	})
}

// PushReplayCmd is `a2ad push replay`.
type PushReplayCmd struct {
	IDs      []string `arg:"" name:"id" help:"Webhooks, as push ls shows them."`
	After    int64    `default:"-1" placeholder:"SEQ" help:"Deliver again everything behind this event; without it, what is not settled."`
	Database `group:"database"`
	Output
}

// Help is shown below the usage line.
func (*PushReplayCmd) Help() string {
	return `Makes a webhook that is dead or disabled active again, and begins its schedule anew. What was delivered before comes again under the ids it had.`
}

// Run replays one after the other.
func (c *PushReplayCmd) Run(ctx context.Context, app *App) error {
	return c.withOperator(ctx, app, func(op operator) error {
		return each(ctx, app, c.IDs, func(id string) error {
			if err := op.ReplayPush(ctx, id, c.After); err != nil {
				return err
			}
			if c.json() {
				return term.JSON(app.Stdout, replayedPush{ID: id, Replayed: true})
			}
			_, err := fmt.Fprintf(app.Stdout, "%s is delivered again\n", id)
			return err
		})
	})
}

// PushEnableCmd is `a2ad push enable`.
type PushEnableCmd struct {
	Tenant   string `required:"" placeholder:"T" help:"Tenant whose webhooks these are."`
	Origin   string `arg:"" help:"Destination: scheme://host:port, as push ls -o json shows it."`
	Database `group:"database"`
	Output
}

// Help is shown below the usage line.
func (*PushEnableCmd) Help() string {
	return `The exit code is 1 when the destination neither rests nor is disabled.`
}

// replayedPush and enabledOrigin are what programs are told.
type replayedPush struct {
	ID       string `json:"id"`
	Replayed bool   `json:"replayed"`
}

type enabledOrigin struct {
	Tenant  string `json:"tenant"`
	Origin  string `json:"origin"`
	Enabled bool   `json:"enabled"`
}

var errNothingToEnable = errors.New("the destination neither rests nor is it disabled")

// Run enables.
func (c *PushEnableCmd) Run(ctx context.Context, app *App) error {
	return c.withOperator(ctx, app, func(op operator) error {
		mended, err := op.EnableDestination(ctx, c.Tenant, c.Origin)
		if err != nil {
			return err
		}
		if !mended {
			return errNothingToEnable
		}
		if c.json() {
			return term.JSON(app.Stdout, enabledOrigin{Tenant: c.Tenant, Origin: c.Origin, Enabled: true})
		}
		_, err = fmt.Fprintf(app.Stdout, "%s is called again\n", c.Origin)
		return err
	})
}
