package operate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate/dbsqlc"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

const (
	// shownHeartbeat is for how long a worker is shown that is not in touch and holds no lease.
	shownHeartbeat = 10 * time.Minute

	saturatedShare = 0.9 // of the slots of each server
	saturatedWait  = 5 * time.Second
)

// Presence is a server or a remote worker, as its last heartbeat says.
type Presence struct {
	Tenant       string // of the credentials of a remote worker; empty: it is a server
	Name         string
	Instance     string // of a server, different for each start
	Version      string // of the server, or what a remote worker says in User-Agent; may be empty
	Host         string // of a server
	Agents       []string
	Slots        int           // of a server: attempts that may run at once
	Busy         int           // slots in use
	BusyShare    float64       // 0 to 1: the part of the slots that was in use before the last heartbeat
	Commands     int           // of a server: attempts of commands that may run at once
	BusyCommands int           // slots for commands in use
	CommandsWait time.Duration // for how long tasks have waited for a slot for commands
	ClockAhead   time.Duration
	StartedAt    time.Time
	SeenAt       time.Time
	Quiet        time.Duration // since the last heartbeat
}

// Server reports whether it is a server, and not a remote worker.
func (p *Presence) Server() bool { return p.Tenant == "" }

// InTouch reports whether its heartbeats come.
func (p *Presence) InTouch() bool { return p.Quiet < tasks.FreshHeartbeat }

// CommandsFull reports whether tasks have waited for some seconds for one of the slots for commands of a server. Each
// server that has the agent would have taken them, so all of its servers are full.
func (p *Presence) CommandsFull() bool { return p.InTouch() && p.CommandsWait >= saturatedWait }

func readPresence(ctx context.Context, q *dbsqlc.Queries) ([]Presence, error) {
	rows, err := q.WorkersKnown(ctx)
	list := make([]Presence, len(rows))
	for i, r := range rows {
		list[i] = Presence{
			Tenant: r.Tenant, Name: r.Name, Instance: r.Instance, Version: r.Version, Host: r.Host, Agents: r.Agents,
			Slots: int(r.Slots), Busy: int(r.Busy), BusyShare: float64(r.BusyShare),
			Commands: int(r.Commands), BusyCommands: int(r.BusyCommands), CommandsWait: db.Duration(r.CommandsWait),
			ClockAhead: db.Duration(r.ClockAhead),
			StartedAt:  r.StartedAt.Time.UTC(), SeenAt: r.SeenAt.Time.UTC(),
			Quiet: time.Duration(r.QuietMs) * time.Millisecond,
		}
	}
	return list, err
}

// Saturation says that tasks wait because all slots of all servers are in use.
type Saturation struct {
	Slots  int   // of all servers
	Due    int64 // tasks that wait for nothing else
	Oldest time.Duration
}

// saturation returns nil if a server has slots free, or if no task has waited for one for some seconds.
func saturation(known []Presence, queues []QueueDepth, stuck map[string]bool, drained map[string]bool) *Saturation {
	var s Saturation
	for i := range known {
		p := &known[i]
		if !p.Server() || !p.InTouch() || p.Slots == 0 || drained[p.Name] {
			continue
		}
		if p.BusyShare < saturatedShare {
			return nil
		}
		s.Slots += p.Slots
	}
	for _, q := range queues {
		if q.Due > 0 && !stuck[q.Agent] {
			s.Due += q.Due
			s.Oldest = max(s.Oldest, q.Oldest)
		}
	}
	if s.Slots == 0 || s.Oldest < saturatedWait {
		return nil
	}
	return &s
}

// Fullness reads the heartbeats, and whether tasks wait because all slots are in use.
func (s *Store) Fullness(ctx context.Context) (known []Presence, full *Saturation, err error) {
	err = s.db.Browse(ctx, s.db.StatementTimeout(), func(ctx context.Context, tx *db.Tx) error {
		q := dbsqlc.New(tx)
		queues, err := queueDepths(ctx, q)
		if err == nil {
			known, full, err = readFullness(ctx, tx, queues)
		}
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read heartbeats: %w", db.Unavailable(err))
	}
	return known, full, nil
}

// readFullness is Fullness with queues that have been read. Agents whose tasks wait for something other than a slot do
// not count: those that remote workers run, and those that are paused or unreachable.
func readFullness(ctx context.Context, tx *db.Tx, queues []QueueDepth) ([]Presence, *Saturation, error) {
	q := dbsqlc.New(tx)
	known, err := readPresence(ctx, q)
	if err != nil {
		return nil, nil, err
	}
	stuck, drained := map[string]bool{}, map[string]bool{}
	remote, err := q.AgentsSeen(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range remote {
		stuck[r.Agent] = true
	}
	outages, err := tasks.ReadOutages(ctx, tx)
	if err != nil {
		return nil, nil, err
	}
	for _, o := range outages {
		stuck[o.Agent] = true
	}
	stops, err := tasks.ReadStops(ctx, tx)
	for _, stop := range stops {
		if stop.Kind == tasks.StopWorker {
			drained[stop.Name] = true
		} else {
			stuck[stop.Name] = true
		}
	}
	return known, saturation(known, queues, stuck, drained), err
}

// Newest returns the presence of a name whose heartbeat is the newest one, or nil. Of servers and remote workers of one
// name it is a server.
func Newest(known []Presence, name string) *Presence {
	var found *Presence
	for i := range known {
		p := &known[i]
		switch {
		case p.Name != name:
		case found == nil, p.Server() && !found.Server(), p.Server() == found.Server() && p.SeenAt.After(found.SeenAt):
			found = p
		}
	}
	return found
}

// withoutForgotten returns the presences that are worth showing: those in touch a while ago, and those with leases.
func withoutForgotten(known []Presence, busy func(name string) bool) []Presence {
	return slices.DeleteFunc(known, func(p Presence) bool { return p.Quiet > shownHeartbeat && !busy(p.Name) })
}
