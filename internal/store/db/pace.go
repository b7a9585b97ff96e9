package db

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/backoff"
)

// A floor stays a margin behind what was seen, for transactions that commit late. What was
// claimed within the margin each claim walks over while a snapshot is held. Where nothing was seen the disk
// may hang, or so little be going on that a wider margin costs nothing. Rows behind a floor, of those that
// commit later still, are found by a look from the start every floorsAge, and every floorsOld at the least.
const (
	FloorMargin = 250 * time.Millisecond
	WideMargin  = 2 * time.Second
	FloorsAge   = time.Second
	floorsOld   = time.Minute // where looks take long
)

// PGFloor is a floor as an argument.
func PGFloor(floor time.Time) pgtype.Timestamptz {
	if floor.IsZero() {
		return pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
	}
	return pgtype.Timestamptz{Time: floor, Valid: true}
}

// Pace is when to look at a queue next. A look walks over all dead entries behind its floors; one
// from the start over everything claimed since the oldest snapshot: a dump of hours would leave no time to claims.
type Pace struct {
	Next  time.Time // by the local clock
	share backoff.Share
}

// Due reports whether it is time for the next look.
func (p *Pace) Due(now time.Time) bool { return !now.Before(p.Next) }

// Took sets the next look behind one that began then and ends now: at least so long after it. One that failed, but for
// being cut off, has walked over nothing: the database was away, and what it brings back may lie behind the floors.
func (p *Pace) Took(begin time.Time, least time.Duration, err error) {
	now := time.Now()
	took := now.Sub(begin)
	if err != nil && !IsCode(err, "57014") {
		took = 0
	}
	p.Next = now.Add(p.share.Wait(took, least, floorsOld))
}
