package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/term"
)

// PushAttemptsCmd is `a2ad push attempts`.
type PushAttemptsCmd struct {
	ID    string `arg:"" help:"Webhook, as push ls shows it."`
	Limit int    `default:"50" placeholder:"N" help:"At most this many of the newest attempts (default 50)."`
	Service
	Output
}

// Validate is called by the parser.
func (c *PushAttemptsCmd) Validate() error { return checkLimit(c.Limit) }

// pushAttemptRow is one attempt to deliver.
type pushAttemptRow = admin.Delivery

// Run lists.
func (c *PushAttemptsCmd) Run(ctx context.Context, app *App) error {
	return c.withAdmin(ctx, app, func(api *admin.Client) error {
		if err := checkWebhookID(c.ID); err != nil {
			return err
		}
		var list admin.DeliveryList
		if err := api.Get(ctx, webhookPath(c.ID, "attempts"), admin.AttemptQuery{Limit: c.Limit}, &list); err != nil {
			return fmt.Errorf("webhook %s: %w", c.ID, err)
		}
		return printPushAttempts(app, c.json(), list.Attempts)
	})
}

func printPushAttempts(app *App, asJSON bool, rows []pushAttemptRow) error {
	head := []string{"STARTED", "EVENTS", "ATTEMPT", "TRIGGER", "OUTCOME", "STATUS", "MS", "REASON"}
	optional := []string{"MS", "TRIGGER", "EVENTS", "ATTEMPT"}
	return term.Records(&app.Console, asJSON, head, optional, rows, func(r pushAttemptRow) []string {
		return []string{
			term.Moment(r.StartedAt), fmt.Sprintf("%d-%d", r.From+1, r.Seq), strconv.Itoa(r.Attempt), r.Trigger,
			r.Outcome, term.Number(int64(r.Status)), strconv.FormatInt(r.Ms, 10), term.Cell(r.Reason),
		}
	})
}
