package schedules

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/schedules/dbsqlc"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/wake"
)

// key names a schedule.
type key struct{ agent, name string }

func (k key) compare(o key) int {
	if c := strings.Compare(k.agent, o.agent); c != 0 {
		return c
	}
	return strings.Compare(k.name, o.name)
}

// Load stores the schedules of agents as their files have them, and removes all others of these agents. It returns how
// many have changed. If none has, it only reads.
//
// Files that were loaded later replace those that were loaded before. All replicas act on what is stored, whatever
// their own files say, so two replicas with different files do not undo each other's changes again and again. A
// schedule whose times have not changed keeps its next tick, also if that is overdue.
func (s *Store) Load(ctx context.Context, files map[string][]a2a.Schedule) (changed int, err error) {
	agents := make([]string, 0, len(files))
	wanted := make(map[key]*a2a.Schedule)
	for agent, list := range files {
		agents = append(agents, agent)
		for i := range list {
			wanted[key{agent, list[i].Name}] = &list[i]
		}
	}
	stored, err := s.List(ctx, agents)
	if err != nil {
		return 0, err
	}
	different := differences(wanted, stored)
	if len(different) == 0 {
		return 0, nil
	}
	changed, err = db.Repeat(ctx, s.db, func(int) (int, error) {
		return db.InTx(ctx, s.db.Work(), func(tx *db.Tx) (n int, err error) {
			l := &loading{tx: tx, q: dbsqlc.New(tx), replica: s.db.Replica()}
			for _, k := range different { // in order, so that two replicas cannot deadlock
				if err := l.store(ctx, k, wanted[k]); err != nil {
					return 0, err
				}
			}
			tx.Wake(wake.Schedules)
			return len(different), nil
		})
	})
	if err != nil {
		return 0, fmt.Errorf("load schedules: %w", err)
	}
	return changed, nil
}

// differences returns the schedules that are not stored as they are wanted, in order.
func differences(wanted map[key]*a2a.Schedule, stored []Schedule) (list []key) {
	same := make(map[key]bool)
	for i := range stored {
		it := &stored[i]
		k := key{it.Agent, it.Name}
		file := wanted[k]
		if file == nil && it.RemovedAt.IsZero() {
			list = append(list, k)
		}
		same[k] = file != nil && it.is(file)
	}
	for k := range wanted {
		if !same[k] {
			list = append(list, k)
		}
	}
	slices.SortFunc(list, key.compare)
	return list
}

// is reports whether the schedule is stored as a file has it.
func (s *Schedule) is(file *a2a.Schedule) bool {
	one, two := s.Schedule, *file
	return s.RemovedAt.IsZero() && s.timedAs(file) && bytes.Equal(s.message, tasks.EncodeMessage(&file.Message)) &&
		one.Tenant == two.Tenant && one.Owner == two.Owner && one.Overlap == two.Overlap &&
		one.CatchUp == two.CatchUp && one.Paused == two.Paused
}

// timedAs reports whether the times of the ticks are those of a file.
func (s *Schedule) timedAs(file *a2a.Schedule) bool {
	return s.Cron == file.Cron && s.Timezone == file.Timezone && s.Jitter == file.Jitter
}

// loading is the transaction of Load.
type loading struct {
	tx      *db.Tx
	q       *dbsqlc.Queries
	replica string
}

// store stores a schedule as the file has it. A nil file removes it.
func (l *loading) store(ctx context.Context, k key, file *a2a.Schedule) error {
	r, err := l.q.ScheduleLock(ctx, k.agent, k.name)
	exists := err == nil
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	if file == nil {
		if err := l.q.TickSkip(ctx, dbsqlc.TickSkipParams{
			Agent: k.agent, Name: k.name, Tick: r.A2aSchedule.QueuedTick,
		}); err != nil {
			return err
		}
		return l.q.ScheduleRemove(ctx, dbsqlc.ScheduleRemoveParams{Agent: k.agent, Name: k.name, LoadedBy: l.replica})
	}
	next := Schedule{Agent: k.agent, Schedule: *file}
	if exists {
		old := decode(&r.A2aSchedule, r.Now)
		next.Now, next.PausedAt = old.Now, old.PausedAt
		if old.timedAs(file) && next.Active() {
			next.NextTick, next.NextAt = old.NextTick, old.NextAt
		}
	} else if next.Now, err = l.tx.Now(ctx); err != nil {
		return err
	}
	if err := next.parse(); err != nil {
		return err
	}
	if next.NextTick.IsZero() {
		next.follow(next.Now)
	}
	return l.q.SchedulePut(ctx, dbsqlc.SchedulePutParams{
		Agent: k.agent, Name: k.name, Cron: file.Cron, Timezone: file.Timezone,
		Message: tasks.EncodeMessage(&file.Message), Tenant: file.Tenant, Owner: file.Owner,
		Overlap: file.Overlap.String(), CatchUp: interval(file.CatchUp), Jitter: interval(file.Jitter),
		Paused: file.Paused, LoadedBy: l.replica, NextTick: db.PGTime(next.NextTick), NextAt: db.PGTime(next.NextAt),
	})
}
