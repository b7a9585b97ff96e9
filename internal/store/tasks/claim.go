package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// Claimer claims tasks of several agents for one worker. It remembers how far it has read each queue, so that it does
// not walk over the dead index entries of earlier claims. It is not safe for concurrent use.
type Claimer struct {
	store  *Store
	queues map[string]*position
	polls  db.Polls // of Due, from the start of all queues
}

// position is how far a claimer has read one queue.
type position struct {
	floors floors
	polls  db.Polls
	claims int
}

// NewClaimer returns a Claimer for one worker; a process needs one.
func (s *Store) NewClaimer() *Claimer {
	return &Claimer{store: s, queues: make(map[string]*position)}
}

// ClaimRequest says what a worker asks for.
type ClaimRequest struct {
	Agent    string
	Worker   string        // the worker that runs the tasks; empty: this replica
	Slots    int           // how many tasks to claim at most
	Others   []WorkerSlots // that claim after Worker, with the same statement; only if Worker is set
	Running  int           // how many runs of the agent all workers may have at once; 0: no limit
	TTL      time.Duration // of the leases
	Deadline time.Duration // in which the turn must end, from its first claim on; 0: none
}

// WorkerSlots is a remote worker, and how many tasks to claim for it at most.
type WorkerSlots struct {
	Worker string
	Slots  int
}

// slots returns the worker of each slot.
func (r *ClaimRequest) slots(replica string) []string {
	n := r.Slots
	for _, o := range r.Others {
		n += o.Slots
	}
	workers := make([]string, 0, n)
	for range r.Slots {
		workers = append(workers, cmp.Or(r.Worker, replica))
	}
	for _, o := range r.Others {
		for range o.Slots {
			workers = append(workers, o.Worker)
		}
	}
	return workers
}

// Claim is ClaimFor for this replica, without a limit of runs.
func (c *Claimer) Claim(ctx context.Context, agent string, slots int, ttl, deadline time.Duration) ([]Lease, error) {
	return c.ClaimFor(ctx, ClaimRequest{Agent: agent, Slots: slots, TTL: ttl, Deadline: deadline})
}

// ClaimFor claims waiting tasks of an agent for one worker or several, the oldest first within a lane (see lanes). The
// leases are durable when it returns. If there are fewer tasks than slots, the workers that are named first get them.
// If runs are limited and another process is claiming, it may return fewer tasks than are waiting.
func (c *Claimer) ClaimFor(ctx context.Context, ask ClaimRequest) ([]Lease, error) {
	pos := c.position(ask.Agent)
	if begin := time.Now(); pos.polls.Due(begin) {
		pos.polls.Polled(begin, db.FloorsAge, c.pollLanes(ctx, ask.Agent, pos))
	}
	p := dbsqlc.TaskClaimParams{
		Queue: ask.Agent, Workers: ask.slots(c.store.db.Replica()), Capacity: -1,
		Deadline: db.PGInterval(ask.Deadline), Ttl: db.PGInterval(ask.TTL),
	}
	if ask.Worker == "" { // a remote worker may live on when this process has ended
		p.Holder = c.store.db.Holder()
	}
	p.Lanes, p.Floors = pos.order()
	p.Uids = make([]pgtype.UUID, len(p.Workers))
	for i := range p.Uids {
		p.Uids[i] = db.PGID(db.NewUID())
	}
	claim := c.store.claimUncounted
	if ask.Running > 0 {
		p.Capacity = int32(ask.Running)
		claim = c.store.claimCounted
	}
	rows, err := claim(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("claim tasks: %w", db.UnavailableToRun(err))
	}
	leases := make([]Lease, len(rows))
	var seen [lanes]bool
	for i, r := range rows {
		leases[i] = Lease{
			TaskID: r.ID.Bytes, Agent: ask.Agent, Tenant: r.Tenant, Owner: r.Owner,
			Epoch: r.LeaseEpoch, Attempt: int(r.Attempt),
			Through: r.LastUserSeq, Read: r.ReadUserSeq, Until: db.WireTime(r.LeaseUntil), Checkpoint: r.Checkpoint,
			Kept: r.Checkpoint != nil, LastSeq: r.LastSeq, Bytes: r.Bytes,
			Steps: int(r.Steps), StepBytes: r.StepBytes, Depth: int(r.Depth),
			HasPush: r.HasPush, Counted: ask.Running > 0,
			Traceparent: a2a.Traceparent(r.Traceparent),
		}
		if ask.Worker != "" {
			leases[i].Worker = r.Worker
		}
		if ask.Deadline > 0 {
			leases[i].Left = max(time.Duration(r.DeadlineInMs)*time.Millisecond, 1)
		}
		if lane := r.Lane; !seen[lane] { // the oldest of its lane
			seen[lane] = true
			pos.floors.claimed(lane, r.RunAt.Time)
		}
	}
	c.store.claimedPushes(ctx, rows)
	return leases, nil
}

// pollLanes reads where the lanes of a queue begin. The floors may be wrong: rows that were committed late are older
// than a floor, and a floor falls back while other processes empty its lane. If the read fails, the claim uses the
// floors that it has.
func (c *Claimer) pollLanes(ctx context.Context, agent string, pos *position) error {
	var start floors
	heads, err := dbsqlc.New(c.store.db.Claims()).LaneHeads(ctx, start.above(agent))
	if err != nil && ctx.Err() == nil {
		c.store.db.Logger().WarnContext(ctx, "look for the start of a queue", "agent", agent, "err", err)
	}
	pos.floors.set(heads, db.WideMargin)
	return err
}

// order returns the lanes in the order in which this claim reads them, with their floors.
func (p *position) order() (order []int16, floors []pgtype.Timestamptz) {
	p.claims++
	order, floors = make([]int16, lanes), make([]pgtype.Timestamptz, lanes)
	for i := range order {
		order[i] = int16(i)
	}
	if p.claims%turnEvery == 0 { // lanes 3, 2 and 1 in turn go first
		first := lanes - 1 - p.claims/turnEvery%(lanes-1)
		copy(order[1:], order[:first])
		order[0] = int16(first)
	}
	for i, lane := range order {
		floors[i] = p.floors.of(int(lane))
	}
	return order, floors
}

// errBusy says that another process has the lock of the agent.
var errBusy = errors.New("another process is at it")

// claimUncounted claims with one statement that commits itself.
func (s *Store) claimUncounted(ctx context.Context, p dbsqlc.TaskClaimParams) ([]dbsqlc.TaskClaimRow, error) {
	return db.Autocommit(ctx, s.db.Claims(), func(tx *db.Tx) ([]dbsqlc.TaskClaimRow, error) {
		return s.claimIn(ctx, tx, p)
	})
}

func (s *Store) claimIn(ctx context.Context, tx *db.Tx, p dbsqlc.TaskClaimParams) ([]dbsqlc.TaskClaimRow, error) {
	rows, err := dbsqlc.New(tx).TaskClaim(ctx, p)
	if err != nil {
		return nil, err
	}
	tx.After(func() { s.counters.enter(a2a.StateWorking, len(rows)) })
	for i := range rows {
		if !rows[i].Quiet { // otherwise it wrote no event
			s.tell(tx, rows[i].ID.Bytes, claimed(&rows[i]))
		}
	}
	return rows, nil
}

// agentClass is the class of advisory locks of the claims of one agent.
const agentClass = 0x61326177 // "a2aw"

// claimCounted claims for an agent with a limit of runs. Only one process claims at a time, because the count must see
// the leases of the previous claim. If another process keeps the lock, it claims nothing: the next poll finds the
// tasks.
func (s *Store) claimCounted(ctx context.Context, p dbsqlc.TaskClaimParams) ([]dbsqlc.TaskClaimRow, error) {
	const tries = 20
	wait := time.NewTicker(2 * time.Millisecond)
	defer wait.Stop()
	for range tries {
		rows, err := db.InTx(ctx, s.db.Claims(), func(tx *db.Tx) ([]dbsqlc.TaskClaimRow, error) {
			q := dbsqlc.New(tx)
			free, err := q.AgentLock(ctx, agentClass, p.Queue)
			if err == nil && !free {
				err = errBusy
			}
			if err != nil {
				return nil, err
			}
			return s.claimIn(ctx, tx, p)
		})
		if !errors.Is(err, errBusy) {
			return rows, err
		}
		select {
		case <-wait.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return nil, nil
}

// claimedPushes moves the heads of webhooks after claims. Unlike other events, the event of a claim need not do this in
// its own transaction: if it is lost, the next event moves the head, and a claimed task always has a next event.
func (s *Store) claimedPushes(ctx context.Context, rows []dbsqlc.TaskClaimRow) {
	var m webhooks.HeadMoves
	for _, r := range rows {
		m.Add(r.ID, r.HasPush && !r.Quiet, true)
	}
	_, err := db.Autocommit(ctx, s.db.Work(), func(tx *db.Tx) (struct{}, error) { return struct{}{}, m.Move(ctx, tx) })
	if err != nil {
		s.db.Logger().WarnContext(ctx, "tell webhooks of a claim", "err", err)
	}
}

// claimed returns the event that a claim writes into the log.
func claimed(r *dbsqlc.TaskClaimRow) a2a.Entry {
	at := db.WireTime(r.LastAt)
	u := &a2a.StatusUpdate{
		Status: a2a.Status{State: a2a.StateWorking, Time: at}, Metadata: rawjson.Get(r.Body, "metadata"),
	}
	return a2a.Entry{TaskID: r.ID.Bytes, Seq: r.LastSeq, UID: r.Uid.Bytes, Time: at, Event: u}
}
