package admin

import (
	"context"
	"time"

	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// Stats is the state of the whole service. Its JSON does not change silently.
type Stats struct {
	Tasks        []StatsTasks       `json:"tasks"`
	Queues       []StatsQueue       `json:"queues"`
	Unreachable  []StatsUnreachable `json:"unreachable"`
	Stopped      []StatsStopped     `json:"stopped"`
	Parked       []StatsParked      `json:"parked"`
	Waiting      []StatsWaiting     `json:"waiting"`
	Workers      []StatsWorker      `json:"workers"`
	Runs         []StatsRun         `json:"runs" doc:"At most 100, those that have been silent for longest first."`
	Replicas     []StatsReplica     `json:"replicas"`
	Full         *StatsFull         `json:"slotsFull,omitempty" doc:"Missing unless tasks wait for a free slot."`
	Webhooks     StatsWebhooks      `json:"webhooks"`
	Destinations []StatsDestination `json:"destinations" doc:"Those that are not called: at most 100."`
	Database     StatsDatabase      `json:"database"`
	Transactions []StatsTransaction `json:"transactions"`
	Hidden       int                `json:"hiddenSessions" doc:"Connections whose transactions the login may not see."`
}

// StatsTasks is how many tasks of an agent are in a state.
type StatsTasks struct {
	Agent string `json:"agent"`
	State string `json:"state"`
	Tasks int64  `json:"tasks"`

	Estimated bool `json:"estimated,omitempty" doc:"Whether it is an estimate from a sample."`
}

// StatsQueue counts the tasks of an agent that wait for a worker.
type StatsQueue struct {
	Agent    string `json:"agent"`
	Waiting  int64  `json:"waiting"`
	Due      int64  `json:"due" doc:"Of these, those that wait for nothing else."`
	OldestMs int64  `json:"oldestMs" doc:"How long the one that is due longest has waited."`
}

// StatsUnreachable is an agent that a replica cannot reach.
type StatsUnreachable struct {
	Agent       string    `json:"agent"`
	Since       time.Time `json:"since"`
	Reason      string    `json:"reason"`
	Replica     string    `json:"replica" doc:"The one that could not reach it last."`
	Probes      int       `json:"probes"`
	NextProbeAt time.Time `json:"nextProbeAt"`
	Waiting     int64     `json:"waiting" doc:"Its tasks."`
}

// StatsStopped is an agent that is paused, or a worker that is drained.
type StatsStopped struct {
	Kind string `json:"kind" enum:"agent,worker"`
	Name string `json:"name"`
	Stop
}

// StatsParked counts the parked tasks of an agent.
type StatsParked struct {
	Agent    string `json:"agent"`
	Tasks    int64  `json:"tasks"`
	OldestMs int64  `json:"oldestMs"`
}

// StatsWaiting counts the tasks of an agent that wait for something other than a worker.
type StatsWaiting struct {
	Agent  string     `json:"agent"`
	Tasks  int64      `json:"tasks"`
	NextAt *time.Time `json:"nextAt,omitempty" doc:"When the first of them continues or fails."`
}

// StatsWorker counts the attempts of a worker.
type StatsWorker struct {
	Worker  string `json:"worker"`
	Running int64  `json:"running"`
	Expired int64  `json:"expired" doc:"Of these, those whose lease has expired."`
}

// StatsRun is an attempt in progress.
type StatsRun struct {
	Task     string `json:"task"`
	Agent    string `json:"agent"`
	Worker   string `json:"worker"`
	Attempt  int    `json:"attempt"`
	AgeMs    int64  `json:"ageMs"`
	LastSeq  int64  `json:"lastSeq"`
	SilentMs int64  `json:"silentMs" doc:"Since the last event."`
}

// StatsReplica is a server that is connected to the database.
type StatsReplica struct {
	Name        string `json:"name"`
	Connections int    `json:"connections"`
	Listens     bool   `json:"listens"`
	Servers     int    `json:"servers"`

	Version      string     `json:"version,omitempty"`
	Host         string     `json:"host,omitempty"`
	StartedAt    *time.Time `json:"startedAt,omitempty"`
	HeartbeatAt  *time.Time `json:"heartbeatAt,omitempty"`
	Slots        int        `json:"slots,omitempty" doc:"Attempts that may run at once: A2AD_WORKERS."`
	Busy         int        `json:"busy,omitempty" doc:"Slots in use."`
	BusyPercent  int        `json:"busyPercent,omitempty" doc:"Of the slots, lately."`
	Commands     int        `json:"commandSlots,omitempty" doc:"Of the slots, those for commands (A2AD_COMMANDS)."`
	BusyCommands int        `json:"commandsBusy,omitempty" doc:"Slots for commands in use."`
	CommandsFull bool       `json:"commandsFull,omitempty" doc:"Whether tasks wait for a slot for commands."`
}

// StatsFull says that tasks wait because all slots of all servers are in use.
type StatsFull struct {
	Slots    int   `json:"slots"`
	Due      int64 `json:"due" doc:"Tasks that wait for nothing else."`
	OldestMs int64 `json:"oldestMs"`
}

func newStatsFull(f *operate.Saturation) *StatsFull {
	if f == nil {
		return nil
	}
	return &StatsFull{f.Slots, f.Due, f.Oldest.Milliseconds()}
}

func newStatsReplica(r operate.ReplicaSeen, known []operate.Presence) StatsReplica {
	out := StatsReplica{Name: r.Name, Connections: r.Connections, Listens: r.Listens, Servers: r.Servers}
	if p := operate.Newest(known, r.Name); p != nil && p.Server() {
		out.Version, out.Host = p.Version, p.Host
		out.StartedAt, out.HeartbeatAt = orNil(p.StartedAt), orNil(p.SeenAt)
		out.Slots, out.Busy, out.BusyPercent = p.Slots, p.Busy, percent(p.BusyShare)
		out.Commands, out.BusyCommands, out.CommandsFull = p.Commands, p.BusyCommands, p.CommandsFull()
	}
	return out
}

// percent rounds a share.
func percent(share float64) int { return int(share*100 + 0.5) }

// StatsWebhooks counts webhooks.
type StatsWebhooks struct {
	Backlog  int64 `json:"backlog"`
	Events   int64 `json:"events"`
	Failing  int64 `json:"failing"`
	Dead     int64 `json:"dead"`
	Disabled int64 `json:"disabled"`
	OldestMs int64 `json:"oldestMs"`
}

// StatsDestination is a destination of webhooks that is not called.
type StatsDestination struct {
	Tenant     string     `json:"tenant"`
	Origin     string     `json:"origin"`
	Failures   int        `json:"failures"`
	RestsUntil *time.Time `json:"restsUntil,omitempty"`
	DisabledAt *time.Time `json:"disabledAt,omitempty"`
	LastError  string     `json:"lastError,omitempty"`
}

// StatsDatabase says how large the database is.
type StatsDatabase struct {
	Bytes  int64        `json:"bytes"`
	Tables []StatsTable `json:"tables"`
}

// StatsTable says how large a table is.
type StatsTable struct {
	Name       string `json:"name"`
	Bytes      int64  `json:"bytes"`
	IndexBytes int64  `json:"indexBytes"`
	Rows       int64  `json:"rows"`
	DeadRows   int64  `json:"deadRows"`
}

// StatsTransaction is a transaction that is open for longer than a second.
type StatsTransaction struct {
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

// NewStats returns an overview as it is shown.
func NewStats(o *operate.Overview) *Stats {
	p := o.Push
	return &Stats{
		Tasks: listOf(o.Tasks, func(t operate.TaskCount) StatsTasks {
			return StatsTasks{t.Agent, t.State.String(), t.Tasks, t.Estimated}
		}),
		Queues: listOf(o.Queues, func(q operate.QueueDepth) StatsQueue {
			return StatsQueue{q.Agent, q.Waiting, q.Due, max(q.Oldest.Milliseconds(), 0)}
		}),
		Stopped: listOf(o.Stopped, func(s tasks.Stop) StatsStopped {
			return StatsStopped{string(s.Kind), s.Name, *newStop(&s)}
		}),
		Unreachable: listOf(o.Unreachable, func(a operate.Outage) StatsUnreachable {
			return StatsUnreachable{a.Agent, a.Since, a.Reason, a.Replica, a.Probes, a.Next, waitingFor(o, a.Agent)}
		}),
		Parked: listOf(o.Parked, func(p operate.ParkedCount) StatsParked {
			return StatsParked{p.Agent, p.Tasks, p.Oldest.Milliseconds()}
		}),
		Waiting: listOf(o.Waiting, func(w operate.WaitingCount) StatsWaiting {
			return StatsWaiting{w.Agent, w.Tasks, orNil(w.Next)}
		}),
		Workers: listOf(o.Workers, func(w operate.WorkerLoad) StatsWorker { return StatsWorker(w) }),
		Runs: listOf(o.Runs, func(r operate.RunSeen) StatsRun {
			return StatsRun{
				r.Task.String(), r.Agent, r.Worker, r.Attempt, r.Age.Milliseconds(), r.LastSeq, r.Silent.Milliseconds(),
			}
		}),
		Replicas: listOf(o.Replicas, func(r operate.ReplicaSeen) StatsReplica { return newStatsReplica(r, o.Known) }),
		Full:     newStatsFull(o.Full),
		Webhooks: StatsWebhooks{p.Webhooks, p.Events, p.Failing, p.Dead, p.Disabled, p.Oldest.Milliseconds()},
		Destinations: listOf(o.Down, func(d operate.DestinationDown) StatsDestination {
			return StatsDestination{d.Tenant, d.Origin, d.Fails, orNil(d.OpenUntil), orNil(d.DisabledAt), d.LastError}
		}),
		Database: StatsDatabase{o.Bytes, listOf(o.Tables, func(t operate.TableSize) StatsTable {
			return StatsTable{t.Name, t.Bytes, t.IndexBytes, t.Rows, t.Dead}
		})},
		Transactions: listOf(o.Transactions, func(t operate.OpenTransaction) StatsTransaction {
			return StatsTransaction{t.PID, t.Login, t.Application, t.State, t.For.Milliseconds()}
		}),
		Hidden: o.Hidden,
	}
}

// showStats serves GET /stats.
func (a *API) showStats(ctx context.Context, r *request) (any, error) {
	if err := r.mustBeForAllAgents("stats are"); err != nil {
		return nil, err
	}
	o, err := a.store.Operate.Overview(ctx)
	if err != nil {
		return nil, err
	}
	return NewStats(o), nil
}
