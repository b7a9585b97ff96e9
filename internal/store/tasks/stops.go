package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
	"github.com/a2ad/a2ad/internal/wake"
)

// Stoppable is a kind of thing whose claims an operator can stop.
type Stoppable string

// The kinds of stops.
const (
	StopAgent  Stoppable = "agent"  // its tasks are not claimed
	StopWorker Stoppable = "worker" // it claims no tasks
)

// stopActions are what the audit log says of a stop and of its end.
var stopActions = map[Stoppable][2]string{
	StopAgent:  {access.ActionAgentPause, access.ActionAgentResume},
	StopWorker: {access.ActionWorkerDrain, access.ActionWorkerResume},
}

// Stop is an agent or a worker that an operator has stopped.
type Stop struct {
	Kind   Stoppable
	Name   string
	Since  time.Time
	Actor  string
	Reason string
}

// BeginStop stops the claims of an agent or of a worker, for all replicas. Runs that have begun continue, unless expire
// is true: then the leases of the worker end, and its tasks are given to others as if it had been lost. It reports
// whether there was no such stop before, and how many leases it has ended. It does not check whether anything has this
// name.
func (s *Store) BeginStop(ctx context.Context, kind Stoppable, name string, expire bool) (
	began bool, leases int, err error,
) {
	type result struct {
		began  bool
		leases int
	}
	by := access.Action{}.Attributed(ctx)
	reason, _ := by.Detail["reason"].(string)
	out, err := db.InTx(ctx, s.db.Work(), func(tx *db.Tx) (out result, err error) {
		q := dbsqlc.New(tx)
		_, err = q.StopBegin(ctx, dbsqlc.StopBeginParams{
			Kind: string(kind), Name: name, Actor: cmp.Or(by.Actor, tx.Actor()), Reason: reason,
		})
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return out, err
		}
		out.began = err == nil
		if expire {
			ended, err := q.LeasesExpire(ctx, name)
			if err != nil {
				return out, err
			}
			out.leases = len(ended)
		}
		if !out.began && out.leases == 0 {
			return out, tx.Confirm(ctx)
		}
		tx.Wake(wake.Stops)
		detail := map[string]any{string(kind): name}
		if expire {
			detail["leases"] = out.leases
		}
		return out, access.Record(ctx, tx, access.Action{Name: stopActions[kind][0], Detail: detail})
	})
	if err != nil {
		return false, 0, fmt.Errorf("stop %s %s: %w", kind, name, db.Unavailable(err))
	}
	return out.began, out.leases, nil
}

// EndStop lets the claims of an agent or of a worker continue. It reports whether they were stopped.
func (s *Store) EndStop(ctx context.Context, kind Stoppable, name string) (bool, error) {
	ended, err := db.InTx(ctx, s.db.Work(), func(tx *db.Tx) (bool, error) {
		_, err := dbsqlc.New(tx).StopEnd(ctx, string(kind), name)
		if errors.Is(err, pgx.ErrNoRows) {
			return false, tx.Confirm(ctx)
		}
		if err != nil {
			return false, err
		}
		tx.Wake(wake.Stops)
		if kind == StopAgent {
			tx.Wake(wake.Ready(name))
		}
		return true, access.Record(ctx, tx, access.Action{
			Name: stopActions[kind][1], Detail: map[string]any{string(kind): name},
		})
	})
	if err != nil {
		return false, fmt.Errorf("resume %s %s: %w", kind, name, db.Unavailable(err))
	}
	return ended, nil
}

// Stops lists what is stopped.
func (s *Store) Stops(ctx context.Context) ([]Stop, error) {
	list, err := db.Autocommit(ctx, s.db.Work(), func(tx *db.Tx) ([]Stop, error) { return ReadStops(ctx, tx) })
	if err != nil {
		return nil, fmt.Errorf("read stops: %w", db.Unavailable(err))
	}
	return list, nil
}

// ReadStops lists what is stopped, in a transaction.
func ReadStops(ctx context.Context, conn db.Conn) ([]Stop, error) {
	rows, err := dbsqlc.New(conn).Stops(ctx)
	list := make([]Stop, len(rows))
	for i, r := range rows {
		list[i] = Stop{
			Kind: Stoppable(r.Kind), Name: r.Name, Since: db.WireTime(r.Since), Actor: r.Actor, Reason: r.Reason,
		}
	}
	return list, err
}
