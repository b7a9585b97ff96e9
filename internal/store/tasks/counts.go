package tasks

import (
	"math/bits"
	"sync/atomic"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
)

// Counts says what this process has written since it began. A write whose answer was lost may be missing.
type Counts struct {
	Entered map[a2a.State]uint64 // tasks that entered each state
	Submits Groups               // new tasks that shared a transaction
	Appends Groups               // batches of runs that shared a transaction
	Swept   map[db.Sweep]db.Swept
	Rescued map[string]uint64 // runs whose lease expired, by the fate of the task, one of fateNames
	// By agent: steps with their result, waits, and waits that ended with what ended them.
	Steps, WaitsBegun, WaitsEnded map[AgentCount]uint64
	// By agent: tokens with their kind, one of TokenKinds, and requests to models.
	UsageTokens, UsageRequests map[AgentCount]uint64
}

// States are all states of a task.
var States = []a2a.State{
	a2a.StateSubmitted, a2a.StateWorking, a2a.StateInputRequired, a2a.StateAuthRequired,
	a2a.StateCompleted, a2a.StateFailed, a2a.StateCanceled, a2a.StateRejected,
}

// fateNames are the possible fates of a task whose lease expired.
var fateNames = [...]string{"retry", "fail", "input-required", "park"}

// Counts returns the counters. It is safe for concurrent use.
func (s *Store) Counts() Counts {
	c := Counts{
		Entered: make(map[a2a.State]uint64, len(States)), Rescued: make(map[string]uint64, len(fateNames)),
		Submits: s.counters.submits.load(), Appends: s.counters.appends.load(),
	}
	for _, state := range States {
		c.Entered[state] = s.counters.entered[stateIndex(state)].Load()
	}
	c.Swept = make(map[db.Sweep]db.Swept, len(db.Sweeps))
	for _, sweep := range db.Sweeps {
		c.Swept[sweep] = s.db.Swept(sweep)
	}
	for i, name := range fateNames {
		c.Rescued[name] = s.counters.rescued[i].Load()
	}
	c.Steps, c.WaitsBegun, c.WaitsEnded = s.counters.steps.load(), s.counters.begun.load(), s.counters.over.load()
	c.UsageTokens, c.UsageRequests = s.counters.tokens.load(), s.counters.requests.load()
	return c
}

// counters are increased after the commit of what they count.
type counters struct {
	entered          [16]atomic.Uint64
	rescued          [len(fateNames)]atomic.Uint64
	submits, appends groups

	steps, begun, over, tokens, requests agentCounts
}

// stateIndex is the index of a state in counters.entered.
func stateIndex(s a2a.State) int {
	if s.Terminal() {
		return 8 + int(s-a2a.StateCompleted)&7
	}
	return int(s) & 7
}

func (c *counters) enter(s a2a.State, tasks int) { c.entered[stateIndex(s)].Add(uint64(tasks)) }

func (c *counters) rescue(fate string) {
	switch fate {
	case "fail":
		c.rescued[1].Add(1)
		c.enter(a2a.StateFailed, 1)
	case "input-required":
		c.rescued[2].Add(1)
		c.enter(a2a.StateInputRequired, 1)
	case "park":
		c.rescued[3].Add(1)
	default:
		c.rescued[0].Add(1)
	}
}

// appendedBatch counts the states that the task entered by a batch of a run. A run begins in working.
func (c *counters) appendedBatch(a *pendingBatch, out *appended) {
	state := int16(a2a.StateWorking)
	for i := range a.rows {
		next := a.rows[i].state
		if out.Requeued && i == len(a.rows)-1 {
			next = out.State
		}
		if next > 0 && next != state {
			state = next
			c.enter(a2a.State(state), 1)
		}
	}
	c.recordedSteps(a, out)
	c.recordedUsage(a)
}

// GroupBounds are the upper bounds of Groups.Buckets.
var GroupBounds = [...]float64{1, 2, 4, 8, 16, 32, 64, 128, 256}

// Groups says how many shared a transaction.
type Groups struct {
	Buckets    [len(GroupBounds)]uint64 // transactions of up to GroupBounds items; each bucket includes those before it
	Count, Sum uint64                   // transactions, and their items
}

type groups struct {
	buckets [len(GroupBounds)]atomic.Uint64
	sum     atomic.Uint64
}

func (g *groups) add(n int) {
	if n <= 0 {
		return
	}
	g.buckets[min(bits.Len(uint(n-1)), len(g.buckets)-1)].Add(1)
	g.sum.Add(uint64(n))
}

func (g *groups) load() (out Groups) {
	out.Sum = g.sum.Load()
	for i := range g.buckets {
		out.Count += g.buckets[i].Load()
		out.Buckets[i] = out.Count
	}
	return out
}
