package store

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/store/dbsqlc"
)

// floors are the run_at, by the database's clock, below which no live row of each lane of a queue
// was seen; zero: all have to be looked at. A reader that begins there does not walk over
// the index entries of what was claimed before, which stay as long as somebody holds a snapshot.
type floors [lanes]time.Time

// A floor stays floorMargin behind what was seen, for transactions that commit late. What was
// claimed within the margin each claim walks over while a snapshot is held. Rows behind a floor,
// of those that commit later still, are found by a look from the start every floorsAge.
const (
	floorMargin = 250 * time.Millisecond
	floorsAge   = time.Second
)

// of returns the floor of a lane as an argument.
func (f *floors) of(lane int) pgtype.Timestamptz {
	if f[lane].IsZero() {
		return pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
	}
	return pgtype.Timestamptz{Time: f[lane], Valid: true}
}

// above asks for the first row of each lane above its floor.
func (f *floors) above(queue string) dbsqlc.LaneHeadsParams {
	p := dbsqlc.LaneHeadsParams{Queue: queue}
	for lane := range f {
		p.Lanes, p.Floors = append(p.Lanes, int16(lane)), append(p.Floors, f.of(lane))
	}
	return p
}

// set puts the floors where a look has found the first rows, ahead or back.
func (f *floors) set(heads []dbsqlc.LaneHeadsRow) {
	for _, h := range heads {
		f[h.Lane] = h.Head.Time.Add(-floorMargin)
	}
}

// claimed raises the floor of a lane of which a claim has taken this row first.
func (f *floors) claimed(lane int16, runAt time.Time) {
	if at := runAt.Add(-floorMargin); at.After(f[lane]) {
		f[lane] = at
	}
}

// pace is when to look at a queue next. A look walks over all dead entries behind its floors; one
// from the start over everything claimed since the oldest snapshot. Looks take a twentieth of the
// time at most, also if each is cut off, or a dump of hours would leave none to claims.
type pace struct {
	next time.Time // by the local clock
	last time.Duration
}

const lookShare = 20

func (p *pace) due(now time.Time) bool { return !now.Before(p.next) }

// took sets the next look behind one that began then and ends now: at least so long after it. One that is slow by
// itself may have waited for the disk: it counts as the one before it.
func (p *pace) took(begin time.Time, least time.Duration) {
	now := time.Now()
	p.set(now, now.Sub(begin), least)
}

func (p *pace) set(end time.Time, took, least time.Duration) {
	p.next = end.Add(max(least, lookShare*min(took, p.last)))
	p.last = took
}
