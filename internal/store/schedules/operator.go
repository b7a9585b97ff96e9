package schedules

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/schedules/dbsqlc"
	"github.com/a2ad/a2ad/internal/wake"
)

// ErrRemoved says that the agent file no longer has the schedule.
var ErrRemoved = errors.New("its agent file no longer has it")

// lock locks a schedule of the agent files.
func lock(ctx context.Context, tx *db.Tx, agent, name string) (Schedule, error) {
	r, err := dbsqlc.New(tx).ScheduleLock(ctx, agent, name)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNone
	}
	if err != nil {
		return Schedule{}, err
	}
	it := decode(&r.A2aSchedule, r.Now)
	if !it.RemovedAt.IsZero() {
		return it, ErrRemoved
	}
	return it, it.parse()
}

// Pause stops the ticks of a schedule, or lets them continue from now on. It records that in the audit log. changed is
// false if there was nothing to do. A schedule that its file pauses stays paused. The error is ErrNone or ErrRemoved if
// there is no such schedule.
func (s *Store) Pause(ctx context.Context, agent, name string, paused bool) (it Schedule, changed bool, err error) {
	type result struct {
		it      Schedule
		changed bool
	}
	out, err := db.InTx(ctx, s.db.Work(), func(tx *db.Tx) (result, error) {
		it, err := lock(ctx, tx, agent, name)
		if err != nil || it.PausedAt.IsZero() != paused {
			return result{it, false}, err
		}
		action := access.ActionScheduleResume
		if it.PausedAt = (time.Time{}); paused {
			action, it.PausedAt = access.ActionSchedulePause, it.Now
		}
		it.follow(it.Now)
		if err := dbsqlc.New(tx).SchedulePause(ctx, dbsqlc.SchedulePauseParams{
			Agent: agent, Name: name, PausedNow: paused, NextTick: db.PGTime(it.NextTick), NextAt: db.PGTime(it.NextAt),
		}); err != nil {
			return result{}, err
		}
		tx.Wake(wake.Schedules)
		return result{it, true}, access.Record(ctx, tx, it.action(action, a2a.ID{}))
	})
	if err != nil {
		return it, false, fmt.Errorf("schedule %s/%s: %w", agent, name, db.Unavailable(err))
	}
	return out.it, out.changed, nil
}

// RunNow makes a task of a schedule at once, whether or not it is paused or its last task has ended, and records that
// in the audit log. It is no tick. The error is ErrNone or ErrRemoved if there is no such schedule.
func (s *Store) RunNow(ctx context.Context, agent, name string) (a2a.ID, error) {
	id, err := db.InTx(ctx, s.db.Work(), func(tx *db.Tx) (a2a.ID, error) {
		it, err := lock(ctx, tx, agent, name)
		if err != nil {
			return a2a.ID{}, err
		}
		id := db.NewTaskID()
		if err := s.tasks.SubmitIn(ctx, tx, it.submission(id, time.Time{}), 0); err != nil {
			return a2a.ID{}, err
		}
		return id, access.Record(ctx, tx, it.action(access.ActionScheduleRun, id))
	})
	if err != nil {
		return id, fmt.Errorf("schedule %s/%s: %w", agent, name, db.Unavailable(err))
	}
	return id, nil
}

// action is an entry of the audit log about the schedule.
func (s *Schedule) action(name string, task a2a.ID) access.Action {
	return access.Action{
		Name: name, Tenant: s.Tenant, Owner: s.Owner, Task: task,
		Detail: map[string]any{"agent": s.Agent, "schedule": s.Name},
	}
}

// Recorded is a tick in the record.
type Recorded struct {
	Tick
	At time.Time // when it was recorded
}

// Recent returns the newest recorded ticks of a schedule, the newest first.
func (s *Store) Recent(ctx context.Context, agent, name string, limit int) ([]Recorded, error) {
	rows, err := dbsqlc.New(s.db.Work()).TicksRecent(ctx, dbsqlc.TicksRecentParams{
		Agent: agent, Name: name, Max: int32(limit),
	})
	if err != nil {
		return nil, fmt.Errorf("list ticks: %w", db.Unavailable(err))
	}
	list := make([]Recorded, len(rows))
	for i, r := range rows {
		list[i] = Recorded{
			Tick: Tick{Tick: r.Tick.Time.UTC(), Outcome: Outcome(r.Outcome), Task: r.TaskID.Bytes},
			At:   r.At.Time.UTC(),
		}
	}
	return list, nil
}

// Sweep removes a batch of ticks whose record is older than keep, and returns how many. If another process is doing
// this, it does nothing.
func (s *Store) Sweep(ctx context.Context, keep time.Duration, batch int) (n int, err error) {
	n, err = db.InTx(ctx, s.db.Work(), func(tx *db.Tx) (int, error) {
		free, err := tx.TryChore(ctx, db.ChoreTicks)
		if err != nil || !free {
			return 0, err
		}
		gone, err := dbsqlc.New(tx).TicksForget(ctx, db.PGInterval(keep), int32(batch))
		if err != nil {
			return 0, err
		}
		tx.After(func() { s.db.CountSwept(db.SweepOfTicks, int(gone)) })
		return int(gone), nil
	})
	if err != nil {
		return 0, fmt.Errorf("sweep ticks: %w", db.Unavailable(err))
	}
	return n, nil
}
