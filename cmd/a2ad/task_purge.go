package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/term"
)

// TaskPurgeCmd is `a2ad task purge`.
type TaskPurgeCmd struct {
	IDs     []string `arg:"" optional:"" name:"id" help:"Ids of the tasks."`
	Tenant  string   `placeholder:"T" help:"With --owner, instead of ids: all tasks of an owner of this tenant."`
	Owner   string   `placeholder:"O" help:"Owner of the tasks."`
	Context string   `placeholder:"ID" help:"Only tasks of this conversation."`
	Yes     bool     `short:"y" help:"Do not ask."`
	Reason  string   `default:"purged by an operator" placeholder:"TEXT" help:"@purge_reason"`
	Service
	Output
}

// Help is shown below the usage line.
func (*TaskPurgeCmd) Help() string {
	return `Removes tasks permanently, with their messages, artifacts, events, attempts and webhooks. ` +
		`Running tasks are canceled first. After that, their webhooks are not called. ` +
		`Only a record of the purge remains, in the audit log. ` +
		`The command asks for confirmation; a script passes --yes.`
}

// Validate is called by the parser.
func (c *TaskPurgeCmd) Validate() error {
	byOwner := c.Tenant != "" || c.Owner != "" || c.Context != ""
	switch {
	case len(c.IDs) > 0 && byOwner:
		return errors.New("name tasks, or a tenant and an owner, and not both")
	case len(c.IDs) == 0 && (c.Tenant == "" || c.Owner == ""):
		return errors.New("name tasks, or a --tenant and an --owner")
	}
	return nil
}

// purged is the result for programs.
type purged struct {
	ID     string `json:"id,omitempty"`
	Tenant string `json:"tenant,omitempty"`
	Owner  string `json:"owner,omitempty"`
	Purged int    `json:"purged"`
}

var (
	errNotPurged = errors.New("nothing was removed")
	errCannotAsk = errors.New(`stdin is not a terminal: check the list with "a2ad task ls", then pass --yes`)
)

// Run removes tasks after a confirmation.
func (c *TaskPurgeCmd) Run(ctx context.Context, app *App) error {
	if !c.Yes && !app.CanAsk {
		return &exitError{exitUsage, errCannotAsk}
	}
	return c.withAdmin(ctx, app, func(api *admin.Client) error {
		if !c.Yes {
			if err := c.confirm(ctx, app, api); err != nil {
				return err
			}
		}
		if len(c.IDs) == 0 {
			return c.purgeOwner(ctx, app, api)
		}
		return each(ctx, app, c.IDs, func(id string) error { return c.purgeTask(ctx, app, api, id) })
	})
}

// ofOwner is a request for the tasks that the flags select.
func (c *TaskPurgeCmd) ofOwner(dryRun bool) admin.PurgeOwner {
	return admin.PurgeOwner{
		Purge: admin.Purge{Reason: c.Reason, DryRun: dryRun}, Tenant: c.Tenant, Owner: c.Owner, Context: c.Context,
	}
}

// purgeOwner removes tasks in as many parts as it takes. After an error it says how many it has removed.
func (c *TaskPurgeCmd) purgeOwner(ctx context.Context, app *App, api *admin.Client) error {
	n, more := 0, true
	var failed error
	for more && failed == nil {
		var part admin.PurgedTasks
		failed = api.Post(ctx, "/purges", c.ofOwner(false), &part)
		n, more = n+int(part.Tasks), part.More
	}
	if failed != nil && ctx.Err() != nil {
		return failed
	}
	if failed != nil {
		app.Note("a2ad: " + a2a.Explain(failed))
	}
	if err := c.printPurged(app, n); err != nil {
		return err
	}
	if failed != nil {
		return &exitError{code: exitFailure}
	}
	return nil
}

func (c *TaskPurgeCmd) printPurged(app *App, n int) error {
	if c.json() {
		return term.JSON(app.Stdout, purged{Tenant: c.Tenant, Owner: c.Owner, Purged: n})
	}
	_, err := fmt.Fprintf(app.Stdout, "%s purged\n", term.Count(n, "task"))
	return err
}

func (c *TaskPurgeCmd) purgeTask(ctx context.Context, app *App, api *admin.Client, text string) error {
	out := purged{ID: text}
	err := onTask(text, func() error {
		var gone admin.PurgedTask
		err := api.Post(ctx, taskPath(text, "purge"), admin.Purge{Reason: c.Reason}, &gone)
		if err == nil {
			out = purged{ID: gone.ID, Purged: 1}
		}
		return err
	})
	switch {
	case err != nil && ctx.Err() != nil:
	case c.json():
		err = errors.Join(err, term.JSON(app.Stdout, out))
	case err == nil:
		_, err = fmt.Fprintf(app.Stdout, "%s purged\n", out.ID)
	}
	return err
}

// count returns the number of tasks to remove.
func (c *TaskPurgeCmd) count(ctx context.Context, api *admin.Client) (total int64, err error) {
	if len(c.IDs) == 0 {
		var found admin.PurgedTasks
		err = api.Post(ctx, "/purges", c.ofOwner(true), &found)
		return found.Tasks, err
	}
	for _, text := range c.IDs {
		var found admin.PurgedTask
		err := onTask(text, func() error {
			return api.Post(ctx, taskPath(text, "purge"), admin.Purge{Reason: c.Reason, DryRun: true}, &found)
		})
		switch {
		case err == nil:
			total++
		case !hasStatus(err, http.StatusNotFound): // Run says so about a task that is not found
			return 0, err
		}
	}
	return total, nil
}

// confirm says what the purge would remove, and fails unless the person agrees.
func (c *TaskPurgeCmd) confirm(ctx context.Context, app *App, api *admin.Client) error {
	total, err := c.count(ctx, api)
	if err != nil || total == 0 { // without tasks, Run says so
		return err
	}
	taskList, them := term.Count(int(total), "task"), "them"
	if total == 1 {
		them = "it"
	}
	if c.Owner != "" {
		taskList += " of " + term.Printable(c.Tenant+"/"+c.Owner)
	}
	question := fmt.Sprintf("This permanently removes %s and everything about %s. Continue?", taskList, them)
	sure, err := app.Confirm(ctx, question)
	switch {
	case err != nil:
		return &exitError{exitInterrupted, errNotPurged}
	case !sure:
		return errNotPurged
	}
	return nil
}
