package tasks

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
)

// Due returns those of the agents that have tasks to claim, with one statement for all of them. Other agents had no
// task that was due; a task that was committed meanwhile causes a wake-up.
func (c *Claimer) Due(ctx context.Context, agents []string) ([]string, error) {
	whole := c.polls.Due(time.Now())
	due, ahead, err := c.heads(ctx, agents, whole)
	if err == nil && ahead && !whole { // a floor is in the future: the clock was set back, and the floors are useless
		due, _, err = c.heads(ctx, agents, true)
	}
	if err != nil {
		return nil, fmt.Errorf("look for due tasks: %w", db.Unavailable(err))
	}
	return due, nil
}

// heads reads where the lanes of the queues begin, from their floors or from the start, and moves the floors there.
// ahead says that a floor was later than the statement.
func (c *Claimer) heads(ctx context.Context, agents []string, whole bool) (due []string, ahead bool, err error) {
	var p dbsqlc.QueuesDueParams
	for _, agent := range agents {
		from := c.position(agent).floors
		if whole {
			from = floors{}
		}
		for lane := range from {
			p.Queues, p.Lanes = append(p.Queues, agent), append(p.Lanes, int16(lane))
			p.Floors = append(p.Floors, from.of(lane))
		}
	}
	begin := time.Now()
	rows, err := dbsqlc.New(c.store.db.Claims()).QueuesDue(ctx, p)
	if whole {
		c.polls.Polled(begin, db.FloorsAge, err)
	}
	if err != nil {
		return nil, false, err
	}
	var now time.Time
	found := make(map[string]*[lanes]time.Time)
	for _, r := range rows {
		if r.Lane < 0 {
			now = r.RunAt.Time
			continue
		}
		if found[r.Queue] == nil {
			found[r.Queue] = new([lanes]time.Time)
			due = append(due, r.Queue)
		}
		found[r.Queue][r.Lane] = r.RunAt.Time
	}
	for _, agent := range agents {
		pos := c.position(agent)
		pos.polls.Next = c.polls.Next.Add(db.FloorsAge) // a claim polls only when Due was not called for longer
		at := make([]dbsqlc.LaneHeadsRow, lanes)
		for lane := range at {
			ahead = ahead || pos.floors[lane].After(now)
			at[lane] = dbsqlc.LaneHeadsRow{
				Lane: int16(lane), Head: pgtype.Timestamptz{Time: now, Valid: true}, Empty: true,
			}
			if heads := found[agent]; heads != nil && !heads[lane].IsZero() {
				at[lane].Head.Time, at[lane].Empty = heads[lane], false
			}
		}
		pos.floors.set(at, db.WideMargin)
	}
	return due, ahead, nil
}

func (c *Claimer) position(agent string) *position {
	pos := c.queues[agent]
	if pos == nil {
		pos = &position{}
		c.queues[agent] = pos
	}
	return pos
}
