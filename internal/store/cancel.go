package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/dbsqlc"
)

// Cancel ends a task of the caller, whatever its agent does. agent restricts it to tasks of
// one agent unless it is empty. If the task has ended already it returns its state and
// CodeTaskNotCancelable.
func (s *Store) Cancel(ctx context.Context, c Caller, agent string, id a2a.ID) (a2a.State, error) {
	return s.CancelWith(ctx, c, agent, id, nil)
}

// canceled is what the transaction of a cancel has made.
type canceled struct {
	ended a2a.State // in which the task was already; none: it is canceled
	row   dbsqlc.TaskCancelRow
	agent string
	push  bool
}

// CancelWith is Cancel by a client that says more: its metadata is that of the last status.
func (s *Store) CancelWith(ctx context.Context, c Caller, agent string, id a2a.ID, metadata a2a.Raw) (a2a.State, error) {
	out, err := committedOnce(ctx, s, func(q *dbsqlc.Queries) (canceled, error) {
		return s.cancelIn(ctx, q, c, agent, id, metadata)
	})
	if err == nil && out.ended != a2a.StateNone {
		err = a2a.Errorf(a2a.CodeTaskNotCancelable, "the task is already %s", out.ended)
	}
	if err != nil {
		return out.ended, fmt.Errorf("cancel: %w", unavailable(err))
	}
	s.counters.enter(a2a.StateCanceled, 1)
	s.cfg.Committed(id, nil)
	if out.push {
		s.cfg.Wake(KeyPush)
	}
	if out.row.Worker != "" {
		s.cfg.Wake("cancel:" + out.row.Worker)
	}
	if out.row.Untold {
		s.cfg.Wake(KeyCancels)
	}
	if out.row.Counted {
		s.cfg.Wake("ready:" + out.agent) // it has made room
	}
	return a2a.StateCanceled, nil
}

func (s *Store) cancelIn(ctx context.Context, q *dbsqlc.Queries, c Caller, agent string, id a2a.ID, metadata a2a.Raw) (out canceled, err error) {
	t, err := q.TaskLockForCaller(ctx, dbsqlc.TaskLockForCallerParams{ID: pgID(id), Tenant: c.Tenant, Owner: c.Owner, Shared: c.Shared})
	if errors.Is(err, pgx.ErrNoRows) || err == nil && agent != "" && (t.Agent != agent || hidden(t.Reply, t.State)) {
		return out, a2a.ErrTaskNotFound
	}
	if err != nil {
		return out, err
	}
	if state := a2a.State(t.State); state.Terminal() {
		return canceled{ended: state}, nil
	}
	out.agent = t.Agent
	folds := t.HasArtifacts && folds(t.LastSeq+1, t.Bytes)
	out.row, err = q.TaskCancel(ctx, dbsqlc.TaskCancelParams{
		ID: pgID(id), Folds: folds, EventUid: pgID(NewUID()), Body: appendStatus(nil, &a2a.StatusUpdate{Metadata: metadata}), Size: int64(len(metadata)),
		Agent: t.Agent, Priority: t.Priority, ReadyAt: t.ReadyAt,
	})
	if err != nil {
		return out, err
	}
	if err := s.record(ctx, q, Action{Actor: c.Actor, Name: ActionTaskCancel, Tenant: t.Tenant, Owner: t.Owner, Task: id}); err != nil {
		return out, err
	}
	if folds {
		if err := q.ArtifactFold(ctx, []pgtype.UUID{pgID(id)}); err != nil {
			return out, err
		}
	}
	var m moved
	m.add(pgID(id), t.HasPush, true)
	out.push, err = m.heads(ctx, q)
	return out, err
}
