package main

import (
	"context"
	"fmt"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/term"
)

// TaskCancelCmd is `a2ad task cancel`.
type TaskCancelCmd struct {
	TaskSelection
	State  []string `placeholder:"STATE" help:"@cancel_state"`
	Reason string   `placeholder:"TEXT" help:"Why, for the audit log."`
	Service
	Output
}

// jobHelp is part of the help of commands that act on the tasks that flags select.
const jobHelp = `A bulk job acts on the tasks that flags select: see "a2ad job ls". With only a database, this ` +
	`command runs the job.`

// Help is shown below the usage line.
func (*TaskCancelCmd) Help() string {
	return `Ends tasks, whatever their agents do. Name tasks, or select them with flags: all that have not ended, or ` +
		`those in the states of --state. The command asks for confirmation then, and a script passes --yes. ` +
		jobHelp + `

The exit code is 1 if a task could not be canceled.`
}

// Validate is called by the parser.
func (c *TaskCancelCmd) Validate() error {
	if err := checkStates(c.State); err != nil {
		return err
	}
	return c.checkSelection(len(c.State) > 0)
}

// Run cancels one task after another, and continues after one that cannot be canceled.
func (c *TaskCancelCmd) Run(ctx context.Context, app *App) error {
	if err := c.mayAsk(app); err != nil {
		return err
	}
	if len(c.IDs) == 0 {
		return c.cancelMany(ctx, app)
	}
	return c.withAdmin(ctx, app, func(api *admin.Client) error {
		return each(ctx, app, c.IDs, func(text string) error {
			return onTask(text, func() error {
				var row taskRow
				if err := api.Post(ctx, taskPath(text, "cancel"), admin.Why{Reason: c.Reason}, &row); err != nil {
					return err
				}
				if c.json() {
					return term.JSON(app.Stdout, row)
				}
				return printCanceled(app, row.ID)
			})
		})
	})
}

// cancelMany lets a bulk job cancel the tasks that the flags select.
func (c *TaskCancelCmd) cancelMany(ctx context.Context, app *App) error {
	return c.runJob(ctx, app, &c.Service, jobRun{
		body: admin.NewJob{
			Why: admin.Why{Reason: c.Reason}, Action: "cancel", Filter: admin.TaskFilter{State: c.State},
		},
		question: "This cancels %s. Continue?", past: "canceled", json: c.json(),
		print: func(t admin.JobTask) error {
			if c.json() {
				return term.JSON(app.Stdout, t)
			}
			return printCanceled(app, t.ID)
		},
	})
}

func printCanceled(app *App, id string) error {
	_, err := fmt.Fprintf(app.Stdout, "%s %s\n", id, a2a.StateCanceled)
	return err
}
