package tasks

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
)

// floors has, for each lane of a queue, the run_at below which no live row was seen, by the database's clock; zero:
// read from the start. A reader that begins there does not walk over the index entries of tasks that were claimed
// before. These entries stay while any transaction holds an old snapshot.
type floors [lanes]time.Time

// of returns the floor of a lane as an argument.
func (f *floors) of(lane int) pgtype.Timestamptz { return db.PGFloor(f[lane]) }

// above returns the arguments to read the first row of each lane from its floor on.
func (f *floors) above(queue string) dbsqlc.LaneHeadsParams {
	p := dbsqlc.LaneHeadsParams{Queue: queue}
	for lane := range f {
		p.Lanes, p.Floors = append(p.Lanes, int16(lane)), append(p.Floors, f.of(lane))
	}
	return p
}

// set moves the floors, forward or back, to the first rows that a poll has found. In an empty lane the floor is the
// time of the poll minus margin.
func (f *floors) set(heads []dbsqlc.LaneHeadsRow, empty time.Duration) {
	for _, h := range heads {
		margin := db.FloorMargin
		if h.Empty {
			margin = empty
		}
		f[h.Lane] = h.Head.Time.Add(-margin)
	}
}

// claimed raises the floor of a lane after a claim whose first row had this run_at.
func (f *floors) claimed(lane int16, runAt time.Time) {
	if at := runAt.Add(-db.FloorMargin); at.After(f[lane]) {
		f[lane] = at
	}
}
