package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/term"
)

// TaskCmd is `a2ad task`: the tasks of every tenant, on the database.
type TaskCmd struct {
	Ls     TaskLsCmd     `cmd:"" group:"commands" help:"List tasks, newest first."`
	Show   TaskShowCmd   `cmd:"" group:"commands" help:"Show one task and everything that happened to it."`
	Watch  TaskWatchCmd  `cmd:"" group:"commands" help:"Follow a task until it ends."`
	Cancel TaskCancelCmd `cmd:"" group:"commands" help:"Cancel tasks."`
	Retry  TaskRetryCmd  `cmd:"" group:"commands" help:"Make new tasks of some that have failed."`
	Purge  TaskPurgeCmd  `cmd:"" group:"commands" help:"Remove tasks and everything about them."`
}

// TaskLsCmd is `a2ad task ls`.
type TaskLsCmd struct {
	Tenant   string        `placeholder:"T" help:"Only tasks of this tenant."`
	Owner    string        `placeholder:"O" help:"Only tasks of this owner."`
	Agent    string        `placeholder:"NAME" help:"Only tasks of this agent."`
	Context  string        `placeholder:"ID" help:"Only tasks of this conversation."`
	State    []string      `enum:"submitted,working,input-required,auth-required,completed,failed,canceled,rejected" placeholder:"STATE" help:"Only tasks in one of these states: submitted, working, input-required, auth-required, completed, failed, canceled, rejected."`
	ID       string        `name:"id" placeholder:"PREFIX" help:"Only tasks whose id begins like this."`
	Since    Moment        `placeholder:"TIME" help:"Only tasks made from then on: a time, or how long ago (24h)."`
	Until    Moment        `placeholder:"TIME" help:"Only tasks made before then."`
	Before   string        `placeholder:"ID" help:"Only tasks older than this one: the next page."`
	Limit    int           `default:"50" placeholder:"N" help:"At most so many tasks (default 50)."`
	Watch    bool          `help:"Show the list again and again, until Ctrl-C; with -o json only what is new or has changed."`
	Every    time.Duration `default:"2s" placeholder:"DURATION" help:"How often, with --watch (default 2s)."`
	Database `group:"database"`
	Output
}

// Help is shown below the usage line.
func (*TaskLsCmd) Help() string {
	return `Tasks of all tenants, in the order in which they were made. The next page begins behind --before, however many there are. Times are like 2026-11-20, 2026-11-20T14:00:00Z, or 24h for a day ago.`
}

// checkLimit bounds what is read at once.
func checkLimit(n int) error {
	if n < 1 || n > 10_000 {
		return errors.New("--limit must be from 1 to 10000")
	}
	return nil
}

// Validate is called by the parser.
func (c *TaskLsCmd) Validate() error {
	if c.Every < 100*time.Millisecond {
		return errors.New("--every must be at least 100ms")
	}
	return checkLimit(c.Limit)
}

// Run lists.
func (c *TaskLsCmd) Run(ctx context.Context, app *App) error {
	f := taskFilter{
		Tenant: c.Tenant, Owner: c.Owner, Agent: c.Agent, ContextID: c.Context, Prefix: c.ID, Since: c.Since.Time, Until: c.Until.Time, Before: c.Before, Limit: c.Limit,
	}
	for _, name := range c.State {
		s, _ := a2a.ParseState(name)
		f.States = append(f.States, s)
	}
	return c.withOperator(ctx, app, func(op operator) error {
		if c.Watch {
			return c.watch(ctx, app, op, f)
		}
		rows, err := op.Tasks(ctx, f)
		if err != nil {
			return err
		}
		if err := printTasks(&app.Console, c.json(), rows); err != nil {
			return err
		}
		if len(rows) == c.Limit && !c.json() {
			fmt.Fprintf(app.Stderr, "the next page: --before %s\n", rows[len(rows)-1].ID)
		}
		return nil
	})
}

var taskHead = []string{"TASK", "STATE", "AGENT", "TENANT/OWNER", "EVENTS", "ATTEMPT", "UPDATED", "WORKER"}

func printTasks(to *term.Console, asJSON bool, rows []taskRow) error {
	return term.Rows(to, asJSON, taskHead, rows, func(r taskRow) []string {
		return []string{
			r.ID, r.State, r.Agent, term.Cell(r.Tenant + "/" + r.Owner), strconv.FormatInt(r.Events, 10),
			term.Number(int64(r.Attempt)), term.Moment(r.UpdatedAt), term.Cell(r.Worker),
		}
	})
}

// TaskShowCmd is `a2ad task show`.
type TaskShowCmd struct {
	ID       string `arg:"" help:"Id of the task."`
	Database `group:"database"`
	Output
}

// Run shows.
func (c *TaskShowCmd) Run(ctx context.Context, app *App) error {
	return c.withOperator(ctx, app, func(op operator) error {
		d, err := op.Task(ctx, c.ID)
		if err != nil {
			return err
		}
		if c.json() {
			return term.JSON(app.Stdout, d)
		}
		return showTask(app, &d)
	})
}

func showTask(app *App, d *taskDetail) error {
	w, paint := app.Stdout, app.Paint()
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	line := func(name, value string) { fmt.Fprintf(tw, "%s\t%s\n", name, value) }
	line("task", d.ID)
	line("state", d.State+" since "+term.Moment(d.UpdatedAt))
	line("agent", term.Cell(d.Agent))
	line("context", term.Cell(d.ContextID))
	line("caller", term.Cell(d.Tenant+"/"+d.Owner))
	line("created", term.Moment(d.CreatedAt))
	line("events", strconv.FormatInt(d.Events, 10))
	switch {
	case d.LeaseUntil != nil:
		line("run", fmt.Sprintf("by %s until %s, epoch %d", term.Cell(d.Worker), term.Moment(*d.LeaseUntil), d.Epoch))
	case d.ReadyAt != nil:
		line("run", "waits for a worker from "+term.Moment(*d.ReadyAt))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if len(d.Timeline) > 0 {
		fmt.Fprintln(w, "\n"+paint.Bold("Timeline"))
		if err := showTimeline(app, d.Timeline); err != nil {
			return err
		}
	}
	history := d.Task.History
	if m := d.Task.Status.Message; m != nil {
		history = append(history[:len(history):len(history)], *m)
	}
	if len(history) > 0 {
		fmt.Fprintln(w, "\n"+paint.Bold("Messages"))
	}
	for _, m := range history {
		who := "user"
		if m.Role == a2a.RoleAgent {
			who = "agent"
		}
		fmt.Fprintf(w, "%s:%s\n", who, term.DescribeParts(m.Parts))
	}
	if len(d.Task.Artifacts) > 0 {
		fmt.Fprintln(w, "\n"+paint.Bold("Artifacts"))
	}
	for _, a := range d.Task.Artifacts {
		fmt.Fprintf(w, "%s:%s\n", term.Cell(term.ArtifactName(client.Artifact{ID: a.ID, Name: a.Name})), term.DescribeParts(a.Parts))
	}
	return nil
}

// TaskWatchCmd is `a2ad task watch`.
type TaskWatchCmd struct {
	ID       string `arg:"" help:"Id of the task."`
	After    int64  `placeholder:"SEQ" help:"Only what came after this event."`
	Database `group:"database"`
	Output
}

// Help is shown below the usage line.
func (*TaskWatchCmd) Help() string {
	return `Shows a task like "a2ad send" and ends with the same exit codes: 0 completed, 3 failed, rejected or canceled. It goes on while the task waits for its client; Ctrl-C ends it.`
}

// Run watches.
func (c *TaskWatchCmd) Run(ctx context.Context, app *App) error {
	return c.withOperator(ctx, app, func(op operator) error {
		s := term.NewTranscript(&app.Console)
		state := a2a.StateNone
		for w, err := range op.Watch(ctx, c.ID, c.After) {
			if ctx.Err() != nil {
				break
			}
			if err != nil {
				return err
			}
			if c.json() {
				err = term.JSON(app.Stdout, eventLine{ID: w.ID, Event: w.Raw})
			} else {
				showWatched(s, w)
			}
			if err != nil {
				return err
			}
			switch {
			case w.Snapshot != nil:
				state = w.Snapshot.Status.State
			case w.Entry != nil && w.Entry.State() != a2a.StateNone:
				state = w.Entry.State()
			}
		}
		s.EndLine()
		if ctx.Err() != nil {
			return &exitError{code: exitInterrupted}
		}
		return taskExit(state)
	})
}

// showWatched shows what a watch yields as send shows what it receives.
func showWatched(s *term.Transcript, w watched) {
	if t := w.Snapshot; t != nil {
		s.Note("task %s", t.ID)
		for _, a := range t.Artifacts {
			s.Artifacts([]client.Artifact{{ID: a.ID, Name: a.Name, Parts: a.Parts}})
		}
		s.State(t.Status.State, messageParts(t.Status.Message), nil)
		return
	}
	switch e := w.Entry.Event.(type) {
	case *a2a.StatusUpdate:
		s.State(e.Status.State, messageParts(e.Status.Message), e.Metadata)
	case *a2a.ArtifactUpdate:
		s.Chunk(client.Artifact{ID: e.Artifact.ID, Name: e.Artifact.Name, Parts: e.Artifact.Parts}, e.Append, e.LastChunk)
	case *a2a.Message:
		s.Parts(e.Parts)
	}
}

func messageParts(m *a2a.Message) []a2a.Part {
	if m == nil {
		return nil
	}
	return m.Parts
}

// watch lists until it is interrupted. A person sees the newest list alone, and of that what
// the terminal has room for: the newest tasks are at its top.
func (c *TaskLsCmd) watch(ctx context.Context, app *App, op operator, f taskFilter) error {
	tick := time.NewTicker(c.Every)
	defer tick.Stop()
	shown, to := map[string]string{}, &app.Console
	for first := true; ; first = false {
		rows, err := op.Tasks(ctx, f)
		if ctx.Err() != nil {
			return &exitError{code: exitInterrupted}
		}
		if err != nil {
			return err
		}
		switch {
		case c.json():
			rows = slices.DeleteFunc(rows, func(r taskRow) bool {
				is := fmt.Sprintf("%s %d %d %s", r.State, r.Events, r.Epoch, r.Worker)
				same := shown[r.ID] == is
				shown[r.ID] = is
				return same
			})
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
			if app.Terminal && !c.json() {
				fmt.Fprintln(app.Stdout) // behind the ^C
			}
			return &exitError{code: exitInterrupted}
		}
	}
}

// TaskCancelCmd is `a2ad task cancel`.
type TaskCancelCmd struct {
	IDs      []string `arg:"" name:"id" help:"Ids of the tasks."`
	Database `group:"database"`
	Output
}

// Run cancels one after the other and goes on behind one that cannot be canceled.
func (c *TaskCancelCmd) Run(ctx context.Context, app *App) error {
	return c.withOperator(ctx, app, func(op operator) error {
		return each(ctx, app, c.IDs, func(id string) error {
			row, err := op.Cancel(ctx, id)
			if err != nil {
				return err
			}
			if c.json() {
				return term.JSON(app.Stdout, row)
			}
			_, err = fmt.Fprintf(app.Stdout, "%s %s\n", row.ID, row.State)
			return err
		})
	})
}

// TaskRetryCmd is `a2ad task retry`.
type TaskRetryCmd struct {
	IDs      []string `arg:"" name:"id" help:"Ids of tasks that have failed, or were canceled or rejected."`
	Database `group:"database"`
	Output
}

// Help is shown below the usage line.
func (*TaskRetryCmd) Help() string {
	return `A task that has ended stays as it is. A new one is made for the same tenant, owner and agent, in the same context, of the first message of the old one, to which it refers. Its id is printed. Webhooks are not taken over. The exit code is 1 when any of them could not be retried.`
}

// Run retries one after the other and goes on behind one that cannot be retried.
func (c *TaskRetryCmd) Run(ctx context.Context, app *App) error {
	return c.withOperator(ctx, app, func(op operator) error {
		return each(ctx, app, c.IDs, func(id string) error {
			made, err := op.Retry(ctx, id)
			if err != nil {
				return err
			}
			if c.json() {
				return term.JSON(app.Stdout, made)
			}
			_, err = fmt.Fprintln(app.Stdout, made.ID)
			return err
		})
	})
}

// TaskPurgeCmd is `a2ad task purge`.
type TaskPurgeCmd struct {
	IDs      []string `arg:"" optional:"" name:"id" help:"Ids of the tasks."`
	Tenant   string   `placeholder:"T" help:"With --owner, in place of ids: all tasks of an owner of this tenant."`
	Owner    string   `placeholder:"O" help:"The owner."`
	Context  string   `placeholder:"ID" help:"Of these, only those of this conversation."`
	Yes      bool     `short:"y" help:"Do not ask."`
	Database `group:"database"`
	Output
}

// Help is shown below the usage line.
func (*TaskPurgeCmd) Help() string {
	return `Removes tasks for ever, with their messages, artifacts, events, attempts and webhooks. What runs is canceled first, and no webhook of theirs is called once the command ends. The audit log keeps that it was done, and nothing else. It asks first; a script says --yes.`
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

// purged is what programs are told.
type purged struct {
	ID     string `json:"id,omitempty"`
	Tenant string `json:"tenant,omitempty"`
	Owner  string `json:"owner,omitempty"`
	Purged int    `json:"purged"`
}

// Run removes, once it is sure.
func (c *TaskPurgeCmd) Run(ctx context.Context, app *App) error {
	if !c.Yes && !app.CanAsk {
		return &exitError{exitUsage, errors.New("nobody can be asked here: look at \"a2ad task ls\", then say --yes")}
	}
	return c.withOperator(ctx, app, func(op operator) error {
		filters := []purgeFilter{{Tenant: c.Tenant, Owner: c.Owner, ContextID: c.Context}}
		if len(c.IDs) > 0 {
			filters = nil
			for _, id := range c.IDs {
				filters = append(filters, purgeFilter{ID: id})
			}
		}
		if !c.Yes {
			if sure, err := c.ask(ctx, app, op, filters); err != nil || !sure {
				return err
			}
		}
		failed := false
		for _, f := range filters {
			n, err := op.Purge(ctx, f)
			if err != nil && ctx.Err() != nil {
				return err
			}
			if err == nil && n == 0 && f.ID != "" {
				err = fmt.Errorf("task %s: %w", f.ID, a2a.ErrTaskNotFound)
			}
			if err != nil {
				fmt.Fprintln(app.Stderr, "a2ad: "+a2a.Explain(err))
				failed = true
			}
			if err := c.show(app, f, n); err != nil {
				return err
			}
		}
		if failed {
			return &exitError{code: exitFailure}
		}
		return nil
	})
}

func (c *TaskPurgeCmd) show(app *App, f purgeFilter, n int) error {
	if c.json() {
		return term.JSON(app.Stdout, purged{ID: f.ID, Tenant: f.Tenant, Owner: f.Owner, Purged: n})
	}
	if n == 0 && f.ID != "" {
		return nil
	}
	if f.ID != "" {
		_, err := fmt.Fprintf(app.Stdout, "%s purged\n", f.ID)
		return err
	}
	_, err := fmt.Fprintf(app.Stdout, "%s purged\n", term.Count(n, "task"))
	return err
}

var errNotPurged = errors.New("nothing was removed")

// ask says how much there is to remove, and reports whether it is to be done.
func (c *TaskPurgeCmd) ask(ctx context.Context, app *App, op operator, filters []purgeFilter) (bool, error) {
	total := int64(0)
	for _, f := range filters {
		n, err := op.CountPurge(ctx, f)
		if err != nil {
			return false, err
		}
		total += n
	}
	if total == 0 {
		return true, nil // what follows says so
	}
	what, them := term.Count(int(total), "task"), "them"
	if total == 1 {
		them = "it"
	}
	if c.Owner != "" {
		what += " of " + term.Printable(c.Tenant+"/"+c.Owner)
	}
	question := fmt.Sprintf("This removes %s and everything about %s, for ever. Go on?", what, them)
	sure, err := app.Confirm(ctx, question)
	switch {
	case err != nil:
		return false, &exitError{exitInterrupted, errNotPurged}
	case !sure:
		return false, errNotPurged
	}
	return true, nil
}

// each does something to every id, says what went wrong with which, and fails in the
// end if anything did. It ends with the first that is interrupted.
func each(ctx context.Context, app *App, ids []string, do func(id string) error) error {
	failed := false
	for _, id := range ids {
		err := do(id)
		if err != nil && ctx.Err() != nil {
			return err
		}
		if err != nil {
			fmt.Fprintln(app.Stderr, "a2ad: "+a2a.Explain(err))
			failed = true
		}
	}
	if failed {
		return &exitError{code: exitFailure}
	}
	return nil
}
