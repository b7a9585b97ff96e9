package tasks

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/wake"
)

// Cancel ends a task of the caller, whatever its agent does. A non-empty agent restricts it to tasks of that agent. If
// the task has ended, it returns its state and CodeTaskNotCancelable.
func (s *Store) Cancel(ctx context.Context, c db.Caller, agent string, id a2a.ID) (a2a.State, error) {
	return s.CancelWith(ctx, c, agent, id, nil)
}

// CancelWith is Cancel with metadata of the client, which the last status gets.
func (s *Store) CancelWith(
	ctx context.Context, c db.Caller, agent string, id a2a.ID, metadata a2a.Raw,
) (a2a.State, error) {
	ended, err := db.InTxOnce(ctx, s.db, func(tx *db.Tx) (a2a.State, error) {
		return s.cancelIn(ctx, tx, c, agent, id, metadata)
	})
	if err == nil && ended != a2a.StateNone {
		err = a2a.Errorf(a2a.CodeTaskNotCancelable, "the task is already %s", ended)
	}
	if err != nil {
		return ended, fmt.Errorf("cancel: %w", db.Unavailable(err))
	}
	return a2a.StateCanceled, nil
}

// CancelIn is Cancel in a transaction of the caller. It returns the state in which the task had ended before, or
// StateNone if the transaction cancels it.
func (s *Store) CancelIn(ctx context.Context, tx *db.Tx, c db.Caller, id a2a.ID) (a2a.State, error) {
	return s.cancelIn(ctx, tx, c, "", id, nil)
}

// cancelIn returns the state in which the task had ended before, or StateNone if the transaction cancels it.
func (s *Store) cancelIn(
	ctx context.Context, tx *db.Tx, c db.Caller, agent string, id a2a.ID, metadata a2a.Raw,
) (a2a.State, error) {
	q := dbsqlc.New(tx)
	t, err := q.TaskLockForCaller(ctx, dbsqlc.TaskLockForCallerParams{
		ID: db.PGID(id), Tenant: c.Tenant, Owner: c.Owner, Shared: c.Shared,
	})
	if errors.Is(err, pgx.ErrNoRows) || err == nil && agent != "" && (t.Agent != agent || hidden(t.Reply, t.State)) {
		return a2a.StateNone, a2a.ErrTaskNotFound
	}
	if err != nil {
		return a2a.StateNone, err
	}
	if state := a2a.State(t.State); state.Terminal() {
		return state, nil
	}
	folds := t.HasArtifacts && folds(t.LastSeq+1, t.Bytes)
	canceled, err := q.TaskCancel(ctx, dbsqlc.TaskCancelParams{
		ID: db.PGID(id), Folds: folds, EventUid: db.PGID(db.NewUID()),
		Body: appendStatus(nil, &a2a.StatusUpdate{Metadata: metadata}), Size: int64(len(metadata)),
		Agent: t.Agent, Priority: t.Priority, ReadyAt: t.ReadyAt,
	})
	if err != nil {
		return a2a.StateNone, err
	}
	if err := access.Record(ctx, tx, access.Action{
		Actor: c.Actor, Name: access.ActionTaskCancel, Tenant: t.Tenant, Owner: t.Owner, Task: id,
	}); err != nil {
		return a2a.StateNone, err
	}
	if folds {
		if err := q.ArtifactFold(ctx, []pgtype.UUID{db.PGID(id)}); err != nil {
			return a2a.StateNone, err
		}
	}
	if t.Depth > 0 || t.Steps > 0 {
		if err := s.endFamily(ctx, tx, familyOf([]pgtype.UUID{db.PGID(id)})); err != nil {
			return a2a.StateNone, err
		}
	}
	var m webhooks.HeadMoves
	m.Add(db.PGID(id), t.HasPush, true)
	if err := m.Move(ctx, tx); err != nil {
		return a2a.StateNone, err
	}
	tx.After(func() { s.counters.enter(a2a.StateCanceled, 1) })
	s.tell(tx, id)
	if canceled.Waited {
		s.waitEnded(tx, t.Agent, WaitCancel)
	}
	if canceled.Worker != "" {
		tx.Wake(wake.Cancel(canceled.Worker))
	}
	if canceled.CancelDue {
		tx.Wake(wake.Cancels)
	}
	if canceled.Counted { // another run of the agent may begin
		tx.Wake(wake.Ready(t.Agent))
	}
	return a2a.StateNone, nil
}

// tell notifies the followers of a task of new events after the commit. If no events are given, the followers read
// them.
func (s *Store) tell(tx *db.Tx, task a2a.ID, events ...a2a.Entry) {
	tx.After(func() { s.cfg.Committed(task, events) })
}
