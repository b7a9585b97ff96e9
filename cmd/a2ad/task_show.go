package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/term"
	v03 "github.com/a2ad/a2ad/internal/wire/v03"
)

// TaskShowCmd is `a2ad task show`.
type TaskShowCmd struct {
	ID       string `arg:"" help:"Id of the task."`
	Tree     bool   `help:"Show the task and the tasks that it has called."`
	Database `group:"database"`
	Output
}

// attemptRow is one attempt at a task.
type attemptRow struct {
	Epoch     int64      `json:"epoch"`
	Attempt   int        `json:"attempt"`
	Worker    string     `json:"worker"`
	ClaimedAt time.Time  `json:"claimedAt"`
	EndedAt   *time.Time `json:"endedAt,omitempty"`
	Outcome   string     `json:"outcome,omitempty"`
	Error     string     `json:"error,omitempty"`
}

// agentOutage says why a queued task waits: its agent is unreachable.
type agentOutage struct {
	Since       time.Time `json:"since"`
	Reason      string    `json:"reason"`
	Probes      int       `json:"probes"`
	NextProbeAt time.Time `json:"nextProbeAt"`
}

// waitRow says what ends the wait of a task.
type waitRow struct {
	Until   *time.Time `json:"until,omitempty"`
	Message bool       `json:"message,omitempty"`
	Signal  string     `json:"signal,omitempty"`
	Calls   int        `json:"calls,omitempty"`   // the calls that it waits for
	Pending int        `json:"pending,omitempty"` // how many of them must still end

	text string
}

// taskDetail is everything about one task.
type taskDetail struct {
	taskRow
	Unreachable *agentOutage `json:"agentUnreachable,omitempty"` // nil: the task does not wait for that
	Waits       *waitRow     `json:"waits,omitempty"`            // nil: the task does not wait

	RetryOf   string          `json:"retryOf,omitempty"`   // the task that this one was made from
	RetriedAs []string        `json:"retriedAs,omitempty"` // the tasks that were made from this one, oldest first
	Attempts  []attemptRow    `json:"attempts"`
	Timeline  []timelineRow   `json:"timeline"`
	Raw       json.RawMessage `json:"task"` // in the form of A2A 0.3
	Task      a2a.Task        `json:"-"`
}

// Run shows.
func (c *TaskShowCmd) Run(ctx context.Context, app *App) error {
	return c.withStore(ctx, app, func(s *store.Store) error {
		if c.Tree {
			return c.showTree(ctx, app, s)
		}
		d, err := readTask(ctx, s, c.ID)
		if err != nil {
			return err
		}
		if c.json() {
			return term.JSON(app.Stdout, d)
		}
		return showTask(app, d)
	})
}

func readTask(ctx context.Context, s *store.Store, text string) (*taskDetail, error) {
	id, err := parseTaskID(text)
	if err != nil {
		return nil, err
	}
	row, err := findTask(ctx, s, id)
	if err != nil {
		return nil, err
	}
	task, err := s.Tasks.SnapshotOfAny(ctx, id, tasks.Want{Artifacts: true})
	if err != nil {
		return nil, err
	}
	happened, err := s.Operate.Timeline(ctx, id)
	if err != nil {
		return nil, err
	}
	d := newTaskDetail(row, task, happened)
	if d.ReadyAt == nil {
		return d, nil
	}
	outages, err := s.Tasks.Outages(ctx)
	for _, o := range outages {
		if o.Agent == d.Agent {
			d.Unreachable = &agentOutage{o.Since, o.Reason, o.Probes, o.Next}
		}
	}
	return d, err
}

func newTaskDetail(row taskRow, task *a2a.Task, happened *operate.Timeline) *taskDetail {
	d := &taskDetail{
		taskRow: row, Attempts: []attemptRow{}, Timeline: newTimeline(row.Tenant+"/"+row.Owner, happened),
		Raw: v03.Codec{}.AppendTask(nil, task), Task: *task,
	}
	for _, a := range happened.Attempts {
		d.Attempts = append(d.Attempts, attemptRow{
			Epoch: a.Epoch, Attempt: a.Attempt, Worker: a.Worker, ClaimedAt: a.ClaimedAt, EndedAt: orNil(a.EndedAt),
			Outcome: a.Outcome, Error: a.Error,
		})
	}
	if w := happened.Waits; w != nil {
		d.Waits = &waitRow{orNil(w.Until), w.Message, w.Signal, w.Calls, max(w.Pending, 0), describeWait(w)}
	}
	if len(task.History) > 0 {
		d.RetryOf, _ = rawjson.String(rawjson.Get(task.History[0].Metadata, tasks.RetryOf))
	}
	for _, a := range happened.Actions {
		if id, _ := rawjson.String(rawjson.Get(a.Detail, "new")); a.Name == access.ActionTaskRetry && id != "" {
			d.RetriedAs = append(d.RetriedAs, id)
		}
	}
	return d
}

func showTask(app *App, d *taskDetail) error {
	tw := tabwriter.NewWriter(app.Stdout, 0, 8, 2, ' ', 0)
	line := func(name, value string) { fmt.Fprintf(tw, "%s\t%s\n", name, value) }
	line("task", d.ID)
	line("state", d.State+" since "+term.Moment(d.UpdatedAt))
	line("agent", term.Cell(d.Agent))
	line("context", term.Cell(d.ContextID))
	line("caller", term.Cell(d.Tenant+"/"+d.Owner))
	line("created", term.Moment(d.CreatedAt))
	if d.Parent != "" {
		line("called by", term.Cell(d.Parent))
	}
	if d.RetryOf != "" {
		line("retry of", term.Cell(d.RetryOf))
	}
	for _, id := range d.RetriedAs {
		line("retried as", term.Cell(id))
	}
	line("events", strconv.FormatInt(d.Events, 10))
	switch {
	case d.LeaseUntil != nil:
		line("lease", fmt.Sprintf("of %s until %s, epoch %d", term.Cell(d.Worker), term.Moment(*d.LeaseUntil), d.Epoch))
	case d.ReadyAt != nil:
		line("queued", "since "+term.Moment(*d.ReadyAt))
	case d.Parked != nil:
		line("parked", describeParked(d.Parked))
	case d.Waits != nil:
		line("waits", d.Waits.text)
	}
	if o := d.Unreachable; o != nil {
		line("waits", fmt.Sprintf("because its agent has been unreachable since %s, %s: %s", term.Moment(o.Since),
			term.Count(o.Probes, "probe"), term.Cell(o.Reason)))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if len(d.Timeline) > 0 {
		fmt.Fprintln(app.Stdout, "\n"+app.Paint().Bold("Timeline"))
		if err := showTimeline(app, d.Timeline); err != nil {
			return err
		}
	}
	showContent(app, &d.Task)
	return nil
}

func describeParked(p *parked) string {
	text := "since " + term.Moment(p.Since)
	if p.Until != nil {
		text += " until " + term.Moment(*p.Until)
	}
	return text + ": " + term.Cell(p.Reason)
}

// showContent writes the messages and artifacts of a task.
func showContent(app *App, t *a2a.Task) {
	w, paint := app.Stdout, app.Paint()
	history := t.History
	if m := t.Status.Message; m != nil {
		history = append(history[:len(history):len(history)], *m)
	}
	if len(history) > 0 {
		fmt.Fprintln(w, "\n"+paint.Bold("Messages"))
	}
	for _, m := range history {
		role := "user"
		if m.Role == a2a.RoleAgent {
			role = "agent"
		}
		fmt.Fprintf(w, "%s:%s\n", role, term.DescribeParts(m.Parts))
	}
	if len(t.Artifacts) > 0 {
		fmt.Fprintln(w, "\n"+paint.Bold("Artifacts"))
	}
	for _, a := range t.Artifacts {
		name := term.ArtifactName(client.Artifact{ID: a.ID, Name: a.Name})
		fmt.Fprintf(w, "%s:%s\n", term.Cell(name), term.DescribeParts(a.Parts))
	}
}
