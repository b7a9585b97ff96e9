package tasks_test

import (
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// stepOf is the first step of a task.
var stepOf = []a2a.StepRecord{{
	Step: a2a.Step{Key: "charge#1", Result: a2a.Raw(`"paid"`)}, Seq: 1, Kind: a2a.StepWork, Ended: true,
}}

// callStep is a call as the first step of a task.
func callStep() a2a.StepRecord {
	return a2a.StepRecord{
		Step: a2a.Step{Key: "c#1", Name: storetest.Agent}, Seq: 1, Kind: a2a.StepCall, Child: db.NewTaskID(),
		Call: &a2a.Call{Key: "c#1", Agent: storetest.Agent, Message: storetest.Message("", "x")},
	}
}

// waiting is a batch that makes its task wait.
func waiting(w a2a.Wait) tasks.Batch {
	return tasks.Batch{
		Wait: &w, Steps: []a2a.StepRecord{{Step: a2a.Step{Key: "wait#1"}, Seq: 1, Kind: a2a.StepWait}},
	}
}

// wait makes a task that waits, and that is due.
func (w *witness) wait() *tasks.Lease {
	w.T.Helper()
	l := w.RunningTask()
	if _, err := w.Tasks.Append(w.T.Context(), l, waiting(a2a.Wait{Message: true, For: time.Hour})); err != nil {
		w.T.Fatal(err)
	}
	return l
}

// writingsOfSteps are the methods for steps and waits.
var writingsOfSteps = []writing{
	answering("tasks.Append with a step", storetest.IsExecute,
		func(w *witness) func(*store.Store) (tasks.Appended, error) {
			l := w.RunningTask()
			return func(s *store.Store) (tasks.Appended, error) {
				return s.Tasks.Append(w.T.Context(), l, tasks.Batch{Steps: stepOf})
			}
		}, func(w *witness, _ tasks.Appended) string {
			return w.count(1, "a2a.task_steps s JOIN a2a.tasks t ON t.id = s.task_id AND t.steps = s.seq")
		}),
	answering("tasks.Append with a step and an event", storetest.IsCommit,
		func(w *witness) func(*store.Store) (tasks.Appended, error) {
			l := w.RunningTask()
			return func(s *store.Store) (tasks.Appended, error) {
				return s.Tasks.Append(w.T.Context(), l,
					tasks.Batch{Steps: stepOf, Events: []a2a.Event{storetest.Chunk("a", "x")}})
			}
		}, func(w *witness, _ tasks.Appended) string {
			return w.count(1,
				"a2a.task_steps s JOIN a2a.tasks t ON t.id = s.task_id AND t.steps = s.seq AND t.last_seq = 3")
		}),
	answering("tasks.Append with usage", storetest.IsCommit,
		func(w *witness) func(*store.Store) (tasks.Appended, error) {
			l := w.RunningTask()
			return func(s *store.Store) (tasks.Appended, error) {
				return s.Tasks.Append(w.T.Context(), l, tasks.Batch{Usage: someUsage})
			}
		}, countedOnce),
	answering("tasks.Append with usage and the id of a batch", storetest.IsCommit,
		func(w *witness) func(*store.Store) (tasks.Appended, error) {
			l := w.RunningTask()
			return func(s *store.Store) (tasks.Appended, error) {
				return s.Tasks.Append(w.T.Context(), l, tasks.Batch{Usage: someUsage, ID: "b1"})
			}
		}, countedOnce),
	answering("tasks.Append with usage and a step", storetest.IsCommit,
		func(w *witness) func(*store.Store) (tasks.Appended, error) {
			l := w.RunningTask()
			return func(s *store.Store) (tasks.Appended, error) {
				return s.Tasks.Append(w.T.Context(), l, tasks.Batch{Usage: someUsage, Steps: stepOf})
			}
		}, countedOnce),
	answering("tasks.Append with usage and a step that began before", storetest.IsCommit,
		func(w *witness) func(*store.Store) (tasks.Appended, error) {
			l := w.RunningTask()
			begins := stepOf[0]
			begins.Result, begins.Artifact, begins.Ended = nil, "a", false
			if _, err := w.Tasks.Append(w.T.Context(), l, tasks.Batch{Steps: []a2a.StepRecord{begins}}); err != nil {
				w.T.Fatal(err)
			}
			return func(s *store.Store) (tasks.Appended, error) {
				return s.Tasks.Append(w.T.Context(), l, tasks.Batch{Usage: someUsage, Steps: stepOf})
			}
		}, countedOnce),
	answering("tasks.Append with usage and an event", storetest.IsCommit,
		func(w *witness) func(*store.Store) (tasks.Appended, error) {
			l := w.RunningTask()
			return func(s *store.Store) (tasks.Appended, error) {
				return s.Tasks.Append(w.T.Context(), l,
					tasks.Batch{Usage: someUsage, Events: []a2a.Event{storetest.Chunk("a", "x")}})
			}
		}, countedOnce),
	answering("tasks.SumUsage", storetest.IsCommit, func(w *witness) func(*store.Store) (int, error) {
		if _, err := w.Tasks.Append(w.T.Context(), w.RunningTask(), tasks.Batch{Usage: someUsage}); err != nil {
			w.T.Fatal(err)
		}
		return func(s *store.Store) (int, error) { return s.Tasks.SumUsage(w.T.Context(), 10) }
	}, func(w *witness, _ int) string { return countedOnce(w, tasks.Appended{}) }),
	answering("tasks.SweepUsage", storetest.IsCommit, func(w *witness) func(*store.Store) (int, error) {
		w.Exec("INSERT INTO a2a.usage_days VALUES (current_date - 9, 't', 'o', 'a', 'm', 1, 1, 0, 0, 1)")
		return func(s *store.Store) (int, error) {
			return s.Tasks.SweepUsage(w.T.Context(), 24*time.Hour, 10)
		}
	}, func(w *witness, n int) string { return w.count(1-n, "a2a.usage_days") }),
	answering("tasks.Append with a wait", storetest.IsCommit,
		func(w *witness) func(*store.Store) (tasks.Appended, error) {
			l := w.RunningTask()
			return func(s *store.Store) (tasks.Appended, error) {
				return s.Tasks.Append(w.T.Context(), l, waiting(a2a.Wait{For: time.Hour}))
			}
		}, func(w *witness, _ tasks.Appended) string {
			return w.count(1, "a2a.task_waits w JOIN a2a.tasks t ON t.id = w.task_id AND t.lease_epoch = w.epoch")
		}),
	answering("tasks.Append with a call", storetest.IsCommit,
		func(w *witness) func(*store.Store) (tasks.Appended, error) {
			c := newCaller(w.Fixture)
			b := tasks.Batch{ContextID: "ctx", Steps: []a2a.StepRecord{callStep()}}
			return func(s *store.Store) (tasks.Appended, error) { return s.Tasks.Append(w.T.Context(), c.lease, b) }
		}, func(w *witness, _ tasks.Appended) string {
			return w.count(1, "a2a.tasks t JOIN a2a.task_steps s ON s.child_id = t.id AND s.task_id = t.parent_id")
		}),
	answering("tasks.Append with a call to a worker", storetest.IsCommit,
		func(w *witness) func(*store.Store) (tasks.Appended, error) {
			l := w.RunningTask()
			w.hasSlots = true
			b := tasks.Batch{ContextID: "ctx", Steps: []a2a.StepRecord{callStep()}}
			return func(s *store.Store) (tasks.Appended, error) { return s.Tasks.Append(w.T.Context(), l, b) }
		}, func(w *witness, _ tasks.Appended) string {
			return w.count(len(w.started), "a2a.task_leases l JOIN a2a.tasks t ON t.id = l.task_id AND t.depth > 0")
		}),
	plain("tasks.CancelOrphan", storetest.IsCommit, func(w *witness) func(*store.Store) error {
		c := newCaller(w.Fixture)
		c.mustReport(append(calls(1), storetest.Status(a2a.StateCompleted))...)
		return func(s *store.Store) error {
			_, err := s.Tasks.CancelOrphan(w.T.Context())
			return err
		}
	}),
	plain("tasks.SweepCalls", storetest.IsCommit, func(w *witness) func(*store.Store) error {
		c := newCaller(w.Fixture)
		c.mustReport(append(calls(1), &a2a.Wait{Key: "w", Tasks: keys(1), For: time.Hour})...)
		w.Exec("DELETE FROM a2a.task_ready") // an operator removes the called task
		w.Exec("DELETE FROM a2a.tasks WHERE parent_id = $1", db.PGID(c.lease.TaskID))
		sweep := func(s *store.Store) error {
			_, err := s.Tasks.SweepCalls(w.T.Context(), tasks.CallPosition{}, 10)
			return err
		}
		return func(s *store.Store) error {
			err := sweep(s)
			if w.Broken() != "" { // the next sweep repairs the call
				if err := sweep(w.Replica("r2")); err != nil {
					w.T.Error(err)
				}
			}
			return err
		}
	}),
	plain("tasks.EndWaits", storetest.IsCommit, func(w *witness) func(*store.Store) error {
		w.wait()
		w.Exec("UPDATE a2a.task_waits SET due_at = clock_timestamp()")
		return func(s *store.Store) error {
			_, err := s.Tasks.EndWaits(w.T.Context(), 10)
			return err
		}
	}),
	answering("tasks.SendSignal", storetest.IsCommit, func(w *witness) func(*store.Store) (int, error) {
		l := w.RunningTask()
		b := waiting(a2a.Wait{Signal: "approved", For: time.Hour})
		if _, err := w.Tasks.Append(w.T.Context(), l, b); err != nil {
			w.T.Fatal(err)
		}
		return func(s *store.Store) (int, error) {
			return 0, s.Tasks.SendSignal(w.T.Context(), tasks.Signal{Task: l.TaskID, Name: "approved"})
		}
	}, func(w *witness, _ int) string { return w.count(1, "a2a.task_signals") }),
	plain("tasks.FailWaits", storetest.IsCommit, func(w *witness) func(*store.Store) error {
		w.wait()
		w.Exec("UPDATE a2a.task_waits SET deadline_at = clock_timestamp()")
		return func(s *store.Store) error {
			_, err := s.Tasks.FailWaits(w.T.Context(), 10)
			return err
		}
	}),
}
