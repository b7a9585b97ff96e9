package tasks_test

import (
	"slices"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// plain is a writing method that returns only an error, or nothing that a test could compare.
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

// answering is a writing method whose answer stored compares with the database.
func answering[T any](method string, unit func([]byte) bool, prepare func(w *witness) func(s *store.Store) (T, error),
	stored func(w *witness, answer T) string) writing {
	return writing{
		method: method, unit: unit,
		prepare: func(w *witness) func(*store.Store) (any, error) {
			call := prepare(w)
			return func(s *store.Store) (any, error) { return call(s) }
		},
		stored: func(w *witness, answer any) string { return stored(w, answer.(T)) },
	}
}

// submitted compares a submission with the database.
func submitted(w *witness, out tasks.Submitted) string {
	return w.count(1, "a2a.tasks t JOIN a2a.messages m ON m.task_id = t.id WHERE t.id = $1", out.Task)
}

// claimed compares leases with the database.
func claimed(w *witness, leases []tasks.Lease) string {
	for _, l := range leases {
		if wrong := w.count(1, "a2a.task_leases WHERE task_id = $1 AND epoch = $2", l.TaskID, l.Epoch); wrong != "" {
			return wrong
		}
	}
	return ""
}

// writings are all methods of the store that write, some with several kinds of arguments.
var writings = slices.Concat(
	writingsOfTasks, writingsOfSteps, writingsOfOutages, writingsOfParked, writingsOfSchedules, writingsOfOperators,
	writingsOfJobs, writingsOfOthers)

// writingsOfTasks are those of package tasks.
var writingsOfTasks = []writing{
	answering("tasks.Submit", storetest.IsExecute, func(w *witness) func(*store.Store) (tasks.Submitted, error) {
		return func(s *store.Store) (tasks.Submitted, error) {
			return s.Tasks.Submit(w.T.Context(), storetest.Submission("x"))
		}
	}, submitted),
	answering("tasks.Submit with a webhook",
		storetest.IsCommit, func(w *witness) func(*store.Store) (tasks.Submitted, error) {
			in := storetest.Submission("x")
			in.Push = webhook("h")
			return func(s *store.Store) (tasks.Submitted, error) { return s.Tasks.Submit(w.T.Context(), in) }
		}, submitted),
	answering("tasks.Submit with a webhook and a key",
		storetest.IsCommit, func(w *witness) func(*store.Store) (tasks.Submitted, error) {
			in := storetest.Submission("x")
			in.Push, in.Key = webhook("h"), "h:k"
			return func(s *store.Store) (tasks.Submitted, error) { return s.Tasks.Submit(w.T.Context(), in) }
		}, submitted),
	answering("tasks.Submit to a worker",
		storetest.IsExecute, func(w *witness) func(*store.Store) (tasks.Submitted, error) {
			w.hasSlots = true
			return func(s *store.Store) (tasks.Submitted, error) {
				return s.Tasks.Submit(w.T.Context(), storetest.Submission("x"))
			}
		}, submitted),
	answering("tasks.Submit to a worker with an action",
		storetest.IsCommit, func(w *witness) func(*store.Store) (tasks.Submitted, error) {
			w.hasSlots = true
			in := storetest.Submission("x")
			in.Action = &access.Action{
				Name: access.ActionTaskRetry, Tenant: storetest.Ann.Tenant, Owner: storetest.Ann.Owner,
			}
			return func(s *store.Store) (tasks.Submitted, error) { return s.Tasks.Submit(w.T.Context(), in) }
		}, submitted),
	answering("tasks.Submit to a task",
		storetest.IsCommit, func(w *witness) func(*store.Store) (tasks.Submitted, error) {
			l := w.RunningTask()
			w.Append(l, storetest.Status(a2a.StateInputRequired, "?"))
			in := storetest.Submission("answer")
			in.Task, in.ContextID, in.Push = l.TaskID, "", webhook("h")
			return func(s *store.Store) (tasks.Submitted, error) { return s.Tasks.Submit(w.T.Context(), in) }
		}, func(w *witness, out tasks.Submitted) string {
			return w.count(1, "a2a.tasks WHERE id = $1 AND state = 1 AND last_seq = $2", out.Task, out.After)
		}),
	answering("tasks.RetryTask", storetest.IsCommit, func(w *witness) func(*store.Store) (tasks.Submitted, error) {
		in := storetest.Submission("x")
		in.Push = webhook("h")
		l := w.ClaimTask(w.Submit(in).Task)
		w.Append(l, storetest.Status(a2a.StateFailed))
		return func(s *store.Store) (tasks.Submitted, error) {
			return s.Tasks.RetryTask(w.T.Context(), l.TaskID, moved)
		}
	}, submitted),
	answering("tasks.Append", storetest.IsExecute, func(w *witness) func(*store.Store) (tasks.Appended, error) {
		l := w.RunningTask()
		return func(s *store.Store) (tasks.Appended, error) {
			return s.Tasks.Append(w.T.Context(), l,
				storetest.Batch(storetest.Chunk("a", "x"), storetest.Status(a2a.StateCompleted)))
		}
	}, func(w *witness, out tasks.Appended) string {
		return w.count(1, "a2a.tasks WHERE state = 100 AND last_seq = $1", out.Base+2)
	}),
	answering("tasks.Append under a webhook",
		storetest.IsCommit, func(w *witness) func(*store.Store) (tasks.Appended, error) {
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
			return s.Tasks.NewClaimer().ClaimFor(w.T.Context(),
				tasks.ClaimRequest{Agent: storetest.Agent, Slots: 5, Running: 5, TTL: storetest.TTL})
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
		w.Exec("UPDATE a2a.task_leases SET lease_until = clock_timestamp() + interval '1 second'") // it is due
		g := tasks.RemoteLease{
			Task: l.TaskID, Epoch: l.Epoch, Agents: map[string]tasks.Terms{storetest.Agent: {TTL: storetest.TTL}},
		}
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
		return func(s *store.Store) error { return s.Tasks.Release(w.T.Context(), []*tasks.Lease{l}, "given back") }
	}),
	answering("tasks.Rescue", storetest.IsCommit, func(w *witness) func(*store.Store) (int, error) {
		in := storetest.Submission("x")
		in.Push = webhook("h")
		w.Expire(w.ClaimTask(w.Submit(in).Task).TaskID)
		return func(s *store.Store) (int, error) {
			return s.Tasks.Rescue(w.T.Context(), []tasks.Policy{{Agent: storetest.Agent, Fate: "fail", MaxAttempts: 1}},
				tasks.Policy{MaxAttempts: 1}, 10)
		}
	}, func(w *witness, n int) string { return w.count(n, "a2a.tasks WHERE state = 101") }),
	answering("tasks.RescueGone", storetest.IsCommit, func(w *witness) func(*store.Store) (int, error) {
		l := w.RunningTask()
		w.Exec(`INSERT INTO a2a.workers (tenant, name, instance, version, host, agents, slots, busy, busy_share,
			clock_ahead, started_at, seen_at) VALUES ('', 'x', 'x', '', '', '{}', 0, 0, 0, '0', now(), now())`)
		w.Exec("UPDATE a2a.task_leases SET holder = 'x' WHERE task_id = $1", l.TaskID)
		return func(s *store.Store) (int, error) {
			present(w.Fixture, s)
			return s.Tasks.RescueGone(w.T.Context(), &tasks.Sessions{}, nil, tasks.Policy{MaxAttempts: 9}, 10)
		}
	}, func(w *witness, n int) string { return w.count(n, "a2a.task_attempts WHERE outcome = 'expired'") }),
	answering("tasks.ForgetBatches", storetest.IsExecute, func(w *witness) func(*store.Store) (int, error) {
		l := w.RunningTask()
		if _, err := w.Tasks.Append(w.T.Context(), l, tasks.Batch{ID: "b", Checkpoint: a2a.Raw("1")}); err != nil {
			w.T.Fatal(err)
		}
		w.Exec(`UPDATE a2a.task_batches SET made_at = made_at - interval '1 h'`)
		return func(s *store.Store) (int, error) { return s.Tasks.ForgetBatches(w.T.Context(), time.Minute, 10) }
	}, func(w *witness, _ int) string { return w.count(0, "a2a.task_batches") }),

	answering("tasks.ClaimCancels",
		storetest.IsExecute, func(w *witness) func(*store.Store) ([]tasks.PendingCancel, error) {
			w.pendingCancel()
			return func(s *store.Store) ([]tasks.PendingCancel, error) {
				return s.Tasks.ClaimCancels(w.T.Context(), map[string]int{storetest.Agent: 5})
			}
		}, func(w *witness, list []tasks.PendingCancel) string {
			return w.count(len(list), "a2a.task_cancels WHERE tries = 1")
		}),
	plain("tasks.CancelDelivered", storetest.IsExecute, func(w *witness) func(*store.Store) error {
		task := w.pendingCancel()
		return func(s *store.Store) error { return s.Tasks.CancelDelivered(w.T.Context(), task) }
	}),
	answering("tasks.ExpireCancels", storetest.IsExecute, func(w *witness) func(*store.Store) ([]a2a.ID, error) {
		w.pendingCancel()
		w.Exec(`UPDATE a2a.task_cancels SET tries = 1`)
		return func(s *store.Store) ([]a2a.ID, error) { return s.Tasks.ExpireCancels(w.T.Context(), nil, 0) }
	}, func(w *witness, _ []a2a.ID) string { return w.count(0, "a2a.task_cancels") }),

	plain("tasks.SetWebhook", storetest.IsCommit, func(w *witness) func(*store.Store) error {
		task := w.NewTask()
		return func(s *store.Store) error {
			return s.Tasks.SetWebhook(w.T.Context(), storetest.Ann, storetest.Agent, task, *webhook("h"), 0)
		}
	}),
}

// pendingCancel makes a cancel that its agent does not know yet.
func (w *witness) pendingCancel() a2a.ID {
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

// key makes an API key.
func (w *witness) key() {
	w.T.Helper()
	k := access.Key{ID: "k1", Tenant: "acme", Owner: "ann", Scopes: []string{}}
	if _, err := w.Access.CreateKey(w.T.Context(), k, [32]byte{1}, 0); err != nil {
		w.T.Fatal(err)
	}
}

// signingKey makes the key signing/x.
func (w *witness) signingKey() {
	w.T.Helper()
	if err := w.Access.AddSigningKey(w.T.Context(), "x", []byte("k")); err != nil {
		w.T.Fatal(err)
	}
}
