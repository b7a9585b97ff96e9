package tasks_test

import (
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// writingsOfParked are the methods for parked tasks.
var writingsOfParked = []writing{
	plain("tasks.Park", storetest.IsCommit, func(w *witness) func(*store.Store) error {
		in := storetest.Submission("x")
		in.Push = webhook("h")
		l := w.ClaimTask(w.Submit(in).Task)
		return func(s *store.Store) error { return s.Tasks.Park(w.T.Context(), l, "bad luck", time.Hour) }
	}),
	answering("tasks.Resume", storetest.IsCommit, func(w *witness) func(*store.Store) ([]tasks.Resumed, error) {
		ids := []a2a.ID{park(w.Fixture, 0).TaskID, park(w.Fixture, 0).TaskID}
		return func(s *store.Store) ([]tasks.Resumed, error) { return s.Tasks.Resume(w.T.Context(), ids, "fixed") }
	}, func(w *witness, list []tasks.Resumed) string {
		if wrong := w.count(len(list), "a2a.audit_log WHERE action = 'task.resume'"); wrong != "" {
			return wrong
		}
		return w.count(len(list), "a2a.task_ready WHERE reason = 'fixed'")
	}),
	answering("tasks.ExpireParked", storetest.IsCommit, func(w *witness) func(*store.Store) (int, error) {
		park(w.Fixture, time.Microsecond)
		return func(s *store.Store) (int, error) { return s.Tasks.ExpireParked(w.T.Context(), 10) }
	}, func(w *witness, n int) string { return w.count(n, "a2a.tasks WHERE state = 101") }),
}
