package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/term"
)

// PushAttemptsCmd is `a2ad push attempts`.
type PushAttemptsCmd struct {
	ID       string `arg:"" help:"Webhook, as push ls shows it."`
	Limit    int    `default:"50" placeholder:"N" help:"At most this many of the newest attempts (default 50)."`
	Database `group:"database"`
	Output
}

// Validate is called by the parser.
func (c *PushAttemptsCmd) Validate() error { return checkLimit(c.Limit) }

// pushAttemptRow is one attempt to deliver.
type pushAttemptRow struct {
	From      int64     `json:"from"` // the attempt covers the events after From
	Seq       int64     `json:"seq"`  // up to Seq
	Outcome   string    `json:"outcome"`
	Attempt   int       `json:"attempt"`
	Trigger   string    `json:"trigger"` // auto; or manual, for a replay
	StartedAt time.Time `json:"startedAt"`
	Ms        int64     `json:"ms"`
	RemoteIP  string    `json:"remoteIp,omitempty"`
	Status    int       `json:"status,omitempty"`
	Class     string    `json:"class,omitempty"`
	Reason    string    `json:"reason,omitempty"`
	Answer    string    `json:"answer,omitempty"`
}

func newPushAttemptRow(t *webhooks.LedgerEntry) pushAttemptRow {
	return pushAttemptRow{
		From: t.From, Seq: t.Seq, Outcome: t.Outcome, Attempt: t.Attempt, Trigger: t.Trigger, StartedAt: t.StartedAt,
		Ms: t.Took.Milliseconds(), RemoteIP: t.RemoteIP, Status: t.Status, Class: t.Class, Reason: t.Reason,
		Answer: string(t.Answer),
	}
}

// Run lists.
func (c *PushAttemptsCmd) Run(ctx context.Context, app *App) error {
	return c.withStore(ctx, app, func(s *store.Store) error {
		id, err := parseWebhookID(c.ID)
		if err != nil {
			return err
		}
		found, err := s.Webhooks.Attempts(ctx, id, c.Limit)
		if err != nil {
			return fmt.Errorf("webhook %s: %w", id, err)
		}
		rows := make([]pushAttemptRow, len(found))
		for i := range found {
			rows[i] = newPushAttemptRow(&found[i])
		}
		return printPushAttempts(app, c.json(), rows)
	})
}

func printPushAttempts(app *App, asJSON bool, rows []pushAttemptRow) error {
	head := []string{"STARTED", "EVENTS", "ATTEMPT", "TRIGGER", "OUTCOME", "STATUS", "MS", "REASON"}
	return term.Rows(&app.Console, asJSON, head, rows, func(r pushAttemptRow) []string {
		return []string{
			term.Moment(r.StartedAt), fmt.Sprintf("%d-%d", r.From+1, r.Seq), strconv.Itoa(r.Attempt), r.Trigger,
			r.Outcome, term.Number(int64(r.Status)), strconv.FormatInt(r.Ms, 10), term.Cell(r.Reason),
		}
	})
}
