package main

import (
	"context"
	"fmt"

	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/term"
)

// TaskRetryCmd is `a2ad task retry`.
type TaskRetryCmd struct {
	IDs      []string `arg:"" name:"id" help:"Ids of tasks that have failed, or were canceled or rejected."`
	Database `group:"database"`
	Output
}

// Help is shown below the usage line.
func (*TaskRetryCmd) Help() string {
	return `Makes a new task from the first message of one that has ended, and prints its id. ` +
		`The new task has the tenant, owner, agent and context of the old one and refers to it. ` +
		`The old task and its webhooks stay as they are.

The exit code is 1 if a task could not be retried.`
}

// retriedTask is a new task and the one that it was made from.
type retriedTask struct {
	ID        string `json:"id"`
	Of        string `json:"of"`
	ContextID string `json:"contextId"`
	State     string `json:"state"`
}

// Run retries one task after another, and continues after one that cannot be retried.
func (c *TaskRetryCmd) Run(ctx context.Context, app *App) error {
	return c.withStore(ctx, app, func(s *store.Store) error {
		return each(ctx, app, c.IDs, func(id string) error {
			made, err := retryTask(ctx, s, id)
			if err != nil {
				return err
			}
			if c.json() {
				return term.JSON(app.Stdout, made)
			}
			_, err = fmt.Fprintln(app.Stdout, made.ID)
			return err
		})
	})
}

func retryTask(ctx context.Context, s *store.Store, text string) (retriedTask, error) {
	old, err := parseTaskID(text)
	if err != nil {
		return retriedTask{}, err
	}
	made, err := s.Tasks.RetryTask(ctx, old)
	if err != nil {
		return retriedTask{}, fmt.Errorf("task %s: %w", old, err)
	}
	return retriedTask{
		ID: made.Task.String(), Of: old.String(), ContextID: made.ContextID, State: made.State.String(),
	}, nil
}
