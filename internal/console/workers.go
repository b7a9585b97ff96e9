package console

import (
	"slices"
	"time"

	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// What the page of workers is made from.
const (
	recentPeriod = 24 * time.Hour
	recentTasks  = 5000 // newest ones
	quietAfter   = 5 * time.Minute
)

// workersView is the page of servers and workers.
type workersView struct {
	*operate.Fleet
	Workers []workerRow
	Replica []serverRow
	Drained []tasks.Stop
	Agents  []remoteRow
}

// workerRow is a worker, with what it does and what it has done lately.
type workerRow struct {
	Name     string
	Agents   []string
	InFlight *operate.WorkerInFlight // nil: it holds no lease
	Attempts int64
	Failed   int64
	EndedAt  time.Time
	Presence *operate.Presence // its newest heartbeat; nil: it has none
	SeenAt   time.Time         // when it was last in touch
	Drained  bool              // by an operator
	Quiet    bool              // one of its attempts has reported nothing for a while
}

// Gone reports whether it was not in touch lately and holds no lease.
func (w *workerRow) Gone() bool {
	return w.InFlight == nil && w.Presence != nil && !w.Presence.InTouch()
}

// serverRow is a server that is connected to the database, with its newest heartbeat.
type serverRow struct {
	operate.ReplicaSeen
	Presence *operate.Presence // nil: it has none
	Percent  int               // of its slots that were in use lately
}

func serverRows(f *operate.Fleet) []serverRow {
	rows := make([]serverRow, len(f.Servers))
	for i, r := range f.Servers {
		rows[i].ReplicaSeen = r
		if p := operate.Newest(f.Known, r.Name); p != nil && p.Server() {
			rows[i].Presence, rows[i].Percent = p, int(p.BusyShare*100+0.5)
		}
	}
	return rows
}

// remoteRow is an agent whose tasks remote workers claim.
type remoteRow struct {
	operate.RemoteAgent
	Queue  operate.QueueDepth
	Outage *operate.Outage
}

func (c *Console) showWorkers(q *request) error {
	now := time.Now()
	fleet, err := c.cfg.Store.Operate.Fleet(q.Context(), now.Add(-recentPeriod), recentTasks)
	if err != nil {
		return err
	}
	stops, err := c.cfg.Store.Tasks.Stops(q.Context())
	if err != nil {
		return err
	}
	v := &workersView{Fleet: fleet, Workers: workerRows(fleet, now), Agents: remoteRows(fleet),
		Replica: serverRows(fleet)}
	for i := range v.Workers {
		v.Workers[i].Drained = stopOf(stops, tasks.StopWorker, v.Workers[i].Name) != nil
	}
	v.Drained = slices.DeleteFunc(stops, func(s tasks.Stop) bool { return s.Kind != tasks.StopWorker })
	return c.render(q, "workers", "Workers", v)
}

// workerRows joins what workers do with what they say and have done. Those that hold leases come first, then those that
// are in touch.
func workerRows(f *operate.Fleet, now time.Time) []workerRow {
	rows := make([]workerRow, 0, len(f.Busy)+len(f.Known)+len(f.Recent))
	byName := make(map[string]int)
	for i := range f.Busy {
		b := &f.Busy[i]
		byName[b.Worker] = len(rows)
		rows = append(rows, workerRow{
			Name: b.Worker, Agents: b.Agents, InFlight: b, SeenAt: b.RenewedAt,
			Quiet: now.Sub(b.QuietSince) > quietAfter,
		})
	}
	for i := range f.Known {
		p := &f.Known[i]
		at, ok := byName[p.Name]
		if !ok {
			at = len(rows)
			byName[p.Name] = at
			rows = append(rows, workerRow{Name: p.Name, Agents: p.Agents})
		}
		rows[at].Presence = operate.Newest(f.Known, p.Name)
		if p.SeenAt.After(rows[at].SeenAt) {
			rows[at].SeenAt = p.SeenAt
		}
	}
	for i := range f.Recent {
		r := &f.Recent[i]
		at, ok := byName[r.Worker]
		if !ok {
			at = len(rows)
			rows = append(rows, workerRow{Name: r.Worker, Agents: r.Agents})
		}
		rows[at].Attempts, rows[at].Failed, rows[at].EndedAt = r.Attempts, r.Failed, r.EndedAt
		if len(rows[at].Agents) == 0 {
			rows[at].Agents = r.Agents
		}
	}
	return rows
}

func remoteRows(f *operate.Fleet) []remoteRow {
	rows := make([]remoteRow, len(f.Remote))
	for i, a := range f.Remote {
		rows[i].RemoteAgent = a
		for _, d := range f.Queues {
			if d.Agent == a.Agent {
				rows[i].Queue = d
			}
		}
		for j := range f.Outages {
			if f.Outages[j].Agent == a.Agent {
				rows[i].Outage = &f.Outages[j]
			}
		}
	}
	return rows
}
