package main

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/a2ad/a2ad/internal/admin"
)

// TaskCmd is `a2ad task`: the tasks of every tenant, on the database.
type TaskCmd struct {
	Ls     TaskLsCmd     `cmd:"" group:"commands" help:"List tasks, newest first."`
	Show   TaskShowCmd   `cmd:"" group:"commands" help:"Show one task and everything that happened to it."`
	Watch  TaskWatchCmd  `cmd:"" group:"commands" help:"Follow a task until it ends."`
	Tail   TaskTailCmd   `cmd:"" group:"commands" help:"Follow the changes of all tasks."`
	Cancel TaskCancelCmd `cmd:"" group:"commands" help:"Cancel tasks."`
	Resume TaskResumeCmd `cmd:"" group:"commands" help:"Give parked tasks fresh attempts."`
	Retry  TaskRetryCmd  `cmd:"" group:"commands" help:"Run failed, canceled or rejected tasks again, as new tasks."`
	Answer TaskAnswerCmd `cmd:"" group:"commands" help:"Answer a task that waits for input or authentication."`
	Assign TaskAssignCmd `cmd:"" group:"commands" help:"Say which person is to answer a task."`
	Signal TaskSignalCmd `cmd:"" group:"commands" help:"Send a signal to a task."`
	Purge  TaskPurgeCmd  `cmd:"" group:"commands" help:"Remove tasks and everything about them."`
}

// The commands show what the admin API answers.
type (
	taskRow    = admin.Task
	taskDetail = admin.TaskDetail
)

// taskPath is the path of a task in the admin API, and of an action on it. The beginning of an id names the task, if it
// is the only one.
func taskPath(id string, action ...string) string {
	return strings.Join(append([]string{"/tasks", url.PathEscape(id)}, action...), "/")
}

// onTask calls do, and says in its errors which task they are about.
func onTask(id string, do func() error) error {
	if id == "" {
		return errors.New("the id of a task is empty")
	}
	if err := do(); err != nil {
		return fmt.Errorf("task %s: %w", id, err)
	}
	return nil
}
