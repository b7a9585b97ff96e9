package admin

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/jobs"
	"github.com/a2ad/a2ad/internal/store/operate"
)

// NewJob is the body that starts a bulk job.
type NewJob struct {
	Why
	Action   string     `json:"action" doc:"What to do with each task." enum:"cancel,retry,resume"`
	Filter   TaskFilter `json:"filter" doc:"The tasks: {} selects all tasks that the action can be done with."`
	Webhooks *bool      `json:"webhooks,omitempty" doc:"Whether a retry copies the webhooks: true unless given."`
	DryRun   bool       `json:"dryRun,omitempty" doc:"Change nothing, and only count the tasks."`
}

// StartedJob is a job that was started, or what a dry run has counted.
type StartedJob struct {
	Job   *Job      `json:"job,omitempty" doc:"Missing in the answer to a dry run."`
	Count *JobCount `json:"count,omitempty" doc:"Only in the answer to a dry run."`
}

// Job is a bulk job.
type Job struct {
	ID        string     `json:"id"`
	Action    string     `json:"action"`
	Filter    TaskFilter `json:"filter"`
	Actor     string     `json:"actor" doc:"Who started it."`
	Reason    string     `json:"reason,omitempty"`
	State     string     `json:"state" doc:"running, done, stopped, or failed."`
	CreatedAt time.Time  `json:"createdAt"`
	EndedAt   *time.Time `json:"endedAt,omitempty" doc:"Missing while it runs."`
	Error     string     `json:"error,omitempty" doc:"Why it failed."`
	Worker    string     `json:"worker,omitempty" doc:"The server that runs it, or ran it last."`
	Collected bool       `json:"collected" doc:"Whether all its tasks are counted in matched."`
	Matched   int        `json:"matched" doc:"Tasks of the job. It is remaining, done, skipped and failed together."`
	Remaining int        `json:"remaining" doc:"Tasks that the job has not come to."`
	Done      int        `json:"done" doc:"Tasks that the action was done with."`
	Skipped   int        `json:"skipped" doc:"Tasks that were left as they are, because they had changed."`
	Failed    int        `json:"failed" doc:"Tasks that the action could not be done with."`
}

// JobDetail is a job, and why it did not do its action with some tasks.
type JobDetail struct {
	Job
	Refused []JobRefusal `json:"refused" doc:"The skipped and failed tasks by reason, at most 20 reasons."`
}

// JobRefusal is how many tasks were skipped or failed for one reason.
type JobRefusal struct {
	Outcome string `json:"outcome" doc:"skipped or failed."`
	Reason  string `json:"reason"`
	Tasks   int    `json:"tasks"`
}

// JobCount is what a job would act on.
type JobCount struct {
	Tasks   int        `json:"tasks"`
	AtLeast bool       `json:"atLeast,omitempty" doc:"Whether there are more tasks, which were not counted."`
	Groups  []JobGroup `json:"groups"`
}

// JobGroup is how many of the counted tasks of one agent are in one state.
type JobGroup struct {
	Agent string `json:"agent"`
	State string `json:"state"`
	Tasks int    `json:"tasks"`
}

// JobQuery selects jobs.
type JobQuery struct {
	State  string `json:"state,omitempty" doc:"Only jobs in this state." enum:"running,done,stopped,failed"`
	Limit  int    `json:"limit,omitempty" doc:"At most this many jobs: 50 unless given." range:"1-1000"`
	Cursor string `json:"cursor,omitempty" doc:"The next page: what the page before calls next."`
}

// JobList is a page of jobs.
type JobList struct {
	Jobs []Job  `json:"jobs"`
	Next string `json:"next,omitempty" doc:"The cursor of the next page; missing on the last one."`
}

// JobTaskQuery selects tasks that a job has come to.
type JobTaskQuery struct {
	Refused bool  `json:"refused,omitempty" doc:"Only tasks that were skipped or failed."`
	Limit   int   `json:"limit,omitempty" doc:"At most this many tasks: 50 unless given." range:"1-1000"`
	Before  int64 `json:"before,omitempty" doc:"Only tasks that the job came to after the one with this number."`
}

// JobTaskList is a page of the tasks of a job.
type JobTaskList struct {
	Tasks []JobTask `json:"tasks" doc:"In the order in which the job came to them: with falling numbers."`
}

// JobTask is what became of a task of a job.
type JobTask struct {
	Number    int    `json:"number" doc:"A job goes from the highest number, the oldest task, down to 1."`
	ID        string `json:"id"`
	Outcome   string `json:"outcome" doc:"done, skipped, or failed."`
	New       string `json:"new,omitempty" doc:"The task that a retry made."`
	Reason    string `json:"reason,omitempty" doc:"Why it was skipped or failed. Of a resumed task: why it was parked."`
	Agent     string `json:"agent,omitempty" doc:"Missing if the task was removed."`
	Tenant    string `json:"tenant,omitempty"`
	Owner     string `json:"owner,omitempty"`
	ContextID string `json:"contextId,omitempty"`
}

// StoppedJob is a job that was stopped.
type StoppedJob struct {
	ID string `json:"id"`
}

// Refusals of jobs.
const (
	reasonNoJob      = "JOB_NOT_FOUND"
	reasonNotRunning = "NOT_RUNNING"
)

var errNoJob = refusal{http.StatusNotFound, reasonNoJob, "job not found"}

func newJob(j *jobs.Job) Job {
	return Job{
		ID: j.ID.String(), Action: string(j.Action), Filter: TaskFilter(j.Filter), Actor: j.Actor, Reason: j.Reason,
		State: string(j.State), CreatedAt: j.CreatedAt, EndedAt: orNil(j.EndedAt), Error: j.Error, Worker: j.Worker,
		Collected: j.Collected, Matched: j.Matched, Remaining: j.Remaining, Done: j.Done, Skipped: j.Skipped,
		Failed: j.Failed,
	}
}

// mostIDs bounds the ids of one filter.
const mostIDs = 1000

// startJob serves POST /jobs. The job sees no more than its caller: the filter is narrowed before it is stored.
func (a *API) startJob(ctx context.Context, r *request) (any, error) {
	b := r.body.(*NewJob) //nolint:forcetypeassert // the route says so
	if err := checkReason(b.Reason); err != nil {
		return nil, err
	}
	if len(b.Filter.IDs) > mostIDs {
		return nil, a2a.InvalidParams("ids", "must be at most %d", mostIDs)
	}
	in := jobs.NewJob{
		Action: jobs.Action(b.Action), Filter: jobs.Filter(b.Filter), Webhooks: b.Webhooks == nil || *b.Webhooks,
		Holder: a.cfg.JobHolder,
	}
	search, err := in.Filter.Search()
	if err != nil {
		return nil, err
	}
	if _, _, err := operate.PrefixRange(b.Filter.ID); err != nil {
		return nil, a2a.InvalidParams("id", "no task id begins like this")
	}
	if !r.restrict(&search) {
		return nil, a2a.Errorf(a2a.CodeForbidden, "the credentials are for other agents")
	}
	in.Filter.Tenant, in.Filter.Agent = search.Tenant, search.Agents
	in.Filter.State = nil
	for _, s := range search.States {
		in.Filter.State = append(in.Filter.State, s.String())
	}
	if b.DryRun {
		n, err := a.store.Jobs.Count(ctx, in.Action, &in.Filter, a.cfg.SearchTimeout)
		if err != nil {
			return nil, err
		}
		return StartedJob{Count: newCount(&n)}, nil
	}
	job, err := a.store.Jobs.Start(ctx, in)
	if err != nil {
		return nil, err
	}
	out := newJob(&job)
	return StartedJob{Job: &out}, nil
}

func newCount(n *jobs.Count) *JobCount {
	out := &JobCount{Tasks: n.Tasks, AtLeast: n.More, Groups: make([]JobGroup, len(n.Groups))}
	for i, g := range n.Groups {
		out.Groups[i] = JobGroup{g.Agent, g.State.String(), g.Tasks}
	}
	return out
}

// listJobs serves GET /jobs.
func (a *API) listJobs(ctx context.Context, r *request) (any, error) {
	q := r.query.(*JobQuery) //nolint:forcetypeassert // the route says so
	if err := r.mustBeForAllAgents("bulk jobs are"); err != nil {
		return nil, err
	}
	f := jobs.ListFilter{State: jobs.State(q.State), Limit: defaultLimit}
	if q.Limit > 0 {
		f.Limit = q.Limit
	}
	if q.Cursor != "" {
		var err error
		if f.Before, err = a2a.ParseID(q.Cursor); err != nil {
			return nil, a2a.InvalidParams("cursor", "is not the next of an answer")
		}
	}
	f.Limit++ // to see whether there is a next page
	found, err := a.store.Jobs.List(ctx, f)
	if err != nil {
		return nil, err
	}
	list := JobList{Jobs: []Job{}}
	if len(found) == f.Limit {
		found = found[:f.Limit-1]
		list.Next = found[len(found)-1].ID.String()
	}
	for i := range found {
		list.Jobs = append(list.Jobs, newJob(&found[i]))
	}
	return list, nil
}

// job returns the job that the path of a request names, by its id or the beginning of it.
func (a *API) job(ctx context.Context, r *request) (jobs.Job, error) {
	if err := r.mustBeForAllAgents("bulk jobs are"); err != nil {
		return jobs.Job{}, err
	}
	text := r.PathValue("job")
	if len(text) < leastPrefix {
		return jobs.Job{}, errNoJob
	}
	j, err := a.store.Jobs.Find(ctx, text)
	switch {
	case errors.Is(err, jobs.ErrNone):
		err = errNoJob
	case errors.Is(err, jobs.ErrAmbiguous):
		err = refusal{http.StatusConflict, reasonAmbiguous, jobs.ErrAmbiguous.Error() + ": use more of the id"}
	}
	return j, err
}

// showJob serves GET /jobs/{job}.
func (a *API) showJob(ctx context.Context, r *request) (any, error) {
	j, err := a.job(ctx, r)
	if err != nil {
		return nil, err
	}
	refused, err := a.store.Jobs.Refusals(ctx, j.ID)
	if err != nil {
		return nil, err
	}
	out := JobDetail{Job: newJob(&j), Refused: make([]JobRefusal, len(refused))}
	for i, x := range refused {
		out.Refused[i] = JobRefusal{string(x.Outcome), x.Why, x.Tasks}
	}
	return out, nil
}

// listJobTasks serves GET /jobs/{job}/tasks.
func (a *API) listJobTasks(ctx context.Context, r *request) (any, error) {
	q := r.query.(*JobTaskQuery) //nolint:forcetypeassert // the route says so
	j, err := a.job(ctx, r)
	if err != nil {
		return nil, err
	}
	f := jobs.TaskFilter{Job: j.ID, Before: int(min(q.Before, 1<<31-1)), Refused: q.Refused, Limit: defaultLimit}
	if q.Limit > 0 {
		f.Limit = q.Limit
	}
	found, err := a.store.Jobs.Tasks(ctx, f)
	if err != nil {
		return nil, err
	}
	list := JobTaskList{Tasks: make([]JobTask, len(found))}
	for i := range found {
		list.Tasks[i] = newJobTask(&found[i])
	}
	return list, nil
}

func newJobTask(t *jobs.Task) JobTask {
	out := JobTask{
		Number: t.N, ID: t.ID.String(), Outcome: string(t.Outcome), Reason: t.Detail, Agent: t.Agent, Tenant: t.Tenant,
		Owner: t.Owner, ContextID: t.Context,
	}
	if !t.New.IsZero() {
		out.New = t.New.String()
	}
	return out
}

// stopJob serves POST /jobs/{job}/stop.
func (a *API) stopJob(ctx context.Context, r *request) (any, error) {
	if err := checkReason(r.body.(*Why).Reason); err != nil { //nolint:forcetypeassert // the route says so
		return nil, err
	}
	j, err := a.job(ctx, r)
	if err != nil {
		return nil, err
	}
	stopped, err := a.store.Jobs.Stop(ctx, j.ID)
	if err == nil && !stopped {
		err = refusal{http.StatusConflict, reasonNotRunning, "the job has ended"}
	}
	return StoppedJob{j.ID.String()}, err
}
