package console

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/store/jobs"
)

// jobsView is the list of bulk jobs.
type jobsView struct {
	Rows []jobs.Job
	More string
}

func (c *Console) showJobs(q *request) error {
	f := jobs.ListFilter{Limit: listPage + 1}
	if before, err := a2a.ParseID(q.r.URL.Query().Get("before")); err == nil {
		f.Before = before
	}
	list, err := c.cfg.Store.Jobs.List(q.Context(), f)
	if err != nil {
		return err
	}
	v := &jobsView{Rows: list}
	if len(list) > listPage {
		v.Rows = list[:listPage]
		v.More = Prefix + "/jobs?before=" + v.Rows[listPage-1].ID.String()
	}
	return c.render(q, "jobs", "Bulk jobs", v)
}

// jobView is the page of a bulk job.
type jobView struct {
	jobs.Job
	*bulkAction
	Filter  string
	Percent int // of its tasks that it has come to
	Refused []jobs.Refusal
	Left    []jobs.Task // that it has skipped or failed with, at most listPage
	Live    string
}

// Acted is how many tasks the job has come to.
func (v *jobView) Acted() int { return v.Matched - v.Remaining }

// findJob returns the job of a path. Support staff of a tenant see the jobs on tasks of this tenant alone.
func (c *Console) findJob(q *request) (jobs.Job, error) {
	id, err := a2a.ParseID(q.r.PathValue("id"))
	if err != nil {
		return jobs.Job{}, errNoJob
	}
	j, err := c.cfg.Store.Jobs.Find(q.Context(), id.String())
	if only := q.tenant(); errors.Is(err, jobs.ErrNone) || err == nil && only != "" && j.Filter.Tenant != only {
		return j, errNoJob
	}
	return j, err
}

var errNoJob = &problem{http.StatusNotFound, "Not found", "There is no such bulk job, or it was removed."}

func (c *Console) showJob(q *request) error {
	j, err := c.findJob(q)
	if err != nil {
		return err
	}
	v := &jobView{Job: j, bulkAction: bulkNamed(j.Action)}
	filter, err := json.Marshal(j.Filter)
	if err != nil {
		return err
	}
	v.Filter = string(filter)
	if j.Matched > 0 {
		v.Percent = 100 * v.Acted() / j.Matched
	}
	if v.Refused, err = c.cfg.Store.Jobs.Refusals(q.Context(), j.ID); err != nil {
		return err
	}
	v.Left, err = c.cfg.Store.Jobs.Tasks(q.Context(), jobs.TaskFilter{Job: j.ID, Refused: true, Limit: listPage})
	if err != nil {
		return err
	}
	if j.State == jobs.Running {
		v.Live = Prefix + "/jobs/" + j.ID.String() + "/live?left=" + strconv.Itoa(j.Remaining)
	}
	return c.render(q, "job", v.Verb+" tasks", v)
}

func (c *Console) stopJob(q *request) error {
	j, err := c.findJob(q)
	if err == nil {
		err = q.needsReason()
	}
	if err != nil {
		return err
	}
	if _, err := c.cfg.Store.Jobs.Stop(q.acting(), j.ID); err != nil { // one that has ended stays as it is
		return err
	}
	http.Redirect(q.w, q.r, Prefix+"/jobs/"+j.ID.String(), http.StatusSeeOther)
	return nil
}

// followJob follows the progress of a job. What has changed since the page was made counts.
func (c *Console) followJob(q *request) (watch, func(), error) {
	if !q.mayRead() {
		return nil, nil, lacks(auth.ScopeOperatorRead, auth.ScopeTenantRead)
	}
	id, err := a2a.ParseID(q.r.PathValue("id"))
	if err != nil {
		return nil, nil, errNoJob
	}
	changed, stop := c.cfg.JobChanged(id) // before the read: no change is missed
	j, err := c.findJob(q)
	if err != nil {
		stop()
		return nil, nil, err
	}
	now := j.State != jobs.Running || q.r.URL.Query().Get("left") != strconv.Itoa(j.Remaining)
	return func(ctx context.Context) error {
		if now {
			now = false
			return nil
		}
		select {
		case <-changed:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}, stop, nil
}
