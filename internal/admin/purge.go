package admin

import (
	"cmp"
	"context"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// Purge is the body of a purge of one task.
type Purge struct {
	Reason string `json:"reason" doc:"Why, for the audit log. Required. At most 1,000 bytes."`
	DryRun bool   `json:"dryRun,omitempty" doc:"Remove nothing, and only look whether there is such a task."`
}

func (b *Purge) why() string { return b.Reason }

// PurgedTask is a task that was removed, or that a dry run has found.
type PurgedTask struct {
	ID string `json:"id"`
}

// PurgeOwner is the body of a purge of the tasks of an owner.
type PurgeOwner struct {
	Purge
	Tenant  string `json:"tenant" doc:"The tenant of the owner."`
	Owner   string `json:"owner" doc:"The owner of the tasks."`
	Context string `json:"context,omitempty" doc:"Only tasks of this conversation."`
}

// PurgedTasks says how many tasks were removed, or would be.
type PurgedTasks struct {
	Tasks int64 `json:"tasks"`
	More  bool  `json:"more,omitempty" doc:"Whether there may be more: repeat the request."`
}

// mostPurged is after how many tasks a purge answers, so that no request takes minutes.
const mostPurged = 1000

func (b *Purge) check() error {
	if b.Reason == "" {
		return a2a.InvalidParams("reason", "is missing")
	}
	return checkReason(b.Reason)
}

// purgeTask serves POST /tasks/{task}/purge.
func (a *API) purgeTask(ctx context.Context, r *request) (any, error) {
	b := r.body.(*Purge) //nolint:forcetypeassert // the route says so
	if err := b.check(); err != nil {
		return nil, err
	}
	id, _, err := a.find(ctx, r)
	if err != nil {
		return nil, err
	}
	if b.DryRun {
		return PurgedTask{id.String()}, nil
	}
	n, err := a.store.Tasks.Purge(ctx, tasks.PurgeFilter{Task: id})
	if err == nil && n == 0 {
		err = a2a.ErrTaskNotFound // it was removed meanwhile
	}
	return PurgedTask{id.String()}, err
}

// purgeOwner serves POST /purges.
func (a *API) purgeOwner(ctx context.Context, r *request) (any, error) {
	b := r.body.(*PurgeOwner) //nolint:forcetypeassert // the route says so
	if err := b.check(); err != nil {
		return nil, err
	}
	if b.Tenant == "" || b.Owner == "" {
		return nil, a2a.InvalidParams("owner", "name a tenant and an owner")
	}
	if err := cmp.Or(r.mustBeOwn(b.Tenant), r.mustBeForAllAgents("the tasks of an owner are")); err != nil {
		return nil, err
	}
	f := tasks.PurgeFilter{Tenant: b.Tenant, Owner: b.Owner, ContextID: b.Context, Most: mostPurged}
	if b.DryRun {
		n, err := a.store.Tasks.CountPurge(ctx, f)
		if err != nil {
			return nil, searchError(err)
		}
		return PurgedTasks{Tasks: n}, nil
	}
	n, err := a.store.Tasks.Purge(ctx, f)
	if err != nil && (n == 0 || ctx.Err() != nil) {
		return nil, err
	}
	// What was removed is counted, whatever went wrong after it. The next request meets the error again.
	return PurgedTasks{Tasks: int64(n), More: err != nil || n >= mostPurged}, nil
}
