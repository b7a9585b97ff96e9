package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/term"
)

// TaskAssignCmd is `a2ad task assign`.
type TaskAssignCmd struct {
	ID       string `arg:"" help:"Id of the task."`
	Name     string `arg:"" optional:"" help:"Name of the person, of up to 100 characters."`
	Unassign bool   `help:"End the assignment."`
	Reason   string `placeholder:"TEXT" help:"Why, for the audit log."`
	Service
	Output
}

// Help is shown below the usage line.
func (*TaskAssignCmd) Help() string {
	return `Stores which person is to answer the question of a task. The inbox of the console shows it. An answer ` +
		`ends the assignment. The exit code is 1 if the task does not wait for an answer.`
}

// Validate is called by the parser.
func (c *TaskAssignCmd) Validate() error {
	if (c.Name == "") != c.Unassign {
		return errors.New("give the NAME of a person, or --unassign")
	}
	return nil
}

// Run assigns.
func (c *TaskAssignCmd) Run(ctx context.Context, app *App) error {
	return c.withAdmin(ctx, app, func(api *admin.Client) error {
		return onTask(c.ID, func() error {
			var row taskRow
			assign := admin.Assign{Why: admin.Why{Reason: c.Reason}, Assignee: c.Name}
			if err := api.Post(ctx, taskPath(c.ID, "assign"), assign, &row); err != nil {
				return err
			}
			if c.json() {
				return term.JSON(app.Stdout, row)
			}
			if c.Unassign {
				_, err := fmt.Fprintf(app.Stdout, "%s unassigned\n", row.ID)
				return err
			}
			_, err := fmt.Fprintf(app.Stdout, "%s assigned to %s\n", row.ID, term.Cell(row.Assignee))
			return err
		})
	})
}
