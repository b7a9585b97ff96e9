package tasks_test

import (
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/schedules"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// yearly is the schedules of a file with one schedule.
func yearly() map[string][]a2a.Schedule {
	return map[string][]a2a.Schedule{storetest.Agent: {{
		Name: "y", Cron: "@yearly", Timezone: "UTC", Tenant: storetest.Ann.Tenant, Owner: storetest.Ann.Owner,
		CatchUp: time.Hour, Message: storetest.Message("", "x"),
	}}}
}

// schedule stores a schedule whose next tick is due.
func (w *witness) schedule() *schedules.Schedule {
	w.T.Helper()
	if _, err := w.Schedules.Load(w.T.Context(), yearly()); err != nil {
		w.T.Fatal(err)
	}
	if _, err := w.SQL.Exec(w.T.Context(),
		"UPDATE a2a.schedules SET next_tick = clock_timestamp(), next_at = clock_timestamp()"); err != nil {
		w.T.Fatal(err)
	}
	list, err := w.Schedules.List(w.T.Context(), nil)
	if err != nil || len(list) != 1 {
		w.T.Fatalf("%d schedules, %v", len(list), err)
	}
	return &list[0]
}

// writingsOfSchedules are the methods for schedules.
var writingsOfSchedules = []writing{
	answering("schedules.Load", storetest.IsCommit, func(w *witness) func(*store.Store) (int, error) {
		return func(s *store.Store) (int, error) { return s.Schedules.Load(w.T.Context(), yearly()) }
	}, func(w *witness, n int) string { return w.count(n, "a2a.schedules WHERE next_at IS NOT NULL") }),
	answering("schedules.Act", storetest.IsCommit, func(w *witness) func(*store.Store) ([]schedules.Tick, error) {
		it := w.schedule()
		return func(s *store.Store) ([]schedules.Tick, error) { return s.Schedules.Act(w.T.Context(), it, 0) }
	}, func(w *witness, ticks []schedules.Tick) string {
		for _, t := range ticks { // none: an earlier try took effect, and its answer was lost
			if wrong := w.count(1, "a2a.schedule_ticks WHERE task_id = $1", t.Task); wrong != "" {
				return wrong
			}
		}
		return w.count(1, "a2a.schedule_ticks s JOIN a2a.tasks t ON t.id = s.task_id")
	}),
	answering("schedules.Pause", storetest.IsCommit, func(w *witness) func(*store.Store) (bool, error) {
		w.schedule()
		return func(s *store.Store) (bool, error) {
			_, changed, err := s.Schedules.Pause(w.T.Context(), storetest.Agent, "y", true)
			return changed, err
		}
	}, func(w *witness, _ bool) string { return w.count(1, "a2a.schedules WHERE paused_at IS NOT NULL") }),
	answering("schedules.RunNow", storetest.IsCommit, func(w *witness) func(*store.Store) (a2a.ID, error) {
		w.schedule()
		return func(s *store.Store) (a2a.ID, error) {
			return s.Schedules.RunNow(w.T.Context(), storetest.Agent, "y")
		}
	}, func(w *witness, id a2a.ID) string { return w.count(1, "a2a.tasks WHERE id = $1", id) }),
	answering("schedules.Sweep", storetest.IsCommit, func(w *witness) func(*store.Store) (int, error) {
		if _, err := w.Schedules.Act(w.T.Context(), w.schedule(), 0); err != nil {
			w.T.Fatal(err)
		}
		return func(s *store.Store) (int, error) { return s.Schedules.Sweep(w.T.Context(), time.Microsecond, 10) }
	}, func(w *witness, _ int) string { return w.count(0, "a2a.schedule_ticks") }),
	answering("tasks.SubmitIn", storetest.IsCommit, func(w *witness) func(*store.Store) (a2a.ID, error) {
		in := storetest.Submission("x")
		in.NewTask = db.NewTaskID()
		return func(s *store.Store) (a2a.ID, error) {
			id, err := db.InTx(w.T.Context(), s.DB.Work(), func(tx *db.Tx) (a2a.ID, error) {
				return in.NewTask, s.Tasks.SubmitIn(w.T.Context(), tx, in, 0)
			})
			return id, db.Unavailable(err)
		}
	}, func(w *witness, id a2a.ID) string { return w.count(1, "a2a.tasks WHERE id = $1", id) }),
}
