package main

import (
	"context"
	"fmt"

	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/term"
)

// TaskResumeCmd is `a2ad task resume`.
type TaskResumeCmd struct {
	TaskSelection
	Reason string `default:"resumed by an operator" placeholder:"TEXT" help:"@reason"`
	Service
	Output
}

// Help is shown below the usage line.
func (*TaskResumeCmd) Help() string {
	return `Gives parked tasks fresh attempts and puts them into the queue. ` +
		`Name tasks, or select parked tasks with flags; the command asks for confirmation then, and a script passes ` +
		`--yes. Their streams and webhooks continue. ` + jobHelp + `

The exit code is 1 if a task that was named is not parked.`
}

// Validate is called by the parser.
func (c *TaskResumeCmd) Validate() error { return c.checkSelection(false) }

// Run resumes one task after another, and continues after one that is not parked.
func (c *TaskResumeCmd) Run(ctx context.Context, app *App) error {
	if err := c.mayAsk(app); err != nil {
		return err
	}
	if len(c.IDs) == 0 {
		return c.resumeMany(ctx, app)
	}
	return c.withAdmin(ctx, app, func(api *admin.Client) error {
		return each(ctx, app, c.IDs, func(text string) error { return c.resume(ctx, app, api, text) })
	})
}

// resumeMany lets a bulk job resume the parked tasks that the flags select.
func (c *TaskResumeCmd) resumeMany(ctx context.Context, app *App) error {
	return c.runJob(ctx, app, &c.Service, jobRun{
		body:     admin.NewJob{Why: admin.Why{Reason: c.Reason}, Action: "resume"},
		question: "This resumes %s. Continue?", past: "resumed", json: c.json(),
		print: func(t admin.JobTask) error {
			return c.printResumed(app, admin.ResumedTask{
				ID: t.ID, Agent: t.Agent, Tenant: t.Tenant, Owner: t.Owner, Parked: t.Reason,
			})
		},
	})
}

func (c *TaskResumeCmd) printResumed(app *App, t admin.ResumedTask) error {
	if c.json() {
		return term.JSON(app.Stdout, t)
	}
	_, err := fmt.Fprintf(app.Stdout, "%s resumed\n", t.ID)
	return err
}

func (c *TaskResumeCmd) resume(ctx context.Context, app *App, api *admin.Client, text string) error {
	var t admin.ResumedTask
	err := onTask(text, func() error {
		return api.Post(ctx, taskPath(text, "resume"), admin.Why{Reason: c.Reason}, &t)
	})
	if hasReason(err, admin.ReasonNotParked) {
		return fmt.Errorf("task %s is not parked", text)
	}
	if err != nil {
		return err
	}
	return c.printResumed(app, t)
}
