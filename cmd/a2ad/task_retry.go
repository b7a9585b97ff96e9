package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/push"
	"github.com/a2ad/a2ad/internal/seal"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/term"
)

// TaskRetryCmd is `a2ad task retry`.
type TaskRetryCmd struct {
	TaskSelection
	State    []string  `enum:"failed,canceled,rejected" placeholder:"STATE" help:"${retry_state_help}"`
	Webhooks bool      `default:"true" negatable:"" help:"${retry_webhooks_help}"`
	Keys     seal.Ring `type:"setting" name:"keys" kong:"-" secret:"yes"`
	Database `group:"database"`
	Output
}

// Help is shown below the usage line.
func (*TaskRetryCmd) Help() string {
	return `Makes a new task from the first message of one that has ended, and prints the ids of both. ` +
		`The new task has the tenant, owner, agent, context and webhooks of the old one and refers to it. ` +
		`The old task stays as it is. Secrets of webhooks are encrypted again, with A2AD_KEYS.

Name tasks, or select them with flags: failed ones, or those of --state, that were not retried before. ` +
		`The command asks for confirmation then, and a script passes --yes.

The exit code is 1 if a task could not be retried.`
}

// Validate is called by the parser.
func (c *TaskRetryCmd) Validate() error { return c.checkSelection(len(c.State) > 0) }

// retriedTask is a new task and the one that it was made from.
type retriedTask struct {
	ID        string `json:"id"`
	Of        string `json:"of"`
	ContextID string `json:"contextId"`
	State     string `json:"state"`
}

// Run retries one task after another, and continues after one that cannot be retried.
func (c *TaskRetryCmd) Run(ctx context.Context, app *App) error {
	if err := c.mayAsk(app); err != nil {
		return err
	}
	return c.withStore(ctx, app, func(s *store.Store) error {
		ids := c.IDs
		if len(ids) == 0 {
			var err error
			if ids, err = c.selected(ctx, s); err != nil {
				return err
			}
			if err := c.confirm(ctx, app, len(ids), "This makes new tasks from %s. Continue?"); err != nil {
				return err
			}
		}
		return each(ctx, app, ids, func(id string) error { return c.retry(ctx, app, s, id) })
	})
}

// selected returns the ids of the tasks that the flags select.
func (c *TaskRetryCmd) selected(ctx context.Context, s *store.Store) ([]string, error) {
	f := operate.TaskFilter{NotRetried: true, States: []a2a.State{a2a.StateFailed}}
	if len(c.State) > 0 {
		f.States = nil
	}
	for _, name := range c.State {
		state, _ := a2a.ParseState(name)
		f.States = append(f.States, state)
	}
	found, err := c.list(ctx, s, f)
	ids := make([]string, len(found))
	for i, id := range found {
		ids[i] = id.String()
	}
	return ids, err
}

func (c *TaskRetryCmd) retry(ctx context.Context, app *App, s *store.Store, text string) error {
	old, err := parseTaskID(text)
	if err != nil {
		return err
	}
	made, err := s.Tasks.RetryTask(ctx, old, c.moveSecrets())
	if errors.Is(err, seal.ErrUnknownKey) {
		return fmt.Errorf("task %s: %w; set A2AD_KEYS as the servers have it, or pass --no-webhooks", old, err)
	}
	if err != nil {
		return fmt.Errorf("task %s: %w", old, err)
	}
	if c.json() {
		return term.JSON(app.Stdout, retriedTask{
			ID: made.Task.String(), Of: old.String(), ContextID: made.ContextID, State: made.State.String(),
		})
	}
	_, err = fmt.Fprintf(app.Stdout, "%s → %s\n", old, made.Task)
	return err
}

// moveSecrets returns what copies the secrets of webhooks, or nil if webhooks are not copied.
func (c *TaskRetryCmd) moveSecrets() tasks.MoveSecrets {
	if !c.Webhooks {
		return nil
	}
	return func(from, to a2a.ID, s webhooks.Secrets) (webhooks.Secrets, error) {
		return push.Move(c.Keys, from, to, s)
	}
}
