// Package schedules keeps the schedules of agents and what became of each tick.
//
// A tick and the task that it starts are stored in one transaction, so no tick starts two tasks, whatever number of
// replicas act on it and whichever of them crashes. Times are the database's. The package does not wait for anything:
// its caller asks when a schedule has something to do.
package schedules

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/cron"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/schedules/dbsqlc"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// Store is safe for concurrent use.
type Store struct {
	db    *db.DB
	tasks *tasks.Store

	mu     sync.Mutex
	counts map[Count]uint64 // guarded by mu
}

// New returns the store of schedules on a database.
func New(conns *db.DB, submits *tasks.Store) *Store {
	return &Store{db: conns, tasks: submits, counts: make(map[Count]uint64)}
}

// ErrNone says that there is no such schedule.
var ErrNone = errors.New("no such schedule")

// Schedule is a stored schedule: the agent file that was loaded last, and how far the schedule is. Zero times mean that
// there is none.
type Schedule struct {
	a2a.Schedule
	Agent      string
	LoadedAt   time.Time
	LoadedBy   string    // the replica that has loaded the file
	PausedAt   time.Time // by an operator
	RemovedAt  time.Time // from the file
	NextTick   time.Time
	NextAt     time.Time // NextTick and its jitter
	QueuedTick time.Time // starts when LastTask has ended
	LastTick   time.Time // the newest that started a task
	LastTask   a2a.ID
	Now        time.Time // when it was read

	message []byte
	times   *cron.Schedule
}

// List returns the schedules of some agents, or of all agents if the list is nil, by agent and name.
func (s *Store) List(ctx context.Context, agents []string) (list []Schedule, err error) {
	var rows []dbsqlc.ScheduleListRow
	err = s.db.RepeatRead(ctx, func() (err error) {
		rows, err = dbsqlc.New(s.db.Work()).ScheduleList(ctx, agents == nil, agents)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list schedules: %w", err)
	}
	for i := range rows {
		list = append(list, decode(&rows[i].A2aSchedule, rows[i].Now))
	}
	return list, nil
}

func decode(r *dbsqlc.A2aSchedule, now pgtype.Timestamptz) Schedule {
	out := Schedule{
		Schedule: a2a.Schedule{
			Name: r.Name, Cron: r.Cron, Timezone: r.Timezone, Message: tasks.DecodeMessage(r.Message, a2a.RoleUser),
			Tenant: r.Tenant, Owner: r.Owner, Overlap: a2a.Overlap(max(slices.Index(a2a.Overlaps, r.Overlap), 0)),
			CatchUp: duration(r.CatchUp), Jitter: duration(r.Jitter), Paused: r.Paused,
		},
		Agent: r.Agent, LoadedAt: db.TimeOrZero(r.LoadedAt), LoadedBy: r.LoadedBy,
		PausedAt: db.TimeOrZero(r.PausedAt), RemovedAt: db.TimeOrZero(r.RemovedAt),
		NextTick: db.TimeOrZero(r.NextTick), NextAt: db.TimeOrZero(r.NextAt),
		QueuedTick: db.TimeOrZero(r.QueuedTick), LastTick: db.TimeOrZero(r.LastTick), LastTask: r.LastTask.Bytes,
		Now: now.Time.UTC(), message: r.Message,
	}
	return out
}

func duration(i pgtype.Interval) time.Duration {
	return time.Duration(i.Microseconds)*time.Microsecond + time.Duration(i.Days)*24*time.Hour
}

func interval(d time.Duration) pgtype.Interval {
	return pgtype.Interval{Microseconds: d.Microseconds(), Valid: true}
}

// Active reports whether the schedule has ticks.
func (s *Schedule) Active() bool { return !s.Paused && s.PausedAt.IsZero() && s.RemovedAt.IsZero() }

// parse reads the times of the schedule. It fails if this process does not know the time zone.
func (s *Schedule) parse() error {
	zone, err := cron.Zone(s.Timezone)
	if err == nil {
		s.times, err = cron.Parse(s.Cron, zone)
	}
	if err != nil {
		return fmt.Errorf("schedule %s/%s: %w", s.Agent, s.Name, err)
	}
	return nil
}

// Upcoming returns the next n ticks, without their jitter. It returns none if the schedule is not active.
func (s *Schedule) Upcoming(n int) ([]time.Time, error) {
	if err := s.parse(); err != nil || s.NextTick.IsZero() {
		return nil, err
	}
	list := []time.Time{s.NextTick}
	for len(list) < n {
		next := s.times.Next(list[len(list)-1])
		if next.IsZero() {
			break
		}
		list = append(list, next)
	}
	return list, nil
}

// follow sets the next tick to the first one after a time, or to none if the schedule is not active.
func (s *Schedule) follow(after time.Time) {
	s.NextTick, s.NextAt = time.Time{}, time.Time{}
	if !s.Active() {
		return
	}
	if s.NextTick = s.times.Next(after); !s.NextTick.IsZero() {
		s.NextAt = s.startOf(s.NextTick)
	}
}

// startOf returns when a tick starts its task: later by the jitter, but before the next tick. All replicas compute the
// same time.
func (s *Schedule) startOf(tick time.Time) time.Time {
	if s.Jitter <= 0 {
		return tick
	}
	most := s.Jitter
	if next := s.times.Next(tick); !next.IsZero() {
		most = min(most, next.Sub(tick))
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%s", s.Agent, s.Name, tick.UTC().Format(time.RFC3339)))
	share := binary.BigEndian.Uint64(sum[:]) % uint64(most/time.Millisecond)
	return tick.Add(time.Duration(share) * time.Millisecond)
}

// Due reports whether Act may have something to do.
func (s *Schedule) Due() bool {
	return !s.NextAt.IsZero() && (!s.NextAt.After(s.Now) || !s.QueuedTick.IsZero() || s.clockSetBack())
}

// clockSetBack reports whether the next tick is later than the first one from now on.
func (s *Schedule) clockSetBack() bool {
	if s.times == nil && s.parse() != nil {
		return false
	}
	first := s.times.Next(s.Now)
	return !first.IsZero() && s.NextTick.After(first)
}

// Count names a counter.
type Count struct {
	Agent   string
	Outcome Outcome
}

// Counts returns what this process has recorded of ticks.
func (s *Store) Counts() map[Count]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[Count]uint64, len(s.counts))
	for c, n := range s.counts {
		out[c] = n
	}
	return out
}

// count counts ticks once the transaction is committed.
func (s *Store) count(tx *db.Tx, agent string, of Outcome, n int) {
	tx.After(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.counts[Count{agent, of}] += uint64(n)
	})
}
