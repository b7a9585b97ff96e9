package main

import (
	"context"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/term"
)

// treeRow is one task in a tree of calls.
type treeRow struct {
	ID        string     `json:"task"`
	Depth     int        `json:"depth"` // below the root
	Key       string     `json:"key,omitempty"`
	Agent     string     `json:"agent,omitempty"` // missing: the task was removed
	State     string     `json:"state,omitempty"`
	UpdatedAt *time.Time `json:"updatedAt,omitempty"`
}

// treeMost bounds the tasks of a tree that are shown.
const treeMost = 10_000

// showTree shows a task and the tasks that it has called.
func (c *TaskShowCmd) showTree(ctx context.Context, app *App, s *store.Store) error {
	id, err := parseTaskID(c.ID)
	if err != nil {
		return err
	}
	if _, err := findTask(ctx, s, id); err != nil {
		return err
	}
	tree, err := s.Operate.Tree(ctx, id, treeMost)
	if err != nil {
		return err
	}
	rows := make([]treeRow, len(tree))
	for i, t := range tree {
		rows[i] = treeRow{ID: t.ID.String(), Depth: t.Depth, Key: t.Key, Agent: t.Agent, UpdatedAt: orNil(t.StatusAt)}
		if t.State != a2a.StateNone {
			rows[i].State = t.State.String()
		}
	}
	head := []string{"TASK", "STATE", "AGENT", "CALL", "UPDATED"}
	return term.List(&app.Console, c.json(), head, []string{"UPDATED", "CALL"}, rows, func(r treeRow) []string {
		state, updated := r.State, ""
		if r.Agent == "" {
			state = "removed"
		} else {
			updated = term.Moment(*r.UpdatedAt)
		}
		return []string{
			strings.Repeat("  ", r.Depth) + r.ID, state, term.Cell(r.Agent), term.Cell(r.Key), updated,
		}
	})
}
