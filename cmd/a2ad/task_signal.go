package main

import (
	"context"
	"fmt"

	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/attempt"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// TaskSignalCmd is `a2ad task signal`.
type TaskSignalCmd struct {
	ID     string `arg:"" help:"Id of the task."`
	Name   string `arg:"" help:"Name of the signal that the task waits for."`
	Value  string `arg:"" optional:"" help:"JSON value for the agent, such as '\"yes\"'. Default: null."`
	Key    string `placeholder:"KEY" help:"Idempotency key: the same signal with the same key is stored once."`
	Reason string `placeholder:"TEXT" help:"Why, for the audit log."`
	Service
	Output
}

// maxValueDepth bounds how deeply the JSON of an argument is nested, as servers do.
const maxValueDepth = 64

// Run stores the signal. A task that waits for it continues; otherwise the signal is kept for the next such wait.
func (c *TaskSignalCmd) Run(ctx context.Context, app *App) error {
	if c.Value == "" {
		c.Value = "null"
	}
	if err := rawjson.Check([]byte(c.Value), maxValueDepth); err != nil || len(c.Value) > attempt.MaxResult {
		return fmt.Errorf("the value must be JSON of at most %d bytes, such as '\"yes\"'", attempt.MaxResult)
	}
	return c.withAdmin(ctx, app, func(api *admin.Client) error {
		return onTask(c.ID, func() error {
			var done admin.SignaledTask
			err := api.Post(ctx, taskPath(c.ID, "signal"), admin.Signal{
				Why: admin.Why{Reason: c.Reason}, Name: c.Name, Value: []byte(c.Value), Key: c.Key,
			}, &done)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(app.Stdout, "%s %s\n", done.ID, done.Name)
			return err
		})
	})
}
