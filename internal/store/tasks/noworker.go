package tasks

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// ReasonNoWorker is the a2ad/reason of a task for which no remote worker is there.
const ReasonNoWorker = "no worker"

// WorkersSeen records that remote workers of these agents are in touch, and returns the agents that had none before.
func (s *Store) WorkersSeen(ctx context.Context, agents []string) (back []string, err error) {
	back, err = db.Autocommit(ctx, s.db.Work(), func(tx *db.Tx) ([]string, error) {
		return dbsqlc.New(tx).WorkersSeen(ctx, agents)
	})
	if err != nil {
		return nil, fmt.Errorf("record the workers in touch: %w", db.Unavailable(err))
	}
	return back, nil
}

// UnclaimedSweep says what SweepUnclaimed looks for.
type UnclaimedSweep struct {
	Agents   map[string]a2a.Limits // whose tasks remote workers claim
	Patience time.Duration         // how long no worker may be in touch before the agent counts as unreachable
	Gap      time.Duration         // if no sweep ran for longer, outages begin anew: the servers were down
	Batch    int                   // tasks to fail, to park, and of each lane of an agent to tell, at most
}

// Unclaimed is what SweepUnclaimed did.
type Unclaimed struct {
	Began  []string // agents that have no worker, and had one at the sweep before
	Told   int      // tasks whose clients were told
	Failed int      // tasks that had waited too long
	Parked int      // tasks that had waited too long, of agents whose limits say so
}

// SweepUnclaimed finds the agents of which no remote worker is in touch although tasks wait. It tells the clients of
// tasks that have waited for the time of patience. It fails or parks tasks that have waited for longer than the limit
// of the agent, if it had no worker for as long. The tasks of a paused agent wait, and its outage ends. If another
// process is doing this, it does nothing.
func (s *Store) SweepUnclaimed(ctx context.Context, w UnclaimedSweep) (Unclaimed, error) {
	out, err := db.InTx(ctx, s.db.Work(), func(tx *db.Tx) (out Unclaimed, err error) {
		free, err := tx.TryChore(ctx, db.ChoreWorkers)
		if err != nil || !free {
			return out, err
		}
		p := dbsqlc.WorkersMissingParams{
			Agents: []string{}, Limits: []int64{}, Lanes: allLanes(), Patience: db.PGInterval(w.Patience),
			Reason: ReasonNoWorker, Replica: s.db.Replica(), Gap: db.PGInterval(w.Gap),
		}
		for agent, limits := range w.Agents {
			p.Agents, p.Limits = append(p.Agents, agent), append(p.Limits, limits.Unreachable.Milliseconds())
		}
		missing, err := dbsqlc.New(tx).WorkersMissing(ctx, p)
		if err != nil || len(missing) == 0 {
			return out, err
		}
		var fail, park, rest []string
		for _, m := range missing {
			rest = append(rest, m.Agent)
			switch {
			case !m.Overdue:
			case w.Agents[m.Agent].OnExhausted == a2a.ExhaustedPark:
				park = append(park, m.Agent)
			default:
				fail = append(fail, m.Agent)
			}
			if m.Began {
				out.Began = append(out.Began, m.Agent)
			}
		}
		if out.Failed, err = s.failUnclaimed(ctx, tx, fail, w); err != nil {
			return out, err
		}
		if out.Parked, err = s.parkUnclaimed(ctx, tx, park, w); err != nil {
			return out, err
		}
		out.Told, err = s.tellUnclaimed(ctx, tx, rest, w)
		return out, err
	})
	if err != nil {
		return Unclaimed{}, fmt.Errorf("sweep unclaimed tasks: %w", db.Unavailable(err))
	}
	return out, nil
}

// takeUnclaimed takes the tasks of these agents that have waited too long out of the queue.
func takeUnclaimed(
	ctx context.Context, tx *db.Tx, agents []string, w UnclaimedSweep,
) ([]dbsqlc.UnclaimedTakeRow, error) {
	if len(agents) == 0 {
		return nil, nil
	}
	p := dbsqlc.UnclaimedTakeParams{Agents: agents, Lanes: allLanes(), Batch: int32(w.Batch)}
	for _, agent := range agents {
		p.Limits = append(p.Limits, w.Agents[agent].Unreachable.Milliseconds())
	}
	return dbsqlc.New(tx).UnclaimedTake(ctx, p)
}

// failUnclaimed fails the tasks of these agents that have waited too long.
func (s *Store) failUnclaimed(ctx context.Context, tx *db.Tx, agents []string, w UnclaimedSweep) (int, error) {
	taken, err := takeUnclaimed(ctx, tx, agents, w)
	if err != nil {
		return 0, err
	}
	ids, texts := make([]pgtype.UUID, len(taken)), make([]string, len(taken))
	for i, r := range taken {
		ids[i], texts[i] = r.ID, unclaimedText(w.Agents[r.Agent].Unreachable)
	}
	return s.failIn(ctx, tx, ids, texts)
}

// parkUnclaimed parks the tasks of these agents that have waited too long.
func (s *Store) parkUnclaimed(ctx context.Context, tx *db.Tx, agents []string, w UnclaimedSweep) (int, error) {
	taken, err := takeUnclaimed(ctx, tx, agents, w)
	if err != nil || len(taken) == 0 {
		return 0, err
	}
	var p dbsqlc.UnclaimedParkParams
	for _, r := range taken {
		limits := w.Agents[r.Agent]
		p.Ids, p.Texts = append(p.Ids, r.ID), append(p.Texts, unclaimedText(limits.Unreachable))
		p.ParkFors = append(p.ParkFors, max(limits.ParkFor, 0).Milliseconds())
	}
	rows, err := dbsqlc.New(tx).UnclaimedPark(ctx, p)
	if err != nil {
		return 0, err
	}
	var m webhooks.HeadMoves
	for _, r := range rows {
		s.tell(tx, r.ID.Bytes)
		m.Add(r.ID, r.HasPush, true)
	}
	tx.After(func() { s.counters.enter(a2a.StateWorking, len(rows)) })
	return len(rows), m.Move(ctx, tx)
}

// unclaimedText says why a task fails or is parked.
func unclaimedText(limit time.Duration) string {
	return fmt.Sprintf("no worker claimed the task for %s", limit)
}

// tellUnclaimed adds the event that says that there is no worker.
func (s *Store) tellUnclaimed(ctx context.Context, tx *db.Tx, agents []string, w UnclaimedSweep) (int, error) {
	rows, err := dbsqlc.New(tx).UnclaimedTell(ctx, dbsqlc.UnclaimedTellParams{
		Agents: agents, Lanes: allLanes(), Patience: db.PGInterval(w.Patience), Batch: int32(w.Batch),
		Reason: ReasonNoWorker,
	})
	if err != nil {
		return 0, err
	}
	var m webhooks.HeadMoves
	for _, r := range rows {
		s.tell(tx, r.ID.Bytes)
		m.Add(r.ID, r.HasPush, true)
	}
	tx.After(func() { s.counters.enter(a2a.StateWorking, len(rows)) })
	return len(rows), m.Move(ctx, tx)
}

// ForgetOutages removes the outages that no replica has touched for a while, and returns their agents: the agent was
// removed, or the replica that could not reach it has stopped. A replica that still cannot reach such an agent records
// the outage anew.
func (s *Store) ForgetOutages(ctx context.Context, older time.Duration) ([]string, error) {
	agents, err := db.Autocommit(ctx, s.db.Work(), func(tx *db.Tx) ([]string, error) {
		return dbsqlc.New(tx).OutagesForget(ctx, db.PGInterval(older))
	})
	if err != nil {
		return nil, fmt.Errorf("forget outages: %w", db.Unavailable(err))
	}
	return agents, nil
}

func allLanes() []int16 {
	all := make([]int16, lanes)
	for i := range all {
		all[i] = int16(i)
	}
	return all
}
