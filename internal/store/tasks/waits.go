package tasks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/wake"
)

// beginWait records the wait of a task, in the transaction that has ended its run.
func beginWait(ctx context.Context, tx *db.Tx, it *pendingBatch, row *appended) error {
	q, w := dbsqlc.New(tx), it.batch.Wait
	step := &it.batch.Steps[len(it.batch.Steps)-1]
	if row.Requeued { // the client has sent its answer before the question
		return q.WaitSkip(ctx, dbsqlc.WaitSkipParams{
			TaskID: row.ID, Step: int32(step.Seq), Through: it.lease.Through,
		})
	}
	p := dbsqlc.WaitBeginParams{
		TaskID: row.ID, Step: int32(step.Seq), OnMessage: w.Message, Through: it.lease.Through,
		Until: db.PGTime(w.Until), Expects: w.Expects,
	}
	if w.Until.IsZero() && w.For > 0 {
		p.Lasts = db.PGInterval(w.For)
	}
	p.AnyCall, p.Calls = w.Any, make([]int32, len(step.Calls))
	for i, seq := range step.Calls {
		p.Calls[i] = int32(seq)
	}
	if w.Signal != "" {
		p.OnSignal = &w.Signal
	}
	out, err := q.WaitBegin(ctx, p)
	if err != nil {
		return err
	}
	if out.Bounded {
		tx.Wake(wake.Waits)
	}
	return nil
}

// EndWaits puts up to batch tasks whose wait is over into the queue, and returns how many rows it has ended.
func (s *Store) EndWaits(ctx context.Context, batch int) (int, error) {
	n, err := db.InTx(ctx, s.db.Work(), func(tx *db.Tx) (int, error) {
		rows, err := dbsqlc.New(tx).WaitsEnd(ctx, int32(batch))
		if err != nil {
			return 0, err
		}
		var m webhooks.HeadMoves
		for _, r := range rows {
			m.Add(r.ID, r.HasPush && r.Asks, true)
			if r.Asks {
				s.tell(tx, r.ID.Bytes)
			}
			s.waitEnded(tx, r.Agent, r.By)
			tx.Wake(wake.Ready(r.Agent))
		}
		return len(rows), m.Move(ctx, tx)
	})
	if err != nil {
		return 0, fmt.Errorf("end waits: %w", db.Unavailable(err))
	}
	return n, nil
}

// reasonOverdue is the message of a task whose deadline passes while it waits, as of a run that exceeds it.
const reasonOverdue = "deadline exceeded"

// FailWaits fails up to batch tasks whose deadline has passed while they waited, and returns how many.
func (s *Store) FailWaits(ctx context.Context, batch int) (int, error) {
	n, err := db.InTx(ctx, s.db.Work(), func(tx *db.Tx) (int, error) {
		rows, err := dbsqlc.New(tx).WaitsOverdue(ctx, int32(batch))
		if err != nil {
			return 0, err
		}
		ids, texts := make([]pgtype.UUID, len(rows)), make([]string, len(rows))
		for i, r := range rows {
			ids[i], texts[i] = r.ID, reasonOverdue
			s.waitEnded(tx, r.Agent, WaitDeadline)
		}
		return s.failIn(ctx, tx, ids, texts)
	})
	if err != nil {
		return 0, fmt.Errorf("fail tasks that wait: %w", db.Unavailable(err))
	}
	return n, nil
}

// NextWait returns how long it takes until a wait ends by its time. ok is false if no wait has one.
func (s *Store) NextWait(ctx context.Context) (in time.Duration, ok bool, err error) {
	ms, err := dbsqlc.New(s.db.Work()).WaitsNext(ctx)
	if err != nil {
		return 0, false, fmt.Errorf("look for the next wait: %w", db.Unavailable(err))
	}
	if ms < 0 {
		return 0, false, nil
	}
	return time.Duration(ms) * time.Millisecond, true, nil
}

// answerWait tells the wait of a locked task of the agent about a message of its client. The task goes back into the
// queue with resubmit.
func (s *Store) answerWait(
	ctx context.Context, tx *db.Tx, agent string, task pgtype.UUID, message string, resubmit bool,
) error {
	out, err := dbsqlc.New(tx).WaitAnswer(ctx, dbsqlc.WaitAnswerParams{
		TaskID: task, MessageID: message, Resubmit: resubmit,
	})
	if out.Ended {
		s.waitEnded(tx, agent, WaitMessage)
	}
	if out.Due {
		tx.Wake(wake.Waits)
	}
	return err
}

// checkAnswer checks whether a message is what the question of a locked task expects.
func checkAnswer(ctx context.Context, tx *db.Tx, task pgtype.UUID, fits func(expects a2a.Raw) error) error {
	expects, err := dbsqlc.New(tx).WaitExpects(ctx, task)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return err
	}
	return fits(expects)
}
