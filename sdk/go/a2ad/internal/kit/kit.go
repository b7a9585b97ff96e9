// Package kit connects package a2adtest to package a2ad, so that neither exports what only tests need. The two speak as
// a worker and a server do: a run and its events are JSON.
package kit

import (
	"context"
	"encoding/json"
	"time"
)

// Server is what a run reports to.
type Server interface {
	// Report stores events, all or none. It returns ErrCrashed if the worker dies, and a Refusal for invalid events.
	Report(epoch int64, events []json.RawMessage) error
	// Now and Sleep are the clock of the run.
	Now() time.Time
	Sleep(ctx context.Context, d time.Duration) error
}

// Crash is the error of a worker that dies.
type Crash struct{}

func (Crash) Error() string { return "crashed" }

// Refusal is the error of events that a server refuses.
type Refusal struct{ Text string }

func (r Refusal) Error() string { return r.Text }

// End says how a run ended.
type End struct {
	Crashed bool
	Retry   bool // the attempt failed, so the server starts another one
	Reason  string
	After   time.Duration // until that one
	Line    string        // of the agent's call that waits
	Wrong   error         // the mistake in the agent's code for which the task waits
}

// Execute does a run: it calls agent, which is an a2ad.AgentFunc, and reports how its task ends. Each write sends its
// text and waits, so that the requests of a run are the same every time.
//
// Package a2ad sets it when it is initialized. It is never changed.
var Execute func(run json.RawMessage, s Server, agent any, handler bool) (End, error)
