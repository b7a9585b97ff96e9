package tasks

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
)

// PendingCancel is a cancel that an agent with work elsewhere was not told of yet.
type PendingCancel struct {
	Task                 a2a.ID
	Agent, Tenant, Owner string
	Checkpoint           a2a.Raw // as it was when the task was canceled
	Metadata             a2a.Raw // of the cancel
	Traceparent          a2a.Traceparent
}

// ClaimCancels claims cancels, of each agent at most as many as it has slots, for one try each. A try may take a few
// seconds. A cancel for which CancelDelivered is not called is returned again, after longer and longer waits.
func (s *Store) ClaimCancels(ctx context.Context, slots map[string]int) ([]PendingCancel, error) {
	agents, most := make([]string, 0, len(slots)), make([]int32, 0, len(slots))
	for agent, n := range slots {
		agents, most = append(agents, agent), append(most, int32(n))
	}
	rows, err := dbsqlc.New(s.db.Work()).CancelsClaim(ctx, agents, most)
	if err != nil {
		return nil, fmt.Errorf("claim cancels: %w", db.Unavailable(err))
	}
	out := make([]PendingCancel, len(rows))
	for i, r := range rows {
		out[i] = PendingCancel{
			Task: r.TaskID.Bytes, Agent: r.Queue, Tenant: r.Tenant, Owner: r.Owner, Checkpoint: r.Checkpoint,
			Metadata:    rawjson.Get(r.Body, "metadata"),
			Traceparent: a2a.Traceparent(r.Traceparent),
		}
	}
	return out, nil
}

// CancelDelivered removes a cancel, because the agent was told of it.
func (s *Store) CancelDelivered(ctx context.Context, task a2a.ID) error {
	if err := dbsqlc.New(s.db.Work()).CancelDelete(ctx, db.PGID(task)); err != nil {
		return fmt.Errorf("note a cancel: %w", db.Unavailable(err))
	}
	return nil
}

// ExpireCancels removes the cancels of agents that need not be told of any, and those older than age. It returns the
// tasks whose agent could not be told.
func (s *Store) ExpireCancels(ctx context.Context, agents []string, age time.Duration) (inVain []a2a.ID, err error) {
	rows, err := dbsqlc.New(s.db.Work()).CancelsForget(ctx, agents, pgtype.Interval{
		Microseconds: age.Microseconds(), Valid: true,
	})
	if err != nil {
		return nil, fmt.Errorf("forget cancels: %w", db.Unavailable(err))
	}
	for _, r := range rows {
		if r.Tries > 0 {
			inVain = append(inVain, r.TaskID.Bytes)
		}
	}
	return inVain, nil
}
