package tasks

import (
	"maps"
	"sync"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
)

// AgentCount names a counter of an agent. What may be empty.
type AgentCount struct{ Agent, What string }

// Results of a step in Counts.Steps.
const (
	StepOK     = "ok"
	StepFailed = "failed"
	StepRetry  = "retry" // it failed, and the agent tries it again
)

// What ends a wait in Counts.WaitsEnded, besides "time", "signal" and "tasks".
const (
	WaitMessage  = "message"
	WaitDeadline = "deadline" // of the turn: the task fails
	WaitCancel   = "cancel"
)

// StepResults and WaitEnds are all of them.
var (
	StepResults = []string{StepOK, StepFailed, StepRetry}
	WaitEnds    = []string{"time", "signal", "tasks", WaitMessage, WaitDeadline, WaitCancel}
)

// agentCounts are counters by agent. The zero value is ready to use.
type agentCounts struct {
	mu sync.Mutex
	n  map[AgentCount]uint64 // guarded by mu
}

func (c *agentCounts) add(agent, what string) { c.addN(agent, what, 1) }

func (c *agentCounts) addN(agent, what string, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = make(map[AgentCount]uint64)
	}
	c.n[AgentCount{agent, what}] += uint64(n)
}

func (c *agentCounts) load() map[AgentCount]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.n)
}

// recordedSteps counts the steps and the wait of a batch that was written.
func (c *counters) recordedSteps(a *pendingBatch, out *appended) {
	agent := a.lease.Agent
	for i := range a.batch.Steps {
		switch s := &a.batch.Steps[i]; {
		case s.Kind != a2a.StepWork || s.Begins():
		case !s.Ended:
			c.steps.add(agent, StepRetry)
		case s.Error != nil:
			c.steps.add(agent, StepFailed)
		default:
			c.steps.add(agent, StepOK)
		}
	}
	if a.batch.Wait == nil {
		return
	}
	c.begun.add(agent, "")
	if out.Requeued { // the client has sent its answer before the question
		c.over.add(agent, WaitMessage)
	}
}

// waitEnded counts the end of a wait once the transaction is committed.
func (s *Store) waitEnded(tx *db.Tx, agent, by string) {
	tx.After(func() { s.counters.over.add(agent, by) })
}
