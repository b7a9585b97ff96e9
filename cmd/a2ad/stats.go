package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/term"
)

// StatsCmd is `a2ad stats`.
type StatsCmd struct {
	Database `group:"database"`
	Output
}

// Help is shown below the usage line.
func (*StatsCmd) Help() string {
	return `Tasks by agent and state, what waits and how long, what each worker runs, the runs whose last event is the oldest, the servers that are connected, the backlog of webhooks, the destinations that are not called, sizes, and the oldest transactions. Of more than some hundred thousand tasks those that have ended are estimated, and marked with ~.`
}

// Run shows.
func (c *StatsCmd) Run(ctx context.Context, app *App) error {
	return c.withOperator(ctx, app, func(op operator) error {
		o, err := op.Overview(ctx)
		if err != nil {
			return err
		}
		if c.json() {
			return term.JSON(app.Stdout, newStats(o))
		}
		return showStats(app, o)
	})
}

// stats is `a2ad stats -o json`. It does not change silently.
type stats struct {
	Tasks        []statsTasks       `json:"tasks"`
	Queues       []statsQueue       `json:"queues"`
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

// turned turns a list into another one that is never null in JSON.
func turned[A, B any](list []A, turn func(A) B) []B {
	out := make([]B, len(list))
	for i, v := range list {
		out[i] = turn(v)
	}
	return out
}

func newStats(o *store.Overview) stats {
	p := o.Push
	return stats{
		Tasks: turned(o.Tasks, func(t store.TaskCount) statsTasks { return statsTasks{t.Agent, t.State.String(), t.Tasks, t.Estimated} }),
		Queues: turned(o.Queues, func(q store.QueueDepth) statsQueue {
			return statsQueue{q.Agent, q.Waiting, q.Due, max(q.Oldest.Milliseconds(), 0)}
		}),
		Workers: turned(o.Workers, func(w store.WorkerLoad) statsWorker { return statsWorker(w) }),
		Runs: turned(o.Runs, func(r store.RunSeen) statsRun {
			return statsRun{r.Task.String(), r.Agent, r.Worker, r.Attempt, r.Age.Milliseconds(), r.LastSeq, r.Silent.Milliseconds()}
		}),
		Replicas: turned(o.Replicas, func(r store.ReplicaSeen) statsReplica { return statsReplica(r) }),
		Webhooks: statsWebhooks{p.Webhooks, p.Events, p.Failing, p.Dead, p.Disabled, p.Oldest.Milliseconds()},
		Destinations: turned(o.Down, func(d store.DestinationDown) statsDestination {
			return statsDestination{d.Tenant, d.Origin, d.Fails, orNil(d.OpenUntil), orNil(d.DisabledAt), d.LastError}
		}),
		Database: statsDatabase{o.Bytes, turned(o.Tables, func(t store.TableSize) statsTable { return statsTable{t.Name, t.Bytes, t.IndexBytes, t.Rows, t.Dead} })},
		Transactions: turned(o.Transactions, func(t store.OpenTransaction) statsTransaction {
			return statsTransaction{t.PID, t.Login, t.Application, t.State, t.For.Milliseconds()}
		}),
		Hidden: o.Hidden,
	}
}

var stateOrder = []a2a.State{
	a2a.StateSubmitted, a2a.StateWorking, a2a.StateInputRequired, a2a.StateAuthRequired,
	a2a.StateCompleted, a2a.StateFailed, a2a.StateCanceled, a2a.StateRejected,
}

func showStats(app *App, o *store.Overview) error {
	tw := term.NewSections(&app.Console)
	tw.Table("Tasks", taskHeads(), agentRows(o.Tasks))
	tw.Table("Queues", []string{"AGENT", "WAITING", "DUE", "OLDEST"}, turned(o.Queues, func(q store.QueueDepth) []string {
		oldest := "-"
		if q.Due > 0 {
			oldest = term.Duration(max(q.Oldest, 0))
		}
		return []string{term.Cell(q.Agent), term.Number(q.Waiting), term.Number(q.Due), oldest}
	}))
	tw.Table("Workers", []string{"WORKER", "RUNNING", "LEASE RUN OUT"}, turned(o.Workers, func(l store.WorkerLoad) []string {
		return []string{term.Cell(l.Worker), term.Number(l.Running), term.Number(l.Expired)}
	}))
	shown := o.Runs[:min(len(o.Runs), 20)]
	tw.Table("Runs, longest silent first", []string{"TASK", "AGENT", "WORKER", "ATTEMPT", "AGE", "LAST EVENT"}, turned(shown, func(r store.RunSeen) []string {
		return []string{r.Task.String(), term.Cell(r.Agent), term.Cell(r.Worker), strconv.Itoa(r.Attempt), term.Duration(max(r.Age, 0)), term.Duration(max(r.Silent, 0)) + " ago"}
	}))
	if len(shown) < len(o.Runs) {
		tw.Remark("and more: \"a2ad stats -o json\" lists 100, \"a2ad task ls --state working\" all")
	}
	tw.Table("Servers connected", []string{"REPLICA", "CONNECTIONS", "LISTENS"}, turned(o.Replicas, func(r store.ReplicaSeen) []string {
		return []string{term.Cell(r.Name), strconv.Itoa(r.Connections), map[bool]string{true: "yes", false: "no"}[r.Listens]}
	}))
	p := o.Push
	oldest := "-"
	if p.Webhooks > 0 {
		oldest = term.Duration(p.Oldest)
	}
	tw.Table("Webhooks", []string{"BACKLOG", "EVENTS", "FAILING", "DEAD", "DISABLED", "OLDEST"}, [][]string{
		{term.Number(p.Webhooks), term.Number(p.Events), term.Number(p.Failing), term.Number(p.Dead), term.Number(p.Disabled), oldest},
	})
	tw.Table("Destinations not called", []string{"TENANT", "DESTINATION", "FAILURES", "RESTS UNTIL", "DISABLED SINCE", "LAST ERROR"}, turned(o.Down, func(d store.DestinationDown) []string {
		return []string{term.Cell(d.Tenant), term.Cell(d.Origin), strconv.Itoa(d.Fails), term.Moment(d.OpenUntil), term.Moment(d.DisabledAt), term.Cell(d.LastError)}
	}))
	tw.Table("Open transactions", []string{"FOR", "PROCESS", "LOGIN", "APPLICATION", "STATE"}, turned(o.Transactions, func(t store.OpenTransaction) []string {
		return []string{term.Duration(t.For), strconv.Itoa(t.PID), term.Cell(t.Login), term.Cell(t.Application), term.Cell(t.State)}
	}))
	if o.Hidden > 0 {
		tw.Remark(fmt.Sprintf("those of %d connections cannot be seen: the login is no member of pg_read_all_stats", o.Hidden))
	}
	tw.Table("Database "+term.Size(o.Bytes), []string{"TABLE", "SIZE", "INDEXES", "ROWS", "DEAD ROWS"}, turned(o.Tables, func(t store.TableSize) []string {
		return []string{t.Name, term.Size(t.Bytes), term.Size(t.IndexBytes), term.Number(t.Rows), term.Number(t.Dead)}
	}))
	return tw.Err()
}

func taskHeads() []string {
	heads := []string{"AGENT"}
	for _, s := range stateOrder {
		heads = append(heads, strings.ToUpper(strings.ReplaceAll(s.String(), "-required", "?")))
	}
	return heads
}

// agentRows has a row for each agent; tasks come ordered by agent.
func agentRows(tasks []store.TaskCount) (rows [][]string) {
	name, counts := "", map[a2a.State]string{}
	flush := func() {
		if len(counts) == 0 {
			return
		}
		row := []string{term.Cell(name)}
		for _, s := range stateOrder {
			row = append(row, cmp.Or(counts[s], term.Number(0)))
		}
		rows = append(rows, row)
		clear(counts)
	}
	for _, t := range tasks {
		if t.Agent != name {
			flush()
			name = t.Agent
		}
		counts[t.State] = term.Number(t.Tasks)
		if t.Estimated {
			counts[t.State] = "~" + counts[t.State]
		}
	}
	flush()
	return rows
}
