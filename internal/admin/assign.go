package admin

import (
	"context"
	"errors"

	"github.com/a2ad/a2ad/internal/store/tasks"
)

// Assign is the body that assigns the question of a task to a person.
type Assign struct {
	Why
	Assignee string `json:"assignee" doc:"Name of the person: at most 100 characters. Empty ends the assignment."`
}

// assignTask serves POST /tasks/{task}/assign.
func (a *API) assignTask(ctx context.Context, r *request) (any, error) {
	b := r.body.(*Assign) //nolint:forcetypeassert // the route says so
	if err := checkReason(b.Reason); err != nil {
		return nil, err
	}
	id, _, err := a.find(ctx, r)
	if err != nil {
		return nil, err
	}
	err = a.store.Tasks.Assign(ctx, tasks.Assignment{Task: id, To: b.Assignee})
	if errors.Is(err, tasks.ErrNotWaiting) {
		return nil, errNotWaiting
	}
	if err != nil {
		return nil, err
	}
	return a.read(ctx, id)
}
