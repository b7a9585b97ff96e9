package main

import (
	"context"
	"fmt"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/operate"
)

// TaskCmd is `a2ad task`: the tasks of every tenant, on the database.
type TaskCmd struct {
	Ls     TaskLsCmd     `cmd:"" group:"commands" help:"List tasks, newest first."`
	Show   TaskShowCmd   `cmd:"" group:"commands" help:"Show one task and everything that happened to it."`
	Watch  TaskWatchCmd  `cmd:"" group:"commands" help:"Follow a task until it ends."`
	Cancel TaskCancelCmd `cmd:"" group:"commands" help:"Cancel tasks."`
	Resume TaskResumeCmd `cmd:"" group:"commands" help:"Give parked tasks fresh attempts."`
	Retry  TaskRetryCmd  `cmd:"" group:"commands" help:"Run failed, canceled or rejected tasks again, as new tasks."`
	Signal TaskSignalCmd `cmd:"" group:"commands" help:"Send a signal to a task."`
	Purge  TaskPurgeCmd  `cmd:"" group:"commands" help:"Remove tasks and everything about them."`
}

// taskRow is one task in a list. Its JSON does not change silently.
type taskRow struct {
	ID         string     `json:"id"`
	State      string     `json:"state"`
	Agent      string     `json:"agent"`
	Tenant     string     `json:"tenant"`
	Owner      string     `json:"owner"`
	ContextID  string     `json:"contextId"`
	CreatedAt  time.Time  `json:"createdAt"`
	UpdatedAt  time.Time  `json:"updatedAt"` // when the state changed
	Events     int64      `json:"events"`    // seq of the newest one
	Attempt    int        `json:"attempt"`
	Epoch      int64      `json:"epoch"`
	Worker     string     `json:"worker,omitempty"`     // that runs it
	LeaseUntil *time.Time `json:"leaseUntil,omitempty"` // nil: no worker runs it
	ReadyAt    *time.Time `json:"readyAt,omitempty"`    // nil: it is not queued
	Parked     *parked    `json:"parked,omitempty"`     // nil: it is not parked
	Parent     string     `json:"parent,omitempty"`     // the task that has called it; empty: a client has sent it
}

// parked says since when and why a task is parked.
type parked struct {
	Since  time.Time  `json:"since"`
	Until  *time.Time `json:"until,omitempty"` // the task fails after that; nil: it stays
	Reason string     `json:"reason"`
}

func newTaskRow(t *operate.TaskRow) taskRow {
	row := taskRow{
		ID: t.ID.String(), State: t.State.String(), Agent: t.Agent, Tenant: t.Tenant, Owner: t.Owner,
		ContextID: t.ContextID, CreatedAt: t.CreatedAt, UpdatedAt: t.StatusAt, Events: t.LastSeq, Attempt: t.Attempt,
		Epoch: t.Epoch, Worker: t.Worker, LeaseUntil: orNil(t.LeaseUntil), ReadyAt: orNil(t.ReadyAt),
	}
	if !t.Parent.IsZero() {
		row.Parent = t.Parent.String()
	}
	if p := t.Parked; p != nil {
		row.Parked = &parked{p.Since, orNil(p.Until), p.Reason}
	}
	return row
}

// findTask returns one task as lists show it.
func findTask(ctx context.Context, s *store.Store, id a2a.ID) (taskRow, error) {
	found, err := s.Operate.ListTasks(ctx, operate.TaskFilter{ID: id, Limit: 1})
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("task %s: %w", id, a2a.ErrTaskNotFound)
	}
	if err != nil {
		return taskRow{}, err
	}
	return newTaskRow(&found[0]), nil
}
