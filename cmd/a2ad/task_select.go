package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/term"
)

// TaskSelection is the tasks that a command acts on: named, or selected by filters.
type TaskSelection struct {
	IDs     []string `arg:"" optional:"" name:"id" help:"Ids of the tasks."`
	Tenant  string   `placeholder:"T" help:"Instead of ids: tasks of this tenant."`
	Owner   string   `placeholder:"O" help:"Instead of ids: tasks of this owner."`
	Agent   string   `placeholder:"NAME" help:"Instead of ids: tasks of this agent."`
	Context string   `placeholder:"ID" help:"Instead of ids: tasks of this conversation."`
	Since   Moment   `placeholder:"TIME" help:"Instead of ids: tasks created since then: a time, or 24h for a day ago."`
	Until   Moment   `placeholder:"TIME" help:"Instead of ids: tasks created before then."`
	All     bool     `help:"Instead of ids: all tasks."`
	Yes     bool     `short:"y" help:"Do not ask."`
}

// filtered reports whether filters select the tasks.
func (c *TaskSelection) filtered() bool {
	return c.Tenant+c.Owner+c.Agent+c.Context != "" || !c.Since.IsZero() || !c.Until.IsZero()
}

// checkSelection refuses a selection that is empty or ambiguous. more says that a flag of the command selects tasks,
// too.
func (c *TaskSelection) checkSelection(more bool) error {
	switch filters := c.filtered() || more; {
	case len(c.IDs) > 0 && (filters || c.All):
		return errors.New("name tasks, or select them with flags, and not both")
	case c.All && filters:
		return errors.New("--all selects all tasks: omit it, or the other flags")
	case len(c.IDs) == 0 && !filters && !c.All:
		return errors.New("name tasks, or select them with flags, for example --agent; --all selects all")
	}
	return nil
}

const selectPage = 1000

// list returns the ids of the tasks that the filters select, oldest first. f has the filters of the command.
func (c *TaskSelection) list(ctx context.Context, s *store.Store, f operate.TaskFilter) (ids []a2a.ID, err error) {
	f.Tenant, f.Owner, f.Agent, f.ContextID = c.Tenant, c.Owner, c.Agent, c.Context
	f.Since, f.Until, f.Limit = c.Since.Time, c.Until.Time, selectPage
	for {
		page, err := s.Operate.ListTasks(ctx, f)
		if err != nil {
			return nil, err
		}
		for i := range page {
			ids = append(ids, page[i].ID)
		}
		if len(page) < selectPage {
			break
		}
		f.Before = ids[len(ids)-1]
	}
	slices.Reverse(ids)
	return ids, nil
}

// confirm asks before a command acts on n tasks. question has a verb for the number of tasks: %s.
func (c *TaskSelection) confirm(ctx context.Context, app *App, n int, question string) error {
	if c.Yes || n == 0 {
		return nil
	}
	sure, err := app.Confirm(ctx, fmt.Sprintf(question, term.Count(n, "task")))
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
	if len(c.IDs) == 0 && !c.Yes && !app.CanAsk {
		return &exitError{exitUsage, errCannotAsk}
	}
	return nil
}
