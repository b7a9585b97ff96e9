package tasks

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// ErrNothingToRetry says that a task has not ended, or that it was completed.
var ErrNothingToRetry = errors.New("only a task that has failed, or was canceled or rejected, is retried")

// ErrNothingToSend says that a task has no message of a client, as an imported one may.
var ErrNothingToSend = errors.New("the task has no message of a client that could be sent again")

// RetryOf is a key in the metadata of the first message of a task that was made from another one. Its value is the id
// of that one.
const RetryOf = "a2ad/retryOf"

// MoveSecrets encrypts the secrets of a webhook, which are bound to its row, for another row.
type MoveSecrets = func(from, to a2a.ID, s webhooks.Secrets) (webhooks.Secrets, error)

// RetryTask creates a new task from one that failed, was canceled or was rejected. The new task has the same tenant,
// owner, agent and context, and the first message of the old one under a new id, which refers to the old task: in its
// references, and in its metadata as a2ad/retryOf. The old task does not change; the audit log has the id of the new
// one as an action on the old one. The new task gets the webhooks of the old one if move, which encrypts their secrets
// for other rows, is not nil. RetryTask returns a2a.ErrTaskNotFound, ErrNothingToRetry with
// the state, or ErrNothingToSend.
func (s *Store) RetryTask(ctx context.Context, old a2a.ID, move MoveSecrets) (Submitted, error) {
	r, err := dbsqlc.New(s.db.Work()).RetrySource(ctx, db.PGID(old))
	if err != nil {
		return Submitted{}, noRetry(err)
	}
	in, err := retryOf(ctx, old, &r, move)
	if err != nil {
		return Submitted{}, fmt.Errorf("retry: %w", err)
	}
	out, err := s.Submit(ctx, in)
	if err != nil {
		return Submitted{}, fmt.Errorf("retry: %w", err)
	}
	return out, nil
}

// RetryIn is RetryTask in a transaction of the caller, which must not be made twice. The new task waits in the queue,
// in the lane that Lane has chosen.
func (s *Store) RetryIn(ctx context.Context, tx *db.Tx, old a2a.ID, move MoveSecrets, lane int16) (a2a.ID, error) {
	r, err := dbsqlc.New(tx).RetrySource(ctx, db.PGID(old))
	if err != nil {
		return a2a.ID{}, noRetry(err)
	}
	in, err := retryOf(ctx, old, &r, move)
	if err != nil {
		return a2a.ID{}, fmt.Errorf("retry: %w", err)
	}
	sub := newSubmission(in)
	sub.lane = lane
	if err := s.submitIn(ctx, tx, []*submission{sub}, nil); err != nil {
		return a2a.ID{}, noRetry(err)
	}
	return sub.id, submitWith(ctx, tx, sub)
}

// noRetry says in an error of the database that a retry has failed.
func noRetry(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		err = a2a.ErrTaskNotFound
	}
	return fmt.Errorf("retry: %w", db.Unavailable(err))
}

// retryOf makes the first message of the task that repeats an old one.
func retryOf(ctx context.Context, old a2a.ID, r *dbsqlc.RetrySourceRow, move MoveSecrets) (Submission, error) {
	state := a2a.State(r.State)
	if !state.Terminal() || state == a2a.StateCompleted {
		return Submission{}, fmt.Errorf("it is %s: %w", state, ErrNothingToRetry)
	}
	if r.Body == nil {
		return Submission{}, ErrNothingToSend
	}
	m := DecodeMessage(r.Body, a2a.RoleUser)
	m.ID, m.TaskID, m.ContextID = db.NewUID().String(), "", r.ContextID
	if id := old.String(); !slices.Contains(m.ReferenceTaskIDs, id) {
		m.ReferenceTaskIDs = append(m.ReferenceTaskIDs, id)
	}
	for _, key := range []string{MetaParent, MetaCall} { // the new task was not called
		m.Metadata = rawjson.Without(m.Metadata, key)
	}
	m.Metadata = withMember(m.Metadata, RetryOf, old.String())
	id := db.NewTaskID()
	var hooks *webhooks.Copy
	if move != nil {
		hooks = &webhooks.Copy{Of: old, Move: move}
	}
	action := access.Action{
		Name: access.ActionTaskRetry, Tenant: r.Tenant, Owner: r.Owner, Task: old,
		Detail: map[string]any{"new": id.String()},
	}.Attributed(ctx) // the statement that stores it may be that of several callers
	return Submission{
		Caller: db.Caller{Tenant: r.Tenant, Owner: r.Owner}, Agent: r.Agent, NewTask: id, ContextID: r.ContextID,
		Message: m, Webhooks: hooks,
		Digest: sha256.Sum256(append(old[:], r.Body...)),
		Action: &action,
	}, nil
}

// withMember returns a JSON object with one more member, which replaces one of the same name.
func withMember(obj a2a.Raw, key, value string) a2a.Raw {
	out := a2a.Raw(`{`)
	if obj = rawjson.Trim(rawjson.Without(obj, key)); !rawjson.Empty(obj) {
		out = append(append(out, obj[1:len(obj)-1]...), ',')
	}
	out = append(rawjson.AppendString(out, key), ':')
	return append(rawjson.AppendString(out, value), '}')
}
