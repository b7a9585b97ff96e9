package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/dbsqlc"
)

// Retired says what a step of Retire has done.
type Retired struct {
	Busy    bool      // another process was at it: nothing was looked at
	Now     time.Time // by the database
	At      a2a.ID    // the last task that was looked at; zero: there was none
	Next    a2a.ID    // where to go on; zero: everything was looked at
	Deleted int       // tasks
	Pruned  int       // logs
	Events  int64     // of these
	Left    []Ended   // what was looked at and is still there
}

// Ended is a task that Retire asks about, or one that it has left, which may not have ended.
type Ended struct {
	ID     a2a.ID
	Agent  string
	State  a2a.State
	For    time.Duration // since it ended
	Pruned bool          // there is nothing to remove of its log
	Kept   bool          // it would have been removed, but that somebody holds it or it has something to deliver
}

// Fate is what becomes of a task that has ended.
type Fate int

// Fates, the least first.
const (
	Keep   Fate = iota
	Prune       // remove its log; the task, its messages and its artifacts stay
	Delete      // remove everything
)

// How many tasks a step of Retire looks at, at most, and reads at once: while there is much to
// remove it reads little more than it removes.
const retireScan, retirePage = 2000, 200

// Retire looks at a bounded number of tasks behind after, oldest first, that were made longer
// than age ago, and removes of those that have ended what decide says. Tasks with something to
// deliver are left alone, and so are those that somebody holds. Each step is one short
// transaction; only one of all replicas takes it at a time, the others are told that there is
// nothing to do.
func (s *Store) Retire(ctx context.Context, after a2a.ID, age time.Duration, limit int, decide func(Ended) Fate) (Retired, error) {
	out, err := inTxWithin(ctx, s.work, pruneLimit, func(tx *Tx) (Retired, error) { return s.retireIn(ctx, tx, after, age, limit, decide) })
	if err != nil {
		return Retired{}, fmt.Errorf("retire tasks: %w", unavailable(err))
	}
	return out, nil
}

func (s *Store) retireIn(ctx context.Context, tx *Tx, after a2a.ID, age time.Duration, limit int, decide func(Ended) Fate) (out Retired, err error) {
	q := dbsqlc.New(tx)
	if mine, err := tx.tryChore(ctx, choreRetire); err != nil || !mine {
		return Retired{Busy: err == nil}, err
	}
	now, err := tx.now(ctx)
	if err != nil {
		return out, err
	}
	out.Now = now
	before := pgID(IDAt(now.Add(-age)))
	d := decisions{limit: limit, decide: decide}
	for looked, at := 0, after; looked < retireScan && !d.full(); {
		rows, err := q.RetireScan(ctx, dbsqlc.RetireScanParams{After: pgID(at), Before: before, Max: retirePage})
		if err != nil {
			return out, err
		}
		n := 0
		for ; n < len(rows) && !d.full(); n++ {
			r := &rows[n]
			d.take(Ended{ID: r.ID.Bytes, Agent: r.Agent, State: a2a.State(r.State), For: now.Sub(r.StatusAt.Time), Pruned: r.FirstSeq >= r.LastSeq})
			out.At = r.ID.Bytes
		}
		looked, at, out.Next = looked+n, out.At, out.At
		if len(rows) < retirePage && n == len(rows) {
			out.Next = a2a.ID{} // these were the last ones
			break
		}
	}
	return s.carryOut(ctx, tx, &d, out)
}

// RetireAgain does for tasks that Retire has left what Retire does. Those that are no longer there it leaves out.
func (s *Store) RetireAgain(ctx context.Context, ids []a2a.ID, decide func(Ended) Fate) (Retired, error) {
	out, err := inTxWithin(ctx, s.work, pruneLimit, func(tx *Tx) (out Retired, err error) {
		q := dbsqlc.New(tx)
		if mine, err := tx.tryChore(ctx, choreRetire); err != nil || !mine {
			return Retired{Busy: err == nil}, err
		}
		rows, err := q.RetireRead(ctx, pgIDs(ids))
		if err != nil {
			return out, err
		}
		d := decisions{limit: len(ids) + 1, decide: decide}
		for _, r := range rows {
			d.take(Ended{ID: r.ID.Bytes, Agent: r.Agent, State: a2a.State(r.State), For: r.Now.Time.Sub(r.StatusAt.Time), Pruned: r.FirstSeq >= r.LastSeq})
		}
		return s.carryOut(ctx, tx, &d, out)
	})
	if err != nil {
		return Retired{}, fmt.Errorf("retire tasks: %w", unavailable(err))
	}
	return out, nil
}

// decisions are what a step of Retire is to do.
type decisions struct {
	limit       int
	decide      func(Ended) Fate
	prune, drop []pgtype.UUID
	left        []Ended
}

func (d *decisions) full() bool { return len(d.prune)+len(d.drop) >= d.limit }

func (d *decisions) take(e Ended) {
	if e.State.Terminal() {
		switch fate := d.decide(e); {
		case fate == Delete:
			d.drop = append(d.drop, pgID(e.ID))
		case fate == Prune && !e.Pruned:
			d.prune = append(d.prune, pgID(e.ID))
		}
	}
	d.left = append(d.left, e)
}

func (s *Store) carryOut(ctx context.Context, tx *Tx, d *decisions, out Retired) (Retired, error) {
	pruned, err := s.prune(ctx, tx, d.prune, &out)
	if err != nil {
		return out, err
	}
	dropped, err := s.drop(ctx, tx, d.drop, &out)
	if err != nil {
		return out, err
	}
	tx.After(func() {
		s.counters.swept(SweepOfTasks, out.Deleted)
		s.counters.swept(SweepOfLogs, out.Pruned)
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

// pruneLimit is how long the events of a batch may take to be put together, of tasks that nobody writes to any more.
const pruneLimit = 10 * time.Minute

// settled locks the tasks and returns those that nothing keeps.
func settled(ctx context.Context, tx *Tx, ids []pgtype.UUID) ([]pgtype.UUID, error) {
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

// prune returns those whose log it has removed.
func (s *Store) prune(ctx context.Context, tx *Tx, ids []pgtype.UUID, out *Retired) ([]pgtype.UUID, error) {
	q := dbsqlc.New(tx)
	ids, err := settled(ctx, tx, ids)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	unfolded, err := q.LogUnfolded(ctx, ids)
	if err != nil {
		return nil, err
	}
	if len(unfolded) > 0 {
		// Among them are those that were too large to be folded when they ended.
		if err := tx.allow(ctx, pruneLimit); err != nil {
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
	return ids, record(ctx, tx, Action{Name: ActionLogPrune, Detail: map[string]any{"tasks": len(ids), "events": out.Events, "from": from, "to": to}})
}

// drop returns those that it has deleted.
func (s *Store) drop(ctx context.Context, tx *Tx, ids []pgtype.UUID, out *Retired) ([]pgtype.UUID, error) {
	q := dbsqlc.New(tx)
	ids, err := settled(ctx, tx, ids)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	gone, err := q.TaskDelete(ctx, ids)
	if err != nil {
		return nil, err
	}
	out.Deleted = len(gone)
	from, to := span(ids)
	return ids, record(ctx, tx, Action{Name: ActionTaskRetire, Detail: map[string]any{"tasks": len(gone), "from": from, "to": to}})
}

// span returns the first and the last of ids.
func span(ids []pgtype.UUID) (from, to string) {
	byID := func(a, b pgtype.UUID) int { return bytes.Compare(a.Bytes[:], b.Bytes[:]) }
	return slices.MinFunc(ids, byID).String(), slices.MaxFunc(ids, byID).String()
}

// IDAt is the least id of a task that was made at a time: UUIDv7 begins with milliseconds.
func IDAt(t time.Time) (id a2a.ID) {
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(max(t.UnixMilli(), 0)))
	copy(id[:6], ms[2:])
	return id
}

// PurgeFilter says what to remove on request: a task, or all of an owner of a tenant, or those
// of a context of that owner. A filter that selects everything is refused.
type PurgeFilter struct {
	Task      a2a.ID
	Tenant    string
	Owner     string
	ContextID string
}

func (f *PurgeFilter) check() error {
	if f.Task.IsZero() && (f.Tenant == "" || f.Owner == "") {
		return errors.New("purge: name a task, or a tenant and an owner")
	}
	return nil
}

const purgePage = 200

// Purge removes tasks and everything about them whatever their state: what still runs is
// canceled first, and no webhook of theirs starts once it returns. It returns how many there were.
// It may be repeated after an error.
func (s *Store) Purge(ctx context.Context, f PurgeFilter) (int, error) {
	if err := f.check(); err != nil {
		return 0, err
	}
	purged := 0
	for after := (a2a.ID{}); ; {
		var rows []dbsqlc.PurgeScanRow
		err := s.search(ctx, func(tx *Tx) (err error) {
			q := dbsqlc.New(tx)
			rows, err = q.PurgeScan(ctx, dbsqlc.PurgeScanParams{
				After: pgID(after), ID: pgtype.UUID{Bytes: f.Task, Valid: !f.Task.IsZero()}, Tenant: f.Tenant, Owner: f.Owner, ContextID: f.ContextID, Max: purgePage,
			})
			return err
		})
		if err != nil {
			return purged, fmt.Errorf("purge: %w", unavailable(err))
		}
		if len(rows) == 0 {
			return purged, nil
		}
		after = rows[len(rows)-1].ID.Bytes
		n, err := s.purge(ctx, rows)
		purged += n
		if err != nil {
			return purged, fmt.Errorf("purge: %w", err)
		}
	}
}

func (s *Store) purge(ctx context.Context, rows []dbsqlc.PurgeScanRow) (int, error) {
	ids := make([]pgtype.UUID, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
		if a2a.State(r.State).Terminal() {
			continue
		}
		_, err := s.Cancel(ctx, Caller{Tenant: r.Tenant, Owner: r.Owner}, "", r.ID.Bytes)
		if c := a2a.CodeOf(err); err != nil && c != a2a.CodeTaskNotCancelable && c != a2a.CodeTaskNotFound {
			return 0, err
		}
	}
	if err := s.endPushes(ctx, ids); err != nil {
		return 0, err
	}
	return inTxOnce(ctx, s, func(tx *Tx) (int, error) {
		q := dbsqlc.New(tx)
		if _, err := q.PurgeLock(ctx, ids); err != nil {
			return 0, err
		}
		gone, err := q.TaskDelete(ctx, ids)
		if err != nil {
			return 0, err
		}
		for _, r := range gone {
			if err := record(ctx, tx, Action{Name: ActionTaskPurge, Tenant: r.Tenant, Owner: r.Owner, Task: r.ID.Bytes}); err != nil {
				return 0, err
			}
		}
		return len(gone), nil
	})
}

// endPushes deletes the webhooks of tasks and returns when none of their requests can start.
func (s *Store) endPushes(ctx context.Context, ids []pgtype.UUID) error {
	q := dbsqlc.New(s.work)
	if err := s.repeat(ctx, func() error { return q.PushesEnd(ctx, ids) }); err != nil {
		return err
	}
	ticker := time.NewTicker(deletePoll)
	defer ticker.Stop()
	for {
		busy, err := q.PushesBusy(ctx, ids)
		switch {
		case err == nil && !busy:
			return nil
		case err != nil && !lost(err):
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
