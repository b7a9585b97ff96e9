package admin

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/store/access"
)

// ActionQuery selects entries of the audit log.
type ActionQuery struct {
	Task   string    `json:"task,omitempty" doc:"Only actions on this task."`
	Action string    `json:"action,omitempty" doc:"Only actions of this name, such as task.cancel."`
	Tenant string    `json:"tenant,omitempty" doc:"Only actions on objects of this tenant."`
	Actor  string    `json:"actor,omitempty" doc:"Only actors that begin with this, such as operator."`
	Since  time.Time `json:"since,omitempty" doc:"Only actions at or after this time."`
	Until  time.Time `json:"until,omitempty" doc:"Only actions before this time."`
	Limit  int       `json:"limit,omitempty" doc:"At most this many actions: 50 unless given." range:"1-1000"`
	Cursor string    `json:"cursor,omitempty" doc:"The next page: what the page before calls next."`
}

// ActionList is a page of the audit log.
type ActionList struct {
	Actions []Action `json:"actions"`
	Next    string   `json:"next,omitempty" doc:"The cursor of the next page; missing on the last one."`
}

// Action is an entry of the audit log.
type Action struct {
	ID     int64           `json:"id"`
	At     time.Time       `json:"at"`
	Actor  string          `json:"actor"`
	Action string          `json:"action"`
	Tenant string          `json:"tenant,omitempty"`
	Owner  string          `json:"owner,omitempty"`
	TaskID string          `json:"taskId,omitempty"`
	Detail json.RawMessage `json:"detail"`
}

// listActions serves GET /actions. A caller with tenant:read sees the actions on objects of its tenant.
func (a *API) listActions(ctx context.Context, r *request) (any, error) {
	q := r.query.(*ActionQuery) //nolint:forcetypeassert // the route says so
	f := access.ActionFilter{
		Name: q.Action, Tenant: q.Tenant, Actor: q.Actor, Since: q.Since, Until: q.Until, Limit: defaultLimit,
	}
	var err error
	if q.Task != "" {
		if f.Task, err = a2a.ParseID(q.Task); err != nil {
			return nil, a2a.InvalidParams("task", "is not a task id")
		}
	}
	if q.Cursor != "" {
		if f.Before, err = strconv.ParseInt(q.Cursor, 10, 64); err != nil || f.Before <= 0 {
			return nil, a2a.InvalidParams("cursor", "is not the next of an answer")
		}
	}
	if q.Limit > 0 {
		f.Limit = q.Limit
	}
	list := ActionList{Actions: []Action{}}
	if err := r.mustBeForAllAgents("the audit log is"); err != nil {
		return nil, err
	}
	if !r.principal.Has(auth.ScopeOperatorRead) {
		if f.Tenant != "" && f.Tenant != r.principal.Tenant {
			return list, nil
		}
		f.Tenant = r.principal.Tenant
	}
	f.Limit++ // to see whether there is a next page
	found, err := a.store.Access.Actions(ctx, f)
	if err != nil {
		return nil, err
	}
	if len(found) == f.Limit {
		found = found[:f.Limit-1]
		list.Next = strconv.FormatInt(found[len(found)-1].ID, 10)
	}
	for i := range found {
		list.Actions = append(list.Actions, newAction(&found[i]))
	}
	return list, nil
}

func newAction(x *access.Recorded) Action {
	out := Action{
		ID: x.ID, At: x.At, Actor: x.Actor, Action: x.Name, Tenant: x.Tenant, Owner: x.Owner, Detail: x.Detail,
	}
	if !x.Task.IsZero() {
		out.TaskID = x.Task.String()
	}
	return out
}
