package main

import (
	"context"
	"fmt"

	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/term"
)

// TaskCancelCmd is `a2ad task cancel`.
type TaskCancelCmd struct {
	IDs      []string `arg:"" name:"id" help:"Ids of the tasks."`
	Database `group:"database"`
	Output
}

// Run cancels one task after another, and continues after one that cannot be canceled.
func (c *TaskCancelCmd) Run(ctx context.Context, app *App) error {
	return c.withStore(ctx, app, func(s *store.Store) error {
		return each(ctx, app, c.IDs, func(id string) error {
			row, err := cancelTask(ctx, s, id)
			if err != nil {
				return err
			}
			if c.json() {
				return term.JSON(app.Stdout, row)
			}
			_, err = fmt.Fprintf(app.Stdout, "%s %s\n", row.ID, row.State)
			return err
		})
	})
}

func cancelTask(ctx context.Context, s *store.Store, text string) (taskRow, error) {
	id, err := parseTaskID(text)
	if err != nil {
		return taskRow{}, err
	}
	owner, err := s.Operate.Owner(ctx, id)
	if err != nil {
		return taskRow{}, fmt.Errorf("task %s: %w", id, err)
	}
	if _, err := s.Tasks.Cancel(ctx, owner, "", id); err != nil {
		return taskRow{}, fmt.Errorf("task %s: %w", id, err)
	}
	return findTask(ctx, s, id)
}
