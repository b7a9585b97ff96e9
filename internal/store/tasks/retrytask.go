package tasks

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
)

// ErrNothingToRetry says that a task has not ended, or that it was completed.
var ErrNothingToRetry = errors.New("only a task that has failed, or was canceled or rejected, is retried")

// RetryTask creates a new task from one that failed, was canceled or was rejected. The new task has the same tenant,
// owner, agent and context, and the first message of the old one under a new id, which refers to the old task. The old
// task does not change, and the new one gets none of its webhooks. It returns a2a.ErrTaskNotFound, or ErrNothingToRetry
// with the state.
func (s *Store) RetryTask(ctx context.Context, old a2a.ID) (Submitted, error) {
	r, err := dbsqlc.New(s.db.Work()).RetrySource(ctx, db.PGID(old))
	if errors.Is(err, pgx.ErrNoRows) {
		err = a2a.ErrTaskNotFound
	}
	if err != nil {
		return Submitted{}, fmt.Errorf("retry: %w", db.Unavailable(err))
	}
	state := a2a.State(r.State)
	if !state.Terminal() || state == a2a.StateCompleted {
		return Submitted{}, fmt.Errorf("it is %s: %w", state, ErrNothingToRetry)
	}
	m := DecodeMessage(r.Body, a2a.RoleUser)
	m.ID, m.TaskID, m.ContextID = db.NewUID().String(), "", r.ContextID
	if id := old.String(); !slices.Contains(m.ReferenceTaskIDs, id) {
		m.ReferenceTaskIDs = append(m.ReferenceTaskIDs, id)
	}
	id := db.NewTaskID()
	out, err := s.Submit(ctx, Submission{
		Caller: db.Caller{Tenant: r.Tenant, Owner: r.Owner}, Agent: r.Agent, NewTask: id, ContextID: r.ContextID,
		Message: m,
		Digest:  sha256.Sum256(append(old[:], r.Body...)),
		Action: &access.Action{
			Name: access.ActionTaskRetry, Tenant: r.Tenant, Owner: r.Owner, Task: old,
			Detail: map[string]any{"new": id.String()},
		},
	})
	if err != nil {
		return Submitted{}, fmt.Errorf("retry: %w", err)
	}
	return out, nil
}
