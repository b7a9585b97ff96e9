package tasks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
	"github.com/a2ad/a2ad/internal/wake"
)

// ReasonUnreachable is the a2ad/reason of a task whose agent cannot be reached. The statements of claims know it.
const ReasonUnreachable = "agent unreachable"

// Postponement says how long a task whose agent could not be reached waits.
type Postponement struct {
	Error    string        // why, for the record of attempts
	MinDelay time.Duration // at least; otherwise as long again as the outage has lasted
	MaxDelay time.Duration // at most, unless MinDelay is longer
	Limit    time.Duration // of the outage
}

// Postpone returns a task whose agent could not be reached to the queue, and does not count the attempt. It returns how
// long the task waits. ok is false, and nothing has changed, if the outage has lasted longer than its limit or if the
// lease is no longer held.
func (s *Store) Postpone(ctx context.Context, l *Lease, p Postponement) (delay time.Duration, ok bool, err error) {
	ms, err := db.Autocommit(ctx, s.db.Work(), func(tx *db.Tx) (int64, error) {
		if l.Counted {
			tx.Wake(wake.Ready(l.Agent)) // it has made room for a run of another task
		}
		return dbsqlc.New(tx).LeasePostpone(ctx, dbsqlc.LeasePostponeParams{
			TaskID: db.PGID(l.TaskID), Epoch: l.Epoch, Error: p.Error, Reason: ReasonUnreachable,
			MinDelay: db.PGInterval(p.MinDelay), MaxDelay: db.PGInterval(p.MaxDelay), MaxOutage: db.PGInterval(p.Limit),
		})
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("postpone: %w", db.UnavailableToRun(err))
	}
	return time.Duration(ms) * time.Millisecond, true, nil
}

// hastenBatch is how many postponed tasks one statement makes due.
const hastenBatch = 1000

// Hasten makes up to limit postponed tasks of an agent due now.
func (s *Store) Hasten(ctx context.Context, agent string, limit int) error {
	for limit > 0 {
		batch := min(limit, hastenBatch)
		n, err := db.Autocommit(ctx, s.db.Work(), func(tx *db.Tx) (int64, error) {
			n, err := dbsqlc.New(tx).QueueHasten(ctx, agent, int32(batch))
			if n > 0 {
				tx.Wake(wake.Ready(agent))
			}
			return n, err
		})
		if err != nil {
			return fmt.Errorf("make postponed tasks due: %w", db.Unavailable(err))
		}
		if int(n) < batch {
			return nil
		}
		limit -= batch
	}
	return nil
}

// BeginOutage records that this replica cannot reach an agent. The first probe is due after wait.
func (s *Store) BeginOutage(ctx context.Context, agent, reason string, wait time.Duration) error {
	err := dbsqlc.New(s.db.Work()).OutageBegin(ctx, dbsqlc.OutageBeginParams{
		Agent: agent, Reason: reason, Replica: s.db.Replica(), Wait: db.PGInterval(wait),
	})
	if err != nil {
		return fmt.Errorf("record an outage: %w", db.Unavailable(err))
	}
	return nil
}

// Probe is the answer to a replica that asks whether it may send a task to an agent that could not be reached.
type Probe struct {
	Over    bool          // another replica has reached the agent
	Granted bool          // it may send one task; no other replica may do so meanwhile
	Wait    time.Duration // otherwise: ask again after that
}

// Probe asks for the right to send an agent one task. The time between two probes, over all replicas, doubles from
// first to most.
func (s *Store) Probe(ctx context.Context, agent string, first, most time.Duration) (Probe, error) {
	row, err := dbsqlc.New(s.db.Work()).OutageProbe(ctx, dbsqlc.OutageProbeParams{
		Agent: agent, Replica: s.db.Replica(), FirstWait: db.PGInterval(first), MaxWait: db.PGInterval(most),
	})
	if err != nil {
		return Probe{}, fmt.Errorf("ask for a probe: %w", db.Unavailable(err))
	}
	wait := min(max(time.Duration(row.WaitMs)*time.Millisecond, 0), most)
	return Probe{Over: !row.Found, Granted: row.Granted, Wait: wait}, nil
}

// EndOutage records that an agent answers again. All replicas are told once that is committed.
func (s *Store) EndOutage(ctx context.Context, agent string) error {
	_, err := db.Autocommit(ctx, s.db.Work(), func(tx *db.Tx) (int64, error) {
		tx.Wake(wake.Reachable(agent))
		return dbsqlc.New(tx).OutageEnd(ctx, agent)
	})
	if err != nil {
		return fmt.Errorf("record the end of an outage: %w", db.Unavailable(err))
	}
	return nil
}

// Outage is an agent that some replica cannot reach.
type Outage struct {
	Agent   string
	Since   time.Time
	Reason  string    // of the newest failure
	Replica string    // that saw it, or that probes now
	Probes  int       // that replicas were allowed since; the newest may be on its way, or have found no task
	Next    time.Time // no replica sends another task before; without remote workers, when they were last missed
}

// Outages lists the agents that some replica cannot reach, by name.
func (s *Store) Outages(ctx context.Context) ([]Outage, error) {
	list, err := ReadOutages(ctx, s.db.Reads())
	if err != nil {
		return nil, fmt.Errorf("read outages: %w", db.Unavailable(err))
	}
	return list, nil
}

// ReadOutages is Outages on a connection of the caller.
func ReadOutages(ctx context.Context, conn db.Conn) ([]Outage, error) {
	rows, err := dbsqlc.New(conn).Outages(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]Outage, len(rows))
	for i, r := range rows {
		list[i] = Outage{
			Agent: r.Agent, Since: db.WireTime(r.Since), Reason: r.Reason, Replica: r.Replica,
			Probes: int(r.Probes), Next: db.WireTime(r.ProbeAt),
		}
	}
	return list, nil
}
