package main

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/term"
)

// PushReplayCmd is `a2ad push replay`.
type PushReplayCmd struct {
	IDs      []string `arg:"" name:"id" help:"Webhooks, as push ls shows them."`
	After    int64    `default:"-1" placeholder:"SEQ" help:"${after_help}"`
	Database `group:"database"`
	Output
}

// Help is shown below the usage line.
func (*PushReplayCmd) Help() string {
	return `Makes a dead or disabled webhook active again and restarts its retry schedule. ` +
		`Events that were delivered before are delivered again with the same ids.`
}

// replayedPush is the result for programs.
type replayedPush struct {
	ID       string `json:"id"`
	Replayed bool   `json:"replayed"`
}

// Run replays one webhook after another.
func (c *PushReplayCmd) Run(ctx context.Context, app *App) error {
	return c.withStore(ctx, app, func(s *store.Store) error {
		return each(ctx, app, c.IDs, func(id string) error {
			if err := replayPush(ctx, s, id, c.After); err != nil {
				return err
			}
			if c.json() {
				return term.JSON(app.Stdout, replayedPush{ID: id, Replayed: true})
			}
			_, err := fmt.Fprintf(app.Stdout, "%s will be delivered again\n", id)
			return err
		})
	})
}

// replayPush delivers the events after the given one again. A negative one means only the events not yet delivered.
func replayPush(ctx context.Context, s *store.Store, text string, after int64) error {
	id, err := parseWebhookID(text)
	if err != nil {
		return err
	}
	if after < 0 {
		after = math.MaxInt64
	}
	err = s.Webhooks.Replay(ctx, id, after)
	switch {
	case errors.Is(err, webhooks.ErrNothingToReplay):
		return fmt.Errorf("webhook %s: %w: name with --after the event after which to deliver again (0: all)", id, err)
	case err != nil:
		return fmt.Errorf("webhook %s: %w", id, err)
	}
	return nil
}
