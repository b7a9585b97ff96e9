package tasks

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
)

// Retired is the result of a step of Retire.
type Retired struct {
	Busy    bool      // another process was doing this, and this step did nothing
	Now     time.Time // by the database
	At      a2a.ID    // the last task that was read; zero: there was none
	Next    a2a.ID    // where to continue; zero: all tasks were read
	Deleted int       // tasks
	Pruned  int       // logs
	Events  int64     // of these
	Left    []Ended   // tasks that were read and still exist
}

// Ended is a task for which Retire asks decide, or one that it has left, which may not have ended.
type Ended struct {
	ID     a2a.ID
	Agent  string
	State  a2a.State
	For    time.Duration // since it ended
	Pruned bool          // its log has nothing more to remove
	// it was not removed because another transaction has locked it, or because it has something to deliver
	Kept bool
}

// Fate says what happens to a task that has ended.
type Fate int

// Fates, the least first.
const (
	Keep   Fate = iota
	Prune       // remove its log; the task, its messages and its artifacts stay
	Delete      // remove everything
)

// How many tasks a step of Retire reads, at most and at once. While there is much to remove, it reads little more than
// it removes.
const retireScan, retirePage = 2000, 200

// Retire reads a bounded number of tasks after after, oldest first, that were created longer than age ago. Of those
// that have ended it removes what decide says. It skips tasks with something to deliver, and those that another
// transaction has locked. Each step is one short transaction. One replica at a time makes a step; for the others the
// result is Busy.
func (s *Store) Retire(
	ctx context.Context, after a2a.ID, age time.Duration, limit int, decide func(Ended) Fate,
) (Retired, error) {
	created := func(now time.Time) (from, before a2a.ID) { return after, db.IDAt(now.Add(-age)) }
	return s.retire(ctx, created, limit, decide)
}

// RetireImported is Retire for tasks whose ids do not tell when they were created, of any age. Ids that other servers
// have made are random, so most are far beyond those that this server makes now. The few others are among the tasks
// that Retire reads.
func (s *Store) RetireImported(ctx context.Context, after a2a.ID, limit int, decide func(Ended) Fate) (Retired, error) {
	return s.retire(ctx, func(now time.Time) (from, before a2a.ID) {
		if from = db.IDAt(now.Add(aheadOfAll)); bytes.Compare(after[:], from[:]) > 0 {
			from = after
		}
		return from, lastID
	}, limit, decide)
}

// aheadOfAll is more than clocks differ: no server has made ids of that time yet.
const aheadOfAll = 24 * time.Hour

var lastID = a2a.ID(bytes.Repeat([]byte{0xff}, len(a2a.ID{})))

// retire makes a step among the ids that span returns for the time of the database.
func (s *Store) retire(
	ctx context.Context, span func(now time.Time) (from, before a2a.ID), limit int, decide func(Ended) Fate,
) (Retired, error) {
	out, err := db.InTxWithin(ctx, s.db.Work(), pruneLimit, func(tx *db.Tx) (Retired, error) {
		return s.retireIn(ctx, tx, span, limit, decide)
	})
	if err != nil {
		return Retired{}, fmt.Errorf("retire tasks: %w", db.Unavailable(err))
	}
	return out, nil
}

func (s *Store) retireIn(
	ctx context.Context, tx *db.Tx, span func(now time.Time) (from, before a2a.ID), limit int,
	decide func(Ended) Fate,
) (out Retired, err error) {
	q := dbsqlc.New(tx)
	if mine, err := tx.TryChore(ctx, db.ChoreRetire); err != nil || !mine {
		return Retired{Busy: err == nil}, err
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return out, err
	}
	out.Now = now
	at, last := span(now)
	before := db.PGID(last)
	d := decisions{limit: limit, decide: decide}
	for looked := 0; looked < retireScan && !d.full(); {
		rows, err := q.RetireScan(ctx, dbsqlc.RetireScanParams{After: db.PGID(at), Before: before, Max: retirePage})
		if err != nil {
			return out, err
		}
		n := 0
		for ; n < len(rows) && !d.full(); n++ {
			r := &rows[n]
			d.consider(Ended{
				ID: r.ID.Bytes, Agent: r.Agent, State: a2a.State(r.State), For: now.Sub(r.StatusAt.Time),
				Pruned: r.FirstSeq >= r.LastSeq,
			})
			out.At = r.ID.Bytes
		}
		looked, at, out.Next = looked+n, out.At, out.At
		if len(rows) < retirePage && n == len(rows) {
			out.Next = a2a.ID{} // these were the last tasks
			break
		}
	}
	return s.carryOut(ctx, tx, &d, out)
}

// RetireAgain is Retire for tasks that Retire has left. It skips tasks that no longer exist.
func (s *Store) RetireAgain(ctx context.Context, ids []a2a.ID, decide func(Ended) Fate) (Retired, error) {
	out, err := db.InTxWithin(ctx, s.db.Work(), pruneLimit, func(tx *db.Tx) (out Retired, err error) {
		q := dbsqlc.New(tx)
		if mine, err := tx.TryChore(ctx, db.ChoreRetire); err != nil || !mine {
			return Retired{Busy: err == nil}, err
		}
		rows, err := q.RetireRead(ctx, db.PGIDs(ids))
		if err != nil {
			return out, err
		}
		d := decisions{limit: len(ids) + 1, decide: decide}
		for _, r := range rows {
			d.consider(Ended{
				ID: r.ID.Bytes, Agent: r.Agent, State: a2a.State(r.State), For: r.Now.Time.Sub(r.StatusAt.Time),
				Pruned: r.FirstSeq >= r.LastSeq,
			})
		}
		return s.carryOut(ctx, tx, &d, out)
	})
	if err != nil {
		return Retired{}, fmt.Errorf("retire tasks: %w", db.Unavailable(err))
	}
	return out, nil
}

// decisions says what a step of Retire must do.
type decisions struct {
	limit       int
	decide      func(Ended) Fate
	prune, drop []pgtype.UUID
	left        []Ended
}

func (d *decisions) full() bool { return len(d.prune)+len(d.drop) >= d.limit }

func (d *decisions) consider(e Ended) {
	if e.State.Terminal() {
		switch fate := d.decide(e); {
		case fate == Delete:
			d.drop = append(d.drop, db.PGID(e.ID))
		case fate == Prune && !e.Pruned:
			d.prune = append(d.prune, db.PGID(e.ID))
		}
	}
	d.left = append(d.left, e)
}

func (s *Store) carryOut(ctx context.Context, tx *db.Tx, d *decisions, out Retired) (Retired, error) {
	pruned, err := s.prune(ctx, tx, d.prune, &out)
	if err != nil {
		return out, err
	}
	dropped, err := s.drop(ctx, tx, d.drop, &out)
	if err != nil {
		return out, err
	}
	tx.After(func() {
		s.db.CountSwept(db.SweepOfTasks, out.Deleted)
		s.db.CountSwept(db.SweepOfLogs, out.Pruned)
	})
	want := make(map[a2a.ID]bool, len(d.prune)+len(d.drop))
	for _, id := range slices.Concat(d.prune, d.drop) {
		want[id.Bytes] = true
	}
	done, gone := make(map[a2a.ID]bool, len(pruned)), make(map[a2a.ID]bool, len(dropped))
	for _, id := range pruned {
		done[id.Bytes] = true
	}
	for _, id := range dropped {
		gone[id.Bytes] = true
	}
	for _, e := range d.left {
		if gone[e.ID] {
			continue
		}
		e.Pruned = e.Pruned || done[e.ID]
		e.Kept = want[e.ID] && !done[e.ID]
		out.Left = append(out.Left, e)
	}
	return out, nil
}

// pruneLimit bounds the statement that folds the artifacts of a batch. It may be long, because these tasks have ended.
const pruneLimit = 10 * time.Minute

// lockRemovable locks the tasks and returns those that may be removed now.
func lockRemovable(ctx context.Context, tx *db.Tx, ids []pgtype.UUID) ([]pgtype.UUID, error) {
	q := dbsqlc.New(tx)
	if len(ids) == 0 {
		return nil, nil
	}
	locked, err := q.RetireLock(ctx, ids)
	if err != nil || len(locked) == 0 {
		return nil, err
	}
	return q.RetireSettled(ctx, locked)
}

// prune removes the logs of tasks, and returns the tasks whose log it has removed.
func (s *Store) prune(ctx context.Context, tx *db.Tx, ids []pgtype.UUID, out *Retired) ([]pgtype.UUID, error) {
	q := dbsqlc.New(tx)
	ids, err := lockRemovable(ctx, tx, ids)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	unfolded, err := q.LogUnfolded(ctx, ids)
	if err != nil {
		return nil, err
	}
	if len(unfolded) > 0 {
		// Some of them were too large to be folded when they ended.
		if err := tx.AllowStatements(ctx, pruneLimit); err != nil {
			return nil, err
		}
		if err := q.ArtifactFold(ctx, unfolded); err != nil {
			return nil, err
		}
	}
	if out.Events, err = q.LogPrune(ctx, ids); err != nil {
		return nil, err
	}
	out.Pruned = len(ids)
	from, to := span(ids)
	return ids, access.Record(ctx, tx, access.Action{
		Name:   access.ActionLogPrune,
		Detail: map[string]any{"tasks": len(ids), "events": out.Events, "from": from, "to": to},
	})
}

// drop deletes tasks, and returns those that it has deleted.
func (s *Store) drop(ctx context.Context, tx *db.Tx, ids []pgtype.UUID, out *Retired) ([]pgtype.UUID, error) {
	q := dbsqlc.New(tx)
	ids, err := lockRemovable(ctx, tx, ids)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	gone, err := q.TaskDelete(ctx, ids)
	if err != nil {
		return nil, err
	}
	out.Deleted = len(gone)
	from, to := span(ids)
	return ids, access.Record(ctx, tx, access.Action{
		Name: access.ActionTaskRetire, Detail: map[string]any{"tasks": len(gone), "from": from, "to": to},
	})
}

// span returns the first and the last of ids.
func span(ids []pgtype.UUID) (from, to string) {
	byID := func(a, b pgtype.UUID) int { return bytes.Compare(a.Bytes[:], b.Bytes[:]) }
	return slices.MinFunc(ids, byID).String(), slices.MaxFunc(ids, byID).String()
}
