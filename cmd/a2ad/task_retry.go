package main

import (
	"context"
	"fmt"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/term"
)

// TaskRetryCmd is `a2ad task retry`.
type TaskRetryCmd struct {
	TaskSelection
	State    []string `enum:"failed,canceled,rejected" placeholder:"STATE" help:"@retry_state"`
	Webhooks bool     `default:"true" negatable:"" help:"@retry_webhooks"`
	Reason   string   `placeholder:"TEXT" help:"Why, for the audit log."`
	Service
	Output
}

// Help is shown below the usage line.
func (*TaskRetryCmd) Help() string {
	return `Makes a new task from the first message of one that has ended, and prints the ids of both. ` +
		`The new task has the tenant, owner, agent, context and webhooks of the old one and refers to it. ` +
		`The old task stays as it is. Secrets of webhooks are encrypted again, with A2AD_KEYS.

Name tasks, or select them with flags: failed ones, or those of --state, that were not retried before. ` +
		`The command asks for confirmation then, and a script passes --yes. ` + jobHelp + `

The exit code is 1 if a task could not be retried.`
}

// Validate is called by the parser.
func (c *TaskRetryCmd) Validate() error { return c.checkSelection(len(c.State) > 0) }

// Run retries one task after another, and continues after one that cannot be retried.
func (c *TaskRetryCmd) Run(ctx context.Context, app *App) error {
	if err := c.mayAsk(app); err != nil {
		return err
	}
	if len(c.IDs) == 0 {
		return c.retryMany(ctx, app)
	}
	return c.withAdmin(ctx, app, func(api *admin.Client) error {
		return each(ctx, app, c.IDs, func(id string) error { return c.retry(ctx, app, api, id) })
	})
}

// retryMany lets a bulk job retry the tasks that the flags select.
func (c *TaskRetryCmd) retryMany(ctx context.Context, app *App) error {
	states := c.State
	if len(states) == 0 {
		states = []string{a2a.StateFailed.String()}
	}
	return c.runJob(ctx, app, &c.Service, jobRun{
		body: admin.NewJob{
			Why: admin.Why{Reason: c.Reason}, Action: "retry", Filter: admin.TaskFilter{State: states},
			Webhooks: &c.Webhooks,
		},
		question: "This makes new tasks from %s. Continue?", past: "retried", json: c.json(),
		print: func(t admin.JobTask) error {
			return c.printRetried(app, admin.RetriedTask{
				ID: t.New, Of: t.ID, ContextID: t.ContextID, State: a2a.StateSubmitted.String(),
			})
		},
	})
}

func (c *TaskRetryCmd) printRetried(app *App, made admin.RetriedTask) error {
	if c.json() {
		return term.JSON(app.Stdout, made)
	}
	_, err := fmt.Fprintf(app.Stdout, "%s → %s\n", made.Of, made.ID)
	return err
}

func (c *TaskRetryCmd) retry(ctx context.Context, app *App, api *admin.Client, text string) error {
	return onTask(text, func() error {
		var made admin.RetriedTask
		err := api.Post(ctx, taskPath(text, "retry"), admin.Retry{
			Why: admin.Why{Reason: c.Reason}, Webhooks: &c.Webhooks,
		}, &made)
		if err != nil {
			return err
		}
		return c.printRetried(app, made)
	})
}
