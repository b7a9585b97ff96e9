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
	// Report stores events, all or none, and returns whether the task was canceled. An error that is a2ad.ErrStopped
	// means that the worker died, or lost the task.
	Report(ctx context.Context, epoch int64, events []json.RawMessage) (canceled bool, err error)
	// Now and Sleep are the clock of the run.
	Now() time.Time
	Sleep(ctx context.Context, d time.Duration) error
}

// End says how a run ended.
type End struct {
	// Retry says that the attempt failed, so that the server starts another one.
	Retry  bool
	Reason string
	After  time.Duration // until that one

	// Wrong is the mistake in the agent's code for which the task waits.
	Wrong error
}

// Execute does a run: it calls agent, which is an a2ad.AgentFunc, and reports how its task ends. Package a2ad sets it.
// Each write sends its text at once, so that the requests of a run are the same every time.
var Execute func(ctx context.Context, run json.RawMessage, s Server, agent any, handler bool) (End, error)
