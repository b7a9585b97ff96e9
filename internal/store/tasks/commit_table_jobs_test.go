package tasks_test

import (
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/jobs"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// job starts a bulk job and claims it.
func (w *witness) job(action jobs.Action) *jobs.Job {
	w.T.Helper()
	if _, err := w.Jobs.Start(w.T.Context(), jobs.NewJob{Action: action, Webhooks: true}); err != nil {
		w.T.Fatal(err)
	}
	j, found, err := w.Jobs.Claim(w.T.Context(), "r1", false)
	if err != nil || !found {
		w.T.Fatalf("claim a job: %t, %v", found, err)
	}
	return j
}

// collected is a claimed job that has collected its tasks.
func (w *witness) collected(action jobs.Action) *jobs.Job {
	w.T.Helper()
	j := w.job(action)
	if err := w.Jobs.Collect(w.T.Context(), j); err != nil || !j.Collected {
		w.T.Fatalf("collect: %+v, %v", j, err)
	}
	return j
}

// failed is a task with a webhook that has failed.
func (w *witness) failed() a2a.ID {
	w.T.Helper()
	in := storetest.Submission("x")
	in.Push = webhook("h")
	l := w.ClaimTask(w.Submit(in).Task)
	w.Append(l, storetest.Status(a2a.StateFailed))
	return l.TaskID
}

// parked is a task that is parked.
func (w *witness) parked() a2a.ID {
	w.T.Helper()
	l := w.RunningTask()
	if err := w.Tasks.Park(w.T.Context(), l, "attempts are used up", 0); err != nil {
		w.T.Fatal(err)
	}
	return l.TaskID
}

// acting is a job whose next step acts on its only task.
func acting(name string, action jobs.Action, prepare func(w *witness), stored string) writing {
	return answering(name, storetest.IsCommit, func(w *witness) func(*store.Store) (int, error) {
		prepare(w)
		j := w.collected(action)
		return func(s *store.Store) (int, error) {
			err := s.Jobs.Act(w.T.Context(), j, moved)
			return 0, err
		}
	}, func(w *witness, _ int) string { return w.count(1, stored) })
}

// writingsOfJobs are those of bulk jobs.
var writingsOfJobs = []writing{
	answering("jobs.Start", storetest.IsCommit, func(w *witness) func(*store.Store) (jobs.Job, error) {
		return func(s *store.Store) (jobs.Job, error) {
			return s.Jobs.Start(w.T.Context(), jobs.NewJob{Action: jobs.Cancel, Holder: "r1"})
		}
	}, func(w *witness, j jobs.Job) string { return w.count(1, "a2a.jobs WHERE id = $1", j.ID) }),
	answering("jobs.Stop", storetest.IsCommit, func(w *witness) func(*store.Store) (bool, error) {
		j := w.job(jobs.Cancel)
		return func(s *store.Store) (bool, error) { return s.Jobs.Stop(w.T.Context(), j.ID) }
	}, func(w *witness, _ bool) string { return w.count(1, "a2a.jobs WHERE state = 'stopped'") }),
	answering("jobs.Claim", storetest.IsExecute, func(w *witness) func(*store.Store) (bool, error) {
		if _, err := w.Jobs.Start(w.T.Context(), jobs.NewJob{Action: jobs.Cancel}); err != nil {
			w.T.Fatal(err)
		}
		return func(s *store.Store) (bool, error) {
			_, found, err := s.Jobs.Claim(w.T.Context(), "r1", false)
			return found, err
		}
	}, func(w *witness, _ bool) string { return w.count(1, "a2a.jobs WHERE epoch = 1") }),
	plain("jobs.Release", storetest.IsExecute, func(w *witness) func(*store.Store) error {
		j := w.job(jobs.Cancel)
		return func(s *store.Store) error { return s.Jobs.Release(w.T.Context(), j) }
	}),
	plain("jobs.Collect", storetest.IsExecute, func(w *witness) func(*store.Store) error {
		w.NewTask()
		j := w.job(jobs.Cancel)
		return func(s *store.Store) error { return s.Jobs.Collect(w.T.Context(), j) }
	}).afterReads(2),
	acting("jobs.Act cancel", jobs.Cancel, func(w *witness) { w.RunningTask() }, "a2a.tasks WHERE state = 102"),
	acting("jobs.Act retry", jobs.Retry, func(w *witness) { w.failed() }, "a2a.tasks WHERE state = 1"),
	acting("jobs.Act resume", jobs.Resume, func(w *witness) { w.parked() }, "a2a.task_ready"),
	plain("jobs.Fail", storetest.IsCommit, func(w *witness) func(*store.Store) error {
		w.NewTask()
		j := w.collected(jobs.Cancel)
		return func(s *store.Store) error { return s.Jobs.Fail(w.T.Context(), j, "bad luck") }
	}),
	plain("jobs.End", storetest.IsExecute, func(w *witness) func(*store.Store) error {
		j := w.collected(jobs.Cancel)
		return func(s *store.Store) error { return s.Jobs.End(w.T.Context(), j, "") }
	}),
	answering("jobs.Sweep", storetest.IsCommit, func(w *witness) func(*store.Store) (int, error) {
		w.NewTask()
		if _, err := w.Jobs.Stop(w.T.Context(), w.collected(jobs.Cancel).ID); err != nil {
			w.T.Fatal(err)
		}
		return func(s *store.Store) (int, error) { return s.Jobs.Sweep(w.T.Context(), time.Microsecond, 10) }
	}, func(w *witness, n int) string { return w.count(2-n, "a2a.jobs") }),
	answering("tasks.CancelIn", storetest.IsCommit, func(w *witness) func(*store.Store) (bool, error) {
		task := w.NewTask()
		return func(s *store.Store) (bool, error) {
			done, err := db.InTx(w.T.Context(), s.DB.Work(), func(tx *db.Tx) (bool, error) {
				_, err := s.Tasks.CancelIn(w.T.Context(), tx, storetest.Ann, task)
				return true, err
			})
			return done, db.Unavailable(err)
		}
	}, func(w *witness, _ bool) string { return w.count(1, "a2a.tasks WHERE state = 102") }),
	answering("tasks.RetryIn", storetest.IsCommit, func(w *witness) func(*store.Store) (a2a.ID, error) {
		old := w.failed()
		return func(s *store.Store) (a2a.ID, error) {
			id, err := db.InTx(w.T.Context(), s.DB.Work(), func(tx *db.Tx) (a2a.ID, error) {
				return s.Tasks.RetryIn(w.T.Context(), tx, old, moved, 0)
			})
			return id, db.Unavailable(err)
		}
	}, func(w *witness, id a2a.ID) string { return w.count(1, "a2a.tasks WHERE id = $1", id) }),
	answering("tasks.ResumeIn", storetest.IsCommit, func(w *witness) func(*store.Store) (int, error) {
		parked := w.parked()
		return func(s *store.Store) (int, error) {
			n, err := db.InTx(w.T.Context(), s.DB.Work(), func(tx *db.Tx) (int, error) {
				list, err := s.Tasks.ResumeIn(w.T.Context(), tx, []a2a.ID{parked}, "repaired")
				return len(list), err
			})
			return n, db.Unavailable(err)
		}
	}, func(w *witness, n int) string { return w.count(n, "a2a.task_ready") }),
}
