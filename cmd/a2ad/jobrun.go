package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/bulk"
	"github.com/a2ad/a2ad/internal/notify"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/term"
	"github.com/a2ad/a2ad/internal/wake"
)

// jobRun is a bulk job that a command starts and follows.
type jobRun struct {
	app      *App
	api      *admin.Client
	json     bool
	body     admin.NewJob
	question string // for the person at the terminal, with a verb for the number of tasks: %s
	past     string // what became of tasks: "retried"
	// print shows a task that the action was done with.
	print func(admin.JobTask) error

	before int64 // the number of the task that was shown last
	shown  bool  // a progress line is on the terminal
}

// runJob counts the tasks that the flags select, asks, starts a job, and follows it to its end. With only a database,
// this process runs the job.
func (c *TaskSelection) runJob(ctx context.Context, app *App, s *Service, r jobRun) error {
	f := &r.body.Filter
	f.Tenant, f.Owner, f.Context, f.Error = c.Tenant, c.Owner, c.Context, c.Error
	f.Since, f.Until = c.Since.Time, c.Until.Time
	if c.Agent != "" {
		f.Agent = []string{c.Agent}
	}
	return s.withJobs(ctx, app, !c.NoWait, func(api *admin.Client, begin func()) error {
		r.app, r.api = app, api
		if c.DryRun || !c.Yes {
			count, err := r.count(ctx)
			switch {
			case err != nil:
				return err
			case c.DryRun:
				return r.printCount(count)
			case count.Tasks == 0:
				return r.summary(&admin.Job{})
			}
			if err := c.confirm(ctx, app, tasksOf(count), r.question); err != nil {
				return err
			}
		}
		var started admin.StartedJob
		if err := api.Post(ctx, "/jobs", r.body, &started); err != nil {
			return err
		}
		begin()
		if c.NoWait {
			return r.leave(started.Job)
		}
		return r.follow(ctx, started.Job.ID)
	})
}

// tasksOf is the number of tasks in words.
func tasksOf(n *admin.JobCount) string {
	text := term.Count(n.Tasks, "task")
	if n.AtLeast {
		text = "at least " + text
	}
	return text
}

func (r *jobRun) count(ctx context.Context) (*admin.JobCount, error) {
	body := r.body
	body.DryRun = true
	var counted admin.StartedJob
	err := r.api.Post(ctx, "/jobs", body, &counted)
	return counted.Count, err
}

var countHead = []string{"AGENT", "STATE", "TASKS"}

func (r *jobRun) printCount(n *admin.JobCount) error {
	if r.json {
		return term.JSON(r.app.Stdout, n)
	}
	err := term.Rows(&r.app.Console, false, countHead, n.Groups, func(g admin.JobGroup) []string {
		return []string{term.Cell(g.Agent), g.State, term.Number(int64(g.Tasks))}
	})
	if err == nil {
		r.app.Note(tasksOf(n) + " would be " + r.past)
	}
	return err
}

// leave names a job that goes on without this command.
func (r *jobRun) leave(j *admin.Job) error {
	if r.json {
		return term.JSON(r.app.Stdout, j)
	}
	if _, err := fmt.Fprintln(r.app.Stdout, j.ID); err != nil {
		return err
	}
	r.app.Note("a server runs the job; follow it with: a2ad job show " + j.ID)
	return nil
}

// jobPoll is how often a command reads how far its job is.
const jobPoll = 300 * time.Millisecond

// follow shows the tasks of a job as it comes to them, until it ends.
func (r *jobRun) follow(ctx context.Context, id string) error {
	tick := time.NewTicker(jobPoll)
	defer tick.Stop()
	for {
		var j admin.JobDetail
		err := r.api.Get(ctx, jobPath(id), nil, &j)
		if err == nil {
			err = r.showTasks(ctx, id)
		}
		switch {
		case ctx.Err() != nil:
			r.clear()
			r.app.Note("job " + id + " continues on a server; stop it with: a2ad job stop " + id)
			return &exitError{code: exitInterrupted}
		case err != nil && !mayPass(err):
			r.clear()
			return err
		case err == nil && j.State != "running":
			r.clear()
			return r.end(&j.Job)
		case err == nil:
			r.progress(&j.Job)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// showTasks shows the tasks that the job has come to since the last call.
func (r *jobRun) showTasks(ctx context.Context, id string) error {
	for {
		var page admin.JobTaskList
		q := admin.JobTaskQuery{Before: r.before, Limit: pageSize}
		if err := r.api.Get(ctx, jobPath(id, "tasks"), q, &page); err != nil {
			return err
		}
		for _, t := range page.Tasks {
			r.clear()
			if err := r.show(t); err != nil {
				return err
			}
			r.before = int64(t.Number)
		}
		if len(page.Tasks) < pageSize || r.before == 1 {
			return nil
		}
	}
}

func (r *jobRun) show(t admin.JobTask) error {
	switch t.Outcome {
	case "done":
		return r.print(t)
	case "failed":
		r.app.Note("a2ad: task " + t.ID + ": " + t.Reason)
	default:
		r.app.Note("task " + t.ID + " skipped: " + t.Reason)
	}
	return nil
}

// leastProgress is how many tasks a job must have for a progress line.
const leastProgress = 100

// progress shows how far the job is, on a terminal.
func (r *jobRun) progress(j *admin.Job) {
	if !r.app.Terminal || r.json || j.Matched < leastProgress { // a small job ends before it could be read
		return
	}
	text := fmt.Sprintf("%d of %s", j.Matched-j.Remaining, term.Count(j.Matched, "task"))
	if !j.Collected {
		text = term.Count(j.Matched, "task") + " found"
	}
	r.clear()
	fmt.Fprint(r.app.Stderr, text)
	r.shown = true
}

// clear removes the progress line.
func (r *jobRun) clear() {
	if r.shown {
		fmt.Fprint(r.app.Stderr, "\r"+strings.Repeat(" ", len("1000000 of 1000000 tasks"))+"\r")
		r.shown = false
	}
}

// end shows how a job has ended, and returns the exit code.
func (r *jobRun) end(j *admin.Job) error {
	if err := r.summary(j); err != nil {
		return err
	}
	switch {
	case j.State == "failed":
		return fmt.Errorf("job %s failed: %s", j.ID, j.Error)
	case j.State == "stopped":
		return fmt.Errorf("job %s was stopped", j.ID)
	case j.Failed > 0:
		return &exitError{code: exitFailure}
	}
	return nil
}

func (r *jobRun) summary(j *admin.Job) error {
	if r.json {
		return nil
	}
	text := term.Count(j.Done, "task") + " " + r.past
	if j.Skipped > 0 {
		text += fmt.Sprintf(", %d skipped", j.Skipped)
	}
	if j.Failed > 0 {
		text += fmt.Sprintf(", %d failed", j.Failed)
	}
	r.app.Note(text)
	return nil
}

// withJobs calls do with the admin API. With only a database, and if runs is true, this process runs the jobs that do
// starts. do calls begin after it has started one.
func (s *Service) withJobs(
	ctx context.Context, app *App, runs bool, do func(api *admin.Client, begin func()) error,
) error {
	if s.Server != "" || !runs {
		return s.withAdmin(ctx, app, func(api *admin.Client) error { return do(api, func() {}) })
	}
	return s.withStore(ctx, app, func(st *store.Store) error {
		var hub notify.Hub
		holder := actor() + " " + db.NewUID().Short() // no other process has this name
		ctx, cancel := context.WithCancel(ctx)
		runner := bulk.New(bulk.Config{
			Store: st.Jobs, Hub: &hub, Worker: holder, Own: true, MoveSecrets: s.moveSecrets,
			Logger: slog.New(slog.NewTextHandler(app.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		})
		var running sync.WaitGroup
		running.Go(func() { runner.Run(ctx) }) //nolint:errcheck // it only returns nil
		defer func() { cancel(); running.Wait() }()
		api := s.local(st, nil)
		api.JobHolder = holder
		return do(admin.Local(admin.New(api)), func() { hub.Wake(wake.Jobs) })
	})
}
