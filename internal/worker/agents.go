package worker

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/attempt"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// Agent is one agent with the executor that does its work. Without an executor its tasks are
// left to remote workers.
type Agent struct {
	*a2a.Agent
	Executor executor.Executor
	Command  bool // each run is a process on this machine, and needs a slot for commands
}

// queue is one agent's waiting tasks, as the claimer sees them. When the agent changes a new queue
// replaces it; runs keep the queue with which they began.
type queue struct {
	Agent
	limits a2a.Limits
	*demand
}

// demand is what is known about the tasks and runs of one agent name. It outlives changes of the agent.
type demand struct {
	mayHaveTasks atomic.Bool // set by wake-ups and polls; cleared by the claimer before it claims or asks
	hasTasks     bool        // claimer goroutine only; tasks are due, as far as is known
	running      int         // guarded by slots.mu; reserved slots of this agent, and those with an executor
	backlog      bool        // guarded by slots.mu; more tasks may wait than there was room for
	most         int         // guarded by slots.mu; tasks that the next claim may take: more may not fit into memory
	breaker      breaker     // opens while the agent cannot be reached
}

// roster is the set of agents that the pool works for now.
type roster struct {
	defaults a2a.Limits // of agents that set none
	slots    *slots
	ended    *attempt.Tally
	breakers chan<- struct{} // capacity 1: a breaker has changed its state

	mu          sync.Mutex
	queues      []*queue                // guarded by mu; replaced, never changed in place
	withoutWork []string                // guarded by mu; agents with nothing to cancel elsewhere; replaced likewise
	demands     map[string]*demand      // guarded by mu; of every agent since the start
	policies    map[string]tasks.Policy // guarded by mu; of every agent since the start
}

func newRoster(defaults a2a.Limits, s *slots, ended *attempt.Tally, breakers chan<- struct{}) *roster {
	return &roster{
		defaults: defaults, slots: s, ended: ended, breakers: breakers,
		demands: make(map[string]*demand), policies: make(map[string]tasks.Policy),
	}
}

var fates = map[a2a.OnLostLease]string{
	a2a.LostLeaseRetry: "retry", a2a.LostLeaseFail: "fail", a2a.LostLeaseInputRequired: "input-required",
}

// set replaces the agents.
func (r *roster) set(list []Agent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := make(map[string]bool, len(r.queues))
	for _, q := range r.queues {
		before[q.Name] = true
	}
	var queues []*queue
	var withoutWork []string
	for _, a := range list {
		if _, ok := a.Executor.(executor.Canceler); !ok {
			withoutWork = append(withoutWork, a.Name)
		}
		q := &queue{Agent: a, limits: a.Limits.Or(r.defaults), demand: r.demands[a.Name]}
		if q.demand == nil {
			q.demand = &demand{most: maxClaim, breaker: breaker{changed: r.breakers}}
			r.demands[a.Name] = q.demand
		}
		r.policies[a.Name] = tasks.Policy{
			Agent: a.Name, Fate: fates[a.OnLostLease], MaxAttempts: q.limits.MaxAttempts,
			Parks: q.limits.OnExhausted == a2a.ExhaustedPark, ParkFor: max(q.limits.ParkFor, 0),
		}
		if a.Executor == nil {
			continue // remote workers claim its tasks
		}
		r.ended.Serve(a.Name, attempt.LocalOutcomes)
		if !before[a.Name] {
			r.slots.expectBacklog(q)
		}
		queues = append(queues, q)
	}
	r.queues, r.withoutWork = queues, withoutWork
}

// current returns the queues to claim from.
func (r *roster) current() []*queue {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.queues
}

// find returns the queue of an agent, or nil.
func (r *roster) find(agent string) *queue {
	queues := r.current()
	i := slices.IndexFunc(queues, func(q *queue) bool { return q.Name == agent })
	if i < 0 {
		return nil
	}
	return queues[i]
}

// withoutRemoteWork returns the agents to which cancels need not be delivered.
func (r *roster) withoutRemoteWork() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.withoutWork
}

// allPolicies returns the policies by agent name.
func (r *roster) allPolicies() []tasks.Policy {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]tasks.Policy, 0, len(r.policies))
	for _, name := range slices.Sorted(maps.Keys(r.policies)) {
		out = append(out, r.policies[name])
	}
	return out
}
