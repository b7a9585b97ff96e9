package store_test

import (
	"fmt"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
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

func submitted(w *witness, out store.Submitted) string {
	return w.count(1, "a2a.tasks t JOIN a2a.messages m ON m.task_id = t.id WHERE t.id = $1", out.Task)
}

func claimed(w *witness, leases []store.Lease) string {
	for _, l := range leases {
		if wrong := w.count(1, "a2a.task_leases WHERE task_id = $1 AND epoch = $2", l.TaskID, l.Epoch); wrong != "" {
			return wrong
		}
	}
	return ""
}

// writings are all methods of the store that write, some in several shapes.
var writings = []writing{
	answering("Submit", execute, func(w *witness) func(*store.Store) (store.Submitted, error) {
		return func(s *store.Store) (store.Submitted, error) { return s.Submit(w.ctx, submission("x")) }
	}, submitted),
	answering("Submit with a webhook", commit, func(w *witness) func(*store.Store) (store.Submitted, error) {
		in := submission("x")
		in.Push = webhook("h")
		return func(s *store.Store) (store.Submitted, error) { return s.Submit(w.ctx, in) }
	}, submitted),
	answering("Submit with a webhook and a key", commit, func(w *witness) func(*store.Store) (store.Submitted, error) {
		in := submission("x")
		in.Push, in.Key = webhook("h"), "h:k"
		return func(s *store.Store) (store.Submitted, error) { return s.Submit(w.ctx, in) }
	}, submitted),
	answering("Submit to a worker", execute, func(w *witness) func(*store.Store) (store.Submitted, error) {
		w.takes = true
		return func(s *store.Store) (store.Submitted, error) { return s.Submit(w.ctx, submission("x")) }
	}, submitted),
	answering("Submit to a worker with an action", commit, func(w *witness) func(*store.Store) (store.Submitted, error) {
		w.takes = true
		in := submission("x")
		in.Action = &store.Action{Name: store.ActionTaskRetry, Tenant: ann.Tenant, Owner: ann.Owner}
		return func(s *store.Store) (store.Submitted, error) { return s.Submit(w.ctx, in) }
	}, submitted),
	answering("Submit to a task", commit, func(w *witness) func(*store.Store) (store.Submitted, error) {
		l := w.running()
		w.append(l, status(a2a.StateInputRequired, "?"))
		in := submission("answer")
		in.Task, in.ContextID, in.Push = l.TaskID, "", webhook("h")
		return func(s *store.Store) (store.Submitted, error) { return s.Submit(w.ctx, in) }
	}, func(w *witness, out store.Submitted) string {
		return w.count(1, "a2a.tasks WHERE id = $1 AND state = 1 AND last_seq = $2", out.Task, out.After)
	}),
	answering("RetryTask", commit, func(w *witness) func(*store.Store) (store.Submitted, error) {
		l := w.running()
		w.append(l, status(a2a.StateFailed))
		return func(s *store.Store) (store.Submitted, error) { return s.RetryTask(w.ctx, l.TaskID) }
	}, submitted),
	answering("Append", execute, func(w *witness) func(*store.Store) (store.Appended, error) {
		l := w.running()
		return func(s *store.Store) (store.Appended, error) {
			return s.Append(w.ctx, l, store.Batch{Events: []a2a.Event{chunk("a", "x"), status(a2a.StateCompleted)}})
		}
	}, func(w *witness, out store.Appended) string {
		return w.count(1, "a2a.tasks WHERE state = 100 AND last_seq = $1", out.Base+2)
	}),
	answering("Append under a webhook", commit, func(w *witness) func(*store.Store) (store.Appended, error) {
		in := submission("x")
		in.Push = webhook("h")
		l := w.claimTask(w.submit(in).Task)
		return func(s *store.Store) (store.Appended, error) {
			return s.Append(w.ctx, l, store.Batch{ID: "b", Events: longEnd()})
		}
	}, func(w *witness, out store.Appended) string {
		return w.count(1, "a2a.tasks WHERE state = 100 AND folded AND last_seq = $1", out.Base+41)
	}),
	answering("Cancel", commit, func(w *witness) func(*store.Store) (a2a.State, error) {
		l := w.running()
		return func(s *store.Store) (a2a.State, error) { return s.Cancel(w.ctx, ann, agent, l.TaskID) }
	}, func(w *witness, state a2a.State) string { return w.count(1, "a2a.tasks WHERE state = $1", int(state)) }),
	answering("CancelWith", commit, func(w *witness) func(*store.Store) (a2a.State, error) {
		in := submission("x")
		in.Push = webhook("h")
		task := w.submit(in).Task
		return func(s *store.Store) (a2a.State, error) { return s.CancelWith(w.ctx, ann, agent, task, a2a.Raw(`{}`)) }
	}, func(w *witness, state a2a.State) string { return w.count(1, "a2a.tasks WHERE state = $1", int(state)) }),
	plain("Reveal", commit, func(w *witness) func(*store.Store) error {
		in := submission("x")
		in.Undecided, in.Push = true, webhook("h")
		task := w.submit(in).Task
		return func(s *store.Store) error { return s.Reveal(w.ctx, task) }
	}),

	answering("Claim", taskClaim, func(w *witness) func(*store.Store) ([]store.Lease, error) {
		w.task()
		return func(s *store.Store) ([]store.Lease, error) { return s.NewClaimer().Claim(w.ctx, agent, 5, ttl, 0) }
	}, claimed),
	answering("ClaimAs", commit, func(w *witness) func(*store.Store) ([]store.Lease, error) {
		w.task()
		return func(s *store.Store) ([]store.Lease, error) {
			return s.NewClaimer().ClaimAs(w.ctx, store.Ask{Agent: agent, Slots: 5, Running: 5, TTL: ttl})
		}
	}, claimed),
	answering("Renew", execute, func(w *witness) func(*store.Store) ([]store.Renewal, error) {
		l := w.running()
		return func(s *store.Store) ([]store.Renewal, error) { return s.Renew(w.ctx, []*store.Lease{l}, ttl) }
	}, func(w *witness, held []store.Renewal) string { return w.count(len(held), "a2a.task_leases") }),
	answering("Hold", execute, func(w *witness) func(*store.Store) (*store.Held, error) {
		l := w.running()
		g := store.Grip{Task: l.TaskID, Epoch: l.Epoch, Agents: map[string]store.Terms{agent: {TTL: ttl}}}
		return func(s *store.Store) (*store.Held, error) { return s.Hold(w.ctx, g) }
	}, func(w *witness, held *store.Held) string {
		return w.count(1, "a2a.task_leases WHERE task_id = $1", held.TaskID)
	}),
	plain("Retry", execute, func(w *witness) func(*store.Store) error {
		l := w.running()
		return func(s *store.Store) error { return s.Retry(w.ctx, l, "bad luck", 0) }
	}),
	plain("Release", execute, func(w *witness) func(*store.Store) error {
		l := w.running()
		return func(s *store.Store) error { return s.Release(w.ctx, []*store.Lease{l}) }
	}),
	answering("Rescue", commit, func(w *witness) func(*store.Store) (int, error) {
		in := submission("x")
		in.Push = webhook("h")
		w.expire(w.claimTask(w.submit(in).Task).TaskID)
		return func(s *store.Store) (int, error) {
			return s.Rescue(w.ctx, []store.Policy{{Agent: agent, Fate: "fail", MaxAttempts: 1}}, 1, 10)
		}
	}, func(w *witness, n int) string { return w.count(n, "a2a.tasks WHERE state = 101") }),
	answering("ForgetBatches", execute, func(w *witness) func(*store.Store) (int, error) {
		l := w.running()
		if _, err := w.Append(w.ctx, l, store.Batch{ID: "b", Checkpoint: a2a.Raw("1")}); err != nil {
			w.t.Fatal(err)
		}
		w.exec(`UPDATE a2a.task_batches SET made_at = made_at - interval '1 h'`)
		return func(s *store.Store) (int, error) { return s.ForgetBatches(w.ctx, time.Minute, 10) }
	}, func(w *witness, _ int) string { return w.count(0, "a2a.task_batches") }),

	answering("ClaimCancels", execute, func(w *witness) func(*store.Store) ([]store.Untold, error) {
		w.untold()
		return func(s *store.Store) ([]store.Untold, error) { return s.ClaimCancels(w.ctx, map[string]int{agent: 5}) }
	}, func(w *witness, list []store.Untold) string {
		return w.count(len(list), "a2a.task_cancels WHERE tries = 1")
	}),
	plain("CancelTold", execute, func(w *witness) func(*store.Store) error {
		task := w.untold()
		return func(s *store.Store) error { return s.CancelTold(w.ctx, task) }
	}),
	answering("ForgetCancels", execute, func(w *witness) func(*store.Store) ([]a2a.ID, error) {
		w.untold()
		w.exec(`UPDATE a2a.task_cancels SET tries = 1`)
		return func(s *store.Store) ([]a2a.ID, error) { return s.ForgetCancels(w.ctx, nil, 0) }
	}, func(w *witness, _ []a2a.ID) string { return w.count(0, "a2a.task_cancels") }),

	plain("SetPush", commit, func(w *witness) func(*store.Store) error {
		task := w.task()
		return func(s *store.Store) error { return s.SetPush(w.ctx, ann, agent, task, *webhook("h"), 0) }
	}),
	plain("DeletePush", execute, func(w *witness) func(*store.Store) error {
		in := submission("x")
		in.Push = webhook("h")
		task := w.submit(in).Task
		return func(s *store.Store) error { return s.DeletePush(w.ctx, ann, task, "h") }
	}),
	answering("ClaimPushes", commit, func(w *witness) func(*store.Store) ([]store.Delivery, error) {
		in := submission("x")
		in.Push = webhook("h")
		w.submit(in)
		return func(s *store.Store) ([]store.Delivery, error) { return s.ClaimPushes(w.ctx, 5, 5, ttl) }
	}, func(w *witness, list []store.Delivery) string {
		for _, d := range list {
			if wrong := w.count(1, "a2a.push_configs WHERE id = $1 AND lease_epoch = $2 AND lease_until > clock_timestamp()", d.Row, d.Epoch); wrong != "" {
				return wrong
			}
		}
		return ""
	}),
	answering("RenewPushes", execute, func(w *witness) func(*store.Store) ([]a2a.ID, error) {
		d := w.due()
		return func(s *store.Store) ([]a2a.ID, error) { return s.RenewPushes(w.ctx, []*store.Delivery{d}, ttl) }
	}, func(w *witness, rows []a2a.ID) string {
		return w.count(len(rows), "a2a.push_configs WHERE lease_until > clock_timestamp()")
	}),
	plain("Delivered", commit, func(w *witness) func(*store.Store) error {
		d := w.due()
		return func(s *store.Store) error { return s.Delivered(w.ctx, d, &store.Try{Status: 200}, false) }
	}),
	plain("SkippedPush", commit, func(w *witness) func(*store.Store) error {
		d := w.due()
		return func(s *store.Store) error {
			return s.SkippedPush(w.ctx, d, &store.Try{Status: 400, Class: "client_error", Reason: "no"}, false)
		}
	}),
	answering("Failed", commit, func(w *witness) func(*store.Store) (bool, error) {
		d := w.due()
		f := store.Failure{Delay: time.Hour, Breaker: &store.Breaker{Fails: 1, FirstOpen: time.Second, MaxOpen: time.Second, DisableAfter: time.Nanosecond}}
		return func(s *store.Store) (bool, error) {
			return s.Failed(w.ctx, d, &store.Try{Class: "connect", Reason: "refused"}, f)
		}
	}, func(w *witness, disabled bool) string {
		if !disabled {
			return ""
		}
		return w.count(1, "a2a.push_destinations WHERE disabled_at IS NOT NULL")
	}),
	plain("ReleasePush", execute, func(w *witness) func(*store.Store) error {
		d := w.due()
		return func(s *store.Store) error { return s.ReleasePush(w.ctx, d) }
	}),
	plain("ReplayPush", commit, func(w *witness) func(*store.Store) error {
		d := w.due()
		return func(s *store.Store) error { return s.ReplayPush(w.ctx, d.Row, 0) }
	}),
	answering("EnableDestination", commit, func(w *witness) func(*store.Store) (bool, error) {
		d := w.due()
		f := store.Failure{Delay: time.Hour, Breaker: &store.Breaker{Fails: 1, FirstOpen: time.Hour, MaxOpen: time.Hour, DisableAfter: time.Hour}}
		if _, err := w.Failed(w.ctx, d, &store.Try{Class: "connect", Reason: "refused"}, f); err != nil {
			w.t.Fatal(err)
		}
		return func(s *store.Store) (bool, error) { return s.EnableDestination(w.ctx, d.Tenant, d.Origin) }
	}, func(w *witness, _ bool) string {
		return w.count(0, "a2a.push_destinations WHERE open_until > clock_timestamp()")
	}),
	answering("SweepAttempts", commit, func(w *witness) func(*store.Store) (int, error) {
		w.append(w.running(), status(a2a.StateCompleted))
		w.attemptsGo = true
		return func(s *store.Store) (int, error) {
			n, _, err := s.SweepAttempts(w.ctx, &store.AttemptSweep{Keep: time.Nanosecond, Batch: 10})
			return n, err
		}
	}, func(w *witness, n int) string { return w.count(1-n, "a2a.task_attempts") }),
	answering("SweepActions", commit, func(w *witness) func(*store.Store) (int, error) {
		w.exec("INSERT INTO a2a.audit_log (at, actor, action) SELECT clock_timestamp() - interval '401 days', 'operator', 'key.create' FROM generate_series(1, 3)")
		return func(s *store.Store) (int, error) {
			n, _, err := s.SweepActions(w.ctx, store.ActionSweep{Keep: 400 * 24 * time.Hour, KeepSignIns: 24 * time.Hour, Batch: 10})
			return n, err
		}
	}, func(w *witness, n int) string {
		if n == 0 {
			return "" // it had gone before the answer was lost, and the sweep was done again
		}
		return w.count(0, "a2a.audit_log WHERE action = 'key.create'")
	}),
	answering("SweepPushes", commit, func(w *witness) func(*store.Store) (bool, error) {
		d := w.due()
		if _, err := w.Failed(w.ctx, d, &store.Try{Class: "connect", Reason: "refused"}, store.Failure{}); err != nil {
			w.t.Fatal(err)
		}
		w.exec(`UPDATE a2a.push_attempts SET started_at = started_at - interval '1 h'`)
		return func(s *store.Store) (bool, error) {
			return s.SweepPushes(w.ctx, store.PushSweep{Keep: time.Minute, Batch: 1})
		}
	}, func(w *witness, _ bool) string { return w.count(0, "a2a.push_attempts") }),
	answering("ResealPushes", execute, func(w *witness) func(*store.Store) (int, error) {
		w.due()
		return func(s *store.Store) (int, error) {
			return s.ResealPushes(w.ctx, func(_ a2a.ID, p store.PushSecrets) (store.PushSecrets, bool, error) {
				p.Token = []byte("t")
				return p, true, nil
			})
		}
	}, func(w *witness, n int) string { return w.count(n, "a2a.push_configs WHERE token = 't'") }),

	answering("Retire", commit, func(w *witness) func(*store.Store) (store.Retired, error) {
		w.append(w.running(), status(a2a.StateCompleted))
		return func(s *store.Store) (store.Retired, error) {
			return s.Retire(w.ctx, a2a.ID{}, -time.Hour, 10, func(store.Ended) store.Fate { return store.Delete })
		}
	}, func(w *witness, out store.Retired) string { return w.count(1-out.Deleted, "a2a.tasks") }),
	answering("RetireAgain", commit, func(w *witness) func(*store.Store) (store.Retired, error) {
		l := w.running()
		w.append(l, status(a2a.StateCompleted))
		return func(s *store.Store) (store.Retired, error) {
			return s.RetireAgain(w.ctx, []a2a.ID{l.TaskID}, func(store.Ended) store.Fate { return store.Delete })
		}
	}, func(w *witness, out store.Retired) string { return w.count(1-out.Deleted, "a2a.tasks") }),
	answering("Purge", commit, func(w *witness) func(*store.Store) (int, error) {
		w.append(w.running(), status(a2a.StateCompleted))
		return func(s *store.Store) (int, error) {
			return s.Purge(w.ctx, store.PurgeFilter{Tenant: ann.Tenant, Owner: ann.Owner})
		}
	}, func(w *witness, _ int) string { return w.count(0, "a2a.tasks") }),
	plain("Record", execute, func(w *witness) func(*store.Store) error {
		return func(s *store.Store) error { return s.Record(w.ctx, store.Action{Name: store.ActionSignInFailed}) }
	}),
	answering("SweepActions", commit, func(w *witness) func(*store.Store) (int, error) {
		if err := w.Record(w.ctx, store.Action{Name: store.ActionSignInFailed}); err != nil {
			w.t.Fatal(err)
		}
		w.exec(`UPDATE a2a.audit_log SET at = at - interval '1 h'`)
		return func(s *store.Store) (int, error) {
			n, _, err := s.SweepActions(w.ctx, store.ActionSweep{Keep: time.Minute, KeepSignIns: time.Minute, Batch: 10})
			return n, err
		}
	}, func(w *witness, _ int) string {
		return w.count(0, "a2a.audit_log WHERE action = $1", store.ActionSignInFailed)
	}),
	plain("Notify", execute, func(w *witness) func(*store.Store) error {
		return func(s *store.Store) error { return s.Notify(w.ctx, []string{"x"}) }
	}),

	answering("CreateAPIKey", commit, func(w *witness) func(*store.Store) (store.APIKey, error) {
		k := store.APIKey{ID: "k1", Tenant: "acme", Owner: "ann", Scopes: []string{"tasks:read"}}
		return func(s *store.Store) (store.APIKey, error) {
			out, err := s.CreateAPIKey(w.ctx, k, [32]byte{1}, time.Hour)
			out.Scopes = nil // compared with nothing
			return out, err
		}
	}, func(w *witness, k store.APIKey) string { return w.count(1, "a2a.api_keys WHERE id = $1", k.ID) }),
	plain("UseAPIKey", execute, func(w *witness) func(*store.Store) error {
		w.key()
		return func(s *store.Store) error { return s.UseAPIKey(w.ctx, "k1") }
	}),
	plain("RevokeAPIKey", commit, func(w *witness) func(*store.Store) error {
		w.key()
		return func(s *store.Store) error { return s.RevokeAPIKey(w.ctx, "k1") }
	}),
	answering("ServerKey", execute, func(w *witness) func(*store.Store) (string, error) {
		return func(s *store.Store) (string, error) {
			key, err := s.ServerKey(w.ctx, "x")
			return fmt.Sprintf("%x", key), err
		}
	}, func(w *witness, key string) string {
		return w.count(1, "a2a.server_keys WHERE encode(key, 'hex') = $1", key)
	}),
	plain("AddSigningKey", execute, func(w *witness) func(*store.Store) error {
		return func(s *store.Store) error { return s.AddSigningKey(w.ctx, "x", []byte("k")) }
	}),
	plain("DropSigningKey", execute, func(w *witness) func(*store.Store) error {
		return func(s *store.Store) error { return s.DropSigningKey(w.ctx, "x") }
	}),
	plain("ResealSigningKey", execute, func(w *witness) func(*store.Store) error {
		return func(s *store.Store) error { return s.ResealSigningKey(w.ctx, "x", []byte("k"), []byte("l")) }
	}),
}

// untold leaves a cancel that an agent is to be told of.
func (w *witness) untold() a2a.ID {
	w.t.Helper()
	l := w.running()
	if _, err := w.Append(w.ctx, l, store.Batch{Checkpoint: a2a.Raw(`{"remote":1}`)}); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.Cancel(w.ctx, ann, agent, l.TaskID); err != nil {
		w.t.Fatal(err)
	}
	w.exec(`UPDATE a2a.task_cancels SET due_at = clock_timestamp() - interval '1 s'`)
	return l.TaskID
}

func (w *witness) key() {
	w.t.Helper()
	if _, err := w.CreateAPIKey(w.ctx, store.APIKey{ID: "k1", Tenant: "acme", Owner: "ann", Scopes: []string{}}, [32]byte{1}, 0); err != nil {
		w.t.Fatal(err)
	}
}
