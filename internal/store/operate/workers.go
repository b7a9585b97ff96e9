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

// Fleet is the servers and workers that the database knows of.
type Fleet struct {
	Servers []ReplicaSeen // that are connected
	Known   []Presence    // by their heartbeats
	Full    *Saturation   // nil: there are free slots, or no task waits for one
	Busy    []WorkerInFlight
	Recent  []WorkerRecord // that have ended attempts lately, in the order of their names
	Remote  []RemoteAgent
	Queues  []QueueDepth
	Outages []Outage
	Runs    []RunSeen // attempts in flight, the one that has been silent longest first; at most a hundred
}

// WorkerInFlight is a worker that holds leases.
type WorkerInFlight struct {
	Worker     string
	Agents     []string
	Running    int64
	Expired    int64     // of these, those whose lease has expired
	RenewedAt  time.Time // when it last claimed a task or renewed a lease
	EventAt    time.Time // of the newest event of its tasks
	QuietSince time.Time // of the oldest last event among its tasks: an attempt that hangs reports nothing
	ClaimedAt  time.Time // of its oldest attempt
}

// WorkerRecord is what a worker has done lately.
type WorkerRecord struct {
	Worker   string
	Agents   []string
	Attempts int64 // that have ended
	Failed   int64 // of these, those that failed, are tried again, or whose lease expired
	EndedAt  time.Time
}

// RemoteAgent is an agent whose tasks workers claim over HTTP.
type RemoteAgent struct {
	Agent  string
	SeenAt time.Time // when a worker was last in touch, to 15 s or so
}

// Fleet reads the servers and workers. Recent workers are those of the newest tasks, at most most of those created
// since a time.
func (s *Store) Fleet(ctx context.Context, since time.Time, most int) (*Fleet, error) {
	f := &Fleet{}
	err := s.db.Browse(ctx, s.db.StatementTimeout(), func(ctx context.Context, tx *db.Tx) error {
		if err := f.readWorkers(ctx, tx, since, most); err != nil {
			return err
		}
		q, o := dbsqlc.New(tx), &Overview{}
		err := o.readRuns(ctx, q, 100)
		if err == nil {
			f.Runs = o.Runs
			f.Queues, err = queueDepths(ctx, q)
		}
		if err == nil {
			f.Known, f.Full, err = readFullness(ctx, tx, f.Queues)
		}
		if err == nil {
			f.Known = withoutForgotten(f.Known, f.isBusy)
		}
		if err == nil {
			f.Outages, err = tasks.ReadOutages(ctx, tx)
		}
		return err
	})
	if err == nil {
		err = s.db.AsLogin(ctx, func(tx *db.Tx) error {
			list, err := dbsqlc.New(tx).Sessions(ctx)
			f.Servers = ReplicasOf(list)
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("read workers: %w", db.Unavailable(err))
	}
	return f, nil
}

func (f *Fleet) isBusy(worker string) bool {
	return slices.ContainsFunc(f.Busy, func(w WorkerInFlight) bool { return w.Worker == worker })
}

func (f *Fleet) readWorkers(ctx context.Context, tx *db.Tx, since time.Time, most int) error {
	q := dbsqlc.New(tx)
	busy, err := q.WorkersBusy(ctx)
	if err != nil {
		return err
	}
	for _, r := range busy {
		f.Busy = append(f.Busy, WorkerInFlight{
			Worker: r.Worker, Agents: r.Agents, Running: r.Running, Expired: r.Expired,
			RenewedAt: r.HeldAt.Time.UTC(), EventAt: r.NewestEvent.Time.UTC(), QuietSince: r.SilentSince.Time.UTC(),
			ClaimedAt: r.Oldest.Time.UTC(),
		})
	}
	recent, err := q.RecentWorkers(ctx, db.PGID(db.IDAt(since)), int32(most))
	if err != nil {
		return err
	}
	for _, r := range recent {
		f.Recent = append(f.Recent, WorkerRecord{
			Worker: r.Worker, Agents: r.Agents, Attempts: r.Attempts, Failed: r.Failed, EndedAt: r.EndedAt.Time.UTC(),
		})
	}
	remote, err := q.AgentsSeen(ctx)
	for _, r := range remote {
		f.Remote = append(f.Remote, RemoteAgent{Agent: r.Agent, SeenAt: r.SeenAt.Time.UTC()})
	}
	return err
}
