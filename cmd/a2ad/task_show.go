package main

import (
	"context"
	"fmt"
	"strconv"
	"text/tabwriter"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/term"
	"github.com/a2ad/a2ad/internal/wire/answer"
)

// TaskShowCmd is `a2ad task show`.
type TaskShowCmd struct {
	ID   string `arg:"" help:"Id of the task."`
	Tree bool   `help:"Show the task and the tasks that it has called."`
	Service
	Output
}

// Run shows.
func (c *TaskShowCmd) Run(ctx context.Context, app *App) error {
	return c.withAdmin(ctx, app, func(api *admin.Client) error {
		return onTask(c.ID, func() error {
			if c.Tree {
				return c.showTree(ctx, app, api)
			}
			var d taskDetail
			if err := api.Get(ctx, taskPath(c.ID), nil, &d); err != nil {
				return err
			}
			if c.json() {
				return term.JSON(app.Stdout, d)
			}
			return showTask(app, &d)
		})
	})
}

// maxShownDepth bounds how deeply the JSON of a task is nested, which is deeper than a server accepts.
const maxShownDepth = 1000

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
	for i := range d.Usage {
		line("usage", describeUsage(&d.Usage[i]))
	}
	switch {
	case d.LeaseUntil != nil:
		line("lease", fmt.Sprintf("of %s until %s, epoch %d", term.Cell(d.Worker), term.Moment(*d.LeaseUntil), d.Epoch))
	case d.ReadyAt != nil:
		line("queued", "since "+term.Moment(*d.ReadyAt))
	case d.Parked != nil:
		line("parked", describeParked(d.Parked))
	case d.Waits != nil:
		line("waits", describeWait(d.Waits))
	}
	if o := d.Unreachable; o != nil {
		probes := ", " + term.Count(o.Probes, "probe")
		if o.Reason == tasks.ReasonNoWorker { // nothing is sent to such an agent: its workers ask
			probes = ""
		}
		line("waits", fmt.Sprintf("because its agent has been unreachable since %s%s: %s", term.Moment(o.Since), probes,
			term.Cell(o.Reason)))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if len(d.Timeline) > 0 {
		fmt.Fprintln(app.Stdout, "\n"+app.Paint().Bold("Timeline"))
		if d.TimelineCut {
			fmt.Fprintln(app.Stdout, "(its oldest entries are left out)")
		}
		if err := showTimeline(app, d.Timeline); err != nil {
			return err
		}
	}
	err := rawjson.Check(d.Raw, maxShownDepth)
	var task answer.Task
	if err == nil {
		task, err = answer.DecodeTask(d.Raw)
	}
	if err != nil {
		return fmt.Errorf("read the task: %w", err)
	}
	showContent(app, &task)
	return nil
}

func describeParked(p *admin.Parked) string {
	text := "since " + term.Moment(p.Since)
	if p.Until != nil {
		text += " until " + term.Moment(*p.Until)
	}
	return text + ": " + term.Cell(p.Reason)
}

// showContent writes the messages and artifacts of a task.
func showContent(app *App, t *answer.Task) {
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
