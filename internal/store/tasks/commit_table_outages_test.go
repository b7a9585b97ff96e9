package tasks_test

import (
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

var postponement = tasks.Postponement{
	Error: "the agent refuses connections", MinDelay: time.Minute, MaxDelay: time.Minute, Limit: time.Hour,
}

// writingsOfOutages are the methods for agents that cannot be reached.
var writingsOfOutages = []writing{
	answering("tasks.Postpone", storetest.IsExecute, func(w *witness) func(*store.Store) (time.Duration, error) {
		l := w.RunningTask()
		return func(s *store.Store) (time.Duration, error) {
			delay, _, err := s.Tasks.Postpone(w.T.Context(), l, postponement)
			return delay, err
		}
	}, func(w *witness, delay time.Duration) string {
		if delay == 0 {
			return "" // an earlier try took effect, and its answer was lost
		}
		return w.count(1, "a2a.task_attempts WHERE outcome = 'unreachable'")
	}),
	plain("tasks.Hasten", storetest.IsExecute, func(w *witness) func(*store.Store) error {
		w.postpone()
		return func(s *store.Store) error { return s.Tasks.Hasten(w.T.Context(), storetest.Agent, 10) }
	}),
	plain("tasks.BeginOutage", storetest.IsExecute, func(w *witness) func(*store.Store) error {
		return func(s *store.Store) error {
			return s.Tasks.BeginOutage(w.T.Context(), storetest.Agent, "the agent refuses connections", time.Minute)
		}
	}),
	plain("tasks.EndOutage", storetest.IsExecute, func(w *witness) func(*store.Store) error {
		w.beginOutage()
		return func(s *store.Store) error { return s.Tasks.EndOutage(w.T.Context(), storetest.Agent) }
	}),
	answering("tasks.Probe", storetest.IsExecute, func(w *witness) func(*store.Store) (tasks.Probe, error) {
		w.beginOutage()
		return func(s *store.Store) (tasks.Probe, error) {
			return s.Tasks.Probe(w.T.Context(), storetest.Agent, time.Minute, time.Hour)
		}
	}, func(w *witness, p tasks.Probe) string {
		if !p.Granted {
			return "" // an earlier try took effect, and its answer was lost
		}
		return w.count(1, "a2a.agent_outages WHERE probes = 1")
	}),
	plain("tasks.ForgetOutages", storetest.IsExecute, func(w *witness) func(*store.Store) error {
		w.beginOutage()
		return func(s *store.Store) error {
			_, err := s.Tasks.ForgetOutages(w.T.Context(), time.Microsecond)
			return err
		}
	}),
	plain("tasks.WorkersSeen", storetest.IsExecute, func(w *witness) func(*store.Store) error {
		w.beginOutage()
		return func(s *store.Store) error {
			_, err := s.Tasks.WorkersSeen(w.T.Context(), []string{storetest.Agent})
			return err
		}
	}),
	plain("tasks.Heartbeat", storetest.IsExecute, func(w *witness) func(*store.Store) error {
		return func(s *store.Store) error { return s.Tasks.Heartbeat(w.T.Context(), heartbeat("r1", "w1", "w2")) }
	}),
	plain("tasks.Leave", storetest.IsExecute, func(w *witness) func(*store.Store) error {
		w.beat(heartbeat("r1"))
		return func(s *store.Store) error { return s.Tasks.Leave(w.T.Context(), "r1", "r1's start") }
	}),
	plain("tasks.ForgetWorkers", storetest.IsExecute, func(w *witness) func(*store.Store) error {
		w.beat(heartbeat("r1"))
		return func(s *store.Store) error { return s.Tasks.ForgetWorkers(w.T.Context(), time.Microsecond) }
	}),
	sweepUnclaimed("fails", a2a.Limits{}, func(out tasks.Unclaimed) int { return out.Failed },
		"a2a.tasks WHERE state = a2a.state_failed()"),
	sweepUnclaimed("parks", a2a.Limits{OnExhausted: a2a.ExhaustedPark},
		func(out tasks.Unclaimed) int { return out.Parked }, "a2a.task_parked WHERE until = 'infinity'"),
}

// sweepUnclaimed is a sweep that ends the wait of two tasks. done reads from its answer how many rows it has made.
func sweepUnclaimed(how string, limits a2a.Limits, done func(tasks.Unclaimed) int, rows string) writing {
	type out = tasks.Unclaimed
	method := "tasks.SweepUnclaimed " + how
	return answering(method, storetest.IsCommit, func(w *witness) func(*store.Store) (out, error) {
		sweep := tasks.UnclaimedSweep{
			Agents: map[string]a2a.Limits{storetest.Agent: limits}, Batch: 10,
			Patience: time.Microsecond, Gap: time.Hour,
		}
		w.NewTask()
		for range 2 { // the second one begins the outage
			if _, err := w.Tasks.SweepUnclaimed(w.T.Context(), sweep); err != nil {
				w.T.Fatal(err)
			}
		}
		w.NewTask()
		return func(s *store.Store) (out, error) { return s.Tasks.SweepUnclaimed(w.T.Context(), sweep) }
	}, func(w *witness, got out) string { return w.count(done(got), rows) })
}

// postpone makes a task that waits for its agent.
func (w *witness) postpone() {
	w.T.Helper()
	if _, ok, err := w.Tasks.Postpone(w.T.Context(), w.RunningTask(), postponement); err != nil || !ok {
		w.T.Fatalf("postpone: %v, %v", ok, err)
	}
}

// beginOutage records an outage whose first probe is due.
func (w *witness) beginOutage() {
	w.T.Helper()
	err := w.Tasks.BeginOutage(w.T.Context(), storetest.Agent, "the agent refuses connections", time.Microsecond)
	if err != nil {
		w.T.Fatal(err)
	}
}

// heartbeat is one of a server with some remote workers in touch.
func heartbeat(name string, workers ...string) *tasks.Heartbeat {
	h := &tasks.Heartbeat{Name: name, Instance: name + "'s start", Version: "1.2.3", Slots: 4}
	for _, w := range workers {
		h.Remote = append(h.Remote, tasks.RemoteWorker{
			Tenant: "acme", Name: w, Version: "a2ad-go/1.0", Agents: []string{storetest.Agent, "other"},
		})
	}
	return h
}

// beat records a heartbeat.
func (w *witness) beat(h *tasks.Heartbeat) {
	w.T.Helper()
	if err := w.Tasks.Heartbeat(w.T.Context(), h); err != nil {
		w.T.Fatal(err)
	}
}
