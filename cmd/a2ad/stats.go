package main

import (
	"context"
	"time"

	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/term"
)

// StatsCmd is `a2ad stats`.
type StatsCmd struct {
	Database `group:"database"`
	Output
}

// Help is shown below the usage line.
func (*StatsCmd) Help() string {
	return `Shows tasks by agent and state, the queues, unreachable agents, the workers, the attempts that have been ` +
		`silent for longest, connected servers, the backlog of webhooks, destinations that are not called, sizes, ` +
		`and the oldest transactions.

With more than some hundred thousand tasks, the number of finished ones is an estimate, marked with ~.`
}

// Run shows.
func (c *StatsCmd) Run(ctx context.Context, app *App) error {
	return c.withStore(ctx, app, func(s *store.Store) error {
		o, err := s.Operate.Overview(ctx)
		if err != nil {
			return err
		}
		if c.json() {
			return term.JSON(app.Stdout, newStats(o))
		}
		return showStats(app, o)
	})
}

// stats is the JSON of `a2ad stats`. It does not change silently.
type stats struct {
	Tasks        []statsTasks       `json:"tasks"`
	Queues       []statsQueue       `json:"queues"`
	Unreachable  []statsUnreachable `json:"unreachable"`
	Parked       []statsParked      `json:"parked"`
	Waiting      []statsWaiting     `json:"waiting"`
	Workers      []statsWorker      `json:"workers"`
	Runs         []statsRun         `json:"runs"`
	Replicas     []statsReplica     `json:"replicas"`
	Webhooks     statsWebhooks      `json:"webhooks"`
	Destinations []statsDestination `json:"destinations"`
	Database     statsDatabase      `json:"database"`
	Transactions []statsTransaction `json:"transactions"`
	Hidden       int                `json:"hiddenSessions"`
}

type statsTasks struct {
	Agent string `json:"agent"`
	State string `json:"state"`
	Tasks int64  `json:"tasks"`

	Estimated bool `json:"estimated,omitempty"` // from a sample
}

type statsQueue struct {
	Agent    string `json:"agent"`
	Waiting  int64  `json:"waiting"`
	Due      int64  `json:"due"`
	OldestMs int64  `json:"oldestMs"`
}

type statsUnreachable struct {
	Agent       string    `json:"agent"`
	Since       time.Time `json:"since"`
	Reason      string    `json:"reason"`
	Replica     string    `json:"replica"` // that could not reach it last
	Probes      int       `json:"probes"`
	NextProbeAt time.Time `json:"nextProbeAt"`
	Waiting     int64     `json:"waiting"` // tasks
}

type statsParked struct {
	Agent    string `json:"agent"`
	Tasks    int64  `json:"tasks"`
	OldestMs int64  `json:"oldestMs"`
}

type statsWaiting struct {
	Agent  string     `json:"agent"`
	Tasks  int64      `json:"tasks"`
	NextAt *time.Time `json:"nextAt,omitempty"` // when the first of them continues or fails
}

type statsWorker struct {
	Worker  string `json:"worker"`
	Running int64  `json:"running"`
	Expired int64  `json:"expired"`
}

type statsRun struct {
	Task     string `json:"task"`
	Agent    string `json:"agent"`
	Worker   string `json:"worker"`
	Attempt  int    `json:"attempt"`
	AgeMs    int64  `json:"ageMs"`
	LastSeq  int64  `json:"lastSeq"`
	SilentMs int64  `json:"silentMs"` // since the last event
}

type statsReplica struct {
	Name        string `json:"name"`
	Connections int    `json:"connections"`
	Listens     bool   `json:"listens"`
}

type statsWebhooks struct {
	Backlog  int64 `json:"backlog"`
	Events   int64 `json:"events"`
	Failing  int64 `json:"failing"`
	Dead     int64 `json:"dead"`
	Disabled int64 `json:"disabled"`
	OldestMs int64 `json:"oldestMs"`
}

type statsDestination struct {
	Tenant     string     `json:"tenant"`
	Origin     string     `json:"origin"`
	Failures   int        `json:"failures"`
	RestsUntil *time.Time `json:"restsUntil,omitempty"`
	DisabledAt *time.Time `json:"disabledAt,omitempty"`
	LastError  string     `json:"lastError,omitempty"`
}

type statsDatabase struct {
	Bytes  int64        `json:"bytes"`
	Tables []statsTable `json:"tables"`
}

type statsTable struct {
	Name       string `json:"name"`
	Bytes      int64  `json:"bytes"`
	IndexBytes int64  `json:"indexBytes"`
	Rows       int64  `json:"rows"`
	DeadRows   int64  `json:"deadRows"`
}

type statsTransaction struct {
	PID         int    `json:"pid"`
	Login       string `json:"login"`
	Application string `json:"application"`
	State       string `json:"state"`
	Ms          int64  `json:"ms"`
}

// listOf converts a list, and never returns nil, which JSON would show as null.
func listOf[A, B any](list []A, convert func(A) B) []B {
	out := make([]B, len(list))
	for i, v := range list {
		out[i] = convert(v)
	}
	return out
}

// waitingFor returns how many tasks of an agent wait for a worker.
func waitingFor(o *operate.Overview, agent string) int64 {
	for _, q := range o.Queues {
		if q.Agent == agent {
			return q.Waiting
		}
	}
	return 0
}

func newStats(o *operate.Overview) stats {
	p := o.Push
	return stats{
		Tasks: listOf(o.Tasks, func(t operate.TaskCount) statsTasks {
			return statsTasks{t.Agent, t.State.String(), t.Tasks, t.Estimated}
		}),
		Queues: listOf(o.Queues, func(q operate.QueueDepth) statsQueue {
			return statsQueue{q.Agent, q.Waiting, q.Due, max(q.Oldest.Milliseconds(), 0)}
		}),
		Unreachable: listOf(o.Unreachable, func(a operate.Outage) statsUnreachable {
			return statsUnreachable{a.Agent, a.Since, a.Reason, a.Replica, a.Probes, a.Next, waitingFor(o, a.Agent)}
		}),
		Parked: listOf(o.Parked, func(p operate.ParkedCount) statsParked {
			return statsParked{p.Agent, p.Tasks, p.Oldest.Milliseconds()}
		}),
		Waiting: listOf(o.Waiting, func(w operate.WaitingCount) statsWaiting {
			return statsWaiting{w.Agent, w.Tasks, orNil(w.Next)}
		}),
		Workers: listOf(o.Workers, func(w operate.WorkerLoad) statsWorker { return statsWorker(w) }),
		Runs: listOf(o.Runs, func(r operate.RunSeen) statsRun {
			return statsRun{
				r.Task.String(), r.Agent, r.Worker, r.Attempt, r.Age.Milliseconds(), r.LastSeq, r.Silent.Milliseconds(),
			}
		}),
		Replicas: listOf(o.Replicas, func(r operate.ReplicaSeen) statsReplica { return statsReplica(r) }),
		Webhooks: statsWebhooks{p.Webhooks, p.Events, p.Failing, p.Dead, p.Disabled, p.Oldest.Milliseconds()},
		Destinations: listOf(o.Down, func(d operate.DestinationDown) statsDestination {
			return statsDestination{d.Tenant, d.Origin, d.Fails, orNil(d.OpenUntil), orNil(d.DisabledAt), d.LastError}
		}),
		Database: statsDatabase{o.Bytes, listOf(o.Tables, func(t operate.TableSize) statsTable {
			return statsTable{t.Name, t.Bytes, t.IndexBytes, t.Rows, t.Dead}
		})},
		Transactions: listOf(o.Transactions, func(t operate.OpenTransaction) statsTransaction {
			return statsTransaction{t.PID, t.Login, t.Application, t.State, t.For.Milliseconds()}
		}),
		Hidden: o.Hidden,
	}
}
