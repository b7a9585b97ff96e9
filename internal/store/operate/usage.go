package operate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate/dbsqlc"
)

// What UsageQuery.By may contain.
const (
	ByDay    = "day"
	ByTenant = "tenant"
	ByOwner  = "owner"
	ByAgent  = "agent"
	ByModel  = "model"
)

// UsageQuery says which sums of usage to read.
type UsageQuery struct {
	Since time.Time // whole days are counted, in UTC; this one is the first
	By    []string  // what to distinguish
	Limit int       // of sums
}

// UsageSum is the usage of some tasks together. What it does not distinguish is empty.
type UsageSum struct {
	Day, Tenant, Owner, Agent string
	a2a.Usage
}

// Usage reads sums of usage: by day, the oldest first, and then those with the most tokens first. They contain the
// usage of tasks that were removed.
func (s *Store) Usage(ctx context.Context, query UsageQuery) (sums []UsageSum, err error) {
	by := func(what string) bool { return slices.Contains(query.By, what) }
	err = s.db.Browse(ctx, s.db.StatementTimeout(), func(ctx context.Context, tx *db.Tx) error {
		rows, err := dbsqlc.New(tx).UsageByDay(ctx, dbsqlc.UsageByDayParams{
			ByDay: by(ByDay), ByTenant: by(ByTenant), ByOwner: by(ByOwner), ByAgent: by(ByAgent), ByModel: by(ByModel),
			Since: pgtype.Date{Time: query.Since.UTC(), Valid: true}, Max: int32(query.Limit),
		})
		for _, r := range rows {
			sums = append(sums, UsageSum{
				Day: r.Day, Tenant: r.Tenant, Owner: r.Owner, Agent: r.Agent,
				Usage: a2a.Usage{
					Model: r.Model, Input: r.InputTokens, Output: r.OutputTokens, Cached: r.CachedInputTokens,
					Reasoning: r.ReasoningTokens, Requests: r.Requests,
				},
			})
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read usage: %w", db.Unavailable(err))
	}
	return sums, nil
}

// usageOfTask reads the usage of a task, by model.
func usageOfTask(ctx context.Context, q *dbsqlc.Queries, id a2a.ID) (usage []a2a.Usage, err error) {
	rows, err := q.UsageOfTask(ctx, db.PGID(id))
	for _, r := range rows {
		usage = append(usage, a2a.Usage{
			Model: r.Model, Input: r.InputTokens, Output: r.OutputTokens, Cached: r.CachedInputTokens,
			Reasoning: r.ReasoningTokens, Requests: r.Requests,
		})
	}
	return usage, err
}
