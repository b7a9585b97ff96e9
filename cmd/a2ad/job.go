package main

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/term"
)

// JobCmd is `a2ad job`: the bulk jobs of operators.
type JobCmd struct {
	Ls   JobLsCmd   `cmd:"" group:"commands" help:"List bulk jobs, newest first."`
	Show JobShowCmd `cmd:"" group:"commands" help:"Show how far a bulk job is, and which tasks it did not act on."`
	Stop JobStopCmd `cmd:"" group:"commands" help:"Stop bulk jobs."`
}

// jobPath is the path of a job in the admin API.
func jobPath(id string, more ...string) string {
	return strings.Join(append([]string{"/jobs", url.PathEscape(id)}, more...), "/")
}

// JobLsCmd is `a2ad job ls`.
type JobLsCmd struct {
	State string `enum:",running,done,stopped,failed" default:"" placeholder:"STATE" help:"@job_state"`
	Limit int    `default:"50" placeholder:"N" help:"At most this many jobs (default 50)."`
	Service
	Output
}

// Help is shown below the usage line.
func (*JobLsCmd) Help() string {
	return `A bulk job is an action on all tasks that filters select: "a2ad task cancel", "retry" or "resume" with ` +
		`filters starts one. Servers keep jobs for as long as the audit log.`
}

// Validate is called by the parser.
func (c *JobLsCmd) Validate() error { return checkLimit(c.Limit) }

// jobRow is one job. Its JSON does not change silently.
type jobRow = admin.Job

// Run lists.
func (c *JobLsCmd) Run(ctx context.Context, app *App) error {
	return c.withAdmin(ctx, app, func(api *admin.Client) error {
		q := admin.JobQuery{State: c.State}
		rows, err := pages(c.Limit, func(size int) ([]jobRow, bool, error) {
			q.Limit = size
			var page admin.JobList
			err := api.Get(ctx, "/jobs", q, &page)
			q.Cursor = page.Next
			return page.Jobs, page.Next != "", err
		})
		if err != nil {
			return err
		}
		return printJobs(app, c.json(), rows)
	})
}

var (
	jobHead     = []string{"JOB", "ACTION", "STATE", "TASKS", "DONE", "SKIPPED", "FAILED", "STARTED", "BY", "REASON"}
	jobOptional = []string{"REASON", "BY", "STARTED", "SKIPPED"}
)

func printJobs(app *App, asJSON bool, rows []jobRow) error {
	return term.List(&app.Console, asJSON, jobHead, jobOptional, rows, func(j jobRow) []string {
		return []string{
			j.ID, j.Action, j.State, strconv.Itoa(j.Matched), strconv.Itoa(j.Done), strconv.Itoa(j.Skipped),
			strconv.Itoa(j.Failed), term.Moment(j.CreatedAt), term.Cell(j.Actor), term.Cell(j.Reason),
		}
	})
}

// JobShowCmd is `a2ad job show`.
type JobShowCmd struct {
	ID    string `arg:"" help:"Id of the job, or the beginning of it."`
	Limit int    `default:"50" placeholder:"N" help:"At most this many tasks (default 50)."`
	Service
	Output
}

// Validate is called by the parser.
func (c *JobShowCmd) Validate() error { return checkLimit(c.Limit) }

// jobShown is a job and the tasks that it did not act on, for programs.
type jobShown struct {
	admin.JobDetail
	Tasks []admin.JobTask `json:"tasks"`
}

// Run shows.
func (c *JobShowCmd) Run(ctx context.Context, app *App) error {
	return c.withAdmin(ctx, app, func(api *admin.Client) error {
		var j jobShown
		if err := api.Get(ctx, jobPath(c.ID), nil, &j.JobDetail); err != nil {
			return fmt.Errorf("job %s: %w", c.ID, err)
		}
		var err error
		var before int64
		j.Tasks, err = pages(c.Limit, func(size int) ([]admin.JobTask, bool, error) {
			var page admin.JobTaskList
			q := admin.JobTaskQuery{Refused: true, Limit: size, Before: before}
			err := api.Get(ctx, jobPath(j.ID, "tasks"), q, &page)
			if n := len(page.Tasks); n > 0 {
				before = int64(page.Tasks[n-1].Number)
			}
			return page.Tasks, len(page.Tasks) == size, err
		})
		if err != nil {
			return err
		}
		if c.json() {
			return term.JSON(app.Stdout, j)
		}
		return printJob(app, &j)
	})
}

func printJob(app *App, j *jobShown) error {
	facts := [][2]string{
		{"job", j.ID}, {"action", j.Action}, {"state", j.State},
		{"started", term.Moment(j.CreatedAt) + " by " + j.Actor},
		{"ended", term.MomentOf(j.EndedAt)}, {"reason", j.Reason}, {"error", j.Error}, {"worker", j.Worker},
		{"tasks", fmt.Sprintf("%d matched, %d done, %d skipped, %d failed, %d remaining",
			j.Matched, j.Done, j.Skipped, j.Failed, j.Remaining)},
	}
	for _, f := range facts {
		if f[1] == "" || f[1] == "-" {
			continue
		}
		if _, err := fmt.Fprintf(app.Stdout, "%-8s %s\n", f[0], term.OneLine(f[1])); err != nil {
			return err
		}
	}
	if len(j.Refused) == 0 {
		return nil
	}
	fmt.Fprintln(app.Stdout)
	s := term.NewSections(&app.Console)
	reasons, tasks := make([][]string, len(j.Refused)), make([][]string, len(j.Tasks))
	for i, x := range j.Refused {
		reasons[i] = []string{strconv.Itoa(x.Tasks), x.Outcome, term.Cell(x.Reason)}
	}
	for i, t := range j.Tasks {
		tasks[i] = []string{t.ID, t.Outcome, term.Cell(t.Reason)}
	}
	s.Table("Why tasks were left", []string{"TASKS", "OUTCOME", "REASON"}, reasons)
	s.Table("These tasks", []string{"TASK", "OUTCOME", "REASON"}, tasks)
	return s.Err()
}

// JobStopCmd is `a2ad job stop`.
type JobStopCmd struct {
	IDs    []string `arg:"" name:"id" help:"Ids of the jobs."`
	Reason string   `placeholder:"TEXT" help:"Why, for the audit log."`
	Service
	Output
}

// Help is shown below the usage line.
func (*JobStopCmd) Help() string {
	return `A stopped job acts on no more tasks. Tasks that it has acted on stay as they are.`
}

// Run stops one job after another.
func (c *JobStopCmd) Run(ctx context.Context, app *App) error {
	return c.withAdmin(ctx, app, func(api *admin.Client) error {
		return each(ctx, app, c.IDs, func(id string) error {
			var stopped admin.StoppedJob
			if err := api.Post(ctx, jobPath(id, "stop"), admin.Why{Reason: c.Reason}, &stopped); err != nil {
				return fmt.Errorf("job %s: %w", id, err)
			}
			if c.json() {
				return term.JSON(app.Stdout, stopped)
			}
			_, err := fmt.Fprintf(app.Stdout, "%s stopped\n", stopped.ID)
			return err
		})
	})
}
