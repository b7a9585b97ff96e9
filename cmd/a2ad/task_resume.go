package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/term"
)

// TaskResumeCmd is `a2ad task resume`.
type TaskResumeCmd struct {
	TaskSelection
	Reason   string `default:"resumed by an operator" placeholder:"TEXT" help:"${reason_help}"`
	Database `group:"database"`
	Output
}

// Help is shown below the usage line.
func (*TaskResumeCmd) Help() string {
	return `Gives parked tasks fresh attempts and puts them into the queue. ` +
		`Name tasks, or select parked tasks with flags; the command asks for confirmation then, and a script passes ` +
		`--yes. Their streams and webhooks continue.

The exit code is 1 if a task that was named is not parked.`
}

// Validate is called by the parser.
func (c *TaskResumeCmd) Validate() error { return c.checkSelection(false) }

// resumedTask is a task that was parked. Its JSON does not change silently.
type resumedTask struct {
	ID     string `json:"id"`
	Agent  string `json:"agent"`
	Tenant string `json:"tenant"`
	Owner  string `json:"owner"`
	Parked string `json:"parked"` // why it was
}

// Run resumes.
func (c *TaskResumeCmd) Run(ctx context.Context, app *App) error {
	if err := c.mayAsk(app); err != nil {
		return err
	}
	return c.withStore(ctx, app, func(s *store.Store) error {
		if len(c.IDs) == 0 {
			return c.resumeMany(ctx, app, s)
		}
		return each(ctx, app, c.IDs, func(text string) error {
			id, err := parseTaskID(text)
			if err != nil {
				return err
			}
			n, err := c.resume(ctx, app, s, id)
			if err == nil && n == 0 {
				err = fmt.Errorf("task %s is not parked", id)
			}
			return err
		})
	})
}

// resumeBatch is how many tasks are resumed in one transaction.
const resumeBatch = 100

func (c *TaskResumeCmd) resumeMany(ctx context.Context, app *App, s *store.Store) error {
	ids, err := c.list(ctx, s, operate.TaskFilter{Parked: true})
	if err != nil {
		return err
	}
	if err := c.confirm(ctx, app, len(ids), "This resumes %s. Continue?"); err != nil {
		return err
	}
	total := 0
	for batch := range slices.Chunk(ids, resumeBatch) {
		n, err := c.resume(ctx, app, s, batch...)
		if total += n; err != nil {
			return err
		}
	}
	if !c.json() {
		app.Note(term.Count(total, "task") + " resumed")
	}
	return nil
}

// resume resumes tasks in one transaction, and prints those that were parked.
func (c *TaskResumeCmd) resume(ctx context.Context, app *App, s *store.Store, ids ...a2a.ID) (int, error) {
	list, err := s.Tasks.Resume(ctx, ids, c.Reason)
	if err != nil {
		return 0, err
	}
	for _, r := range list {
		if err := c.print(app, r); err != nil {
			return 0, err
		}
	}
	return len(list), nil
}

func (c *TaskResumeCmd) print(app *App, r tasks.Resumed) error {
	if c.json() {
		return term.JSON(app.Stdout, resumedTask{r.Task.String(), r.Agent, r.Tenant, r.Owner, r.Parked})
	}
	_, err := fmt.Fprintf(app.Stdout, "%s resumed\n", r.Task)
	return err
}
