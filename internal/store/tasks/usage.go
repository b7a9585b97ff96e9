package tasks

import (
	"context"
	"fmt"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
)

// countUsage adds the size of the usage to that of the steps. It gives the batch an id if nothing else in it tells
// whether it was written: a try that follows a lost answer would count the usage twice.
func (a *pendingBatch) countUsage() {
	for i := range a.batch.Usage {
		a.steps += a.batch.Usage[i].Size()
	}
	if len(a.batch.Usage) > 0 && len(a.rows) == 0 && a.added == 0 && a.batch.ID == "" {
		a.batch.ID = "usage-" + db.NewUID().String()
	}
}

// hasUsage reports whether one of the batches has usage.
func hasUsage(items []*pendingBatch) bool {
	for _, it := range items {
		if len(it.batch.Usage) > 0 {
			return true
		}
	}
	return false
}

// addUsage records the usage of batches that were written in this transaction.
func addUsage(ctx context.Context, q *dbsqlc.Queries, items []*pendingBatch, rows []appended) error {
	var p dbsqlc.UsageAddParams
	for i := range rows {
		it := items[rows[i].Pos-1]
		for _, u := range a2a.SumUsage(it.batch.Usage) {
			p.TaskIds, p.Tenants = append(p.TaskIds, db.PGID(it.lease.TaskID)), append(p.Tenants, it.lease.Tenant)
			p.Owners, p.Agents = append(p.Owners, it.lease.Owner), append(p.Agents, it.lease.Agent)
			p.Models, p.Requests = append(p.Models, u.Model), append(p.Requests, u.Requests)
			p.InputTokens, p.OutputTokens = append(p.InputTokens, u.Input), append(p.OutputTokens, u.Output)
			p.CachedInputTokens = append(p.CachedInputTokens, u.Cached)
			p.ReasoningTokens = append(p.ReasoningTokens, u.Reasoning)
		}
	}
	if len(p.TaskIds) == 0 {
		return nil
	}
	return q.UsageAdd(ctx, p)
}

// Kinds of tokens in Counts.UsageTokens.
const (
	TokensInput     = "input"
	TokensOutput    = "output"
	TokensCached    = "cached_input" // among the input tokens
	TokensReasoning = "reasoning"    // among the output tokens
)

// TokenKinds are all of them.
var TokenKinds = []string{TokensInput, TokensOutput, TokensCached, TokensReasoning}

// recordedUsage counts the usage of a batch that was written.
func (c *counters) recordedUsage(a *pendingBatch) {
	agent := a.lease.Agent
	for i := range a.batch.Usage {
		u := &a.batch.Usage[i]
		c.tokens.addN(agent, TokensInput, u.Input)
		c.tokens.addN(agent, TokensOutput, u.Output)
		c.tokens.addN(agent, TokensCached, u.Cached)
		c.tokens.addN(agent, TokensReasoning, u.Reasoning)
		c.requests.addN(agent, "", u.Requests)
	}
}

// SumUsage moves at most batch reports of usage into the sums by day, and returns how many. If another process is doing
// this, it does nothing.
func (s *Store) SumUsage(ctx context.Context, batch int) (n int, err error) {
	n, err = db.InTx(ctx, s.db.Work(), func(tx *db.Tx) (int, error) {
		free, err := tx.TryChore(ctx, db.ChoreUsage)
		if err != nil || !free {
			return 0, err
		}
		moved, err := dbsqlc.New(tx).UsageSum(ctx, int32(batch))
		return int(moved), err
	})
	if err != nil {
		return 0, fmt.Errorf("sum usage: %w", db.Unavailable(err))
	}
	return n, nil
}

// SweepUsage removes at most batch sums of days that ended longer than keep ago, and returns how many. If another
// process is doing this, it does nothing.
func (s *Store) SweepUsage(ctx context.Context, keep time.Duration, batch int) (n int, err error) {
	n, err = db.InTx(ctx, s.db.Work(), func(tx *db.Tx) (int, error) {
		free, err := tx.TryChore(ctx, db.ChoreUsage)
		if err != nil || !free {
			return 0, err
		}
		gone, err := dbsqlc.New(tx).UsageForget(ctx, db.PGInterval(keep), int32(batch))
		if err != nil {
			return 0, err
		}
		tx.After(func() { s.db.CountSwept(db.SweepOfUsage, int(gone)) })
		return int(gone), nil
	})
	if err != nil {
		return 0, fmt.Errorf("sweep usage: %w", db.Unavailable(err))
	}
	return n, nil
}
