package admin

import (
	"context"
)

// QueueList is the queues of all agents that are known.
type QueueList struct {
	Queues []Queue `json:"queues"`
}

// Queue is the waiting tasks of an agent, and why they wait.
type Queue struct {
	Agent    string `json:"agent"`
	State    string `json:"state" doc:"Of the agent: active, paused or unreachable."`
	Waiting  int64  `json:"waiting"`
	Due      int64  `json:"due" doc:"Of these, those that wait for a worker alone."`
	OldestMs int64  `json:"oldestMs" doc:"How long the oldest of these has been due."`
	Running  int64  `json:"running" doc:"Attempts that hold a lease, in all replicas."`
	Limit    int    `json:"limit,omitempty" doc:"The most attempts at once in a replica, if the agent has a limit."`
	Lanes    []Lane `json:"lanes" doc:"Those with tasks. An owner with many tasks has few in the first lanes."`
}

// Lane is one section of a queue.
type Lane struct {
	Lane     int   `json:"lane" doc:"From 0, which is claimed from first, to 3."`
	Waiting  int64 `json:"waiting"`
	Due      int64 `json:"due"`
	OldestMs int64 `json:"oldestMs"`
}

// listQueues serves GET /queues.
func (a *API) listQueues(ctx context.Context, r *request) (any, error) {
	agents, err := a.agentsNow(ctx, r)
	if err != nil {
		return nil, err
	}
	lanes, err := a.store.Operate.Lanes(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]Queue, len(agents))
	for i := range agents {
		x := &agents[i]
		list[i] = Queue{
			Agent: x.Name, State: x.State, Waiting: x.Waiting, Due: x.Due, OldestMs: x.OldestMs, Running: x.Running,
			Limit: x.Concurrency, Lanes: []Lane{},
		}
		for _, l := range lanes {
			if l.Agent == x.Name {
				lane := Lane{l.Lane, l.Waiting, l.Due, max(l.Oldest.Milliseconds(), 0)}
				list[i].Lanes = append(list[i].Lanes, lane)
			}
		}
	}
	return QueueList{list}, nil
}
