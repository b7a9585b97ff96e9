package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
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
			return printJSON(app.Stdout, newStats(o))
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
	tw := &sections{w: app.Stdout, width: app.width(), paint: painter(app.Color)}
	tw.table("Tasks", taskHeads(), agentRows(o.Tasks))
	tw.table("Queues", []string{"AGENT", "WAITING", "DUE", "OLDEST"}, turned(o.Queues, func(q store.QueueDepth) []string {
		oldest := "-"
		if q.Due > 0 {
			oldest = showDuration(max(q.Oldest, 0))
		}
		return []string{cell(q.Agent), number(q.Waiting), number(q.Due), oldest}
	}))
	tw.table("Workers", []string{"WORKER", "RUNNING", "LEASE RUN OUT"}, turned(o.Workers, func(l store.WorkerLoad) []string {
		return []string{cell(l.Worker), number(l.Running), number(l.Expired)}
	}))
	shown := o.Runs[:min(len(o.Runs), 20)]
	tw.table("Runs, longest silent first", []string{"TASK", "AGENT", "WORKER", "ATTEMPT", "AGE", "LAST EVENT"}, turned(shown, func(r store.RunSeen) []string {
		return []string{r.Task.String(), cell(r.Agent), cell(r.Worker), strconv.Itoa(r.Attempt), showDuration(max(r.Age, 0)), showDuration(max(r.Silent, 0)) + " ago"}
	}))
	if len(shown) < len(o.Runs) && tw.err == nil {
		_, tw.err = fmt.Fprintln(tw.w, "  and more: \"a2ad stats -o json\" lists 100, \"a2ad task ls --state working\" all")
	}
	tw.table("Servers connected", []string{"REPLICA", "CONNECTIONS", "LISTENS"}, turned(o.Replicas, func(r store.ReplicaSeen) []string {
		return []string{cell(r.Name), strconv.Itoa(r.Connections), map[bool]string{true: "yes", false: "no"}[r.Listens]}
	}))
	p := o.Push
	oldest := "-"
	if p.Webhooks > 0 {
		oldest = showDuration(p.Oldest)
	}
	tw.table("Webhooks", []string{"BACKLOG", "EVENTS", "FAILING", "DEAD", "DISABLED", "OLDEST"}, [][]string{
		{number(p.Webhooks), number(p.Events), number(p.Failing), number(p.Dead), number(p.Disabled), oldest},
	})
	tw.table("Destinations not called", []string{"TENANT", "DESTINATION", "FAILURES", "RESTS UNTIL", "DISABLED SINCE", "LAST ERROR"}, turned(o.Down, func(d store.DestinationDown) []string {
		return []string{cell(d.Tenant), cell(d.Origin), strconv.Itoa(d.Fails), moment(d.OpenUntil), moment(d.DisabledAt), cell(d.LastError)}
	}))
	tw.table("Open transactions", []string{"FOR", "PROCESS", "LOGIN", "APPLICATION", "STATE"}, turned(o.Transactions, func(t store.OpenTransaction) []string {
		return []string{showDuration(t.For), strconv.Itoa(t.PID), cell(t.Login), cell(t.Application), cell(t.State)}
	}))
	if o.Hidden > 0 && tw.err == nil {
		_, tw.err = fmt.Fprintf(tw.w, "  those of %d connections cannot be seen: the login is no member of pg_read_all_stats\n", o.Hidden)
	}
	tw.table("Database "+showBytes(o.Bytes), []string{"TABLE", "SIZE", "INDEXES", "ROWS", "DEAD ROWS"}, turned(o.Tables, func(t store.TableSize) []string {
		return []string{t.Name, showBytes(t.Bytes), showBytes(t.IndexBytes), number(t.Rows), number(t.Dead)}
	}))
	return tw.err
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
		row := []string{cell(name)}
		for _, s := range stateOrder {
			row = append(row, cmp.Or(counts[s], number(0)))
		}
		rows = append(rows, row)
		clear(counts)
	}
	for _, t := range tasks {
		if t.Agent != name {
			flush()
			name = t.Agent
		}
		counts[t.State] = number(t.Tasks)
		if t.Estimated {
			counts[t.State] = "~" + counts[t.State]
		}
	}
	flush()
	return rows
}

func number(n int64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

// sections writes tables under titles. A table without rows is one line.
type sections struct {
	w     io.Writer
	width int
	paint painter
	began bool
	err   error
}

func (s *sections) table(title string, head []string, rows [][]string) {
	if s.err != nil {
		return
	}
	if s.began {
		fmt.Fprintln(s.w)
	}
	s.began = true
	if len(rows) == 0 {
		_, s.err = fmt.Fprintf(s.w, "%s: none\n", s.paint.bold(title))
		return
	}
	fmt.Fprintln(s.w, s.paint.bold(title))
	t := table{width: s.width, indent: "  ", head: head, rows: rows}
	s.err = t.write(s.w)
}
