package db

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/backoff"
)

// A floor is older than what was seen by a margin, for transactions that commit late. While a snapshot is held, each
// claim walks over what was claimed within the margin. Where nothing was seen, the disk may hang, or so little happens
// that a wider margin costs nothing. Rows that commit even later are older than the floor. A poll from the start finds
// them every floorsAge, and at least every floorsOld.
const (
	FloorMargin = 250 * time.Millisecond
	WideMargin  = 2 * time.Second
	FloorsAge   = time.Second
	floorsOld   = time.Minute // while polls take long
)

// PGFloor is a floor as an argument.
func PGFloor(floor time.Time) pgtype.Timestamptz {
	if floor.IsZero() {
		return pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
	}
	return pgtype.Timestamptz{Time: floor, Valid: true}
}

// Polls says when to poll a queue from its start. Such a poll walks over everything that was claimed since the oldest
// snapshot, and during a dump of hours it would leave no time for claims. A poll from the floors walks only over dead
// entries after them.
type Polls struct {
	Next  time.Time // by the local clock
	share backoff.Share
}

// Due reports whether it is time for the next poll.
func (p *Polls) Due(now time.Time) bool { return !now.Before(p.Next) }

// Polled sets the time of the next poll, at least least after one that began at begin and ends now. A poll that failed
// without being cut off has walked over nothing: the database was unreachable, and rows that come back with it may be
// older than the floors.
func (p *Polls) Polled(begin time.Time, least time.Duration, err error) {
	now := time.Now()
	took := now.Sub(begin)
	if err != nil && !IsCode(err, "57014") {
		took = 0
	}
	p.Next = now.Add(p.share.Wait(took, least, floorsOld))
}
