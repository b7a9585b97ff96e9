package operate

import (
	"context"
	"fmt"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate/dbsqlc"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// Queue counts the tasks that wait for the workers of an agent.
type Queue struct {
	Agent   string
	Waiting int64
	Oldest  float64 // seconds for which the first of them has waited
}

// Gauges is the state of the database for metrics. It is the same on all replicas.
type Gauges struct {
	Queues            []Queue // of agents with waiting tasks
	Unreachable       []Outage
	Parked            []ParkedCount
	Waiting           []WaitingCount
	TicksMissed       []TicksMissed
	PushBacklog       int64   // webhooks with something to deliver
	PushOldest        float64 // age in seconds of the oldest event that must be delivered
	DestinationsOpen  int64   // whose breaker is open
	DestinationsOff   int64   // that are disabled
	OldestTransaction float64 // age in seconds of the one that keeps most dead rows
	NotificationQueue float64 // how full it is: 0 to 1
	Replication       Replication
	Tables            []TableSize
}

// TicksMissed counts the ticks of an agent that started no task in the last hour.
type TicksMissed struct {
	Agent string
	Ticks int64
}

// Gauges reads the state of the database. It costs about one lookup for each task and webhook
// in a queue. Of tasks that wait without a worker, it counts a sample if there are many.
func (s *Store) Gauges(ctx context.Context) (g Gauges, err error) {
	err = s.db.Search(ctx, func(tx *db.Tx) error {
		q := dbsqlc.New(tx)
		queues, err := q.QueueDepths(ctx)
		if err != nil {
			return err
		}
		for _, r := range queues {
			g.Queues = append(g.Queues, Queue{Agent: r.Queue, Waiting: r.Waiting, Oldest: max(r.Oldest, 0)})
		}
		if g.Unreachable, err = tasks.ReadOutages(ctx, tx); err != nil {
			return err
		}
		if g.Parked, err = countParked(ctx, q); err != nil {
			return err
		}
		if g.Waiting, err = countWaiting(ctx, q, waitingPages); err != nil {
			return err
		}
		missed, err := q.CountTicksMissed(ctx)
		if err != nil {
			return err
		}
		for _, m := range missed {
			g.TicksMissed = append(g.TicksMissed, TicksMissed(m))
		}
		push, err := q.PushBacklog(ctx)
		if err != nil {
			return err
		}
		down, err := q.DestinationsDownCount(ctx)
		if err != nil {
			return err
		}
		if g.Tables, err = tableSizes(ctx, q); err != nil {
			return err
		}
		g.PushBacklog, g.PushOldest = push.Backlog, max(push.Oldest, 0)
		g.DestinationsOpen, g.DestinationsOff = down.Open, down.Disabled
		// The roles may not see what other sessions do. The login may.
		if _, err := tx.Exec(ctx, "SET LOCAL ROLE NONE"); err != nil {
			return err
		}
		health, err := q.ServerHealth(ctx)
		if err != nil {
			return err
		}
		g.OldestTransaction, g.NotificationQueue = health.OldestTransaction, health.NotificationQueue
		g.Replication, err = ReadReplication(ctx, tx)
		return err
	})
	if err != nil {
		return Gauges{}, fmt.Errorf("read gauges: %w", db.Unavailable(err))
	}
	return g, nil
}

// TasksByState counts the tasks in each state, with the limits of TaskCount.
func (s *Store) TasksByState(ctx context.Context) (map[a2a.State]int64, error) {
	counts := make(map[a2a.State]int64, len(tasks.States))
	err := s.db.Search(ctx, func(tx *db.Tx) error {
		list, err := CountTasks(ctx, tx, CountedPages)
		for _, c := range list {
			counts[c.State] += c.Tasks
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("count tasks: %w", db.Unavailable(err))
	}
	return counts, nil
}
