package admin

import (
	"context"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/tasks"
	v03 "github.com/a2ad/a2ad/internal/wire/v03"
)

// showTask serves GET /tasks/{task}.
func (a *API) showTask(ctx context.Context, r *request) (any, error) {
	id, row, err := a.find(ctx, r)
	if err != nil {
		return nil, err
	}
	q := r.query.(*ShowQuery) //nolint:forcetypeassert // the route says so
	task, err := a.snapshot(ctx, r, id, &row, tasks.Want{Artifacts: q.Artifacts == nil || *q.Artifacts})
	if err != nil {
		return nil, err
	}
	happened, err := a.store.Operate.Timeline(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := r.mem.Grow(ctx, happened.Bytes); err != nil {
		return nil, err
	}
	happened.Steps = slices.DeleteFunc(happened.Steps, func(s operate.Recorded) bool {
		return s.Kind == a2a.StepCall && !r.principal.MayUse(s.Name) // the name of a call is its agent
	})
	d := NewTaskDetail(row, task, happened)
	if d.ReadyAt == nil {
		return d, nil
	}
	outages, err := a.store.Tasks.Outages(ctx)
	for _, o := range outages {
		if o.Agent == d.Agent {
			d.Unreachable = &Outage{o.Since, o.Reason, o.Probes, o.Next}
		}
	}
	return d, err
}

// snapshot reads a task, in memory that the request holds. A task that is too large is refused.
func (a *API) snapshot(ctx context.Context, r *request, id a2a.ID, row *Task, want tasks.Want) (*a2a.Task, error) {
	sizes, err := a.store.Tasks.Sizes(ctx, db.Caller{Tenant: row.Tenant, Owner: row.Owner}, []a2a.ID{id}, want)
	if err != nil {
		return nil, err
	}
	if sizes[0] > a.cfg.MaxTask {
		return nil, tooLarge(want.Artifacts)
	}
	if err := r.mem.Grow(ctx, sizes[0]); err != nil {
		return nil, err
	}
	return a.store.Tasks.SnapshotOfAny(ctx, id, want)
}

// tooLarge refuses to show a task that takes too much memory.
func tooLarge(withArtifacts bool) error {
	text := "the messages of the task are too large to be shown"
	if withArtifacts {
		text = "the task is too large to be shown with its artifacts: use artifacts=false"
	}
	return refusal{http.StatusUnprocessableEntity, a2a.CodeTooLarge.Reason(), text}
}

// NewTaskDetail puts together what is known of a task.
func NewTaskDetail(row Task, task *a2a.Task, happened *operate.Timeline) *TaskDetail {
	d := &TaskDetail{
		Task: row, Attempts: []Attempt{}, Timeline: newTimeline(row.Tenant+"/"+row.Owner, happened),
		TimelineCut: happened.Cut,
		Raw:         v03.Codec{}.AppendTask(nil, task),
	}
	for _, a := range happened.Attempts {
		d.Attempts = append(d.Attempts, Attempt{
			Epoch: a.Epoch, Attempt: a.Attempt, Worker: a.Worker, ClaimedAt: a.ClaimedAt, EndedAt: orNil(a.EndedAt),
			Outcome: a.Outcome, Error: a.Error,
		})
	}
	if w := happened.Waits; w != nil {
		d.Waits = &Wait{orNil(w.Until), w.Message, w.Signal, w.Calls, max(w.Pending, 0)}
	}
	for _, u := range happened.Usage {
		d.Usage = append(d.Usage, NewUsage(&operate.UsageSum{Usage: u}))
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

// Tree is a task and, after each task, those that it has called.
type Tree struct {
	Tasks []TreeTask `json:"tasks"`
}

// TreeTask is one task in a tree of calls.
type TreeTask struct {
	ID        string     `json:"task"`
	Depth     int        `json:"depth" doc:"Below the root."`
	Key       string     `json:"key,omitempty" doc:"Of the call that made it."`
	Agent     string     `json:"agent,omitempty" doc:"Missing if the task was removed."`
	State     string     `json:"state,omitempty"`
	UpdatedAt *time.Time `json:"updatedAt,omitempty"`
}

// treeMost bounds the tasks of a tree that are shown.
const treeMost = 10_000

// showTree serves GET /tasks/{task}/tree. Called tasks belong to the tenant and owner of the root. A task that the
// caller may not see is left out, with those that it has called.
func (a *API) showTree(ctx context.Context, r *request) (any, error) {
	id, _, err := a.find(ctx, r)
	if err != nil {
		return nil, err
	}
	tree, err := a.store.Operate.Tree(ctx, id, treeMost)
	if err != nil {
		return nil, err
	}
	out := Tree{Tasks: make([]TreeTask, 0, len(tree))}
	hidden := math.MaxInt // depth of the last task that is left out, while tasks below it follow
	for _, t := range tree {
		if t.Depth > hidden {
			continue
		}
		if hidden = math.MaxInt; !r.principal.MayUse(t.Agent) {
			hidden = t.Depth
			continue
		}
		row := TreeTask{ID: t.ID.String(), Depth: t.Depth, Key: t.Key, Agent: t.Agent, UpdatedAt: orNil(t.StatusAt)}
		if t.State != a2a.StateNone {
			row.State = t.State.String()
		}
		out.Tasks = append(out.Tasks, row)
	}
	return out, nil
}
