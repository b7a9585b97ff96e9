package main

import (
	"context"
	"fmt"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/attempt"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// TaskSignalCmd is `a2ad task signal`.
type TaskSignalCmd struct {
	ID       string `arg:"" help:"Id of the task."`
	Name     string `arg:"" help:"Name of the signal that the task waits for."`
	Value    string `arg:"" optional:"" help:"JSON value for the agent, such as '\"yes\"'. Default: null."`
	Key      string `placeholder:"KEY" help:"Idempotency key: the same signal with the same key is stored once."`
	Database `group:"database"`
	Output
}

// Run stores the signal. A task that waits for it continues; otherwise the signal is kept for the next such wait.
func (c *TaskSignalCmd) Run(ctx context.Context, app *App) error {
	id, err := parseTaskID(c.ID)
	if err != nil {
		return err
	}
	if c.Value == "" {
		c.Value = "null"
	}
	if err := rawjson.Check([]byte(c.Value), 64); err != nil || len(c.Value) > attempt.MaxResult {
		return fmt.Errorf("the value must be JSON of at most %d bytes, such as '\"yes\"'", attempt.MaxResult)
	}
	return c.withStore(ctx, app, func(s *store.Store) error {
		err := s.Tasks.SendSignal(ctx, tasks.Signal{
			Task: id, Name: c.Name, Value: a2a.Raw(c.Value), Key: c.Key,
		})
		if err != nil {
			return fmt.Errorf("task %s: %w", id, err)
		}
		_, err = fmt.Fprintf(app.Stdout, "%s %s\n", id, c.Name)
		return err
	})
}
