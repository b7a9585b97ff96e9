package main

import (
	"context"
	"errors"
	"fmt"
)

// TaskSelection is the tasks that a command acts on: named, or selected by filters.
type TaskSelection struct {
	IDs     []string `arg:"" optional:"" name:"id" help:"Ids of the tasks."`
	Tenant  string   `placeholder:"T" help:"Instead of ids: tasks of this tenant."`
	Owner   string   `placeholder:"O" help:"Instead of ids: tasks of this owner."`
	Agent   string   `placeholder:"NAME" help:"Instead of ids: tasks of this agent."`
	Context string   `placeholder:"ID" help:"Instead of ids: tasks of this conversation."`
	Error   string   `placeholder:"TEXT" help:"Instead of ids: tasks with this text in an error."`
	Since   Moment   `placeholder:"TIME" help:"Instead of ids: tasks created since then: a time, or 24h for a day ago."`
	Until   Moment   `placeholder:"TIME" help:"Instead of ids: tasks created before then."`
	All     bool     `help:"Instead of ids: all tasks."`
	Yes     bool     `short:"y" help:"Do not ask."`
	DryRun  bool     `help:"Without ids: only count the tasks that the flags select."`
	NoWait  bool     `help:"Without ids: let a server run the bulk job, and do not wait for it."`
}

// filtered reports whether filters select the tasks.
func (c *TaskSelection) filtered() bool {
	return c.Tenant+c.Owner+c.Agent+c.Context+c.Error != "" || !c.Since.IsZero() || !c.Until.IsZero()
}

// checkSelection refuses a selection that is empty or ambiguous. more says that a flag of the command selects tasks,
// too.
func (c *TaskSelection) checkSelection(more bool) error {
	switch filters := c.filtered() || more; {
	case len(c.IDs) > 0 && (filters || c.All):
		return errors.New("name tasks, or select them with flags, and not both")
	case c.All && filters:
		return errors.New("--all selects all tasks: omit it, or the other flags")
	case len(c.IDs) > 0 && (c.DryRun || c.NoWait):
		return errors.New("--dry-run and --no-wait are for tasks that flags select")
	case len(c.IDs) == 0 && !filters && !c.All:
		return errors.New("name tasks, or select them with flags, for example --agent; --all selects all")
	}
	return nil
}

// confirm asks before a command acts on tasks. question has a verb for the number of tasks: %s.
func (c *TaskSelection) confirm(ctx context.Context, app *App, tasks, question string) error {
	if c.Yes {
		return nil
	}
	sure, err := app.Confirm(ctx, fmt.Sprintf(question, tasks))
	switch {
	case err != nil:
		return &exitError{exitInterrupted, errNothingDone}
	case !sure:
		return errNothingDone
	}
	return nil
}

var errNothingDone = errors.New("nothing was changed")

// mayAsk returns an error if the command must ask and cannot.
func (c *TaskSelection) mayAsk(app *App) error {
	if len(c.IDs) == 0 && !c.Yes && !c.DryRun && !app.CanAsk {
		return &exitError{exitUsage, errCannotAsk}
	}
	return nil
}
