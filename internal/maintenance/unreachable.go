package maintenance

import (
	"context"
	"log/slog"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// UnreachableSweeper finds agents of which no remote worker is in touch, and forgets outages that no replica has
// touched for a while, and workers that were not in touch.
type UnreachableSweeper struct {
	Store  *tasks.Store
	Agents func() map[string]a2a.Limits // whose tasks remote workers claim
	Logger *slog.Logger
}

const (
	unclaimedEvery    = 15 * time.Second
	unclaimedPatience = time.Minute     // a worker that is in touch is recorded four times as often
	unclaimedGap      = 5 * time.Minute // longer than any pause between two sweeps while the servers run
	unclaimedBatch    = 1000            // more than any number of tasks that become ready in the same microsecond
	forgetOutages     = 10 * time.Minute
	forgetWorkers     = time.Hour // longer than a worker is usually too busy to ask for more
)

// Run sweeps until ctx is done.
func (s *UnreachableSweeper) Run(ctx context.Context) error {
	return repeat(ctx, unclaimedEvery, s.round)
}

func (s *UnreachableSweeper) round(ctx context.Context) {
	forgotten, err := s.Store.ForgetOutages(ctx, forgetOutages)
	if err != nil && ctx.Err() == nil {
		s.Logger.WarnContext(ctx, "forget outages", "err", err)
	}
	for _, agent := range forgotten {
		s.Logger.InfoContext(ctx, "outage forgotten: no replica probes the agent any more", "agent", agent)
	}
	if err := s.Store.ForgetWorkers(ctx, forgetWorkers); err != nil && ctx.Err() == nil {
		s.Logger.WarnContext(ctx, "forget workers", "err", err)
	}
	agents := s.Agents()
	if len(agents) == 0 {
		return
	}
	for more := true; more && ctx.Err() == nil; {
		out, err := s.Store.SweepUnclaimed(ctx, tasks.UnclaimedSweep{
			Agents: agents, Patience: unclaimedPatience, Gap: unclaimedGap, Batch: unclaimedBatch,
		})
		if err != nil && ctx.Err() == nil {
			s.Logger.WarnContext(ctx, "sweep unclaimed tasks", "err", err)
		}
		for _, agent := range out.Began {
			s.Logger.WarnContext(ctx, "no worker claims the tasks of an agent: they wait", "agent", agent)
		}
		if out.Failed > 0 {
			s.Logger.WarnContext(ctx, "tasks failed because no worker claimed them", "tasks", out.Failed)
		}
		if out.Parked > 0 {
			s.Logger.WarnContext(ctx, "tasks parked because no worker claimed them", "tasks", out.Parked)
		}
		more = out.Failed == unclaimedBatch || out.Parked == unclaimedBatch
	}
}
