package tasks

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
	"github.com/a2ad/a2ad/internal/wake"
)

// parentEnded is the metadata of the last status of a task that was canceled because the one that called it has ended.
var parentEnded = a2a.Raw(`{"a2ad/reason":"the task that called this one has ended"}`)

// CancelOrphan cancels one task whose parent has ended, unless it has ended too. more is false if there is none that no
// other process has.
func (s *Store) CancelOrphan(ctx context.Context) (more bool, err error) {
	more, err = db.InTx(ctx, s.db.Work(), func(tx *db.Tx) (bool, error) {
		q := dbsqlc.New(tx)
		o, err := q.OrphanNext(ctx)
		if errors.Is(err, pgx.ErrNoRows) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if !o.Gone {
			by := db.Caller{Tenant: o.Tenant, Owner: o.Owner, Actor: "task " + a2a.ID(o.ParentID.Bytes).String()}
			_, err := s.cancelIn(ctx, tx, by, "", o.TaskID.Bytes, parentEnded)
			if err != nil && !errors.Is(err, a2a.ErrTaskNotFound) {
				return false, err
			}
		}
		return true, q.OrphanDelete(ctx, o.TaskID)
	})
	if err != nil {
		return false, fmt.Errorf("cancel a called task: %w", db.Unavailable(err))
	}
	return more, nil
}

// CallPosition is the position of a call among all of them.
type CallPosition struct {
	task pgtype.UUID
	step int32
}

// SweptCalls is what SweepCalls did.
type SweptCalls struct {
	Next     CallPosition // from which to continue; zero after the last call
	Repaired int
}

// SweepCalls repairs up to most calls after a position: those whose task has ended, and those whose parent has, without
// the other being told. Only a server of an earlier version, or an operator who removes a task, leaves such calls. If
// another process is doing this, it does nothing.
func (s *Store) SweepCalls(ctx context.Context, after CallPosition, most int) (SweptCalls, error) {
	p := dbsqlc.CallsOpenParams{AfterTask: after.task, AfterSeq: after.step, Max: int32(most)}
	p.AfterTask.Valid = true
	out, err := db.InTx(ctx, s.db.Work(), func(tx *db.Tx) (out SweptCalls, err error) {
		free, err := tx.TryChore(ctx, db.ChoreCalls)
		if err != nil || !free {
			return out, err
		}
		rows, err := dbsqlc.New(tx).CallsOpen(ctx, p)
		if err != nil || len(rows) == 0 {
			return out, err
		}
		if len(rows) == most {
			last := rows[len(rows)-1]
			out.Next = CallPosition{last.TaskID, last.Seq}
		}
		out.Repaired, err = s.repairCalls(ctx, tx, rows)
		return out, err
	})
	if err != nil {
		return SweptCalls{Next: after}, fmt.Errorf("sweep calls: %w", db.Unavailable(err))
	}
	return out, nil
}

func (s *Store) repairCalls(ctx context.Context, tx *db.Tx, rows []dbsqlc.CallsOpenRow) (repaired int, err error) {
	var f family
	var gone dbsqlc.CallsEndParams
	for _, r := range rows {
		switch {
		case r.ChildGone:
			f.waiting, f.steps = append(f.waiting, r.TaskID), append(f.steps, r.Seq)
			gone.Parents, gone.Steps = append(gone.Parents, r.TaskID), append(gone.Steps, r.Seq)
			gone.Results = append(gone.Results,
				[]byte(`{"taskId":"`+a2a.ID(r.ChildID.Bytes).String()+`","state":"TASK_STATE_UNSPECIFIED"}`))
		case r.ChildEnded || r.ParentEnded:
			f.add(r.ChildID, r.ChildEnded, false)
			f.add(r.TaskID, false, r.ParentEnded)
		default:
			continue
		}
		repaired++
	}
	if repaired == 0 {
		return 0, nil
	}
	if err := s.endFamily(ctx, tx, &f); err != nil || len(gone.Steps) == 0 {
		return repaired, err
	}
	due, err := dbsqlc.New(tx).CallsEnd(ctx, gone)
	if due {
		tx.Wake(wake.Waits)
	}
	return repaired, err
}
