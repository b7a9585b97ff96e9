package tasks_test

import (
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// session opens a session of the console, which was used two minutes ago.
func (w *witness) session() {
	w.T.Helper()
	if err := w.Access.OpenSession(w.T.Context(), keySession("token")); err != nil {
		w.T.Fatal(err)
	}
	w.Exec("UPDATE a2a.browser_sessions SET used_at = used_at - interval '2 minutes'")
}

// keySession is a new session of an API key.
func keySession(token string) access.NewSession {
	return access.NewSession{
		Session: access.Session{KeyID: "key", Tenant: "acme", Owner: "ann"}, Token: token, Life: time.Hour,
	}
}

// writingsOfOperators are those of what operators do to the whole service, and of their sessions.
var writingsOfOperators = []writing{
	answering("tasks.BeginStop", storetest.IsCommit, func(w *witness) func(*store.Store) (int, error) {
		w.RunningTask()
		return func(s *store.Store) (int, error) {
			_, n, err := s.Tasks.BeginStop(w.T.Context(), tasks.StopWorker, "r1", true)
			return n, err
		}
	}, func(w *witness, _ int) string {
		if wrong := w.count(1, "a2a.claim_stops"); wrong != "" {
			return wrong
		}
		return w.count(0, "a2a.task_leases WHERE lease_until > clock_timestamp()")
	}),
	answering("tasks.EndStop", storetest.IsCommit, func(w *witness) func(*store.Store) (bool, error) {
		if _, _, err := w.Tasks.BeginStop(w.T.Context(), tasks.StopAgent, storetest.Agent, false); err != nil {
			w.T.Fatal(err)
		}
		return func(s *store.Store) (bool, error) {
			return s.Tasks.EndStop(w.T.Context(), tasks.StopAgent, storetest.Agent)
		}
	}, func(w *witness, _ bool) string { return w.count(0, "a2a.claim_stops") }),
	answering("webhooks.ReplaySince", storetest.IsCommit,
		func(w *witness) func(*store.Store) (webhooks.Replayed, error) {
			d := w.due()
			w.Failed(d, webhooks.Failure{Fate: "dead"})
			return func(s *store.Store) (webhooks.Replayed, error) {
				return s.Webhooks.ReplaySince(w.T.Context(), webhooks.ReplayRange{
					Tenant: d.Tenant, Origin: d.Origin, Since: time.Unix(0, 0), Limit: 10,
				})
			}
		}, func(w *witness, _ webhooks.Replayed) string {
			return w.count(0, "a2a.push_configs WHERE state = 'dead'")
		}).afterReads(1),
	plain("tasks.Assign", storetest.IsCommit, func(w *witness) func(*store.Store) error {
		l := w.RunningTask()
		w.Append(l, storetest.Status(a2a.StateInputRequired))
		return func(s *store.Store) error {
			return s.Tasks.Assign(w.T.Context(), tasks.Assignment{Task: l.TaskID, To: "Carl"})
		}
	}),
	plain("access.OpenSession", storetest.IsCommit, func(w *witness) func(*store.Store) error {
		return func(s *store.Store) error { return s.Access.OpenSession(w.T.Context(), keySession("t")) }
	}),
	plain("access.UseSession", storetest.IsExecute, func(w *witness) func(*store.Store) error {
		w.session()
		return func(s *store.Store) error { return s.Access.UseSession(w.T.Context(), "token") }
	}),
	answering("access.RevokeSessions", storetest.IsCommit, func(w *witness) func(*store.Store) (int, error) {
		w.session()
		return func(s *store.Store) (int, error) {
			return s.Access.RevokeSessions(w.T.Context(), access.SessionFilter{Tenant: "acme", Owner: "ann"})
		}
	}, func(w *witness, _ int) string { return w.count(0, "a2a.browser_sessions") }),
	plain("access.UseSignIn", storetest.IsCommit, func(w *witness) func(*store.Store) error {
		return func(s *store.Store) error {
			_, err := s.Access.UseSignIn(w.T.Context(), "state", time.Minute)
			return err
		}
	}),
	plain("access.SaveView", storetest.IsCommit, func(w *witness) func(*store.Store) error {
		return func(s *store.Store) error { return s.Access.SaveView(w.T.Context(), "failed", "state=failed") }
	}),
	answering("access.RemoveView", storetest.IsCommit, func(w *witness) func(*store.Store) (bool, error) {
		if err := w.Access.SaveView(w.T.Context(), "failed", "state=failed"); err != nil {
			w.T.Fatal(err)
		}
		return func(s *store.Store) (bool, error) { return s.Access.RemoveView(w.T.Context(), "failed") }
	}, func(w *witness, _ bool) string { return w.count(0, "a2a.saved_views") }),
	plain("access.EndSession", storetest.IsExecute, func(w *witness) func(*store.Store) error {
		w.session()
		return func(s *store.Store) error { return s.Access.EndSession(w.T.Context(), "token") }
	}),
}
