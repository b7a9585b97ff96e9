package attempt

import (
	"maps"
	"sync"
)

// Outcomes of runs, as in the log line of a run and in the metrics.
var (
	// RemoteOutcomes are the outcomes that a remote worker reports. Its runs that were canceled or lost end without a
	// report.
	RemoteOutcomes = []string{"finished", "failed", "retry", "released", "parked", "waiting"}
	LocalOutcomes  = append(RemoteOutcomes[:6:6], "canceled", "lost", "unreachable")
)

// End is one way in which runs of an agent end.
type End struct{ Agent, Outcome string }

// Tally counts runs that ended. The zero value is empty. It is safe for concurrent use.
type Tally struct {
	mu   sync.Mutex
	ends map[End]int64 // guarded by mu
}

// Serve makes the tally show an agent with zeros, so that the first run of a kind is an increase and not a new series.
// Existing counts stay.
func (t *Tally) Serve(agent string, outcomes []string) {
	for _, outcome := range outcomes {
		t.add(End{agent, outcome}, 0)
	}
}

// Add counts one run.
func (t *Tally) Add(agent, outcome string) { t.add(End{agent, outcome}, 1) }

func (t *Tally) add(e End, n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ends == nil {
		t.ends = make(map[End]int64)
	}
	t.ends[e] += n
}

// All returns a copy of the counts since the start.
func (t *Tally) All() map[End]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.ends)
}
