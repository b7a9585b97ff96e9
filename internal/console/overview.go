package console

import (
	"slices"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/operate"
)

// What the overview is made from.
const (
	activityPeriod = time.Hour
	activityTasks  = 10_000 // newest ones
	failurePeriod  = 24 * time.Hour
	failureTasks   = 1000 // newest ones
	sparks         = 30   // points of a sparkline
)

// overview is the start page.
type overview struct {
	Agents   []agentActivity
	Failures []failureGroup
	FailedOf int // tasks that the groups are made from
	AllOf    bool
	Silent   []operate.RunSeen
	Workers  []operate.WorkerLoad
	Push     operate.PushBacklog
	Down     []operate.DestinationDown
	InFlight int64
	Asking   int64
	Queued   int64
	Since    time.Duration // that the statistics are about
	Sampled  bool          // there were more tasks than were read
}

// agentActivity is a line of the overview.
type agentActivity struct {
	Name     string
	Served   bool // by this server
	Tasks    int
	PerMin   float64
	Failed   int
	P50, P95 time.Duration // of tasks that have ended; zero: none has
	InFlight int64
	Asking   int64
	Waiting  int64 // waits without a worker
	Queued   int64
	Oldest   time.Duration // that the first of the queue has waited
	Outage   *operate.Outage
	Spark    spark

	took []time.Duration
}

// FailedShare is the share of failed tasks, in percent.
func (l *agentActivity) FailedShare() int {
	if l.Tasks == 0 {
		return 0
	}
	return (l.Failed*100 + l.Tasks - 1) / l.Tasks
}

func (c *Console) showOverview(q *request) error {
	now := time.Now()
	activity, err := c.cfg.Store.Operate.Activity(q.Context(), now.Add(-activityPeriod), activityTasks)
	if err != nil {
		return err
	}
	failed, err := c.cfg.Store.Operate.Failures(q.Context(), "", now.Add(-failurePeriod), failureTasks)
	if err != nil {
		return err
	}
	o := newOverview(activity, c.cfg.Agents(), now)
	o.Failures, o.FailedOf, o.AllOf = groupFailures(failed), len(failed), len(failed) < failureTasks
	return c.render(q, "overview", "Overview", o)
}

// newOverview makes the statistics of each agent.
func newOverview(a *operate.Activity, served []*a2a.Agent, now time.Time) *overview {
	o := &overview{Silent: a.Silent, Workers: a.Workers, Push: a.Push, Down: a.Down, Since: activityPeriod}
	if len(a.Recent) == activityTasks { // the oldest of them says how far they go back
		o.Sampled = true
		o.Since = max(now.Sub(a.Recent[len(a.Recent)-1].CreatedAt), time.Second)
	}
	lines := make(map[string]*agentActivity)
	line := func(name string) *agentActivity {
		if lines[name] == nil {
			lines[name] = &agentActivity{Name: name}
		}
		return lines[name]
	}
	for _, s := range served {
		line(s.Name).Served = true
	}
	for i := range a.Recent {
		line(a.Recent[i].Agent).add(&a.Recent[i], now, o.Since)
	}
	for _, n := range a.Open {
		l := line(n.Agent)
		if n.State.Interrupted() {
			l.Asking += n.Tasks
		} else {
			l.InFlight += n.Tasks
		}
	}
	for _, n := range a.Queues {
		l := line(n.Agent)
		l.Queued, l.Oldest = n.Waiting, max(n.Oldest, 0)
	}
	for _, n := range a.Waiting {
		line(n.Agent).Waiting = n.Tasks
	}
	for i := range a.Unreachable {
		line(a.Unreachable[i].Agent).Outage = &a.Unreachable[i]
	}
	for _, l := range lines {
		l.finish(o.Since)
		o.InFlight, o.Asking, o.Queued = o.InFlight+l.InFlight, o.Asking+l.Asking, o.Queued+l.Queued
		o.Agents = append(o.Agents, *l)
	}
	slices.SortFunc(o.Agents, func(x, y agentActivity) int { return strings.Compare(x.Name, y.Name) })
	return o
}

func (l *agentActivity) add(t *operate.Sampled, now time.Time, since time.Duration) {
	l.Tasks++
	failed := t.State == a2a.StateFailed || t.State == a2a.StateRejected
	if failed {
		l.Failed++
	}
	// A task that ended when it was made was imported: nobody knows how long it took.
	if took := t.StatusAt.Sub(t.CreatedAt); t.State.Terminal() && took > 0 {
		l.took = append(l.took, took)
	}
	l.Spark.add(sparks-1-int(now.Sub(t.CreatedAt)*sparks/max(since, 1)), failed)
}

func (l *agentActivity) finish(since time.Duration) {
	l.PerMin = float64(l.Tasks) / max(since.Minutes(), 1.0/60)
	slices.Sort(l.took)
	l.P50, l.P95 = percentile(l.took, 50), percentile(l.took, 95)
	l.Spark.scale()
}

// percentile returns the smallest of sorted values that p percent of them do not exceed.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)*p+99)/100-1]
}

// spark is a small chart of tasks over time. Failed ones are drawn over all others.
type spark struct {
	all, failed [sparks]int
	Bars        []sparkBar
}

// sparkBar is a column of the chart, in units of the SVG: 4 wide and 20 high.
type sparkBar struct{ X, Y, Height, FailedY, FailedHeight float64 }

func (s *spark) add(at int, failed bool) {
	at = min(max(at, 0), sparks-1)
	s.all[at]++
	if failed {
		s.failed[at]++
	}
}

func (s *spark) scale() {
	most := slices.Max(s.all[:])
	if most == 0 {
		return
	}
	for i, n := range s.all {
		if n == 0 {
			continue
		}
		h, f := max(float64(n)/float64(most)*20, 1), float64(s.failed[i])/float64(most)*20
		if s.failed[i] > 0 {
			f = max(f, 1)
		}
		s.Bars = append(s.Bars, sparkBar{X: float64(i * 4), Y: 20 - h, Height: h, FailedY: 20 - f, FailedHeight: f})
	}
}
