package tasks_test

import (
	"fmt"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// writingsOfOthers are those of the other packages, and the sweeps.
var writingsOfOthers = []writing{
	plain("webhooks.EndOfTasks", storetest.IsExecute, func(w *witness) func(*store.Store) error {
		in := storetest.Submission("x")
		in.Push = webhook("h")
		task := w.Submit(in).Task
		return func(s *store.Store) error { return s.Webhooks.EndOfTasks(w.T.Context(), []a2a.ID{task}) }
	}),
	plain("webhooks.Delete", storetest.IsExecute, func(w *witness) func(*store.Store) error {
		in := storetest.Submission("x")
		in.Push = webhook("h")
		task := w.Submit(in).Task
		return func(s *store.Store) error { return s.Webhooks.Delete(w.T.Context(), storetest.Ann, task, "h") }
	}),
	answering("webhooks.Claim", storetest.IsCommit, func(w *witness) func(*store.Store) ([]webhooks.Delivery, error) {
		in := storetest.Submission("x")
		in.Push = webhook("h")
		w.Submit(in)
		return func(s *store.Store) ([]webhooks.Delivery, error) {
			return s.Webhooks.Claim(w.T.Context(), 5, 5, storetest.TTL)
		}
	}, claimedWebhooks),
	answering("webhooks.ClaimWithin", storetest.IsCommit,
		func(w *witness) func(*store.Store) ([]webhooks.Delivery, error) {
			w.NewTaskWithWebhook("h")
			return func(s *store.Store) ([]webhooks.Delivery, error) {
				return s.Webhooks.ClaimWithin(w.T.Context(), 5, func(string) int { return 5 }, storetest.TTL)
			}
		}, claimedWebhooks),
	answering("webhooks.Renew", storetest.IsExecute, func(w *witness) func(*store.Store) ([]a2a.ID, error) {
		d := w.due()
		return func(s *store.Store) ([]a2a.ID, error) {
			return s.Webhooks.Renew(w.T.Context(), []*webhooks.Delivery{d}, storetest.TTL)
		}
	}, func(w *witness, rows []a2a.ID) string {
		return w.count(len(rows), "a2a.push_configs WHERE lease_until > clock_timestamp()")
	}),
	plain("webhooks.RecordDelivery", storetest.IsCommit, func(w *witness) func(*store.Store) error {
		d := w.due()
		return func(s *store.Store) error {
			return s.Webhooks.RecordDelivery(w.T.Context(), d, &webhooks.Try{Status: 200}, false)
		}
	}),
	answering("webhooks.RecordDeliveries", storetest.IsExecute, func(w *witness) func(*store.Store) ([]bool, error) {
		d := w.due()
		return func(s *store.Store) ([]bool, error) {
			return s.Webhooks.RecordDeliveries(w.T.Context(),
				[]webhooks.Delivered{{Delivery: d, Try: &webhooks.Try{Status: 200}}})
		}
	}, func(w *witness, recorded []bool) string {
		if len(recorded) != 1 || !recorded[0] {
			return ""
		}
		return w.count(1, "a2a.push_attempts WHERE outcome = 'delivered'")
	}),
	plain("webhooks.RecordSkip", storetest.IsCommit, func(w *witness) func(*store.Store) error {
		d := w.due()
		return func(s *store.Store) error {
			return s.Webhooks.RecordSkip(w.T.Context(), d,
				&webhooks.Try{Status: 400, Class: "client_error", Reason: "no"},
				false)
		}
	}),
	answering("webhooks.RecordFailure", storetest.IsCommit, func(w *witness) func(*store.Store) (bool, error) {
		d := w.due()
		f := webhooks.Failure{
			Delay: time.Hour,
			Breaker: &webhooks.Breaker{
				Fails: 1, FirstOpen: time.Second, MaxOpen: time.Second, DisableAfter: time.Nanosecond,
			},
		}
		return func(s *store.Store) (bool, error) {
			return s.Webhooks.RecordFailure(w.T.Context(), d, &webhooks.Try{Class: "connect", Reason: "refused"}, f)
		}
	}, func(w *witness, disabled bool) string {
		if !disabled {
			return ""
		}
		return w.count(1, "a2a.push_destinations WHERE disabled_at IS NOT NULL")
	}),
	plain("webhooks.Release", storetest.IsExecute, func(w *witness) func(*store.Store) error {
		d := w.due()
		return func(s *store.Store) error { return s.Webhooks.Release(w.T.Context(), d) }
	}),
	plain("webhooks.Replay", storetest.IsCommit, func(w *witness) func(*store.Store) error {
		d := w.due()
		return func(s *store.Store) error { return s.Webhooks.Replay(w.T.Context(), d.Row, 0) }
	}),
	answering("webhooks.EnableDestination", storetest.IsCommit, func(w *witness) func(*store.Store) (bool, error) {
		d := w.due()
		f := webhooks.Failure{
			Delay:   time.Hour,
			Breaker: &webhooks.Breaker{Fails: 1, FirstOpen: time.Hour, MaxOpen: time.Hour, DisableAfter: time.Hour},
		}
		refused := &webhooks.Try{Class: "connect", Reason: "refused"}
		if _, err := w.Webhooks.RecordFailure(w.T.Context(), d, refused, f); err != nil {
			w.T.Fatal(err)
		}
		return func(s *store.Store) (bool, error) {
			return s.Webhooks.EnableDestination(w.T.Context(), d.Tenant, d.Origin)
		}
	}, func(w *witness, _ bool) string {
		return w.count(0, "a2a.push_destinations WHERE open_until > clock_timestamp()")
	}),
	answering("tasks.SweepAttempts", storetest.IsCommit, func(w *witness) func(*store.Store) (int, error) {
		w.Append(w.RunningTask(), storetest.Status(a2a.StateCompleted))
		w.AttemptsSwept = true
		return func(s *store.Store) (int, error) {
			n, _, err := s.Tasks.SweepAttempts(w.T.Context(), &tasks.AttemptSweep{Keep: time.Nanosecond, Batch: 10})
			return n, err
		}
	}, func(w *witness, n int) string { return w.count(1-n, "a2a.task_attempts") }),
	answering("access.SweepActions", storetest.IsCommit, func(w *witness) func(*store.Store) (int, error) {
		w.Exec(`
			INSERT INTO a2a.audit_log (at, actor, action)
			SELECT clock_timestamp() - interval '401 days', 'operator', 'key.create' FROM generate_series(1, 3)`)
		return func(s *store.Store) (int, error) {
			n, _, err := s.Access.SweepActions(w.T.Context(),
				access.ActionSweep{Keep: 400 * 24 * time.Hour, KeepSignIns: 24 * time.Hour, Batch: 10})
			return n, err
		}
	}, func(w *witness, n int) string {
		if n == 0 {
			return "" // the first sweep deleted the rows, its answer was lost, and it was repeated
		}
		return w.count(0, "a2a.audit_log WHERE action = 'key.create'")
	}),
	answering("webhooks.Sweep", storetest.IsCommit, func(w *witness) func(*store.Store) (bool, error) {
		d := w.due()
		refused := &webhooks.Try{Class: "connect", Reason: "refused"}
		if _, err := w.Webhooks.RecordFailure(w.T.Context(), d, refused, webhooks.Failure{}); err != nil {
			w.T.Fatal(err)
		}
		w.Exec(`UPDATE a2a.push_attempts SET started_at = started_at - interval '1 h'`)
		return func(s *store.Store) (bool, error) {
			return s.Webhooks.Sweep(w.T.Context(), webhooks.SweepPolicy{Keep: time.Minute, Batch: 1})
		}
	}, func(w *witness, _ bool) string { return w.count(0, "a2a.push_attempts") }),
	answering("webhooks.Reseal", storetest.IsExecute, func(w *witness) func(*store.Store) (int, error) {
		w.due()
		w.Exec("UPDATE a2a.push_configs SET token = 's'")
		return func(s *store.Store) (int, error) {
			return s.Webhooks.Reseal(w.T.Context(), func(_ a2a.ID, p webhooks.Secrets) (webhooks.Secrets, bool, error) {
				p.Token = []byte("t")
				return p, true, nil
			})
		}
	}, func(w *witness, n int) string { return w.count(n, "a2a.push_configs WHERE token = 't'") }).afterReads(1),

	answering("tasks.Retire", storetest.IsCommit, func(w *witness) func(*store.Store) (tasks.Retired, error) {
		w.Append(w.RunningTask(), storetest.Status(a2a.StateCompleted))
		return func(s *store.Store) (tasks.Retired, error) {
			return s.Tasks.Retire(w.T.Context(), a2a.ID{}, -time.Hour, 10, func(tasks.Ended) tasks.Fate {
				return tasks.Delete
			})
		}
	}, func(w *witness, out tasks.Retired) string { return w.count(1-out.Deleted, "a2a.tasks") }),
	answering("tasks.RetireAgain", storetest.IsCommit, func(w *witness) func(*store.Store) (tasks.Retired, error) {
		l := w.RunningTask()
		w.Append(l, storetest.Status(a2a.StateCompleted))
		return func(s *store.Store) (tasks.Retired, error) {
			return s.Tasks.RetireAgain(w.T.Context(), []a2a.ID{l.TaskID}, func(tasks.Ended) tasks.Fate {
				return tasks.Delete
			})
		}
	}, func(w *witness, out tasks.Retired) string { return w.count(1-out.Deleted, "a2a.tasks") }),
	answering("tasks.RetireImported", storetest.IsCommit, func(w *witness) func(*store.Store) (tasks.Retired, error) {
		in := imported(a2a.StateCompleted)
		in.Task.ID[0] = 0x80 // beyond every id that this server makes
		importAll(w.Fixture, in)
		return func(s *store.Store) (tasks.Retired, error) {
			return s.Tasks.RetireImported(w.T.Context(), a2a.ID{}, 10, func(tasks.Ended) tasks.Fate {
				return tasks.Delete
			})
		}
	}, func(w *witness, out tasks.Retired) string { return w.count(1-out.Deleted, "a2a.tasks") }),
	answering("tasks.Import", storetest.IsCommit, func(w *witness) func(*store.Store) ([]tasks.ImportOutcome, error) {
		in := imported(a2a.StateWorking)
		return func(s *store.Store) ([]tasks.ImportOutcome, error) {
			return s.Tasks.Import(w.T.Context(), "sqlite:tasks.db", []tasks.Import{in})
		}
	}, func(w *witness, out []tasks.ImportOutcome) string {
		if out[0] != tasks.ImportStored {
			return fmt.Sprintf("outcome %d", out[0])
		}
		return w.count(1, "a2a.tasks t JOIN a2a.task_ready r ON r.task_id = t.id")
	}),
	answering("tasks.Purge", storetest.IsCommit, func(w *witness) func(*store.Store) (int, error) {
		w.Append(w.RunningTask(), storetest.Status(a2a.StateCompleted))
		return func(s *store.Store) (int, error) {
			return s.Tasks.Purge(w.T.Context(),
				tasks.PurgeFilter{Tenant: storetest.Ann.Tenant, Owner: storetest.Ann.Owner})
		}
	}, func(w *witness, _ int) string { return w.count(0, "a2a.tasks") }).afterReads(1),
	plain("access.Record", storetest.IsExecute, func(w *witness) func(*store.Store) error {
		return func(s *store.Store) error {
			return s.Access.Record(w.T.Context(), access.Action{Name: access.ActionSignInFailed})
		}
	}),
	answering("access.SweepActions", storetest.IsCommit, func(w *witness) func(*store.Store) (int, error) {
		if err := w.Access.Record(w.T.Context(), access.Action{Name: access.ActionSignInFailed}); err != nil {
			w.T.Fatal(err)
		}
		w.Exec(`UPDATE a2a.audit_log SET at = at - interval '25 h'`) // the server keeps them for a day at least
		return func(s *store.Store) (int, error) {
			n, _, err := s.Access.SweepActions(w.T.Context(),
				access.ActionSweep{Keep: time.Minute, KeepSignIns: time.Minute, Batch: 10})
			return n, err
		}
	}, func(w *witness, _ int) string {
		return w.count(0, "a2a.audit_log WHERE action = $1", access.ActionSignInFailed)
	}),
	plain(notifying, storetest.IsExecute, func(w *witness) func(*store.Store) error {
		return func(s *store.Store) error { return s.DB.Notify(w.T.Context(), []string{"x"}) }
	}),

	answering("access.CreateKey", storetest.IsCommit, func(w *witness) func(*store.Store) (access.Key, error) {
		k := access.Key{ID: "k1", Tenant: "acme", Owner: "ann", Scopes: []string{"tasks:read"}}
		return func(s *store.Store) (access.Key, error) {
			out, err := s.Access.CreateKey(w.T.Context(), k, [32]byte{1}, time.Hour)
			out.Scopes = nil // no test compares them
			return out, err
		}
	}, func(w *witness, k access.Key) string { return w.count(1, "a2a.api_keys WHERE id = $1", k.ID) }),
	plain("access.UseKey", storetest.IsExecute, func(w *witness) func(*store.Store) error {
		w.key()
		return func(s *store.Store) error { return s.Access.UseKey(w.T.Context(), "k1") }
	}),
	plain("access.RevokeKey", storetest.IsCommit, func(w *witness) func(*store.Store) error {
		w.key()
		return func(s *store.Store) error { return s.Access.RevokeKey(w.T.Context(), "k1") }
	}),
	answering("access.ServerKey", storetest.IsExecute, func(w *witness) func(*store.Store) (string, error) {
		return func(s *store.Store) (string, error) {
			key, err := s.Access.ServerKey(w.T.Context(), "x")
			return fmt.Sprintf("%x", key), err
		}
	}, func(w *witness, key string) string {
		return w.count(1, "a2a.server_keys WHERE encode(key, 'hex') = $1", key)
	}),
	plain("access.AddSigningKey", storetest.IsExecute, func(w *witness) func(*store.Store) error {
		return func(s *store.Store) error { return s.Access.AddSigningKey(w.T.Context(), "x", []byte("k")) }
	}),
	plain("access.DropSigningKey", storetest.IsExecute, func(w *witness) func(*store.Store) error {
		w.signingKey()
		return func(s *store.Store) error { return s.Access.DropSigningKey(w.T.Context(), "signing/x") }
	}),
	plain("access.ResealSigningKey", storetest.IsExecute, func(w *witness) func(*store.Store) error {
		w.signingKey()
		return func(s *store.Store) error {
			return s.Access.ResealSigningKey(w.T.Context(), "signing/x", []byte("k"), []byte("l"))
		}
	}),
}

// claimedWebhooks checks that each of these webhooks is claimed.
func claimedWebhooks(w *witness, list []webhooks.Delivery) string {
	for _, d := range list {
		if wrong := w.count(1,
			"a2a.push_configs WHERE id = $1 AND lease_epoch = $2 AND lease_until > clock_timestamp()",
			d.Row, d.Epoch); wrong != "" {
			return wrong
		}
	}
	return ""
}
