package schedules

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/schedules/dbsqlc"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// Outcome is what became of a tick.
type Outcome string

// A queued tick becomes a started one, or a skipped one if its schedule is removed.
const (
	Started Outcome = "started"
	Queued  Outcome = "queued"
	Skipped Outcome = "skipped" // the task of the tick before it had not ended
	Missed  Outcome = "missed"  // no server was there in time, or the owner had too many tasks
)

// Outcomes are all of them.
var Outcomes = []Outcome{Started, Queued, Skipped, Missed}

// batch bounds the ticks that one transaction records. After a long outage several transactions follow each other.
const batch = 1000

// Tick is a tick that Act has recorded.
type Tick struct {
	Tick    time.Time
	Outcome Outcome
	Task    a2a.ID // of a started one
	Refused string // why a missed one was refused, although a server was there in time
}

// Act does what a schedule has to do now: it starts the tick that is due, or a queued one, and records the ticks that
// were missed. It returns what it has recorded, which is nothing if another process does the same.
//
// An owner may have most tasks in flight; 0 is no limit. Over the limit, a tick is refused, and a queued one stays
// queued. The limit is exact except for what others do at the same time.
//
// The record of a tick, its task and the time of the next tick are one transaction. If it is repeated because the
// answer to its COMMIT was lost, it finds the next tick, and so starts no second task.
func (s *Store) Act(ctx context.Context, it *Schedule, most int) ([]Tick, error) {
	owner := db.Caller{Tenant: it.Tenant, Owner: it.Owner}
	lane := s.tasks.Lane(ctx, it.Agent, owner)
	full := false
	if most > 0 {
		n, err := s.tasks.TasksInFlight(ctx, owner, most)
		if err != nil {
			return nil, fmt.Errorf("act on schedule %s/%s: %w", it.Agent, it.Name, err)
		}
		full = n >= most
	}
	done, err := db.Repeat(ctx, s.db, func(int) ([]Tick, error) {
		return db.InTx(ctx, s.db.Work(), func(tx *db.Tx) ([]Tick, error) {
			r, err := dbsqlc.New(tx).ScheduleTryLock(ctx, it.Agent, it.Name)
			if errors.Is(err, pgx.ErrNoRows) {
				return nil, nil
			}
			if err != nil {
				return nil, err
			}
			locked := decode(&r.A2aSchedule, r.Now)
			if err := locked.parse(); err != nil || !locked.Due() {
				return nil, err
			}
			a := &act{store: s, tx: tx, q: dbsqlc.New(tx), Schedule: locked, lane: lane, most: most, full: full}
			err = a.run(ctx)
			return a.ticks, err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("act on schedule %s/%s: %w", it.Agent, it.Name, err)
	}
	return done, nil
}

// act is one call of Act, with the schedule as it is locked.
type act struct {
	Schedule
	store *Store
	tx    *db.Tx
	q     *dbsqlc.Queries
	lane  int16
	most  int  // tasks that the owner may have in flight
	full  bool // it has that many
	ticks []Tick
}

func (a *act) run(ctx context.Context) error {
	if a.clockSetBack() {
		a.follow(a.Now)
	}
	if err := a.startQueued(ctx); err != nil {
		return err
	}
	due := a.takeDue()
	if len(due) > 0 {
		newest := due[len(due)-1]
		late := !a.NextAt.IsZero() && !a.NextAt.After(a.Now) || a.Now.Sub(a.startOf(newest)) > a.CatchUp
		if !late {
			due = due[:len(due)-1]
		}
		if err := a.record(ctx, Missed, due...); err != nil {
			return err
		}
		if !late {
			if err := a.tick(ctx, newest); err != nil {
				return err
			}
		}
	}
	return a.q.ScheduleMove(ctx, dbsqlc.ScheduleMoveParams{
		Agent: a.Agent, Name: a.Name, NextTick: db.PGTime(a.NextTick), NextAt: db.PGTime(a.NextAt),
		QueuedTick: db.PGTime(a.QueuedTick), LastTick: db.PGTime(a.LastTick),
		LastTask: pgtype.UUID{Bytes: a.LastTask, Valid: !a.LastTask.IsZero()},
	})
}

// takeDue moves the next tick to the first one that is not due, and returns those before it, the oldest first.
func (a *act) takeDue() (due []time.Time) {
	for len(due) < batch && !a.NextAt.IsZero() && !a.NextAt.After(a.Now) {
		due = append(due, a.NextTick)
		a.follow(a.NextTick)
	}
	return due
}

// startQueued starts the queued tick, if there is one and the task before it has ended.
func (a *act) startQueued(ctx context.Context) error {
	if a.QueuedTick.IsZero() {
		return nil
	}
	if busy, err := a.busy(ctx); err != nil || busy || a.full {
		return err
	}
	tick := a.QueuedTick
	a.QueuedTick = time.Time{}
	return a.start(ctx, tick)
}

// tick does what the newest tick that is due has to do.
func (a *act) tick(ctx context.Context, tick time.Time) error {
	busy, err := false, error(nil)
	if a.Overlap != a2a.OverlapAllow {
		busy, err = a.busy(ctx)
	}
	switch {
	case err != nil:
		return err
	case !busy && a.full:
		return a.refuse(ctx, tick)
	case !busy:
		return a.start(ctx, tick)
	case a.Overlap == a2a.OverlapQueue && a.QueuedTick.IsZero():
		a.QueuedTick = tick
		return a.record(ctx, Queued, tick)
	}
	return a.record(ctx, Skipped, tick)
}

// busy reports whether the task of the last tick has not ended.
func (a *act) busy(ctx context.Context) (bool, error) {
	if a.LastTask.IsZero() {
		return false, nil
	}
	return a.q.TaskRuns(ctx, db.PGID(a.LastTask))
}

// start starts the task of a tick, unless the tick has a record: the database's clock was set back since.
func (a *act) start(ctx context.Context, tick time.Time) error {
	id := db.NewTaskID()
	n, err := a.q.TickStart(ctx, dbsqlc.TickStartParams{
		Agent: a.Agent, Name: a.Name, Tick: db.PGTime(tick), TaskID: db.PGID(id),
	})
	if err != nil || n == 0 {
		return err
	}
	if err := a.store.tasks.SubmitIn(ctx, a.tx, a.submission(id, tick), a.lane); err != nil {
		return err
	}
	a.LastTick, a.LastTask = tick, id
	a.note(Started, tick, id)
	return nil
}

// refuse records a tick whose owner has too many tasks, and the reason in the audit log.
func (a *act) refuse(ctx context.Context, tick time.Time) error {
	before := len(a.ticks)
	if err := a.record(ctx, Missed, tick); err != nil || len(a.ticks) == before {
		return err
	}
	reason := fmt.Sprintf("more than %d tasks of the owner would be in flight", a.most)
	a.ticks[before].Refused = reason
	action := a.action(access.ActionScheduleRefuse, a2a.ID{})
	action.Detail["tick"], action.Detail["reason"] = tick.UTC().Format(time.RFC3339), reason
	return access.Record(ctx, a.tx, action)
}

// record records ticks that start no task now.
func (a *act) record(ctx context.Context, as Outcome, ticks ...time.Time) error {
	if len(ticks) == 0 {
		return nil
	}
	p := dbsqlc.TicksAddParams{Agent: a.Agent, Name: a.Name, Outcome: string(as)}
	for _, tick := range ticks {
		p.Ticks = append(p.Ticks, db.PGTime(tick))
	}
	added, err := a.q.TicksAdd(ctx, p)
	for _, tick := range added {
		a.note(as, tick.Time.UTC(), a2a.ID{})
	}
	return err
}

func (a *act) note(as Outcome, tick time.Time, task a2a.ID) {
	a.ticks = append(a.ticks, Tick{Tick: tick, Outcome: as, Task: task})
	a.store.count(a.tx, a.Agent, as, 1)
}

// The metadata of the message says why there is a task.
const (
	metaSchedule = "a2ad/schedule"
	metaTick     = "a2ad/tick"
)

// submission returns the task of a tick. A zero tick is a run that an operator has asked for.
func (s *Schedule) submission(id a2a.ID, tick time.Time) tasks.Submission {
	m := s.Message
	m.ID, m.ContextID = db.NewUID().String(), db.NewUID().String()
	meta := append(rawjson.AppendString([]byte(`{"`+metaSchedule+`":`), s.Name), '}')
	if !tick.IsZero() {
		meta = append(meta[:len(meta)-1], `,"`+metaTick+`":"`+tick.UTC().Format(time.RFC3339)+`"}`...)
	}
	own := rawjson.Without(rawjson.Without(m.Metadata, metaSchedule), metaTick)
	if !rawjson.Empty(own) {
		meta = append(append(meta[:len(meta)-1], ','), rawjson.Trim(own)[1:]...)
	}
	m.Metadata = meta
	return tasks.Submission{
		Caller: db.Caller{Tenant: s.Tenant, Owner: s.Owner}, Agent: s.Agent, NewTask: id, ContextID: m.ContextID,
		Message: m,
	}
}
