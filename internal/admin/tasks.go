package admin

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/store/jobs"
	"github.com/a2ad/a2ad/internal/store/operate"
)

// TaskFilter selects tasks, for a list, for a stream of changes, and for a bulk job. Filters that are not given select
// all.
type TaskFilter struct {
	ID          string    `json:"id,omitempty" doc:"Only tasks whose id begins with this."`
	IDs         []string  `json:"ids,omitempty" doc:"Only these tasks, at most 1,000."`
	State       []string  `json:"state,omitempty" doc:"Only tasks in one of these states, in any spelling of A2A."`
	Agent       []string  `json:"agent,omitempty" doc:"Only tasks of one of these agents."`
	Tenant      string    `json:"tenant,omitempty" doc:"Only tasks of this tenant."`
	Owner       string    `json:"owner,omitempty" doc:"Only tasks of this owner."`
	Context     string    `json:"context,omitempty" doc:"Only tasks of this conversation."`
	Since       time.Time `json:"since,omitempty,omitzero" doc:"Only tasks created at or after this time."`
	Until       time.Time `json:"until,omitempty,omitzero" doc:"Only tasks created before this time."`
	Outcome     string    `json:"outcome,omitempty" doc:"Only tasks with an attempt that ended so." enum:"outcomes"`
	Text        string    `json:"text,omitempty" doc:"Only tasks with this in the first message, in any case."`
	Error       string    `json:"error,omitempty" doc:"Only tasks with this in an error, in any case."`
	MetadataKey string    `json:"metadataKey,omitempty" doc:"Only tasks with a member of this name in their metadata."`
	Parked      bool      `json:"parked,omitempty" doc:"Only parked tasks."`
	Roots       bool      `json:"roots,omitempty" doc:"Leave out the tasks that other tasks have called."`
	NotRetried  bool      `json:"notRetried,omitempty" doc:"Leave out the tasks that a new task was made from."`
}

// search returns the search for what the filter selects.
func (f *TaskFilter) search() (operate.TaskSearch, error) {
	stored := jobs.Filter(*f)
	return stored.Search()
}

// TaskQuery selects a page of tasks.
type TaskQuery struct {
	TaskFilter
	Limit  int    `json:"limit,omitempty" doc:"At most this many tasks: 50 unless given." range:"1-1000"`
	Before string `json:"before,omitempty" doc:"Only tasks older than the task with this id."`
	Cursor string `json:"cursor,omitempty" doc:"The next page: what the page before calls next."`
}

// TaskList is a page of tasks.
type TaskList struct {
	Tasks []Task `json:"tasks"`
	Next  string `json:"next,omitempty" doc:"The cursor of the next page; missing on the last one."`
}

// Task is a task in a list. Its JSON does not change silently.
type Task struct {
	ID         string     `json:"id"`
	State      string     `json:"state"`
	Agent      string     `json:"agent"`
	Tenant     string     `json:"tenant"`
	Owner      string     `json:"owner"`
	ContextID  string     `json:"contextId"`
	CreatedAt  time.Time  `json:"createdAt"`
	UpdatedAt  time.Time  `json:"updatedAt" doc:"When the state changed."`
	Events     int64      `json:"events" doc:"The number of the newest event."`
	Attempt    int        `json:"attempt"`
	Epoch      int64      `json:"epoch"`
	Assignee   string     `json:"assignee,omitempty" doc:"The person who is to answer its question."`
	Worker     string     `json:"worker,omitempty" doc:"The worker that runs it."`
	LeaseUntil *time.Time `json:"leaseUntil,omitempty" doc:"Missing if no worker runs it."`
	ReadyAt    *time.Time `json:"readyAt,omitempty" doc:"Missing if it is not queued."`
	Parked     *Parked    `json:"parked,omitempty" doc:"Missing if it is not parked."`
	Parent     string     `json:"parent,omitempty" doc:"The task that has called it; missing if a client has sent it."`
	Question   string     `json:"question,omitempty" doc:"What it asks a person for."`
	LastError  string     `json:"lastError,omitempty" doc:"What it failed with, else the error of its newest attempt."`
}

// Parked says since when and why a task is parked.
type Parked struct {
	Since  time.Time  `json:"since"`
	Until  *time.Time `json:"until,omitempty" doc:"The task fails after that; missing if it stays."`
	Reason string     `json:"reason"`
}

func newTask(t *operate.FoundTask) Task {
	row := Task{
		ID: t.ID.String(), State: t.State.String(), Agent: t.Agent, Tenant: t.Tenant, Owner: t.Owner,
		ContextID: t.ContextID, CreatedAt: t.CreatedAt, UpdatedAt: t.StatusAt, Events: t.LastSeq, Attempt: t.Attempt,
		Epoch: t.Epoch, Worker: t.Worker, LeaseUntil: orNil(t.LeaseUntil), ReadyAt: orNil(t.ReadyAt),
		LastError: t.Error, Assignee: t.Assignee, Question: t.Question,
	}
	if !t.Parent.IsZero() {
		row.Parent = t.Parent.String()
	}
	if p := t.Parked; p != nil {
		row.Parked = &Parked{p.Since, orNil(p.Until), p.Reason}
	}
	return row
}

func orNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

const defaultLimit = 50

// listTasks serves GET /tasks. Without the scope operator:read, the caller sees its own tenant.
func (a *API) listTasks(ctx context.Context, r *request) (any, error) {
	q := r.query.(*TaskQuery) //nolint:forcetypeassert // the route says so
	f, err := q.search()
	if err != nil {
		return nil, err
	}
	f.Limit, f.Timeout = defaultLimit, a.cfg.SearchTimeout
	if q.Limit > 0 {
		f.Limit = q.Limit
	}
	if f.After, err = a.position(ctx, r, q); err != nil {
		return nil, err
	}
	list := TaskList{Tasks: []Task{}}
	if !r.restrict(&f) {
		return list, nil
	}
	f.Limit++ // to see whether there is a next page
	found, err := a.store.Operate.SearchTasks(ctx, f)
	if err == operate.ErrNoPrefix { //nolint:errorlint // it is returned as it is
		return nil, a2a.InvalidParams("id", "no task id begins like this")
	}
	if err != nil {
		return nil, err
	}
	if len(found) == f.Limit {
		found = found[:f.Limit-1]
		last := &found[len(found)-1]
		list.Next = formatCursor(operate.Position{CreatedAt: last.CreatedAt, ID: last.ID})
	}
	for i := range found {
		list.Tasks = append(list.Tasks, newTask(&found[i]))
	}
	return list, nil
}

// position returns where a page begins.
func (a *API) position(ctx context.Context, r *request, q *TaskQuery) (operate.Position, error) {
	if q.Before == "" {
		return parseCursor(q.Cursor)
	}
	if q.Cursor != "" {
		return operate.Position{}, a2a.InvalidParams("before", "cannot be used with cursor")
	}
	id, t, err := a.named(ctx, r, q.Before)
	switch {
	case errors.Is(err, a2a.ErrTaskNotFound):
		err = a2a.InvalidParams("before", "there is no such task")
	case errors.Is(err, errAmbiguous):
		err = a2a.InvalidParams("before", "%s", errAmbiguous.message)
	}
	return operate.Position{CreatedAt: t.CreatedAt, ID: id}, err
}

// everyTenant reports whether a request is about the tasks of every tenant, and not only of its caller's own.
func (r *request) everyTenant() bool { return r.principal.Has(auth.ScopeOperatorRead) }

// mustBeOwn refuses a change for another tenant than that of a caller who sees only its own.
func (r *request) mustBeOwn(tenant string) error {
	if r.everyTenant() || tenant == r.principal.Tenant {
		return nil
	}
	return a2a.Errorf(a2a.CodeForbidden, "the credentials are for another tenant and lack the scope %s",
		auth.ScopeOperatorRead)
}

// mustBeForAllAgents refuses credentials for certain agents. what is about all agents, as in "the audit log is".
func (r *request) mustBeForAllAgents(what string) error {
	if r.principal.Agents == nil {
		return nil
	}
	return a2a.Errorf(a2a.CodeForbidden, "the credentials are for certain agents, and %s of all", what)
}

// restrict narrows a search to what the caller may see, and reports whether anything can be left.
func (r *request) restrict(f *operate.TaskSearch) bool {
	p := &r.principal
	if !r.everyTenant() {
		if f.Tenant != "" && f.Tenant != p.Tenant {
			return false
		}
		f.Tenant = p.Tenant
	}
	if p.Agents == nil {
		return true
	}
	asked := f.Agents
	if len(asked) == 0 {
		asked = p.Agents
	}
	f.Agents = nil
	for _, name := range asked {
		if p.MayUse(name) {
			f.Agents = append(f.Agents, name)
		}
	}
	return len(f.Agents) > 0
}

// leastPrefix is how many characters of an id name a task. A single digit would be a mistake more often than a name.
const leastPrefix = 4

var errAmbiguous = refusal{
	http.StatusConflict, reasonAmbiguous, "the ids of several tasks begin like this: use more of the id",
}

// find returns the task that the path of a request names.
func (a *API) find(ctx context.Context, r *request) (a2a.ID, Task, error) {
	return a.named(ctx, r, r.PathValue("task"))
}

// named returns the task with this id, or whose id alone begins like this. A task that the caller may not know of is
// not found, and does not make a beginning ambiguous.
func (a *API) named(ctx context.Context, r *request, text string) (a2a.ID, Task, error) {
	f := operate.TaskSearch{Limit: 2, Timeout: a.cfg.SearchTimeout}
	var err error
	if f.ID, err = a2a.ParseID(text); err != nil {
		if f.ID, f.Prefix = (a2a.ID{}), text; len(text) < leastPrefix {
			return f.ID, Task{}, a2a.ErrTaskNotFound
		}
	}
	if !r.restrict(&f) {
		return f.ID, Task{}, a2a.ErrTaskNotFound
	}
	found, err := a.store.Operate.SearchTasks(ctx, f)
	switch {
	case errors.Is(err, operate.ErrNoPrefix), err == nil && len(found) == 0:
		return f.ID, Task{}, a2a.ErrTaskNotFound
	case err != nil:
		return f.ID, Task{}, err
	case len(found) > 1:
		return f.ID, Task{}, errAmbiguous
	}
	return found[0].ID, newTask(&found[0]), nil
}

// read returns a task as lists show it.
func (a *API) read(ctx context.Context, id a2a.ID) (Task, error) {
	found, err := a.store.Operate.SearchTasks(ctx, operate.TaskSearch{ID: id, Limit: 1, Timeout: a.cfg.SearchTimeout})
	if err != nil {
		return Task{}, err
	}
	if len(found) == 0 {
		return Task{}, a2a.ErrTaskNotFound
	}
	return newTask(&found[0]), nil
}

// ParseState reads a state in the spelling of a2ad, of A2A 0.3, or of A2A 1.0.
func ParseState(name string) (a2a.State, error) { return jobs.ParseState(name) }

// formatCursor returns a position as an opaque text.
func formatCursor(p operate.Position) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(p.CreatedAt.UnixMicro()))
	return base64.RawURLEncoding.EncodeToString(append(b, p.ID[:]...))
}

func parseCursor(text string) (p operate.Position, err error) {
	if text == "" {
		return p, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) != 8+len(p.ID) {
		return p, a2a.InvalidParams("cursor", "is not the next of an answer")
	}
	p.CreatedAt = time.UnixMicro(int64(binary.BigEndian.Uint64(b))).UTC()
	copy(p.ID[:], b[8:])
	return p, nil
}

// ShowQuery says how much of a task to show.
type ShowQuery struct {
	Artifacts *bool `json:"artifacts,omitempty" doc:"Whether to include the artifacts: true unless given."`
}

// TaskDetail is everything about one task.
type TaskDetail struct {
	Task
	Unreachable *Outage     `json:"agentUnreachable,omitempty" doc:"Missing if the task does not wait for its agent."`
	Waits       *Wait       `json:"waits,omitempty" doc:"Missing if the task does not wait."`
	Usage       []Usage     `json:"usage,omitempty" doc:"By model."`
	RetryOf     string      `json:"retryOf,omitempty" doc:"The task that this one was made from."`
	RetriedAs   []string    `json:"retriedAs,omitempty" doc:"The tasks that were made from this one, oldest first."`
	Attempts    []Attempt   `json:"attempts"`
	Timeline    []Happening `json:"timeline"`
	TimelineCut bool        `json:"timelineCut,omitempty" doc:"Whether the oldest entries or attempts are left out."`

	Raw json.RawMessage `json:"task" doc:"The task in the form of A2A 0.3."`
}

// Attempt is one attempt at a task.
type Attempt struct {
	Epoch     int64      `json:"epoch"`
	Attempt   int        `json:"attempt"`
	Worker    string     `json:"worker"`
	ClaimedAt time.Time  `json:"claimedAt"`
	EndedAt   *time.Time `json:"endedAt,omitempty" doc:"Missing while it runs."`
	Outcome   string     `json:"outcome,omitempty"`
	Error     string     `json:"error,omitempty"`
}

// Outage says why a queued task waits: its agent is unreachable.
type Outage struct {
	Since       time.Time `json:"since"`
	Reason      string    `json:"reason"`
	Probes      int       `json:"probes"`
	NextProbeAt time.Time `json:"nextProbeAt"`
}

// Wait says what ends the wait of a task.
type Wait struct {
	Until   *time.Time `json:"until,omitempty"`
	Message bool       `json:"message,omitempty"`
	Signal  string     `json:"signal,omitempty"`
	Calls   int        `json:"calls,omitempty" doc:"The calls that it waits for."`
	Pending int        `json:"pending,omitempty" doc:"How many of them must still end."`
}
