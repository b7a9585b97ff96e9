package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/term"
)

// TaskPurgeCmd is `a2ad task purge`.
type TaskPurgeCmd struct {
	IDs      []string `arg:"" optional:"" name:"id" help:"Ids of the tasks."`
	Tenant   string   `placeholder:"T" help:"With --owner, instead of ids: all tasks of an owner of this tenant."`
	Owner    string   `placeholder:"O" help:"Owner of the tasks."`
	Context  string   `placeholder:"ID" help:"Only tasks of this conversation."`
	Yes      bool     `short:"y" help:"Do not ask."`
	Database `group:"database"`
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
	return c.withStore(ctx, app, func(s *store.Store) error {
		if !c.Yes {
			if err := c.confirm(ctx, app, s); err != nil {
				return err
			}
		}
		if len(c.IDs) == 0 {
			return c.purgeOwner(ctx, app, s)
		}
		return each(ctx, app, c.IDs, func(id string) error { return c.purgeTask(ctx, app, s, id) })
	})
}

func (c *TaskPurgeCmd) ownerFilter() tasks.PurgeFilter {
	return tasks.PurgeFilter{Tenant: c.Tenant, Owner: c.Owner, ContextID: c.Context}
}

func (c *TaskPurgeCmd) purgeOwner(ctx context.Context, app *App, s *store.Store) error {
	n, err := s.Tasks.Purge(ctx, c.ownerFilter())
	if err != nil && ctx.Err() != nil {
		return err
	}
	if err != nil {
		app.Note("a2ad: " + a2a.Explain(err))
	}
	if printErr := c.printPurged(app, n); printErr != nil {
		return printErr
	}
	if err != nil {
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

func (c *TaskPurgeCmd) purgeTask(ctx context.Context, app *App, s *store.Store, text string) error {
	id, err := parseTaskID(text)
	n := 0
	if err == nil {
		n, err = s.Tasks.Purge(ctx, tasks.PurgeFilter{Task: id})
	}
	if err == nil && n == 0 {
		err = fmt.Errorf("task %s: %w", text, a2a.ErrTaskNotFound)
	}
	switch {
	case err != nil && ctx.Err() != nil:
	case c.json():
		err = errors.Join(err, term.JSON(app.Stdout, purged{ID: text, Purged: n}))
	case n > 0:
		fmt.Fprintf(app.Stdout, "%s purged\n", text)
	}
	return err
}

// count returns the number of tasks to remove.
func (c *TaskPurgeCmd) count(ctx context.Context, s *store.Store) (total int64, err error) {
	if len(c.IDs) == 0 {
		return s.Tasks.CountPurge(ctx, c.ownerFilter())
	}
	for _, text := range c.IDs {
		id, err := parseTaskID(text)
		if err != nil {
			return 0, err
		}
		n, err := s.Tasks.CountPurge(ctx, tasks.PurgeFilter{Task: id})
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// confirm says what the purge would remove, and fails unless the person agrees.
func (c *TaskPurgeCmd) confirm(ctx context.Context, app *App, s *store.Store) error {
	total, err := c.count(ctx, s)
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
