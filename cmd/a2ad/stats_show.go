package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/term"
)

// mostRuns is how many attempts stats shows.
const mostRuns = 20

// showStats writes a table for each part of the overview.
func showStats(app *App, o *operate.Overview) error {
	s := term.NewSections(&app.Console)
	s.Table("Tasks", taskHeads(), agentRows(o.Tasks))
	showWork(s, o)
	showWebhooks(s, o)
	showDatabase(s, o)
	return s.Err()
}

func showWork(s *term.Sections, o *operate.Overview) {
	s.Table("Queues", []string{"AGENT", "WAITING", "DUE", "OLDEST"},
		listOf(o.Queues, func(q operate.QueueDepth) []string {
			oldest := "-"
			if q.Due > 0 {
				oldest = term.Duration(max(q.Oldest, 0))
			}
			return []string{term.Cell(q.Agent), term.Number(q.Waiting), term.Number(q.Due), oldest}
		}))
	s.Table("Unreachable agents", []string{"AGENT", "SINCE", "WAITING", "PROBES", "NEXT PROBE", "REASON"},
		listOf(o.Unreachable, func(a operate.Outage) []string {
			return []string{
				term.Cell(a.Agent), term.Moment(a.Since), term.Number(waitingFor(o, a.Agent)), strconv.Itoa(a.Probes),
				term.Moment(a.Next), term.Cell(a.Reason),
			}
		}))
	s.Table("Parked tasks", []string{"AGENT", "PARKED", "OLDEST"},
		listOf(o.Parked, func(p operate.ParkedCount) []string {
			return []string{term.Cell(p.Agent), term.Number(p.Tasks), term.Duration(p.Oldest)}
		}))
	s.Table("Waiting tasks", []string{"AGENT", "WAITING", "NEXT DUE"},
		listOf(o.Waiting, func(w operate.WaitingCount) []string {
			return []string{term.Cell(w.Agent), term.Number(w.Tasks), term.Moment(w.Next)}
		}))
	s.Table("Busy workers", []string{"WORKER", "RUNNING", "LEASE EXPIRED"},
		listOf(o.Workers, func(w operate.WorkerLoad) []string {
			return []string{term.Cell(w.Worker), term.Number(w.Running), term.Number(w.Expired)}
		}))
	shown := o.Runs[:min(len(o.Runs), mostRuns)]
	s.Table("Attempts, longest silent first", []string{"TASK", "AGENT", "WORKER", "ATTEMPT", "AGE", "LAST EVENT"},
		listOf(shown, func(r operate.RunSeen) []string {
			return []string{
				r.Task.String(), term.Cell(r.Agent), term.Cell(r.Worker), strconv.Itoa(r.Attempt),
				term.Duration(max(r.Age, 0)), term.Duration(max(r.Silent, 0)) + " ago",
			}
		}))
	if len(shown) < len(o.Runs) {
		s.Remark("There are more: \"a2ad stats -o json\" lists 100, \"a2ad task ls --state working\" all of them.")
	}
	s.Table("Connected servers", []string{"REPLICA", "CONNECTIONS", "LISTENS"},
		listOf(o.Replicas, func(r operate.ReplicaSeen) []string {
			listens := "no"
			if r.Listens {
				listens = "yes"
			}
			return []string{term.Cell(r.Name), strconv.Itoa(r.Connections), listens}
		}))
}

func showWebhooks(s *term.Sections, o *operate.Overview) {
	p, oldest := o.Push, "-"
	if p.Webhooks > 0 {
		oldest = term.Duration(p.Oldest)
	}
	s.Table("Webhooks", []string{"BACKLOG", "EVENTS", "FAILING", "DEAD", "DISABLED", "OLDEST"}, [][]string{{
		term.Number(p.Webhooks), term.Number(p.Events), term.Number(p.Failing), term.Number(p.Dead),
		term.Number(p.Disabled), oldest,
	}})
	head := []string{"TENANT", "DESTINATION", "FAILURES", "CIRCUIT OPEN UNTIL", "DISABLED SINCE", "LAST ERROR"}
	s.Table("Destinations that are not called", head, listOf(o.Down, func(d operate.DestinationDown) []string {
		return []string{
			term.Cell(d.Tenant), term.Cell(d.Origin), strconv.Itoa(d.Fails), term.Moment(d.OpenUntil),
			term.Moment(d.DisabledAt), term.Cell(d.LastError),
		}
	}))
}

func showDatabase(s *term.Sections, o *operate.Overview) {
	s.Table("Open transactions", []string{"FOR", "PROCESS", "LOGIN", "APPLICATION", "STATE"},
		listOf(o.Transactions, func(t operate.OpenTransaction) []string {
			return []string{
				term.Duration(t.For), strconv.Itoa(t.PID),
				term.Cell(t.Login), term.Cell(t.Application), term.Cell(t.State),
			}
		}))
	if o.Hidden > 0 {
		s.Remark(fmt.Sprintf("The transactions of %d connections cannot be seen: "+
			"the login is not a member of pg_read_all_stats.", o.Hidden))
	}
	s.Table("Database "+term.Size(o.Bytes), []string{"TABLE", "SIZE", "INDEXES", "ROWS", "DEAD ROWS"},
		listOf(o.Tables, func(t operate.TableSize) []string {
			return []string{
				t.Name, term.Size(t.Bytes), term.Size(t.IndexBytes), term.Number(t.Rows), term.Number(t.Dead),
			}
		}))
}

var stateOrder = []a2a.State{
	a2a.StateSubmitted, a2a.StateWorking, a2a.StateInputRequired, a2a.StateAuthRequired,
	a2a.StateCompleted, a2a.StateFailed, a2a.StateCanceled, a2a.StateRejected,
}

func taskHeads() []string {
	heads := []string{"AGENT"}
	for _, s := range stateOrder {
		heads = append(heads, strings.ToUpper(strings.ReplaceAll(s.String(), "-required", "?")))
	}
	return heads
}

// agentRows returns a row for each agent. The tasks are ordered by agent.
func agentRows(tasks []operate.TaskCount) (rows [][]string) {
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
