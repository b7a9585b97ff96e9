package tasks

import (
	"context"
	"fmt"
	"time"

	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
	"github.com/a2ad/a2ad/internal/wake"
)

// Policy decides about an agent's tasks whose worker is lost.
type Policy struct {
	Agent       string
	Fate        string // "retry", "fail" or "input-required"
	MaxAttempts int
	Parks       bool          // a task without attempts is parked, and does not fail
	ParkFor     time.Duration // after that, a parked task fails; 0: never
}

// Rescue ends at most batch expired leases and returns how many. The policy others is for tasks of agents that have
// none. It also begins waits again that began in the future, because the clock was set back since. If another process
// is doing this, it does nothing.
func (s *Store) Rescue(ctx context.Context, policies []Policy, others Policy, batch int) (int, error) {
	return s.RescueGone(ctx, nil, policies, others, batch)
}

// RescueGone is Rescue also for leases of servers that are gone. nil looks for none.
func (s *Store) RescueGone(
	ctx context.Context, sessions *Sessions, policies []Policy, others Policy, batch int,
) (int, error) {
	p := dbsqlc.LeaseRescueParams{
		Batch: int32(batch), DefaultAttempts: int32(others.MaxAttempts), DefaultParks: others.Parks,
		DefaultParkFor: others.ParkFor.Milliseconds(), FoldEvents: foldEvents,
		FoldMostEvents: foldMostEvents, FoldMostBytes: foldMostBytes, Agents: []string{}, Policies: []string{},
		MaxAttempts: []int32{}, Parks: []bool{}, ParkFors: []int64{},
	}
	for _, pol := range policies {
		p.Agents, p.Policies = append(p.Agents, pol.Agent), append(p.Policies, pol.Fate)
		p.MaxAttempts, p.Parks = append(p.MaxAttempts, int32(pol.MaxAttempts)), append(p.Parks, pol.Parks)
		p.ParkFors = append(p.ParkFors, pol.ParkFor.Milliseconds())
	}
	out, err := db.InTx(ctx, s.db.Work(), func(tx *db.Tx) (rescued, error) {
		return s.rescueIn(ctx, tx, sessions, p, batch)
	})
	if err != nil {
		return 0, fmt.Errorf("rescue tasks: %w", db.Unavailable(err))
	}
	return out.tasks, s.anchorRest(ctx, out.waits, batch)
}

// rescued is what the transaction of a rescue has changed.
type rescued struct {
	tasks int
	waits int // that WaitsAnchor has moved
}

func (s *Store) rescueIn(
	ctx context.Context, tx *db.Tx, sessions *Sessions, p dbsqlc.LeaseRescueParams, batch int,
) (out rescued, err error) {
	q := dbsqlc.New(tx)
	free, err := tx.TryChore(ctx, db.ChoreRescue)
	if err != nil || !free {
		return out, err
	}
	if sessions != nil {
		if p.Gone, err = sessions.look(ctx, tx, s.db); err != nil {
			return out, err
		}
	}
	anchored, err := q.WaitsAnchor(ctx, int32(batch))
	if err != nil {
		return out, err
	}
	wakeAnchored(tx, anchored)
	rows, err := q.LeaseRescue(ctx, p)
	if err != nil {
		return out, err
	}
	var e endings
	for _, r := range rows {
		tx.After(func() { s.counters.rescue(r.Fate) })
		tx.Wake(wake.Ready(r.Agent)) // the task waits again, or its end lets another run begin
		if r.Fate != "retry" {
			s.tell(tx, r.ID.Bytes)
		}
		if r.Fate == "fail" {
			e.add(r.ID, r.Folded, r.HasPush)
			continue
		}
		e.heads.Add(r.ID, r.HasPush && r.Fate != "retry", true)
	}
	return rescued{tasks: len(rows), waits: len(anchored)}, s.finishEndings(ctx, tx, &e)
}
