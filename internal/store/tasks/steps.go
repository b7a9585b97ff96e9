package tasks

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
)

// stepSize is what a step counts towards the limit of bytes of its task.
func stepSize(s *a2a.StepRecord) int {
	return len(s.Key) + len(s.Name) + len(s.Artifact) + len(s.Input) + len(s.Result) + len(s.Error)
}

// countSteps finds out how many steps are new, and how large all of them are.
func (a *pendingBatch) countSteps() {
	for i := range a.batch.Steps {
		s := &a.batch.Steps[i]
		a.steps += stepSize(s)
		if !a.recorded(s) {
			a.added++
		}
	}
}

// stepParams adds what the statement of the append must know of the steps of the i-th batch.
func (a *pendingBatch) stepParams(p *dbsqlc.EventAppendParams, i int) {
	p.StepCounts[i], p.StepAfters[i] = int32(a.added), int32(a.lease.Steps)
	p.StepSizes[i], p.Waits[i] = int64(a.steps), a.batch.Wait != nil
}

// onlySteps reports whether the batch has nothing but steps, calls and usage, so that a small statement can write it.
func (a *pendingBatch) onlySteps() bool {
	b := &a.batch
	return len(b.Steps) > 0 && len(b.Events) == 0 && b.Checkpoint == nil && b.Wait == nil && b.ID == ""
}

// flushSteps is flushAppends for batches that have nothing but steps.
func (s *Store) flushSteps(ctx context.Context, items []*pendingBatch) ([]*appended, error) {
	return s.flushOrdered(ctx, items, func(ctx context.Context, items []*pendingBatch) ([]appended, error) {
		var p dbsqlc.StepsAppendParams
		for i, it := range items {
			it.addSteps(&p, i+1, s.db.Replica(), false)
		}
		run := db.Autocommit[[]appended]
		if hasUsage(items) ||
			slices.ContainsFunc(items, func(it *pendingBatch) bool { return len(it.calls) > 0 || it.repeats() }) {
			run = db.InTx[[]appended]
		}
		return run(ctx, s.db.Work(), func(tx *db.Tx) ([]appended, error) {
			q := dbsqlc.New(tx)
			written, err := q.StepsAppend(ctx, p)
			if err != nil {
				return nil, err
			}
			tx.After(func() { s.counters.appends.add(len(written)) })
			rows := make([]appended, len(written))
			var called []*submission
			var slots []*reservedSlot
			var again dbsqlc.StepsRepeatParams
			for i, w := range written {
				called = append(called, items[w.Pos-1].calls...)
				slots = append(slots, items[w.Pos-1].slots...)
				items[w.Pos-1].repeatSteps(&again, s.db.Replica())
				rows[i] = appended{dbsqlc.EventAppendRow{
					Pos: w.Pos, ID: w.ID, Base: w.Base, LastMessageSeq: w.LastMessageSeq, LastAt: w.LastAt,
					HasPush: w.HasPush,
				}}
				s.tellAppended(tx, items[w.Pos-1], &rows[i])
			}
			if err := repeatSteps(ctx, q, again); err != nil {
				return nil, err
			}
			if err := addUsage(ctx, q, items, rows); err != nil {
				return nil, err
			}
			return rows, s.submitIn(ctx, tx, called, slots)
		})
	})
}

// addSteps records the steps of batches that EventAppend has written.
func addSteps(ctx context.Context, q *dbsqlc.Queries, items []*pendingBatch, rows []appended, self string) error {
	var p dbsqlc.StepsAppendParams
	var again dbsqlc.StepsRepeatParams
	for i := range rows {
		if it := items[rows[i].Pos-1]; len(it.batch.Steps) > 0 {
			it.addSteps(&p, i+1, self, true)
			it.repeatSteps(&again, self)
		}
	}
	if len(p.Seqs) > 0 {
		if _, err := q.StepsAppend(ctx, p); err != nil {
			return err
		}
	}
	return repeatSteps(ctx, q, again)
}

// addSteps adds the batch, as the one at pos, and its new steps. Its task counts the steps of a counted batch already.
func (a *pendingBatch) addSteps(p *dbsqlc.StepsAppendParams, pos int, self string, counted bool) {
	p.Numbers, p.TaskIds = append(p.Numbers, int32(pos)), append(p.TaskIds, db.PGID(a.lease.TaskID))
	p.Epochs, p.Workers = append(p.Epochs, a.lease.Epoch), append(p.Workers, cmp.Or(a.lease.Worker, self))
	p.Afters, p.Counted = append(p.Afters, a.lease.LastSeq), append(p.Counted, counted)
	p.StepCounts, p.StepAfters = append(p.StepCounts, int32(a.added)), append(p.StepAfters, int32(a.lease.Steps))
	p.StepSizes = append(p.StepSizes, int64(a.steps))
	for i := range a.batch.Steps {
		s := &a.batch.Steps[i]
		if a.recorded(s) {
			continue
		}
		row := len(p.Positions)
		p.Positions = append(p.Positions, int32(pos))
		p.Seqs, p.Keys = append(p.Seqs, int32(s.Seq)), append(p.Keys, s.Key)
		p.Kinds, p.Names = append(p.Kinds, int16(s.Kind)), append(p.Names, s.Name)
		p.Inputs, p.Results = append(p.Inputs, s.Input), append(p.Results, s.Result)
		p.Errors = sparse(p.Errors, row, []byte(s.Error), s.Error != nil)
		p.Attempts = sparse(p.Attempts, row, int32(s.Attempts), s.Attempts > 1)
		p.NextAts = sparse(p.NextAts, row, db.PGTime(s.NextAt), !s.NextAt.IsZero())
		p.StartedAts = sparse(p.StartedAts, row, db.PGTime(s.StartedAt), !s.StartedAt.IsZero())
		p.EndedAts = sparse(p.EndedAts, row, db.PGTime(s.EndedAt), !s.EndedAt.IsZero())
		p.ChildIds = sparse(p.ChildIds, row, db.PGID(s.Child), s.Call != nil)
		p.OnParentEnds = sparse(p.OnParentEnds, row, onParentEnd(s.Call), s.Call != nil)
		p.ArtifactIds = sparse(p.ArtifactIds, row, s.Artifact, s.Artifact != "")
		p.ArtifactAfters = sparse(p.ArtifactAfters, row, s.After, s.Artifact != "")
	}
}

// sparse sets the value of a row in a column that few rows have a value in. The rows after the last value are left out;
// unnest makes NULL of them.
func sparse[T any](column []T, row int, value T, set bool) []T {
	if !set {
		return column
	}
	column = append(column, make([]T, row-len(column))...)
	return append(column, value)
}

// recorded reports whether an earlier batch has recorded the step.
func (a *pendingBatch) recorded(s *a2a.StepRecord) bool { return s.Seq <= a.lease.Steps }

// repeats reports whether a step of the batch is recorded again.
func (a *pendingBatch) repeats() bool { return a.added < len(a.batch.Steps) }

// repeatSteps adds the steps of the batch that are recorded again.
func (a *pendingBatch) repeatSteps(p *dbsqlc.StepsRepeatParams, self string) {
	for i := range a.batch.Steps {
		s := &a.batch.Steps[i]
		if !a.recorded(s) {
			continue
		}
		p.TaskIds, p.Epochs = append(p.TaskIds, db.PGID(a.lease.TaskID)), append(p.Epochs, a.lease.Epoch)
		p.Workers = append(p.Workers, cmp.Or(a.lease.Worker, self))
		p.Seqs, p.Keys = append(p.Seqs, int32(s.Seq)), append(p.Keys, s.Key)
		p.Results, p.Errors = append(p.Results, s.Result), append(p.Errors, s.Error)
		p.Attempts, p.NextAts = append(p.Attempts, int32(max(s.Attempts, 1))), append(p.NextAts, db.PGTime(s.NextAt))
		p.EndedAts = append(p.EndedAts, db.PGTime(s.EndedAt))
		p.ArtifactIds, p.ArtifactAfters = append(p.ArtifactIds, s.Artifact), append(p.ArtifactAfters, s.After)
	}
}

// repeatSteps records steps again, if there are any.
func repeatSteps(ctx context.Context, q *dbsqlc.Queries, p dbsqlc.StepsRepeatParams) error {
	if len(p.Seqs) == 0 {
		return nil
	}
	return q.StepsRepeat(ctx, p)
}

// StepsPage bounds what Steps reads at once.
type StepsPage struct {
	After int // the number of the step before the first one
	Max   int
	Bytes int64 // of the steps together; one step may be larger
}

// Steps reads recorded steps of a task, in the order in which they were first recorded.
func (s *Store) Steps(ctx context.Context, task a2a.ID, page StepsPage) ([]a2a.StepRecord, error) {
	var rows []dbsqlc.StepsAfterRow
	err := s.db.RepeatRead(ctx, func() (err error) {
		rows, err = dbsqlc.New(s.db.Work()).StepsAfter(ctx, dbsqlc.StepsAfterParams{
			TaskID: db.PGID(task), After: int32(page.After), Max: int32(page.Max), Bytes: page.Bytes,
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read steps: %w", db.UnavailableToRun(err))
	}
	list := make([]a2a.StepRecord, len(rows))
	for i, r := range rows {
		list[i] = stepRecord(dbsqlc.StepsKeyedRow(r))
	}
	return list, nil
}

// StepsKeyed reads those steps of a task that have one of the keys, in no order.
func (s *Store) StepsKeyed(ctx context.Context, task a2a.ID, keys []string) ([]a2a.StepRecord, error) {
	var rows []dbsqlc.StepsKeyedRow
	err := s.db.RepeatRead(ctx, func() (err error) {
		rows, err = dbsqlc.New(s.db.Work()).StepsKeyed(ctx, db.PGID(task), keys)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read steps: %w", db.UnavailableToRun(err))
	}
	list := make([]a2a.StepRecord, len(rows))
	for i, r := range rows {
		list[i] = stepRecord(r)
	}
	return list, nil
}

// ArtifactAt reads an artifact of a task as it was when event seq was the newest one; nil if there was none. It also
// reports whether a later event has changed it. The caller holds the lease of the task.
func (s *Store) ArtifactAt(
	ctx context.Context, task a2a.ID, artifact string, seq int64,
) (_ *a2a.Artifact, changed bool, err error) {
	var rows []dbsqlc.ArtifactAtRow
	err = s.db.RepeatRead(ctx, func() (err error) {
		rows, err = dbsqlc.New(s.db.Work()).ArtifactAt(ctx, dbsqlc.ArtifactAtParams{
			TaskID: db.PGID(task), ArtifactID: artifact, Seq: seq,
		})
		return err
	})
	if err != nil {
		return nil, false, fmt.Errorf("read an artifact: %w", db.UnavailableToRun(err))
	}
	var was []a2a.Artifact
	for _, r := range rows {
		if r.Seq > seq {
			changed = true
			continue
		}
		e, err := DecodeEvent(r.Kind, 0, artifact, r.Body, r.Parts)
		if err != nil {
			return nil, false, fmt.Errorf("read an artifact: %w", err)
		}
		was = a2a.Fold(was, e.(*a2a.ArtifactUpdate))
	}
	if len(was) == 0 {
		return nil, changed, nil
	}
	return &was[0], changed, nil
}

func stepRecord(r dbsqlc.StepsKeyedRow) a2a.StepRecord {
	return a2a.StepRecord{
		Step: a2a.Step{
			Key: r.Key, Name: r.Name, Input: r.Input, Result: r.Result, Error: r.Error, Attempts: int(r.Attempts),
			NextAt: db.WireTime(r.NextAt), StartedAt: db.WireTime(r.StartedAt), EndedAt: db.WireTime(r.EndedAt),
			Artifact: r.ArtifactID, After: r.ArtifactAfter,
		},
		Seq: int(r.Seq), Kind: a2a.StepKind(r.Kind), Ended: r.EndedAt.Valid, Child: r.ChildID.Bytes,
	}
}
