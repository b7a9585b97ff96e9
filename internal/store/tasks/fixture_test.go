package tasks_test

import (
	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// attempt is what a test compares of one attempt.
type attempt struct {
	Epoch          int64
	Attempt        int
	Worker         string
	Outcome, Error string
}

// attempts returns the attempts of a task, oldest first.
func attempts(f *storetest.Fixture, task a2a.ID) []attempt {
	f.T.Helper()
	rows, err := f.Operate.Attempts(f.T.Context(), task)
	if err != nil {
		f.T.Fatalf("attempts: %v", err)
	}
	out := make([]attempt, len(rows))
	for i, r := range rows {
		out[i] = attempt{r.Epoch, r.Attempt, r.Worker, r.Outcome, r.Error}
		if r.EndedAt.IsZero() != (r.Outcome == "") {
			f.T.Errorf("attempt %+v: outcome %q, ended at %v", out[i], r.Outcome, r.EndedAt)
		}
	}
	return out
}

// states returns the states that a task's log went through.
func states(f *storetest.Fixture, task a2a.ID) []a2a.State {
	f.T.Helper()
	var states []a2a.State
	for _, e := range f.Log(task) {
		if s := e.State(); s != a2a.StateNone {
			states = append(states, s)
		}
	}
	return states
}
