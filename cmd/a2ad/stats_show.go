package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/term"
)

// milliseconds shows how long something has lasted. Clocks may differ, so what is negative has just begun.
func milliseconds(n int64) string { return term.Duration(time.Duration(max(n, 0)) * time.Millisecond) }

// mostRuns is how many attempts stats shows.
const mostRuns = 20

// showStats writes a table for each part of the overview.
func showStats(app *App, o *admin.Stats) error {
	s := term.NewSections(&app.Console)
	s.Table("Tasks", taskHeads(), agentRows(o.Tasks))
	showWork(s, o)
	showWebhooks(s, o)
	showDatabase(s, o)
	return s.Err()
}

func showWork(s *term.Sections, o *admin.Stats) {
	s.Table("Queues", []string{"AGENT", "WAITING", "DUE", "OLDEST"},
		listOf(o.Queues, func(q admin.StatsQueue) []string {
			oldest := "-"
			if q.Due > 0 {
				oldest = milliseconds(q.OldestMs)
			}
			return []string{term.Cell(q.Agent), term.Number(q.Waiting), term.Number(q.Due), oldest}
		}))
	s.Table("Stopped by operators", []string{"KIND", "NAME", "SINCE", "WHY"},
		listOf(o.Stopped, func(x admin.StatsStopped) []string {
			return []string{x.Kind, term.Cell(x.Name), term.Moment(x.Since), term.Cell(describeStop(&x.Stop))}
		}))
	s.Table("Unreachable agents", []string{"AGENT", "SINCE", "WAITING", "PROBES", "NEXT PROBE", "REASON"},
		listOf(o.Unreachable, func(a admin.StatsUnreachable) []string {
			probes, next := strconv.Itoa(a.Probes), term.Moment(a.NextProbeAt)
			if a.Reason == tasks.ReasonNoWorker { // nothing is sent to such an agent: its workers ask
				probes, next = "-", "-"
			}
			return []string{
				term.Cell(a.Agent), term.Moment(a.Since), term.Number(a.Waiting), probes, next,
				term.Cell(a.Reason),
			}
		}))
	s.Table("Parked tasks", []string{"AGENT", "PARKED", "OLDEST"},
		listOf(o.Parked, func(p admin.StatsParked) []string {
			return []string{term.Cell(p.Agent), term.Number(p.Tasks), milliseconds(p.OldestMs)}
		}))
	s.Table("Waiting tasks", []string{"AGENT", "WAITING", "NEXT DUE"},
		listOf(o.Waiting, func(w admin.StatsWaiting) []string {
			return []string{term.Cell(w.Agent), term.Number(w.Tasks), term.MomentOf(w.NextAt)}
		}))
	s.Table("Busy workers", []string{"WORKER", "RUNNING", "LEASE EXPIRED"},
		listOf(o.Workers, func(w admin.StatsWorker) []string {
			return []string{term.Cell(w.Worker), term.Number(w.Running), term.Number(w.Expired)}
		}))
	shown := o.Runs[:min(len(o.Runs), mostRuns)]
	s.Table("Attempts, longest silent first", []string{"TASK", "AGENT", "WORKER", "ATTEMPT", "AGE", "LAST EVENT"},
		listOf(shown, func(r admin.StatsRun) []string {
			return []string{
				r.Task, term.Cell(r.Agent), term.Cell(r.Worker), strconv.Itoa(r.Attempt),
				milliseconds(r.AgeMs), milliseconds(r.SilentMs) + " ago",
			}
		}))
	if len(shown) < len(o.Runs) {
		s.Remark("There are more: \"a2ad stats -o json\" lists 100, \"a2ad task ls --state working\" all of them.")
	}
	showServers(s, o)
}

func showServers(s *term.Sections, o *admin.Stats) {
	head := []string{"REPLICA", "VERSION", "UP", "SLOTS", "USED", "CONNECTIONS", "LISTENS"}
	s.Table("Connected servers", head, listOf(o.Replicas, func(r admin.StatsReplica) []string {
		slots, used, listens := "-", "-", "no"
		if r.Slots > 0 {
			slots, used = fmt.Sprintf("%d/%d", r.Busy, r.Slots), fmt.Sprintf("%d%%", r.BusyPercent)
		}
		if r.Listens {
			listens = "yes"
		}
		return []string{
			term.Cell(r.Name), term.Cell(r.Version), sinceThen(r.StartedAt), slots, used,
			strconv.Itoa(r.Connections), listens,
		}
	}))
	for _, r := range o.Replicas {
		if r.Servers > 1 {
			s.Remark(sameName(r.Servers, r.Name))
		}
	}
	for _, r := range o.Replicas {
		if r.CommandsFull {
			s.Remark(fmt.Sprintf("All %d slots for commands of %s are in use, and tasks wait for one.", r.Commands,
				term.Cell(r.Name)))
			s.Remark("Raise A2AD_COMMANDS, or start more servers.")
		}
	}
	if f := o.Full; f != nil {
		s.Remark(fmt.Sprintf("All %d slots are in use, and tasks wait for one: %d are due, the oldest for %s.",
			f.Slots, f.Due, milliseconds(f.OldestMs)))
		s.Remark("Raise A2AD_WORKERS, or start more servers.")
	}
}

func showWebhooks(s *term.Sections, o *admin.Stats) {
	p, oldest := o.Webhooks, "-"
	if p.Backlog > 0 {
		oldest = milliseconds(p.OldestMs)
	}
	s.Table("Webhooks", []string{"BACKLOG", "EVENTS", "FAILING", "DEAD", "DISABLED", "OLDEST"}, [][]string{{
		term.Number(p.Backlog), term.Number(p.Events), term.Number(p.Failing), term.Number(p.Dead),
		term.Number(p.Disabled), oldest,
	}})
	head := []string{"TENANT", "DESTINATION", "FAILURES", "CIRCUIT OPEN UNTIL", "DISABLED SINCE", "LAST ERROR"}
	s.Table("Destinations that are not called", head, listOf(o.Destinations, func(d admin.StatsDestination) []string {
		return []string{
			term.Cell(d.Tenant), term.Cell(d.Origin), strconv.Itoa(d.Failures), term.MomentOf(d.RestsUntil),
			term.MomentOf(d.DisabledAt), term.Cell(d.LastError),
		}
	}))
}

func showDatabase(s *term.Sections, o *admin.Stats) {
	s.Table("Open transactions", []string{"FOR", "PROCESS", "LOGIN", "APPLICATION", "STATE"},
		listOf(o.Transactions, func(t admin.StatsTransaction) []string {
			return []string{
				milliseconds(t.Ms), strconv.Itoa(t.PID),
				term.Cell(t.Login), term.Cell(t.Application), term.Cell(t.State),
			}
		}))
	if o.Hidden > 0 {
		s.Remark(fmt.Sprintf("The transactions of %d connections cannot be seen: "+
			"the login is not a member of pg_read_all_stats.", o.Hidden))
	}
	s.Table("Database "+term.Size(o.Database.Bytes), []string{"TABLE", "SIZE", "INDEXES", "ROWS", "DEAD ROWS"},
		listOf(o.Database.Tables, func(t admin.StatsTable) []string {
			return []string{
				t.Name, term.Size(t.Bytes), term.Size(t.IndexBytes), term.Number(t.Rows), term.Number(t.DeadRows),
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
func agentRows(tasks []admin.StatsTasks) (rows [][]string) {
	name, counts := "", map[string]string{}
	flush := func() {
		if len(counts) == 0 {
			return
		}
		row := []string{term.Cell(name)}
		for _, s := range stateOrder {
			row = append(row, cmp.Or(counts[s.String()], term.Number(0)))
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
