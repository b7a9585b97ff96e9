package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/term"
)

// PushReplayCmd is `a2ad push replay`.
type PushReplayCmd struct {
	IDs    []string `arg:"" optional:"" name:"id" help:"Webhooks, as push ls shows them."`
	After  int64    `default:"-1" placeholder:"SEQ" help:"@after"`
	Tenant string   `placeholder:"T" help:"With --origin, instead of ids: webhooks of this tenant."`
	Origin string   `placeholder:"ORIGIN" help:"Instead of ids: all webhooks to this destination, scheme://host:port."`
	Since  Moment   `placeholder:"TIME" help:"With --origin: the events since then, a time, or how long ago (24h)."`
	Reason string   `placeholder:"TEXT" help:"Why, for the audit log."`
	Service
	Output
}

// Help is shown below the usage line.
func (*PushReplayCmd) Help() string {
	return `Makes a dead or disabled webhook active again and restarts its retry schedule. ` +
		`Events that were delivered before are delivered again with the same ids.
With --tenant, --origin and --since it does that with all webhooks to a destination, for example after an outage ` +
		`of the receiver. A destination that is disabled is not called until "a2ad push enable".`
}

// Validate is called by the parser.
func (c *PushReplayCmd) Validate() error {
	all := c.Tenant != "" && c.Origin != "" && !c.Since.IsZero()
	part := c.Tenant != "" || c.Origin != "" || !c.Since.IsZero()
	switch {
	case len(c.IDs) > 0 && part:
		return errors.New("name webhooks, or a destination, and not both")
	case len(c.IDs) == 0 && !all:
		return errors.New("name webhooks, or a destination with --tenant, --origin and --since")
	case all && c.After >= 0:
		return errors.New("--after is for webhooks that are named: use --since")
	}
	return nil
}

// Run replays one webhook after another.
func (c *PushReplayCmd) Run(ctx context.Context, app *App) error {
	return c.withAdmin(ctx, app, func(api *admin.Client) error {
		if len(c.IDs) == 0 {
			return c.replayDestination(ctx, app, api)
		}
		return each(ctx, app, c.IDs, func(id string) error {
			replayed, err := c.replay(ctx, api, id)
			if err != nil {
				return err
			}
			if c.json() {
				return term.JSON(app.Stdout, replayed)
			}
			_, err = fmt.Fprintf(app.Stdout, "%s will be delivered again\n", id)
			return err
		})
	})
}

// replay delivers the events after --after again, or only the events that are not yet delivered.
func (c *PushReplayCmd) replay(
	ctx context.Context, api *admin.Client, id string,
) (out admin.ReplayedWebhook, err error) {
	if err := checkWebhookID(id); err != nil {
		return out, err
	}
	body := admin.Replay{Why: admin.Why{Reason: c.Reason}}
	if c.After >= 0 {
		body.After = &c.After
	}
	err = api.Post(ctx, webhookPath(id, "replay"), body, &out)
	switch {
	case hasReason(err, admin.ReasonNothingToReplay):
		err = fmt.Errorf("webhook %s: %w: name with --after the event after which to deliver again (0: all)", id, err)
	case err != nil:
		err = fmt.Errorf("webhook %s: %w", id, err)
	}
	return out, err
}

// replayedDestination is the result for programs.
type replayedDestination struct {
	Tenant   string `json:"tenant"`
	Origin   string `json:"origin"`
	Webhooks int    `json:"webhooks"`
}

// replayDestination replays all webhooks of a destination. After an error it says how many it has come to.
func (c *PushReplayCmd) replayDestination(ctx context.Context, app *App, api *admin.Client) error {
	body := admin.ReplayDestination{
		Why: admin.Why{Reason: c.Reason}, Tenant: c.Tenant, Origin: c.Origin, Since: c.Since.Time,
	}
	done := replayedDestination{Tenant: c.Tenant, Origin: c.Origin}
	var failed error
	for more := true; more && failed == nil; {
		var part admin.ReplayedDestination
		failed = api.Post(ctx, "/destinations/replay", body, &part)
		done.Webhooks += part.Webhooks
		body.Cursor = part.Next
		more = part.Next != ""
	}
	if failed != nil && done.Webhooks == 0 {
		return failed
	}
	var err error
	if c.json() {
		err = term.JSON(app.Stdout, done)
	} else {
		_, err = fmt.Fprintf(app.Stdout, "%s will be delivered again\n", term.Count(done.Webhooks, "webhook"))
	}
	return errors.Join(failed, err)
}

// webhookPath is the path of a webhook in the admin API, and of an action on it.
func webhookPath(id, action string) string { return "/webhooks/" + url.PathEscape(id) + "/" + action }

// checkWebhookID refuses what cannot be the id of a webhook.
func checkWebhookID(id string) error {
	_, err := parseWebhookID(id)
	return err
}
