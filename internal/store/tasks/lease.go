package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/wake"
)

// Lease is a worker's claim on one task. Epoch fences its writes. LastSeq and Bytes follow
// what the worker appends; they belong to the goroutine that does.
type Lease struct {
	TaskID      a2a.ID
	Agent       string
	Tenant      string
	Owner       string
	Worker      string // empty: this replica
	Epoch       int64
	Attempt     int
	Through     int64         // newest message of the client that this run knows of
	Read        int64         // newest message of the client that an earlier turn has read
	Left        time.Duration // to the deadline of the turn, by the database's clock; 0: none
	Until       time.Time     // when it runs out, unless it is renewed; as of the claim or of Hold
	Checkpoint  a2a.Raw
	Kept        bool // a checkpoint of the task may be stored: its end deletes it
	LastSeq     int64
	Bytes       int64
	HasPush     bool            // the task had webhooks the last time anybody looked
	Counted     bool            // it takes one of the runs that its agent may have at once: its end makes room
	Traceparent a2a.Traceparent // of the client's newest request that had one
}

// Claimer claims tasks of several agents for one worker. It remembers how far it has read
// each queue, so that it need not walk over what it claimed before. It is not safe for
// concurrent use.
type Claimer struct {
	store  *Store
	queues map[string]*position
	looks  db.Pace // of Due, from the start of all queues
}

// position is where a claimer stands in one queue.
type position struct {
	floors floors
	looks  db.Pace
	claims int
}

// NewClaimer returns a Claimer for one worker; a process needs one.
func (s *Store) NewClaimer() *Claimer {
	return &Claimer{store: s, queues: make(map[string]*position)}
}

// Ask is what a worker wants to have.
type Ask struct {
	Agent    string
	Worker   string        // who will do the work; empty: this replica
	Slots    int           // how many tasks to claim at most
	Running  int           // how many runs of the agent there may be at once, over all workers; 0: no limit
	TTL      time.Duration // of the leases
	Deadline time.Duration // in which the turn must end, from its first claim on; 0: none
}

// Claim is ClaimAs for this replica, without a limit of runs.
func (c *Claimer) Claim(ctx context.Context, agent string, slots int, ttl, deadline time.Duration) ([]Lease, error) {
	return c.ClaimAs(ctx, Ask{Agent: agent, Slots: slots, TTL: ttl, Deadline: deadline})
}

// ClaimAs gives a worker tasks of an agent that wait: each owner's first ones before the many
// of another (see lanes), and else the oldest. They are durably the worker's when it returns.
// Where runs are limited and another process is about to claim, there may be fewer than could
// be had.
func (c *Claimer) ClaimAs(ctx context.Context, ask Ask) ([]Lease, error) {
	pos := c.position(ask.Agent)
	if begin := time.Now(); pos.looks.Due(begin) {
		pos.looks.Took(begin, db.FloorsAge, c.look(ctx, ask.Agent, pos))
	}
	p := dbsqlc.TaskClaimParams{
		Queue: ask.Agent, Slots: int32(ask.Slots), Capacity: -1, Deadline: db.PGInterval(ask.Deadline), Worker: cmp.Or(ask.Worker, c.store.db.Replica()), Ttl: db.PGInterval(ask.TTL),
	}
	p.Lanes, p.Floors = pos.order()
	p.Uids = make([]pgtype.UUID, ask.Slots)
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
			TaskID: r.ID.Bytes, Agent: ask.Agent, Tenant: r.Tenant, Owner: r.Owner, Worker: ask.Worker, Epoch: r.LeaseEpoch, Attempt: int(r.Attempt),
			Through: r.LastUserSeq, Read: r.ReadUserSeq, Until: db.WireTime(r.LeaseUntil), Checkpoint: r.Checkpoint, Kept: r.Checkpoint != nil, LastSeq: r.LastSeq, Bytes: r.Bytes,
			HasPush: r.HasPush, Counted: ask.Running > 0,
			Traceparent: a2a.Traceparent(r.Traceparent),
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

// look reads where the lanes of a queue really begin: what committed late lies behind a floor, and a lane that
// others empty leaves its floor behind. If it fails the claim goes by what is known.
func (c *Claimer) look(ctx context.Context, agent string, pos *position) error {
	var start floors
	heads, err := dbsqlc.New(c.store.db.Claims()).LaneHeads(ctx, start.above(agent))
	if err != nil && ctx.Err() == nil {
		c.store.db.Logger().WarnContext(ctx, "look for the start of a queue", "agent", agent, "err", err)
	}
	pos.floors.set(heads, db.WideMargin)
	return err
}

// order returns the lanes in the order in which this claim goes through them, with their floors.
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

// errBusy says that another process does it.
var errBusy = errors.New("another process is at it")

// claimUncounted claims by one statement that commits itself.
func (s *Store) claimUncounted(ctx context.Context, p dbsqlc.TaskClaimParams) ([]dbsqlc.TaskClaimRow, error) {
	return db.Autocommit(ctx, s.db.Claims(), func(tx *db.Tx) ([]dbsqlc.TaskClaimRow, error) { return s.claimIn(ctx, tx, p) })
}

func (s *Store) claimIn(ctx context.Context, tx *db.Tx, p dbsqlc.TaskClaimParams) ([]dbsqlc.TaskClaimRow, error) {
	rows, err := dbsqlc.New(tx).TaskClaim(ctx, p)
	if err != nil {
		return nil, err
	}
	tx.After(func() { s.counters.enter(a2a.StateWorking, len(rows)) })
	for i := range rows {
		s.tell(tx, rows[i].ID.Bytes, claimed(&rows[i]))
	}
	return rows, nil
}

// claimCounted claims where runs are counted: one process at a time, since the count must see
// the leases of the claim before. If another is at it, and stays so for a while, there is
// nothing: the next look finds what is left.
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

// claimedPushes tells webhooks of claims. Unlike other events, that of a claim need not do so
// in its own transaction: should it be lost, the next event of the task covers it, and a
// claimed task always has one more.
func (s *Store) claimedPushes(ctx context.Context, rows []dbsqlc.TaskClaimRow) {
	var m webhooks.HeadMoves
	for _, r := range rows {
		m.Add(r.ID, r.HasPush, true)
	}
	_, err := db.Autocommit(ctx, s.db.Work(), func(tx *db.Tx) (struct{}, error) { return struct{}{}, m.Move(ctx, tx) })
	if err != nil {
		s.db.Logger().WarnContext(ctx, "tell webhooks of a claim", "err", err)
	}
}

// claimed returns the event by which a claim shows in the log.
func claimed(r *dbsqlc.TaskClaimRow) a2a.Entry {
	at := db.WireTime(r.LastAt)
	u := &a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateWorking, Time: at}, Metadata: rawjson.Get(r.Body, "metadata")}
	return a2a.Entry{TaskID: r.ID.Bytes, Seq: r.LastSeq, UID: r.Uid.Bytes, Time: at, Event: u}
}

// Renewal is what came of the renewal of one lease.
type Renewal int

// A lease that is Locked is held, or was a moment ago: another transaction has its row.
const (
	Lost Renewal = iota
	Renewed
	Locked
)

// Renew extends the leases and returns what came of each. It waits for no row: one that another transaction has
// locked does not keep the others from being renewed.
func (s *Store) Renew(ctx context.Context, leases []*Lease, ttl time.Duration) ([]Renewal, error) {
	ids, epochs := columns(leases)
	rows, err := dbsqlc.New(s.db.Renews()).LeaseRenew(ctx, dbsqlc.LeaseRenewParams{TaskIds: ids, Epochs: epochs, Ttl: db.PGInterval(ttl)})
	if err != nil {
		return nil, fmt.Errorf("renew leases: %w", db.Unavailable(err))
	}
	type key struct {
		task  a2a.ID
		epoch int64 // a run and its successor may be of one worker
	}
	found := make(map[key]Renewal, len(rows))
	for _, r := range rows {
		found[key{r.TaskID.Bytes, r.Epoch}] = Locked
		if r.Renewed {
			found[key{r.TaskID.Bytes, r.Epoch}] = Renewed
		}
	}
	out := make([]Renewal, len(leases))
	for i, l := range leases {
		out[i] = found[key{l.TaskID, l.Epoch}]
	}
	return out, nil
}

func columns(leases []*Lease) (ids []pgtype.UUID, epochs []int64) {
	ids, epochs = make([]pgtype.UUID, len(leases)), make([]int64, len(leases))
	for i, l := range leases {
		ids[i], epochs[i] = db.PGID(l.TaskID), l.Epoch
	}
	return ids, epochs
}

// States returns the states of tasks, for a worker that has lost them. One that is gone is not in it.
func (s *Store) States(ctx context.Context, ids []a2a.ID) (map[a2a.ID]a2a.State, error) {
	rows, err := dbsqlc.New(s.db.Work()).TaskStates(ctx, db.PGIDs(ids))
	if err != nil {
		return nil, fmt.Errorf("read states: %w", db.Unavailable(err))
	}
	out := make(map[a2a.ID]a2a.State, len(rows))
	for _, r := range rows {
		out[r.ID.Bytes] = a2a.State(r.State)
	}
	return out, nil
}

// CancelMetadata returns what the client said that canceled a task, or nil.
func (s *Store) CancelMetadata(ctx context.Context, id a2a.ID) (a2a.Raw, error) {
	body, err := dbsqlc.New(s.db.Work()).EventCancel(ctx, db.PGID(id))
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read cancel: %w", db.Unavailable(err))
	}
	return rawjson.Get(body, "metadata"), nil
}

// Retry gives a task back after a failed attempt, to be claimed again after delay. reason is
// for the record and for the client. It returns ErrLeaseLost if the lease is no longer held.
func (s *Store) Retry(ctx context.Context, l *Lease, reason string, delay time.Duration) error {
	n, err := db.Autocommit(ctx, s.db.Work(), func(tx *db.Tx) (int64, error) {
		n, err := dbsqlc.New(tx).LeaseRetry(ctx, dbsqlc.LeaseRetryParams{
			TaskID: db.PGID(l.TaskID), Epoch: l.Epoch, Error: reason, Delay: pgtype.Interval{Microseconds: delay.Microseconds(), Valid: true},
		})
		if n > 0 && (delay <= 0 || l.Counted) {
			tx.Wake(wake.Ready(l.Agent))
		}
		return n, err
	})
	if err != nil {
		return fmt.Errorf("give back: %w", db.UnavailableToRun(err))
	}
	if n == 0 {
		return db.ErrLeaseLost
	}
	return nil
}

// Release gives tasks back at once without counting the attempt. Leases that are no longer
// held are left alone.
func (s *Store) Release(ctx context.Context, leases []*Lease) error {
	ids, epochs := columns(leases)
	_, err := db.Repeat(ctx, s.db, func(int) (none struct{}, err error) {
		return db.Autocommit(ctx, s.db.Work(), func(tx *db.Tx) (none struct{}, err error) {
			agents, err := dbsqlc.New(tx).LeaseRelease(ctx, ids, epochs)
			for _, agent := range agents {
				tx.Wake(wake.Ready(agent))
			}
			return none, err
		})
	})
	if err != nil {
		return fmt.Errorf("release leases: %w", db.UnavailableToRun(err))
	}
	return nil
}

// Policy is what becomes of an agent's tasks whose worker is lost.
type Policy struct {
	Agent       string
	Fate        string // "retry", "fail" or "input-required"
	MaxAttempts int
}

// agentClass is the class of advisory locks of the claims of one agent.
const agentClass = 0x61326177 // "a2aw"

// Rescue takes up to batch tasks from workers that are no longer heard of and returns how
// many there were. Tasks of agents without a policy are tried again, defaultAttempts times. Waits that began in the
// future, because the clock was set back since, it begins anew.
// If another process is at it already it does nothing.
func (s *Store) Rescue(ctx context.Context, policies []Policy, defaultAttempts, batch int) (int, error) {
	p := dbsqlc.LeaseRescueParams{Batch: int32(batch), DefaultAttempts: int32(defaultAttempts), FoldEvents: foldEvents, FoldMostEvents: foldMostEvents, FoldMostBytes: foldMostBytes, Agents: []string{}, Policies: []string{}, MaxAttempts: []int32{}}
	for _, pol := range policies {
		p.Agents, p.Policies, p.MaxAttempts = append(p.Agents, pol.Agent), append(p.Policies, pol.Fate), append(p.MaxAttempts, int32(pol.MaxAttempts))
	}
	out, err := db.InTx(ctx, s.db.Work(), func(tx *db.Tx) (rescued, error) { return s.rescueIn(ctx, tx, p, batch) })
	if err != nil {
		return 0, fmt.Errorf("rescue tasks: %w", db.Unavailable(err))
	}
	return out.tasks, s.anchorRest(ctx, out.waits, batch)
}

// rescued is what the transaction of a rescue has made.
type rescued struct {
	tasks int
	waits int // that WaitsAnchor has made due
}

func (s *Store) rescueIn(ctx context.Context, tx *db.Tx, p dbsqlc.LeaseRescueParams, batch int) (out rescued, err error) {
	q := dbsqlc.New(tx)
	free, err := tx.TryChore(ctx, db.ChoreRescue)
	if err != nil || !free {
		return out, err
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
	var ended, fold []pgtype.UUID
	var m webhooks.HeadMoves
	for _, r := range rows {
		tx.After(func() { s.counters.rescue(r.Fate) })
		tx.Wake(wake.Ready(r.Agent)) // it waits again, or has made room
		if r.Fate != "retry" {
			s.tell(tx, r.ID.Bytes)
		}
		if r.Fate == "fail" {
			ended = append(ended, r.ID)
		}
		if r.Folded {
			fold = append(fold, r.ID)
		}
		m.Add(r.ID, r.HasPush && r.Fate != "retry", true)
	}
	if len(ended) > 0 {
		if err := q.CheckpointsDelete(ctx, ended); err != nil {
			return out, err
		}
	}
	if len(fold) > 0 {
		if err := q.ArtifactFold(ctx, fold); err != nil {
			return out, err
		}
	}
	return rescued{tasks: len(rows), waits: len(anchored)}, m.Move(ctx, tx)
}
