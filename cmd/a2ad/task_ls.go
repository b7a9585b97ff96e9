package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/term"
)

// TaskLsCmd is `a2ad task ls`.
type TaskLsCmd struct {
	Tenant  string `placeholder:"T" help:"Only tasks of this tenant."`
	Owner   string `placeholder:"O" help:"Only tasks of this owner."`
	Agent   string `placeholder:"NAME" help:"Only tasks of this agent."`
	Context string `placeholder:"ID" help:"Only tasks of this conversation."`

	State []string `enum:"${states}" placeholder:"STATE" help:"Only tasks in one of these states: ${states_and}."`

	Parked bool          `help:"Only parked tasks."`
	Roots  bool          `help:"Leave out the tasks that others have called."`
	ID     string        `name:"id" placeholder:"PREFIX" help:"Only tasks whose id begins with this."`
	Since  Moment        `placeholder:"TIME" help:"Only tasks created since then: a time, or how long ago (24h)."`
	Until  Moment        `placeholder:"TIME" help:"Only tasks created before then."`
	Before string        `placeholder:"ID" help:"Only tasks older than this one: the next page."`
	Limit  int           `default:"50" placeholder:"N" help:"At most this many tasks (default 50)."`
	Watch  bool          `help:"Refresh the list until Ctrl-C; with -o json, print only what is new or has changed."`
	Every  time.Duration `default:"2s" placeholder:"DURATION" help:"How often, with --watch (default 2s)."`

	Database `group:"database"`
	Output
}

// Help is shown below the usage line.
func (*TaskLsCmd) Help() string {
	return `Lists the tasks of all tenants, newest first. The next page begins with --before. ` +
		`Times are like 2026-11-20, 2026-11-20T14:00:00Z, or 24h for a day ago.`
}

// Validate is called by the parser.
func (c *TaskLsCmd) Validate() error {
	if c.Every < 100*time.Millisecond {
		return errors.New("--every must be at least 100ms")
	}
	return checkLimit(c.Limit)
}

func (c *TaskLsCmd) filter() (f operate.TaskFilter, err error) {
	f = operate.TaskFilter{
		Tenant: c.Tenant, Owner: c.Owner, Agent: c.Agent, ContextID: c.Context, Prefix: c.ID,
		Since: c.Since.Time, Until: c.Until.Time, Parked: c.Parked, Roots: c.Roots, Limit: c.Limit,
	}
	for _, name := range c.State {
		s, _ := a2a.ParseState(name)
		f.States = append(f.States, s)
	}
	f.Before, err = optionalTaskID(c.Before)
	return f, err
}

// Run lists.
func (c *TaskLsCmd) Run(ctx context.Context, app *App) error {
	return c.withStore(ctx, app, func(s *store.Store) error {
		f, err := c.filter()
		if err != nil {
			return err
		}
		if c.Watch {
			return c.watch(ctx, app, s, f)
		}
		rows, err := listTasks(ctx, s, f)
		if err != nil {
			return err
		}
		if err := printTasks(&app.Console, c.json(), rows); err != nil {
			return err
		}
		if len(rows) == c.Limit && !c.json() {
			app.Note("next page: --before " + rows[len(rows)-1].ID)
		}
		return nil
	})
}

func listTasks(ctx context.Context, s *store.Store, f operate.TaskFilter) ([]taskRow, error) {
	found, err := s.Operate.ListTasks(ctx, f)
	if err != nil {
		return nil, err
	}
	rows := make([]taskRow, len(found))
	for i := range found {
		rows[i] = newTaskRow(&found[i])
	}
	return rows, nil
}

var (
	taskHead     = []string{"TASK", "STATE", "AGENT", "TENANT/OWNER", "EVENTS", "ATTEMPT", "UPDATED", "WORKER"}
	taskOptional = []string{"WORKER", "ATTEMPT", "EVENTS", "TENANT/OWNER", "UPDATED"}
)

func printTasks(to *term.Console, asJSON bool, rows []taskRow) error {
	return term.List(to, asJSON, taskHead, taskOptional, rows, func(r taskRow) []string {
		state := r.State
		if r.Parked != nil {
			state += ", parked"
		}
		return []string{
			r.ID, state, r.Agent, term.Cell(r.Tenant + "/" + r.Owner), strconv.FormatInt(r.Events, 10),
			term.Number(int64(r.Attempt)), term.Moment(r.UpdatedAt), term.Cell(r.Worker),
		}
	})
}

// watch lists until it is interrupted. A person sees only the newest list, cut to the height of the terminal, with the
// newest tasks at its top.
func (c *TaskLsCmd) watch(ctx context.Context, app *App, s *store.Store, f operate.TaskFilter) error {
	tick := time.NewTicker(c.Every)
	defer tick.Stop()
	shown, to := map[string]string{}, &app.Console
	interrupted := func() error {
		if app.Terminal && !c.json() {
			fmt.Fprintln(app.Stdout) // after the ^C
		}
		return &exitError{code: exitInterrupted}
	}
	for first := true; ; first = false {
		rows, err := listTasks(ctx, s, f)
		if ctx.Err() != nil {
			return interrupted()
		}
		if err != nil {
			return err
		}
		switch {
		case c.json():
			rows = onlyChanged(rows, shown)
		case app.Terminal:
			to = app.NewPage()
		case !first:
			fmt.Fprintln(app.Stdout)
		}
		if err := printTasks(to, c.json(), rows); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return interrupted()
		}
	}
}

// onlyChanged returns the rows that differ from those in shown, and adds them to it.
func onlyChanged(rows []taskRow, shown map[string]string) []taskRow {
	return slices.DeleteFunc(rows, func(r taskRow) bool {
		now := fmt.Sprintf("%s %d %d %s %t", r.State, r.Events, r.Epoch, r.Worker, r.Parked != nil)
		same := shown[r.ID] == now
		shown[r.ID] = now
		return same
	})
}
