package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/backoff"
	"github.com/a2ad/a2ad/internal/store/dbsqlc"
)

// floors are the run_at, by the database's clock, below which no live row of each lane of a queue
// was seen; zero: all have to be looked at. A reader that begins there does not walk over
// the index entries of what was claimed before, which stay as long as somebody holds a snapshot.
type floors [lanes]time.Time

// A floor stays a margin behind what was seen, for transactions that commit late. What was
// claimed within the margin each claim walks over while a snapshot is held. Where nothing was seen the disk
// may hang, or so little be going on that a wider margin costs nothing. Rows behind a floor, of those that
// commit later still, are found by a look from the start every floorsAge, and every floorsOld at the least.
const (
	floorMargin = 250 * time.Millisecond
	wideMargin  = 2 * time.Second
	floorsAge   = time.Second
	floorsOld   = time.Minute // where looks take long
)

// of returns the floor of a lane as an argument.
func (f *floors) of(lane int) pgtype.Timestamptz { return pgFloor(f[lane]) }

func pgFloor(floor time.Time) pgtype.Timestamptz {
	if floor.IsZero() {
		return pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
	}
	return pgtype.Timestamptz{Time: floor, Valid: true}
}

// above asks for the first row of each lane above its floor.
func (f *floors) above(queue string) dbsqlc.LaneHeadsParams {
	p := dbsqlc.LaneHeadsParams{Queue: queue}
	for lane := range f {
		p.Lanes, p.Floors = append(p.Lanes, int16(lane)), append(p.Floors, f.of(lane))
	}
	return p
}

// set puts the floors where a look has found the first rows, ahead or back; where it has found none so
// far behind the time of the look.
func (f *floors) set(heads []dbsqlc.LaneHeadsRow, empty time.Duration) {
	for _, h := range heads {
		margin := floorMargin
		if h.Empty {
			margin = empty
		}
		f[h.Lane] = h.Head.Time.Add(-margin)
	}
}

// claimed raises the floor of a lane of which a claim has taken this row first.
func (f *floors) claimed(lane int16, runAt time.Time) {
	if at := runAt.Add(-floorMargin); at.After(f[lane]) {
		f[lane] = at
	}
}

// pace is when to look at a queue next. A look walks over all dead entries behind its floors; one
// from the start over everything claimed since the oldest snapshot: a dump of hours would leave no time to claims.
type pace struct {
	next  time.Time // by the local clock
	share backoff.Share
}

func (p *pace) due(now time.Time) bool { return !now.Before(p.next) }

// took sets the next look behind one that began then and ends now: at least so long after it. One that failed, but for
// being cut off, has walked over nothing: the database was away, and what it brings back may lie behind the floors.
func (p *pace) took(begin time.Time, least time.Duration, err error) {
	now := time.Now()
	took := now.Sub(begin)
	if err != nil && !isCode(err, "57014") {
		took = 0
	}
	p.next = now.Add(p.share.Wait(took, least, floorsOld))
}

// pushFloor is the next_attempt_at below which no webhook was seen that has something to deliver. Every claim moves it on.
type pushFloor struct {
	mu      sync.Mutex
	at      time.Time // guarded by mu
	whole   pace      // guarded by mu; of polls from the start
	looking bool      // guarded by mu; a claim polls from the start: the others begin at the floor as it is
}

// pushPoll is what a claim of webhooks begins with.
type pushPoll struct {
	floor pgtype.Timestamptz
	empty bool // no webhook is due that is not parked
	lists []dbsqlc.PushPollRow
}

// poll reads it, from the floor, or from the start if it is time for that. If that cannot be done the floor is good as it is. No
// statement runs under the mutex: one that gets no answer would keep every claim waiting.
func (f *pushFloor) poll(ctx context.Context, s *Store) (pushPoll, error) {
	if begin := time.Now(); f.begin(begin) {
		out, err := f.pollFrom(ctx, s, time.Time{}, &begin)
		if err == nil || ctx.Err() != nil {
			return out, err
		}
		s.cfg.Logger.WarnContext(ctx, "look for the first webhook", "err", err)
	}
	f.mu.Lock()
	at := f.at
	f.mu.Unlock()
	return f.pollFrom(ctx, s, at, nil)
}

// pollFrom reads from a floor, and puts the floor where the first webhook is. whole is when a poll from the start began.
func (f *pushFloor) pollFrom(ctx context.Context, s *Store, from time.Time, whole *time.Time) (out pushPoll, err error) {
	err = errors.New("the poll did not end")
	var at time.Time
	defer func() { f.ended(at, whole, err) }()
	rows, err := dbsqlc.New(s.work).PushPoll(ctx, pgFloor(from), pushLists)
	if err != nil {
		return out, err
	}
	for _, r := range rows {
		if r.Part == 0 {
			at, out.empty = r.At.Time.Add(-wideMargin), r.Empty // there are fewer webhooks than claims
		} else {
			out.lists = append(out.lists, r)
		}
	}
	out.floor = pgFloor(at)
	return out, nil
}

// begin reports whether it is time for a poll from the start. The caller then makes it and calls ended.
func (f *pushFloor) begin(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	whole := !f.looking && f.whole.due(now)
	f.looking = f.looking || whole
	return whole
}

func (f *pushFloor) ended(at time.Time, whole *time.Time, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if whole != nil {
		f.looking = false
		f.whole.took(*whole, floorsAge, err)
	}
	if err == nil {
		f.at = at
	}
}
