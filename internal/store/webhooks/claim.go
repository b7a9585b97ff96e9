package webhooks

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/webhooks/dbsqlc"
)

// How much a claim of webhooks reads, however much waits.
const (
	pushFront   = 64   // webhooks that are ready, the oldest of all tenants
	pushEach    = 8    // the oldest of one tenant, or of one list
	pushLists   = 16   // lists of destinations
	pushTenants = 64   // tenants, if more than pushFront webhooks are ready
	pushKnown   = 4096 // tenants that one poll reads
	pushParks   = 1000 // webhooks to park at once
	pushRounds  = 64   // rounds that claim nothing, but park or take turns
)

// originClass is the class of advisory locks of the claims for one origin.
const originClass = 0x61326170 // "a2ap"

// Claim claims at most limit due webhooks for the time of lease, at most perOrigin at once for one destination over all
// processes. It may leave some that are due: call it until it returns none. Claims for different origins do not wait
// for each other.
func (s *Store) Claim(ctx context.Context, limit, perOrigin int, lease time.Duration) ([]Delivery, error) {
	return s.ClaimWithin(ctx, limit, func(string) int { return perOrigin }, lease)
}

// ClaimWithin is Claim with a limit for each origin, which may differ from that of another process: then a claim counts
// what both have claimed, and claims up to its own limit. room is called often and must not block.
func (s *Store) ClaimWithin(
	ctx context.Context, limit int, room func(origin string) int, lease time.Duration,
) ([]Delivery, error) {
	c := claimer{s: s, limit: limit, room: room, lease: lease}
	for range pushRounds {
		c.taken, c.moved = "", false
		out, err := c.round(ctx)
		if err != nil {
			return nil, fmt.Errorf("claim webhooks: %w", db.Unavailable(err))
		}
		switch {
		case len(out) > 0:
			return out, nil
		case c.moved:
			c.wait = ""
		case c.taken != "" && c.wait == "":
			c.wait = c.taken // another claim had locked it, and may not have filled it
		default:
			return nil, nil
		}
	}
	return nil, nil
}

// claimer is one call of Claim.
type claimer struct {
	s     *Store
	limit int
	room  func(origin string) int
	lease time.Duration

	floor pgtype.Timestamptz
	wait  string // origin to wait for; empty: none

	// Of the newest round.
	taken string // an origin that another claim had locked
	moved bool   // the next round reads other webhooks
}

// round reads the oldest webhooks, parks those of destinations that can take nothing, and claims as many of the others
// as it may.
func (c *claimer) round(ctx context.Context) ([]Delivery, error) {
	poll, err := c.s.pushes.poll(ctx, c.s)
	if err != nil {
		return nil, err
	}
	if poll.empty && len(poll.lists) == 0 {
		c.s.turns.set(false)
		return nil, nil
	}
	c.floor = poll.floor
	front := dbsqlc.PushFrontParams{
		Floor: c.floor, Most: pushFront, Each: pushEach, Tenants: c.s.turns.turn(ctx, c.s),
		ListTenants: []string{}, ListOrigins: []string{},
	}
	for _, l := range poll.lists {
		if !l.Blocked {
			front.ListTenants = append(front.ListTenants, l.Tenant)
			front.ListOrigins = append(front.ListOrigins, l.Origin)
			front.Each = max(front.Each, int32(c.room(l.Origin)))
		}
	}
	rows, err := dbsqlc.New(c.s.db.Work()).PushFront(ctx, front)
	if err != nil {
		return nil, err
	}
	if err := c.tend(ctx, poll.lists, rows); err != nil {
		return nil, err
	}
	ready := 0
	var open, blocked []dbsqlc.PushFrontRow
	for _, r := range rows {
		if r.Part == 1 {
			ready++
		}
		if r.Blocked {
			blocked = append(blocked, r)
		} else {
			open = append(open, r)
		}
	}
	crowded := ready == pushFront
	c.s.turns.set(crowded)
	if err := c.park(ctx, blocked); err != nil || len(open) == 0 {
		return nil, err
	}
	out, full, err := c.claim(ctx, open)
	if err != nil || !crowded || len(out) >= c.limit {
		return out, err
	}
	if err := c.park(ctx, full); err != nil {
		c.s.db.Logger().WarnContext(ctx, "park webhooks", "err", err) // the claim itself is committed
	}
	return out, nil
}

// pushClaimed is the result of the transaction of a claim.
type pushClaimed struct {
	rows  []Delivery
	mine  map[string]bool // origins that it had locked
	taken string          // the last origin that another process had locked
}

// claim claims as many webhooks as it may. It returns as full the rest of those whose origins it has filled.
func (c *claimer) claim(
	ctx context.Context, open []dbsqlc.PushFrontRow,
) (out []Delivery, full []dbsqlc.PushFrontRow, err error) {
	var origins []string
	for _, r := range open {
		origins = append(origins, r.Origin)
	}
	slices.Sort(origins)
	origins = slices.Compact(origins)
	claimed, err := db.InTx(ctx, c.s.db.Work(), func(tx *db.Tx) (out pushClaimed, err error) {
		q := dbsqlc.New(tx)
		if c.wait != "" {
			if err := q.PushOriginWait(ctx, originClass, c.wait); err != nil {
				return out, err
			}
		}
		tried, err := q.PushOriginsTry(ctx, originClass, origins)
		if err != nil {
			return out, err
		}
		out.mine = make(map[string]bool, len(origins))
		p := dbsqlc.PushClaimParams{Max: int32(c.limit), Lease: db.PGInterval(c.lease)}
		for _, t := range tried {
			if out.mine[t.Origin] = t.Mine; t.Mine {
				p.Origins, p.Caps = append(p.Origins, t.Origin), append(p.Caps, int64(c.room(t.Origin)))
			} else {
				out.taken = t.Origin
			}
		}
		for _, r := range open {
			if out.mine[r.Origin] {
				p.Ids = append(p.Ids, r.ID)
			}
		}
		if len(p.Ids) == 0 {
			return out, nil
		}
		out.rows, err = claimThese(ctx, tx, p)
		return out, err
	})
	if err != nil {
		return nil, nil, err
	}
	if claimed.taken != "" {
		c.taken = claimed.taken
	}
	has := make(map[a2a.ID]bool, len(claimed.rows))
	for i := range claimed.rows {
		has[claimed.rows[i].Row] = true
	}
	for _, r := range open {
		if r.Part < 3 && claimed.mine[r.Origin] && !has[r.ID.Bytes] {
			full = append(full, r)
		}
	}
	return claimed.rows, full, nil
}

// claimThese claims webhooks and chooses what each delivers.
func claimThese(ctx context.Context, tx *db.Tx, p dbsqlc.PushClaimParams) ([]Delivery, error) {
	q := dbsqlc.New(tx)
	rows, err := q.PushClaim(ctx, p)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	var ids []pgtype.UUID
	at := make(map[a2a.ID]int)
	out := make([]Delivery, len(rows))
	for i, r := range rows {
		out[i] = Delivery{
			Row: r.ID.Bytes, Task: r.TaskID.Bytes, ConfigID: r.ConfigID, Tenant: r.Tenant, Owner: r.Owner,
			Agent: r.Agent, URL: r.Url, Origin: r.Origin,
			Schemes: r.Schemes, Token: r.Token, Credentials: r.Credentials, Query: r.Query, Version: r.WireVersion,
			Cursor: r.CursorSeq,
			Seq:    r.TargetSeq, Attempt: int(r.Attempt), Epoch: r.LeaseEpoch, Manual: r.Manual,
			Traceparent: a2a.Traceparent(r.Traceparent),
		}
		if r.TargetSeq == 0 {
			ids, at[r.ID.Bytes] = append(ids, r.ID), i
		}
	}
	if len(ids) == 0 {
		return out, nil
	}
	targets, err := q.PushTarget(ctx, ids)
	if err != nil {
		return nil, err
	}
	for _, t := range targets {
		out[at[t.ID.Bytes]].Seq = t.TargetSeq
	}
	return out, nil
}

// park puts webhooks into the lists of their destinations, with other ready webhooks of the same destinations. While it
// waits for the lock of a list, it holds only locks of lists, which are locked in one order.
func (c *claimer) park(ctx context.Context, rows []dbsqlc.PushFrontRow) error {
	if len(rows) == 0 {
		return nil
	}
	p := dbsqlc.PushParkParams{Floor: c.floor, Most: pushParks}
	seen := map[[2]string]bool{}
	for _, r := range rows {
		p.Ids = append(p.Ids, r.ID)
		if at := [2]string{r.Tenant, r.Origin}; !seen[at] {
			seen[at] = true
			p.Tenants, p.Origins = append(p.Tenants, r.Tenant), append(p.Origins, r.Origin)
		}
	}
	parked, err := db.InTx(ctx, c.s.db.Work(), func(tx *db.Tx) (int64, error) {
		q := dbsqlc.New(tx)
		if err := q.PushListAdd(ctx, p.Tenants, p.Origins); err != nil {
			return 0, err
		}
		return q.PushPark(ctx, p)
	})
	if err != nil {
		return fmt.Errorf("park webhooks: %w", err)
	}
	c.moved = c.moved || parked > 0
	return nil
}

// tend delays the next poll of lists whose destinations can take nothing, and of all lists if others wait for their
// turn. It removes empty lists.
func (c *claimer) tend(ctx context.Context, lists []dbsqlc.PushPollRow, rows []dbsqlc.PushFrontRow) error {
	turns := len(lists) == pushLists
	filled := map[[2]string]bool{}
	for _, r := range rows {
		if r.Part == 3 {
			filled[[2]string{r.Tenant, r.Origin}] = true
		}
	}
	var later dbsqlc.PushListsWaitParams
	for _, l := range lists {
		if !l.Blocked && !filled[[2]string{l.Tenant, l.Origin}] {
			if err := c.drop(ctx, l.Tenant, l.Origin); err != nil {
				return err
			}
		} else if l.Blocked || turns {
			later.Tenants, later.Origins = append(later.Tenants, l.Tenant), append(later.Origins, l.Origin)
			later.LookAts = append(later.LookAts, l.At)
		}
	}
	c.moved = c.moved || turns
	if len(later.Tenants) == 0 {
		return nil
	}
	return dbsqlc.New(c.s.db.Work()).PushListsWait(ctx, later)
}

func (c *claimer) drop(ctx context.Context, tenant, origin string) error {
	return db.DoInTx(ctx, c.s.db.Work(), func(tx *db.Tx) error {
		q := dbsqlc.New(tx)
		n, err := q.PushListLock(ctx, tenant, origin)
		if err != nil || n == 0 {
			return err
		}
		_, err = q.PushListDrop(ctx, tenant, origin)
		return err
	})
}

// tenantTurns has the tenants that take turns while more webhooks are ready than one claim reads. Without turns, the
// oldest could all belong to one tenant.
type tenantTurns struct {
	mu      sync.Mutex
	crowded bool     // guarded by mu
	tenants []string // guarded by mu; with ready webhooks, as of the last poll
	at      int      // guarded by mu; whose turn it is
	after   string   // guarded by mu; where the next poll begins
	look    db.Polls // guarded by mu
}

func (t *tenantTurns) set(crowded bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.crowded = crowded
}

// turn returns the tenants whose turn it is; none while few webhooks are ready.
func (t *tenantTurns) turn(ctx context.Context, s *Store) []string {
	t.mu.Lock()
	begin, look, after := time.Now(), t.crowded, t.after
	if look = look && t.look.Due(begin); look {
		t.look.Next = begin.Add(db.FloorsAge) // only one caller polls
	}
	t.mu.Unlock()
	if look {
		found, err := dbsqlc.New(s.db.Work()).PushTenants(ctx, pushKnown, after)
		if err != nil && ctx.Err() == nil {
			s.db.Logger().WarnContext(ctx, "look for tenants with webhooks", "err", err)
		}
		t.polled(begin, found, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.crowded {
		return []string{}
	}
	out := []string{}
	for range min(pushTenants, len(t.tenants)) {
		out = append(out, t.tenants[t.at%len(t.tenants)])
		t.at++
	}
	return out
}

func (t *tenantTurns) polled(begin time.Time, found []string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.look.Polled(begin, db.FloorsAge, err)
	if err != nil {
		return
	}
	t.tenants, t.after = found, ""
	if len(found) == pushKnown {
		t.after = found[len(found)-1]
	}
}
