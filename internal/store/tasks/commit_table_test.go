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

// plain is a writing method that answers with an error alone, or with nothing that could be wrong.
func plain(method string, unit func([]byte) bool, prepare func(w *witness) func(s *store.Store) error) writing {
	return writing{
		method: method, unit: unit,
		prepare: func(w *witness) func(*store.Store) (any, error) {
			call := prepare(w)
			return func(s *store.Store) (any, error) { return nil, call(s) }
		},
		stored: func(*witness, any) string { return "" },
	}
}

// answering is a writing method of which stored says what is missing.
func answering[T any](method string, unit func([]byte) bool, prepare func(w *witness) func(s *store.Store) (T, error), stored func(w *witness, answer T) string) writing {
	return writing{
		method: method, unit: unit,
		prepare: func(w *witness) func(*store.Store) (any, error) {
			call := prepare(w)
			return func(s *store.Store) (any, error) { return call(s) }
		},
		stored: func(w *witness, answer any) string { return stored(w, answer.(T)) },
	}
}

func submitted(w *witness, out tasks.Submitted) string {
	return w.count(1, "a2a.tasks t JOIN a2a.messages m ON m.task_id = t.id WHERE t.id = $1", out.Task)
}

func claimed(w *witness, leases []tasks.Lease) string {
	for _, l := range leases {
		if wrong := w.count(1, "a2a.task_leases WHERE task_id = $1 AND epoch = $2", l.TaskID, l.Epoch); wrong != "" {
			return wrong
		}
	}
	return ""
}

// writings are all methods of the store that write, some in several shapes.
var writings = []writing{
	answering("tasks.Submit", storetest.IsExecute, func(w *witness) func(*store.Store) (tasks.Submitted, error) {
		return func(s *store.Store) (tasks.Submitted, error) {
			return s.Tasks.Submit(w.T.Context(), storetest.Submission("x"))
		}
	}, submitted),
	answering("tasks.Submit with a webhook", storetest.IsCommit, func(w *witness) func(*store.Store) (tasks.Submitted, error) {
		in := storetest.Submission("x")
		in.Push = webhook("h")
		return func(s *store.Store) (tasks.Submitted, error) { return s.Tasks.Submit(w.T.Context(), in) }
	}, submitted),
	answering("tasks.Submit with a webhook and a key", storetest.IsCommit, func(w *witness) func(*store.Store) (tasks.Submitted, error) {
		in := storetest.Submission("x")
		in.Push, in.Key = webhook("h"), "h:k"
		return func(s *store.Store) (tasks.Submitted, error) { return s.Tasks.Submit(w.T.Context(), in) }
	}, submitted),
	answering("tasks.Submit to a worker", storetest.IsExecute, func(w *witness) func(*store.Store) (tasks.Submitted, error) {
		w.takes = true
		return func(s *store.Store) (tasks.Submitted, error) {
			return s.Tasks.Submit(w.T.Context(), storetest.Submission("x"))
		}
	}, submitted),
	answering("tasks.Submit to a worker with an action", storetest.IsCommit, func(w *witness) func(*store.Store) (tasks.Submitted, error) {
		w.takes = true
		in := storetest.Submission("x")
		in.Action = &access.Action{Name: access.ActionTaskRetry, Tenant: storetest.Ann.Tenant, Owner: storetest.Ann.Owner}
		return func(s *store.Store) (tasks.Submitted, error) { return s.Tasks.Submit(w.T.Context(), in) }
	}, submitted),
	answering("tasks.Submit to a task", storetest.IsCommit, func(w *witness) func(*store.Store) (tasks.Submitted, error) {
		l := w.RunningTask()
		w.Append(l, storetest.Status(a2a.StateInputRequired, "?"))
		in := storetest.Submission("answer")
		in.Task, in.ContextID, in.Push = l.TaskID, "", webhook("h")
		return func(s *store.Store) (tasks.Submitted, error) { return s.Tasks.Submit(w.T.Context(), in) }
	}, func(w *witness, out tasks.Submitted) string {
		return w.count(1, "a2a.tasks WHERE id = $1 AND state = 1 AND last_seq = $2", out.Task, out.After)
	}),
	answering("tasks.RetryTask", storetest.IsCommit, func(w *witness) func(*store.Store) (tasks.Submitted, error) {
		l := w.RunningTask()
		w.Append(l, storetest.Status(a2a.StateFailed))
		return func(s *store.Store) (tasks.Submitted, error) { return s.Tasks.RetryTask(w.T.Context(), l.TaskID) }
	}, submitted),
	answering("tasks.Append", storetest.IsExecute, func(w *witness) func(*store.Store) (tasks.Appended, error) {
		l := w.RunningTask()
		return func(s *store.Store) (tasks.Appended, error) {
			return s.Tasks.Append(w.T.Context(), l, tasks.Batch{Events: []a2a.Event{storetest.Chunk("a", "x"), storetest.Status(a2a.StateCompleted)}})
		}
	}, func(w *witness, out tasks.Appended) string {
		return w.count(1, "a2a.tasks WHERE state = 100 AND last_seq = $1", out.Base+2)
	}),
	answering("tasks.Append under a webhook", storetest.IsCommit, func(w *witness) func(*store.Store) (tasks.Appended, error) {
		in := storetest.Submission("x")
		in.Push = webhook("h")
		l := w.ClaimTask(w.Submit(in).Task)
		return func(s *store.Store) (tasks.Appended, error) {
			return s.Tasks.Append(w.T.Context(), l, tasks.Batch{ID: "b", Events: longEnd()})
		}
	}, func(w *witness, out tasks.Appended) string {
		return w.count(1, "a2a.tasks WHERE state = 100 AND folded AND last_seq = $1", out.Base+41)
	}),
	answering("tasks.Cancel", storetest.IsCommit, func(w *witness) func(*store.Store) (a2a.State, error) {
		l := w.RunningTask()
		return func(s *store.Store) (a2a.State, error) {
			return s.Tasks.Cancel(w.T.Context(), storetest.Ann, storetest.Agent, l.TaskID)
		}
	}, func(w *witness, state a2a.State) string { return w.count(1, "a2a.tasks WHERE state = $1", int(state)) }),
	answering("tasks.CancelWith", storetest.IsCommit, func(w *witness) func(*store.Store) (a2a.State, error) {
		in := storetest.Submission("x")
		in.Push = webhook("h")
		task := w.Submit(in).Task
		return func(s *store.Store) (a2a.State, error) {
			return s.Tasks.CancelWith(w.T.Context(), storetest.Ann, storetest.Agent, task, a2a.Raw(`{}`))
		}
	}, func(w *witness, state a2a.State) string { return w.count(1, "a2a.tasks WHERE state = $1", int(state)) }),
	plain("tasks.Reveal", storetest.IsCommit, func(w *witness) func(*store.Store) error {
		in := storetest.Submission("x")
		in.Undecided, in.Push = true, webhook("h")
		task := w.Submit(in).Task
		return func(s *store.Store) error { return s.Tasks.Reveal(w.T.Context(), task) }
	}),

	answering("tasks.Claim", taskClaim, func(w *witness) func(*store.Store) ([]tasks.Lease, error) {
		w.NewTask()
		return func(s *store.Store) ([]tasks.Lease, error) {
			return s.Tasks.NewClaimer().Claim(w.T.Context(), storetest.Agent, 5, storetest.TTL, 0)
		}
	}, claimed),
	answering("tasks.ClaimFor", storetest.IsCommit, func(w *witness) func(*store.Store) ([]tasks.Lease, error) {
		w.NewTask()
		return func(s *store.Store) ([]tasks.Lease, error) {
			return s.Tasks.NewClaimer().ClaimFor(w.T.Context(), tasks.ClaimRequest{Agent: storetest.Agent, Slots: 5, Running: 5, TTL: storetest.TTL})
		}
	}, claimed),
	answering("tasks.Renew", storetest.IsExecute, func(w *witness) func(*store.Store) ([]tasks.Renewal, error) {
		l := w.RunningTask()
		return func(s *store.Store) ([]tasks.Renewal, error) {
			return s.Tasks.Renew(w.T.Context(), []*tasks.Lease{l}, storetest.TTL)
		}
	}, func(w *witness, held []tasks.Renewal) string { return w.count(len(held), "a2a.task_leases") }),
	answering("tasks.RenewRemote", storetest.IsExecute, func(w *witness) func(*store.Store) (*tasks.RemoteRun, error) {
		l := w.RunningTask()
		g := tasks.RemoteLease{Task: l.TaskID, Epoch: l.Epoch, Agents: map[string]tasks.Terms{storetest.Agent: {TTL: storetest.TTL}}}
		return func(s *store.Store) (*tasks.RemoteRun, error) { return s.Tasks.RenewRemote(w.T.Context(), g) }
	}, func(w *witness, held *tasks.RemoteRun) string {
		return w.count(1, "a2a.task_leases WHERE task_id = $1", held.TaskID)
	}),
	plain("tasks.Retry", storetest.IsExecute, func(w *witness) func(*store.Store) error {
		l := w.RunningTask()
		return func(s *store.Store) error { return s.Tasks.Retry(w.T.Context(), l, "bad luck", 0) }
	}),
	plain("tasks.Release", storetest.IsExecute, func(w *witness) func(*store.Store) error {
		l := w.RunningTask()
		return func(s *store.Store) error { return s.Tasks.Release(w.T.Context(), []*tasks.Lease{l}) }
	}),
	answering("tasks.Rescue", storetest.IsCommit, func(w *witness) func(*store.Store) (int, error) {
		in := storetest.Submission("x")
		in.Push = webhook("h")
		w.Expire(w.ClaimTask(w.Submit(in).Task).TaskID)
		return func(s *store.Store) (int, error) {
			return s.Tasks.Rescue(w.T.Context(), []tasks.Policy{{Agent: storetest.Agent, Fate: "fail", MaxAttempts: 1}}, 1, 10)
		}
	}, func(w *witness, n int) string { return w.count(n, "a2a.tasks WHERE state = 101") }),
	answering("tasks.ForgetBatches", storetest.IsExecute, func(w *witness) func(*store.Store) (int, error) {
		l := w.RunningTask()
		if _, err := w.Tasks.Append(w.T.Context(), l, tasks.Batch{ID: "b", Checkpoint: a2a.Raw("1")}); err != nil {
			w.T.Fatal(err)
		}
		w.Exec(`UPDATE a2a.task_batches SET made_at = made_at - interval '1 h'`)
		return func(s *store.Store) (int, error) { return s.Tasks.ForgetBatches(w.T.Context(), time.Minute, 10) }
	}, func(w *witness, _ int) string { return w.count(0, "a2a.task_batches") }),

	answering("tasks.ClaimCancels", storetest.IsExecute, func(w *witness) func(*store.Store) ([]tasks.PendingCancel, error) {
		w.untold()
		return func(s *store.Store) ([]tasks.PendingCancel, error) {
			return s.Tasks.ClaimCancels(w.T.Context(), map[string]int{storetest.Agent: 5})
		}
	}, func(w *witness, list []tasks.PendingCancel) string {
		return w.count(len(list), "a2a.task_cancels WHERE tries = 1")
	}),
	plain("tasks.CancelDelivered", storetest.IsExecute, func(w *witness) func(*store.Store) error {
		task := w.untold()
		return func(s *store.Store) error { return s.Tasks.CancelDelivered(w.T.Context(), task) }
	}),
	answering("tasks.ExpireCancels", storetest.IsExecute, func(w *witness) func(*store.Store) ([]a2a.ID, error) {
		w.untold()
		w.Exec(`UPDATE a2a.task_cancels SET tries = 1`)
		return func(s *store.Store) ([]a2a.ID, error) { return s.Tasks.ExpireCancels(w.T.Context(), nil, 0) }
	}, func(w *witness, _ []a2a.ID) string { return w.count(0, "a2a.task_cancels") }),

	plain("tasks.SetWebhook", storetest.IsCommit, func(w *witness) func(*store.Store) error {
		task := w.NewTask()
		return func(s *store.Store) error {
			return s.Tasks.SetWebhook(w.T.Context(), storetest.Ann, storetest.Agent, task, *webhook("h"), 0)
		}
	}),
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
	}, func(w *witness, list []webhooks.Delivery) string {
		for _, d := range list {
			if wrong := w.count(1, "a2a.push_configs WHERE id = $1 AND lease_epoch = $2 AND lease_until > clock_timestamp()", d.Row, d.Epoch); wrong != "" {
				return wrong
			}
		}
		return ""
	}),
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
	plain("webhooks.RecordSkip", storetest.IsCommit, func(w *witness) func(*store.Store) error {
		d := w.due()
		return func(s *store.Store) error {
			return s.Webhooks.RecordSkip(w.T.Context(), d, &webhooks.Try{Status: 400, Class: "client_error", Reason: "no"}, false)
		}
	}),
	answering("webhooks.RecordFailure", storetest.IsCommit, func(w *witness) func(*store.Store) (bool, error) {
		d := w.due()
		f := webhooks.Failure{Delay: time.Hour, Breaker: &webhooks.Breaker{Fails: 1, FirstOpen: time.Second, MaxOpen: time.Second, DisableAfter: time.Nanosecond}}
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
		f := webhooks.Failure{Delay: time.Hour, Breaker: &webhooks.Breaker{Fails: 1, FirstOpen: time.Hour, MaxOpen: time.Hour, DisableAfter: time.Hour}}
		if _, err := w.Webhooks.RecordFailure(w.T.Context(), d, &webhooks.Try{Class: "connect", Reason: "refused"}, f); err != nil {
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
		w.Exec("INSERT INTO a2a.audit_log (at, actor, action) SELECT clock_timestamp() - interval '401 days', 'operator', 'key.create' FROM generate_series(1, 3)")
		return func(s *store.Store) (int, error) {
			n, _, err := s.Access.SweepActions(w.T.Context(), access.ActionSweep{Keep: 400 * 24 * time.Hour, KeepSignIns: 24 * time.Hour, Batch: 10})
			return n, err
		}
	}, func(w *witness, n int) string {
		if n == 0 {
			return "" // it had gone before the answer was lost, and the sweep was done again
		}
		return w.count(0, "a2a.audit_log WHERE action = 'key.create'")
	}),
	answering("webhooks.Sweep", storetest.IsCommit, func(w *witness) func(*store.Store) (bool, error) {
		d := w.due()
		if _, err := w.Webhooks.RecordFailure(w.T.Context(), d, &webhooks.Try{Class: "connect", Reason: "refused"}, webhooks.Failure{}); err != nil {
			w.T.Fatal(err)
		}
		w.Exec(`UPDATE a2a.push_attempts SET started_at = started_at - interval '1 h'`)
		return func(s *store.Store) (bool, error) {
			return s.Webhooks.Sweep(w.T.Context(), webhooks.SweepPolicy{Keep: time.Minute, Batch: 1})
		}
	}, func(w *witness, _ bool) string { return w.count(0, "a2a.push_attempts") }),
	answering("webhooks.Reseal", storetest.IsExecute, func(w *witness) func(*store.Store) (int, error) {
		w.due()
		return func(s *store.Store) (int, error) {
			return s.Webhooks.Reseal(w.T.Context(), func(_ a2a.ID, p webhooks.Secrets) (webhooks.Secrets, bool, error) {
				p.Token = []byte("t")
				return p, true, nil
			})
		}
	}, func(w *witness, n int) string { return w.count(n, "a2a.push_configs WHERE token = 't'") }),

	answering("tasks.Retire", storetest.IsCommit, func(w *witness) func(*store.Store) (tasks.Retired, error) {
		w.Append(w.RunningTask(), storetest.Status(a2a.StateCompleted))
		return func(s *store.Store) (tasks.Retired, error) {
			return s.Tasks.Retire(w.T.Context(), a2a.ID{}, -time.Hour, 10, func(tasks.Ended) tasks.Fate { return tasks.Delete })
		}
	}, func(w *witness, out tasks.Retired) string { return w.count(1-out.Deleted, "a2a.tasks") }),
	answering("tasks.RetireAgain", storetest.IsCommit, func(w *witness) func(*store.Store) (tasks.Retired, error) {
		l := w.RunningTask()
		w.Append(l, storetest.Status(a2a.StateCompleted))
		return func(s *store.Store) (tasks.Retired, error) {
			return s.Tasks.RetireAgain(w.T.Context(), []a2a.ID{l.TaskID}, func(tasks.Ended) tasks.Fate { return tasks.Delete })
		}
	}, func(w *witness, out tasks.Retired) string { return w.count(1-out.Deleted, "a2a.tasks") }),
	answering("tasks.Purge", storetest.IsCommit, func(w *witness) func(*store.Store) (int, error) {
		w.Append(w.RunningTask(), storetest.Status(a2a.StateCompleted))
		return func(s *store.Store) (int, error) {
			return s.Tasks.Purge(w.T.Context(), tasks.PurgeFilter{Tenant: storetest.Ann.Tenant, Owner: storetest.Ann.Owner})
		}
	}, func(w *witness, _ int) string { return w.count(0, "a2a.tasks") }),
	plain("access.Record", storetest.IsExecute, func(w *witness) func(*store.Store) error {
		return func(s *store.Store) error {
			return s.Access.Record(w.T.Context(), access.Action{Name: access.ActionSignInFailed})
		}
	}),
	answering("access.SweepActions", storetest.IsCommit, func(w *witness) func(*store.Store) (int, error) {
		if err := w.Access.Record(w.T.Context(), access.Action{Name: access.ActionSignInFailed}); err != nil {
			w.T.Fatal(err)
		}
		w.Exec(`UPDATE a2a.audit_log SET at = at - interval '1 h'`)
		return func(s *store.Store) (int, error) {
			n, _, err := s.Access.SweepActions(w.T.Context(), access.ActionSweep{Keep: time.Minute, KeepSignIns: time.Minute, Batch: 10})
			return n, err
		}
	}, func(w *witness, _ int) string {
		return w.count(0, "a2a.audit_log WHERE action = $1", access.ActionSignInFailed)
	}),
	plain("db.Notify", storetest.IsExecute, func(w *witness) func(*store.Store) error {
		return func(s *store.Store) error { return s.DB.Notify(w.T.Context(), []string{"x"}) }
	}),

	answering("access.CreateKey", storetest.IsCommit, func(w *witness) func(*store.Store) (access.Key, error) {
		k := access.Key{ID: "k1", Tenant: "acme", Owner: "ann", Scopes: []string{"tasks:read"}}
		return func(s *store.Store) (access.Key, error) {
			out, err := s.Access.CreateKey(w.T.Context(), k, [32]byte{1}, time.Hour)
			out.Scopes = nil // compared with nothing
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
		return func(s *store.Store) error { return s.Access.DropSigningKey(w.T.Context(), "x") }
	}),
	plain("access.ResealSigningKey", storetest.IsExecute, func(w *witness) func(*store.Store) error {
		return func(s *store.Store) error {
			return s.Access.ResealSigningKey(w.T.Context(), "x", []byte("k"), []byte("l"))
		}
	}),
}

// untold leaves a cancel that an agent is to be told of.
func (w *witness) untold() a2a.ID {
	w.T.Helper()
	l := w.RunningTask()
	if _, err := w.Tasks.Append(w.T.Context(), l, tasks.Batch{Checkpoint: a2a.Raw(`{"remote":1}`)}); err != nil {
		w.T.Fatal(err)
	}
	if _, err := w.Tasks.Cancel(w.T.Context(), storetest.Ann, storetest.Agent, l.TaskID); err != nil {
		w.T.Fatal(err)
	}
	w.Exec(`UPDATE a2a.task_cancels SET due_at = clock_timestamp() - interval '1 s'`)
	return l.TaskID
}

func (w *witness) key() {
	w.T.Helper()
	if _, err := w.Access.CreateKey(w.T.Context(), access.Key{ID: "k1", Tenant: "acme", Owner: "ann", Scopes: []string{}}, [32]byte{1}, 0); err != nil {
		w.T.Fatal(err)
	}
}
