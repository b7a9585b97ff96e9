package main

import (
	"context"
	"strings"

	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/term"
)

// showTree shows a task and the tasks that it has called.
func (c *TaskShowCmd) showTree(ctx context.Context, app *App, api *admin.Client) error {
	var tree admin.Tree
	if err := api.Get(ctx, taskPath(c.ID, "tree"), nil, &tree); err != nil {
		return err
	}
	return printTree(app, c.json(), tree.Tasks)
}

func printTree(app *App, asJSON bool, rows []admin.TreeTask) error {
	head := []string{"TASK", "STATE", "AGENT", "CALL", "UPDATED"}
	optional := []string{"UPDATED", "CALL"}
	return term.List(&app.Console, asJSON, head, optional, rows, func(r admin.TreeTask) []string {
		state, updated := r.State, ""
		if r.Agent == "" {
			state = "removed"
		} else {
			updated = term.MomentOf(r.UpdatedAt)
		}
		return []string{
			strings.Repeat("  ", r.Depth) + r.ID, state, term.Cell(r.Agent), term.Cell(r.Key), updated,
		}
	})
}
