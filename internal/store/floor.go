package store

import (
	"context"
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

// pushFloor is the next_attempt_at below which no webhook was seen that has something to deliver.
type pushFloor struct {
	mu    sync.Mutex
	at    time.Time // guarded by mu
	near  pace      // guarded by mu; of looks from the floor, which move it on
	whole pace      // guarded by mu; of looks from the start
}

// get returns the floor for a claim, behind a look if it is time for one. A floor that cannot be moved is good as it is.
func (f *pushFloor) get(ctx context.Context, s *Store) pgtype.Timestamptz {
	f.mu.Lock()
	defer f.mu.Unlock()
	begin, from, looks := time.Now(), f.at, &f.near
	if f.whole.due(begin) {
		from, looks = time.Time{}, &f.whole
	}
	if !looks.due(begin) {
		return pgFloor(f.at)
	}
	first, err := dbsqlc.New(s.work).PushFirst(ctx, pgFloor(from))
	looks.took(begin, floorsAge, err)
	if err == nil {
		f.at = first.Time.Add(-wideMargin) // there are fewer webhooks than claims
	} else if ctx.Err() == nil {
		s.cfg.Logger.WarnContext(ctx, "look for the first webhook", "err", err)
	}
	return pgFloor(f.at)
}
