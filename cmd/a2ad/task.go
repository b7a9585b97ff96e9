package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
)

// TaskCmd is `a2ad task`: the tasks of every tenant, on the database.
type TaskCmd struct {
	Ls     TaskLsCmd     `cmd:"" group:"commands" help:"List tasks, newest first."`
	Show   TaskShowCmd   `cmd:"" group:"commands" help:"Show one task with its attempts, history and artifacts."`
	Watch  TaskWatchCmd  `cmd:"" group:"commands" help:"Follow a task until it ends."`
	Cancel TaskCancelCmd `cmd:"" group:"commands" help:"Cancel tasks."`
}

// TaskLsCmd is `a2ad task ls`.
type TaskLsCmd struct {
	Tenant   string   `placeholder:"T" help:"Only tasks of this tenant."`
	Owner    string   `placeholder:"O" help:"Only tasks of this owner."`
	Agent    string   `placeholder:"NAME" help:"Only tasks of this agent."`
	Context  string   `placeholder:"ID" help:"Only tasks of this conversation."`
	State    []string `enum:"submitted,working,input-required,auth-required,completed,failed,canceled,rejected" placeholder:"STATE" help:"Only tasks in one of these states: submitted, working, input-required, auth-required, completed, failed, canceled, rejected."`
	Before   string   `placeholder:"ID" help:"Only tasks older than this one: the next page."`
	Limit    int      `default:"50" placeholder:"N" help:"At most so many tasks (default 50)."`
	Database `group:"database"`
	Output
}

// Validate is called by the parser.
func (c *TaskLsCmd) Validate() error {
	if c.Limit < 1 || c.Limit > 10_000 {
		return errors.New("--limit must be from 1 to 10000")
	}
	return nil
}

// Run lists.
func (c *TaskLsCmd) Run(ctx context.Context, app *App) error {
	f := taskFilter{Tenant: c.Tenant, Owner: c.Owner, Agent: c.Agent, ContextID: c.Context, Before: c.Before, Limit: c.Limit}
	for _, name := range c.State {
		s, _ := a2a.ParseState(name)
		f.States = append(f.States, s)
	}
	return c.withOperator(ctx, app, func(op operator) error {
		rows, err := op.Tasks(ctx, f)
		if err != nil {
			return err
		}
		if err := printTasks(app, c.json(), rows); err != nil {
			return err
		}
		if len(rows) == c.Limit && !c.json() {
			fmt.Fprintf(app.Stderr, "the next page: a2ad task ls --before %s\n", rows[len(rows)-1].ID)
		}
		return nil
	})
}

var taskHead = []string{"TASK", "STATE", "AGENT", "TENANT/OWNER", "EVENTS", "ATTEMPT", "UPDATED", "WORKER"}

func printTasks(app *App, asJSON bool, rows []taskRow) error {
	return printRows(app.Stdout, asJSON, taskHead, rows, func(r taskRow) []string {
		return []string{
			r.ID, r.State, r.Agent, cell(r.Tenant + "/" + r.Owner), strconv.FormatInt(r.Events, 10),
			strconv.Itoa(r.Attempt), moment(r.UpdatedAt), cell(r.Worker),
		}
	})
}

// cell makes text of others fit for a table on a terminal.
func cell(s string) string {
	if s == "" {
		return "-"
	}
	return strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' {
			return ' '
		}
		return r
	}, printable(s))
}

// moment is a time for people: UTC, to the second.
func moment(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

func momentOf(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return moment(*t)
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
			return printJSON(app.Stdout, d)
		}
		return showTask(app.Stdout, &d, painter(app.Color))
	})
}

func showTask(w io.Writer, d *taskDetail, paint painter) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	line := func(name, value string) { fmt.Fprintf(tw, "%s\t%s\n", name, value) }
	line("task", d.ID)
	line("state", d.State+" since "+moment(d.UpdatedAt))
	line("agent", cell(d.Agent))
	line("context", cell(d.ContextID))
	line("caller", cell(d.Tenant+"/"+d.Owner))
	line("created", moment(d.CreatedAt))
	line("events", strconv.FormatInt(d.Events, 10))
	switch {
	case d.LeaseUntil != nil:
		line("run", fmt.Sprintf("by %s until %s, epoch %d", cell(d.Worker), moment(*d.LeaseUntil), d.Epoch))
	case d.ReadyAt != nil:
		line("run", "waits for a worker from "+moment(*d.ReadyAt))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if len(d.Attempts) > 0 {
		fmt.Fprintln(w, "\n"+paint.bold("Attempts"))
		err := printRows(w, false, []string{"ATTEMPT", "EPOCH", "WORKER", "CLAIMED", "ENDED", "OUTCOME", "ERROR"}, d.Attempts, func(a attemptRow) []string {
			return []string{
				strconv.Itoa(a.Attempt), strconv.FormatInt(a.Epoch, 10), cell(a.Worker), moment(a.ClaimedAt),
				momentOf(a.EndedAt), cell(a.Outcome), cell(a.Error),
			}
		})
		if err != nil {
			return err
		}
	}
	history := d.Task.History
	if m := d.Task.Status.Message; m != nil {
		history = append(history[:len(history):len(history)], *m)
	}
	if len(history) > 0 {
		fmt.Fprintln(w, "\n"+paint.bold("Messages"))
	}
	for _, m := range history {
		who := "user"
		if m.Role == a2a.RoleAgent {
			who = "agent"
		}
		fmt.Fprintf(w, "%s:%s\n", who, describeParts(m.Parts))
	}
	if len(d.Task.Artifacts) > 0 {
		fmt.Fprintln(w, "\n"+paint.bold("Artifacts"))
	}
	for _, a := range d.Task.Artifacts {
		fmt.Fprintf(w, "%s:%s\n", cell(artifactName(client.Artifact{ID: a.ID, Name: a.Name})), describeParts(a.Parts))
	}
	return nil
}

// describeParts shows content behind a colon: on its line, or indented below it.
func describeParts(parts []a2a.Part) string {
	var out []string
	for _, p := range parts {
		switch p.Kind {
		case a2a.PartText:
			out = append(out, strings.TrimRight(p.Text, "\n"))
		case a2a.PartData:
			out = append(out, string(p.Data))
		case a2a.PartURL:
			out = append(out, "[file"+describeFile(p)+" at "+p.Text+"]")
		case a2a.PartFile:
			out = append(out, "[file"+describeFile(p)+"]")
		}
	}
	text := printable(strings.Join(out, "\n"))
	if strings.Contains(text, "\n") {
		return "\n  " + strings.ReplaceAll(text, "\n", "\n  ")
	}
	return " " + text
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
		s := newScreen(app)
		state := a2a.StateNone
		for w, err := range op.Watch(ctx, c.ID, c.After) {
			if ctx.Err() != nil {
				break
			}
			if err != nil {
				return err
			}
			if c.json() {
				err = printJSON(app.Stdout, eventLine{ID: w.ID, Event: w.Raw})
			} else {
				s.watched(w)
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
		s.endLine()
		if ctx.Err() != nil {
			return &exitError{code: exitInterrupted}
		}
		return taskExit(state)
	})
}

// watched shows what the operator watches as send shows what it is sent.
func (s *screen) watched(w watched) {
	if t := w.Snapshot; t != nil {
		s.note("task %s", t.ID)
		for _, a := range t.Artifacts {
			s.snapshot([]client.Artifact{{ID: a.ID, Name: a.Name, Parts: a.Parts}})
		}
		s.setState(t.Status.State, messageParts(t.Status.Message), nil)
		return
	}
	switch e := w.Entry.Event.(type) {
	case *a2a.StatusUpdate:
		s.setState(e.Status.State, messageParts(e.Status.Message), e.Metadata)
	case *a2a.ArtifactUpdate:
		s.chunk(client.Artifact{ID: e.Artifact.ID, Name: e.Artifact.Name, Parts: e.Artifact.Parts}, e.Append, e.LastChunk)
	case *a2a.Message:
		s.parts(e.Parts)
	}
}

func messageParts(m *a2a.Message) []a2a.Part {
	if m == nil {
		return nil
	}
	return m.Parts
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
		return each(app, c.IDs, func(id string) error {
			row, err := op.Cancel(ctx, id)
			if err != nil {
				return err
			}
			if c.json() {
				return printJSON(app.Stdout, row)
			}
			_, err = fmt.Fprintf(app.Stdout, "%s %s\n", row.ID, row.State)
			return err
		})
	})
}

// each does something to every id, says what went wrong with which, and fails in the
// end if anything did.
func each(app *App, ids []string, do func(id string) error) error {
	failed := false
	for _, id := range ids {
		if err := do(id); err != nil {
			fmt.Fprintln(app.Stderr, "a2ad: "+err.Error())
			failed = true
		}
	}
	if failed {
		return &exitError{code: exitFailure}
	}
	return nil
}
