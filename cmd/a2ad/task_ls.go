package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/term"
)

// TaskLsCmd is `a2ad task ls`.
type TaskLsCmd struct {
	Tenant  string `placeholder:"T" help:"Only tasks of this tenant."`
	Owner   string `placeholder:"O" help:"Only tasks of this owner."`
	Agent   string `placeholder:"NAME" help:"Only tasks of this agent."`
	Context string `placeholder:"ID" help:"Only tasks of this conversation."`

	State []string `placeholder:"STATE" words:"states" help:"Only tasks in one of these states: ${states_and}."`

	Text        string `placeholder:"TEXT" help:"Only tasks with this text in their first message."`
	Error       string `placeholder:"TEXT" help:"Only tasks with this text in an error."`
	MetadataKey string `placeholder:"NAME" help:"Only tasks with a member of this name in their metadata."`

	Parked bool          `help:"Only parked tasks."`
	Roots  bool          `help:"Leave out the tasks that others have called."`
	ID     string        `name:"id" placeholder:"PREFIX" help:"Only tasks whose id begins with this."`
	Since  Moment        `placeholder:"TIME" help:"Only tasks created since then: a time, or how long ago (24h)."`
	Until  Moment        `placeholder:"TIME" help:"Only tasks created before then."`
	Before string        `placeholder:"ID" help:"Only tasks older than this one: the next page."`
	Limit  int           `default:"50" placeholder:"N" help:"At most this many tasks (default 50)."`
	Watch  bool          `help:"Refresh the list until Ctrl-C; with -o json, print only what is new or has changed."`
	Wide   bool          `help:"Also show the conversation and the whole reason, on several lines if need be."`
	Every  time.Duration `default:"2s" placeholder:"DURATION" help:"How often, with --watch (default 2s)."`

	Service
	Output
}

// Help is shown below the usage line.
func (*TaskLsCmd) Help() string {
	return `Lists the tasks of all tenants, newest first. The next page begins with --before. ` +
		`REASON is the question of a task that asks, or why a task failed or is parked. ` +
		`Times are like 2026-11-20, 2026-11-20T14:00:00Z, or 24h for a day ago.`
}

// Validate is called by the parser.
func (c *TaskLsCmd) Validate() error {
	if c.Every < 100*time.Millisecond {
		return errors.New("--every must be at least 100ms")
	}
	if err := checkStates(c.State); err != nil {
		return err
	}
	return checkLimit(c.Limit)
}

// checkStates refuses what is no state, in any spelling.
func checkStates(names []string) error {
	for _, name := range names {
		if _, err := admin.ParseState(name); err != nil {
			return fmt.Errorf("--state: %q is no state; the states are %s", name, stateNames())
		}
	}
	return nil
}

// listFormat says how a list of tasks is written.
type listFormat struct {
	json, wide bool
	now        time.Time
}

func (c *TaskLsCmd) format(app *App) listFormat { return listFormat{c.json(), c.Wide, app.time()} }

func (c *TaskLsCmd) query() admin.TaskQuery {
	q := admin.TaskQuery{TaskFilter: admin.TaskFilter{
		Tenant: c.Tenant, Owner: c.Owner, Context: c.Context, ID: c.ID, State: c.State,
		Since: c.Since.Time, Until: c.Until.Time, Parked: c.Parked, Roots: c.Roots,
		Text: c.Text, Error: c.Error, MetadataKey: c.MetadataKey,
	}, Before: c.Before}
	if c.Agent != "" {
		q.Agent = []string{c.Agent}
	}
	return q
}

// Run lists.
func (c *TaskLsCmd) Run(ctx context.Context, app *App) error {
	return c.withAdmin(ctx, app, func(api *admin.Client) error {
		q := c.query()
		if c.Watch {
			return c.watch(ctx, app, api, q)
		}
		rows, err := listTasks(ctx, api, q, c.Limit)
		if err != nil {
			return err
		}
		if err := printTasks(&app.Console, c.format(app), rows); err != nil {
			return err
		}
		if len(rows) == c.Limit && !c.json() {
			app.Note("next page: --before " + rows[len(rows)-1].ID)
		}
		return nil
	})
}

// listTasks returns at most most tasks.
func listTasks(ctx context.Context, api *admin.Client, q admin.TaskQuery, most int) ([]taskRow, error) {
	return pages(most, func(size int) (rows []taskRow, more bool, err error) {
		q.Limit = size
		var page admin.TaskList
		err = api.Get(ctx, "/tasks", q, &page)
		q.Cursor, q.Before = page.Next, ""
		return page.Tasks, page.Next != "", err
	})
}

var (
	taskHead = []string{
		"TASK", "STATE", "AGENT", "AGE", "TENANT/OWNER", "EVENTS", "ATTEMPT", "UPDATED", "WORKER", "REASON",
	}
	taskOptional = []string{"WORKER", "ATTEMPT", "EVENTS", "UPDATED", "TENANT/OWNER", "AGE"}
	wideHead     = slices.Insert(slices.Clone(taskHead), len(taskHead)-1, "CONTEXT")
)

// printTasks writes a list. The reason is the question of a task that asks, and else why it failed or is parked.
func printTasks(to *term.Console, out listFormat, rows []taskRow) error {
	cells := func(r taskRow) []string {
		state, reason := r.State, cmp.Or(r.Question, r.LastError)
		if r.Parked != nil {
			state, reason = state+", parked", r.Parked.Reason
		}
		cells := []string{
			r.ID, state, term.Cell(r.Agent), term.Age(out.now.Sub(r.CreatedAt)),
			term.Cell(r.Tenant + "/" + r.Owner), strconv.FormatInt(r.Events, 10), term.Number(int64(r.Attempt)),
			term.Moment(r.UpdatedAt), term.Cell(r.Worker),
		}
		if out.wide {
			return append(cells, term.Cell(r.ContextID), term.Cell(reason))
		}
		return append(cells, term.Cell(term.Shorten(reason, shortReason)))
	}
	if out.wide {
		return term.Rows(to, out.json, wideHead, rows, cells)
	}
	return term.List(to, out.json, taskHead, taskOptional, rows, cells)
}

// shortReason is how many columns of a reason a list shows at most, unless it is wide.
const shortReason = 60

// watch lists until it is interrupted. A person sees only the newest list, cut to the height of the terminal, with the
// newest tasks at its top.
func (c *TaskLsCmd) watch(ctx context.Context, app *App, api *admin.Client, q admin.TaskQuery) error {
	tick := time.NewTicker(c.Every)
	defer tick.Stop()
	shown, to := map[string]string{}, &app.Console
	for first := true; ; first = false {
		rows, err := listTasks(ctx, api, q, c.Limit)
		if ctx.Err() != nil {
			return c.interrupted(app)
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
		if err := printTasks(to, c.format(app), rows); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return c.interrupted(app)
		}
	}
}

func (c *TaskLsCmd) interrupted(app *App) error {
	if app.Terminal && !c.json() {
		fmt.Fprintln(app.Stdout) // after the ^C
	}
	return &exitError{code: exitInterrupted}
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
