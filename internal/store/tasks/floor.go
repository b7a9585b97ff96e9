package tasks

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
)

// floors are the run_at, by the database's clock, below which no live row of each lane of a queue
// was seen; zero: all have to be looked at. A reader that begins there does not walk over
// the index entries of what was claimed before, which stay as long as somebody holds a snapshot.
type floors [lanes]time.Time

// of returns the floor of a lane as an argument.
func (f *floors) of(lane int) pgtype.Timestamptz { return db.PGFloor(f[lane]) }

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
		margin := db.FloorMargin
		if h.Empty {
			margin = empty
		}
		f[h.Lane] = h.Head.Time.Add(-margin)
	}
}

// claimed raises the floor of a lane of which a claim has taken this row first.
func (f *floors) claimed(lane int16, runAt time.Time) {
	if at := runAt.Add(-db.FloorMargin); at.After(f[lane]) {
		f[lane] = at
	}
}
