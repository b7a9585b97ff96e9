package operate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate/dbsqlc"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// AgentNow is what an agent does now. Only agents with tasks, remote workers, an outage or a pause are known here.
type AgentNow struct {
	Agent    string
	Waiting  int64         // tasks in its queue
	Due      int64         // of these, those that wait for nothing else
	Oldest   time.Duration // since the one that is due longest
	Running  int64         // attempts that hold a lease
	WorkerAt time.Time     // when a remote worker was last in touch; zero: never
	Outage   *Outage       // nil: it can be reached, as far as is known
	Paused   *tasks.Stop   // nil: it is not
}

// Agents reads what all agents do, by name.
func (s *Store) Agents(ctx context.Context) ([]AgentNow, error) {
	now := make(map[string]*AgentNow)
	of := func(agent string) *AgentNow {
		a, ok := now[agent]
		if !ok {
			a = &AgentNow{Agent: agent}
			now[agent] = a
		}
		return a
	}
	err := s.db.Browse(ctx, s.db.StatementTimeout(), func(ctx context.Context, tx *db.Tx) error {
		q := dbsqlc.New(tx)
		ready, err := q.CountReady(ctx)
		if err != nil {
			return err
		}
		for _, r := range ready {
			a := of(r.Queue)
			a.Waiting, a.Due = r.Waiting, r.Due
			a.Oldest = max(0, time.Duration(r.OldestMs)*time.Millisecond)
		}
		running, err := q.RunningByAgent(ctx)
		if err != nil {
			return err
		}
		for _, r := range running {
			of(r.Agent).Running = r.Running
		}
		seen, err := q.AgentsSeen(ctx)
		if err != nil {
			return err
		}
		for _, r := range seen {
			of(r.Agent).WorkerAt = r.SeenAt.Time.UTC()
		}
		return readAgentFaults(ctx, tx, of)
	})
	if err != nil {
		return nil, fmt.Errorf("read agents: %w", db.Unavailable(err))
	}
	list := make([]AgentNow, 0, len(now))
	for _, name := range slices.Sorted(maps.Keys(now)) {
		list = append(list, *now[name])
	}
	return list, nil
}

// readAgentFaults reads why tasks of agents are not claimed.
func readAgentFaults(ctx context.Context, tx *db.Tx, of func(agent string) *AgentNow) error {
	outages, err := tasks.ReadOutages(ctx, tx)
	if err != nil {
		return err
	}
	for i := range outages {
		of(outages[i].Agent).Outage = &outages[i]
	}
	stops, err := tasks.ReadStops(ctx, tx)
	for i := range stops {
		if stops[i].Kind == tasks.StopAgent {
			of(stops[i].Name).Paused = &stops[i]
		}
	}
	return err
}

// WorkerNow is what a worker does now: a replica, or a remote worker. A remote worker that asks for no tasks and has no
// attempts is not known here.
type WorkerNow struct {
	Worker      string
	Replica     bool      // it is a server
	InTouch     bool      // it is a server that is connected to the database, or its heartbeats come
	Servers     int       // how many have this name. Each should have its own: see A2AD_REPLICA
	Presence    *Presence // its newest heartbeat; nil: it has none
	Agents      []string  // of its attempts
	Running     int64     // attempts that hold a lease
	Expired     int64     // of these, those whose lease it no longer renews
	Oldest      time.Time
	HeartbeatAt time.Time   // when it took or renewed a lease last; zero: it holds none
	EventAt     time.Time   // of the newest event of its attempts; zero: it has none
	SilentSince time.Time   // the newest event of the attempt that has been silent longest; zero: it has none
	Drained     *tasks.Stop // nil: it is not
}

// Workers reads what all workers do, by name.
func (s *Store) Workers(ctx context.Context) ([]WorkerNow, error) {
	now := make(map[string]*WorkerNow)
	of := func(name string) *WorkerNow {
		w, ok := now[name]
		if !ok {
			w = &WorkerNow{Worker: name}
			now[name] = w
		}
		return w
	}
	err := s.db.Browse(ctx, s.db.StatementTimeout(), func(ctx context.Context, tx *db.Tx) error {
		return readWorkersNow(ctx, tx, of, now)
	})
	if err == nil {
		err = s.db.AsLogin(ctx, func(tx *db.Tx) error {
			sessions, err := ReadSessions(ctx, tx)
			for _, r := range ReplicasOf(sessions) {
				w := of(r.Name)
				w.Replica, w.InTouch, w.Servers = true, true, max(w.Servers, r.Servers)
			}
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("read workers: %w", db.Unavailable(err))
	}
	list := make([]WorkerNow, 0, len(now))
	for _, name := range slices.Sorted(maps.Keys(now)) {
		list = append(list, *now[name])
	}
	return list, nil
}

// readWorkersNow reads leases, heartbeats and stops.
func readWorkersNow(
	ctx context.Context, tx *db.Tx, of func(name string) *WorkerNow, now map[string]*WorkerNow,
) error {
	q := dbsqlc.New(tx)
	busy, err := q.WorkersBusy(ctx)
	if err != nil {
		return err
	}
	for _, r := range busy {
		*of(r.Worker) = WorkerNow{
			Worker: r.Worker, Agents: r.Agents, Running: r.Running, Expired: r.Expired,
			Oldest: r.Oldest.Time.UTC(), HeartbeatAt: db.TimeOrZero(r.HeldAt), EventAt: r.NewestEvent.Time.UTC(),
			SilentSince: r.SilentSince.Time.UTC(),
		}
	}
	known, err := readPresence(ctx, q)
	if err != nil {
		return err
	}
	known = withoutForgotten(known, func(name string) bool { return now[name] != nil })
	for i := range known {
		p := &known[i]
		w := of(p.Name)
		w.InTouch = w.InTouch || p.InTouch()
		if p.SeenAt.After(w.HeartbeatAt) {
			w.HeartbeatAt = p.SeenAt
		}
		if w.Presence == nil {
			w.Presence = Newest(known, p.Name)
			w.Replica = w.Presence.Server()
		}
	}
	stops, err := tasks.ReadStops(ctx, tx)
	for i := range stops {
		if stops[i].Kind == tasks.StopWorker {
			of(stops[i].Name).Drained = &stops[i]
		}
	}
	return err
}
