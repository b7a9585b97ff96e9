package tasks

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
)

// Head is what decides about a request for a task.
type Head struct {
	Agent     string
	ContextID string
	State     a2a.State
	LastSeq   int64
	Bytes     int64 // that reading the whole task takes at most
}

// Head reads the head of a task of the caller, or returns a2a.ErrTaskNotFound. A task of another owner is like one that
// does not exist, also in the time that the answer takes. So is a task that was answered with a message, or may still
// be.
func (s *Store) Head(ctx context.Context, c db.Caller, id a2a.ID) (Head, error) {
	var h Head
	err := s.db.RepeatRead(ctx, func() error {
		r, err := s.head(ctx, c, db.PGID(id))
		if errors.Is(err, pgx.ErrNoRows) {
			return a2a.ErrTaskNotFound
		}
		if err == nil && hidden(r.Reply, r.State) {
			return a2a.ErrTaskNotFound
		}
		h = Head{Agent: r.Agent, ContextID: r.ContextID, State: a2a.State(r.State), LastSeq: r.LastSeq,
			Bytes: r.Cost}
		return err
	})
	if err != nil {
		return Head{}, fmt.Errorf("read task: %w", err)
	}
	return h, nil
}

func (s *Store) head(ctx context.Context, c db.Caller, id pgtype.UUID) (dbsqlc.TaskHeadForCallerRow, error) {
	if c.Shared {
		r, err := dbsqlc.New(s.db.As(c)).TaskHeadSharedForCaller(ctx, id, c.Tenant)
		return dbsqlc.TaskHeadForCallerRow(r), err
	}
	return dbsqlc.New(s.db.As(c)).TaskHeadForCaller(ctx, dbsqlc.TaskHeadForCallerParams{
		ID: id, Tenant: c.Tenant, Owner: c.Owner,
	})
}

// TasksInFlight counts the tasks of the caller that wait for an agent or are with one, up to most.
func (s *Store) TasksInFlight(ctx context.Context, c db.Caller, most int) (int, error) {
	var n int64
	err := s.db.RepeatRead(ctx, func() (err error) {
		n, err = dbsqlc.New(s.db.As(c)).TaskCountInFlightForCaller(ctx, dbsqlc.TaskCountInFlightForCallerParams{
			Tenant: c.Tenant, Owner: c.Owner, Max: int32(min(most, 1<<30)),
		})
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("count tasks in flight: %w", err)
	}
	return int(n), nil
}
