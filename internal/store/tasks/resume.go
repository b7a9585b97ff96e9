package tasks

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/wake"
)

// ErrNotWaiting says that a task waits for no message.
var ErrNotWaiting = errors.New("the task waits for no message")

// ErrOtherQuestion says that a task waits for the answer to another question.
var ErrOtherQuestion = errors.New("the task asks another question")

var errKeyTaken = errors.New("key taken")

// resume adds a message to an existing task.
func (s *Store) resume(ctx context.Context, sub *submission) (Submitted, error) {
	sub.id = sub.Task
	out, err := db.InTxOnce(ctx, s.db, func(tx *db.Tx) (Submitted, error) { return s.resumeIn(ctx, tx, sub) })
	if errors.Is(err, errKeyTaken) {
		return s.replay(ctx, sub)
	}
	if err != nil {
		return Submitted{}, fmt.Errorf("submit to a task: %w", db.Unavailable(err))
	}
	return out, nil
}

func (s *Store) resumeIn(ctx context.Context, tx *db.Tx, sub *submission) (out Submitted, err error) {
	q := dbsqlc.New(tx)
	t, err := lockForMessage(ctx, q, sub)
	if err != nil {
		return out, err
	}
	state := a2a.State(t.State)
	if t.Steps > 0 && state.Interrupted() && sub.Answers != nil {
		if err := checkAnswer(ctx, tx, db.PGID(sub.Task), sub.Answers); err != nil {
			return out, err
		}
	}
	if sub.Push != nil {
		if err := webhooks.Set(ctx, tx, webhooks.Setting{
			Owner: db.Caller{Tenant: t.Tenant, Owner: t.Owner}, Agent: sub.Agent, Task: sub.Task, Webhook: sub.Push,
			Limit: sub.MaxPushes,
			From:  t.LastSeq, Head: t.LastSeq,
		}); err != nil {
			return out, err
		}
	}
	seq, err := q.MessageAdd(ctx, dbsqlc.MessageAddParams{
		ID: db.PGID(sub.Task), Size: int64(len(sub.body)), Resubmit: state.Interrupted(), MessageID: sub.Message.ID,
		Message: sub.body, Digest: sub.digest, Key: sub.Key, EventUid: db.PGID(sub.uid),
		Traceparent: string(sub.Traceparent),
	})
	if err != nil {
		return out, err
	}
	if t.Steps > 0 {
		if err := s.answerWait(ctx, tx, t.Agent, db.PGID(sub.Task), sub.Message.ID, state.Interrupted()); err != nil {
			return out, err
		}
	}
	if access.Acting(ctx) {
		if err := access.Record(ctx, tx, access.Action{
			Name: access.ActionTaskAnswer, Tenant: t.Tenant, Owner: t.Owner, Task: sub.Task,
		}); err != nil {
			return out, err
		}
	}
	out = Submitted{Task: sub.Task, ContextID: t.ContextID, After: seq, State: state, Resumed: state.Interrupted()}
	if !out.Resumed {
		return out, nil
	}
	out.State = a2a.StateSubmitted
	var m webhooks.HeadMoves
	m.Add(db.PGID(sub.Task), t.HasPush || sub.Push != nil, true)
	tx.After(func() { s.counters.enter(a2a.StateSubmitted, 1) })
	s.tell(tx, sub.Task)
	tx.Wake(wake.Ready(sub.Agent))
	return out, m.Move(ctx, tx)
}

// lockForMessage locks the task of a message, stores the key of the message, and decides whether the task accepts it.
func lockForMessage(
	ctx context.Context, q *dbsqlc.Queries, sub *submission,
) (t dbsqlc.TaskLockForCallerRow, err error) {
	t, err = q.TaskLockForCaller(ctx, dbsqlc.TaskLockForCallerParams{
		ID: db.PGID(sub.Task), Tenant: sub.Tenant, Owner: sub.Owner, Shared: sub.Shared,
	})
	if errors.Is(err, pgx.ErrNoRows) || err == nil && (t.Agent != sub.Agent || hidden(t.Reply, t.State)) {
		return t, a2a.ErrTaskNotFound
	}
	if err != nil {
		return t, err
	}
	if sub.Key != "" {
		n, err := q.KeyInsert(ctx, dbsqlc.KeyInsertParams{
			Tenant: sub.Tenant, Owner: sub.Owner, Key: sub.Key, Digest: sub.digest, TaskID: db.PGID(sub.Task),
		})
		if err != nil {
			return t, err
		}
		if n == 0 {
			return t, errKeyTaken
		}
	}
	return t, admit(&t, sub)
}

// admit decides whether a locked task accepts the message.
func admit(t *dbsqlc.TaskLockForCallerRow, sub *submission) error {
	state := a2a.State(t.State)
	switch {
	case sub.ContextID != "" && sub.ContextID != t.ContextID:
		return a2a.InvalidParams("message.contextId", "not the context of the task")
	case state.Terminal():
		return a2a.Errorf(a2a.CodeTaskTerminal, "the task is %s and takes no more messages", state)
	case (sub.OnlyWaiting || !sub.Asked.IsZero()) && !state.Interrupted():
		return ErrNotWaiting
	case !sub.Asked.IsZero() && sub.Asked.UnixMilli() != t.StatusAt.Time.UnixMilli():
		return ErrOtherQuestion
	case sub.Reject && state == a2a.StateWorking:
		return a2a.Errorf(a2a.CodeUnsupportedOperation, "the task is being worked on and takes no message now")
	case sub.MaxBytes > 0 && t.Bytes+int64(len(sub.body)) > sub.MaxBytes:
		return tooLarge(sub.MaxBytes)
	case sub.MaxSeq > 0 && t.LastMessageSeq >= sub.MaxSeq:
		return a2a.InvalidParams("message", "the task has its limit of %d messages", sub.MaxSeq)
	}
	return nil
}

func tooLarge(limit int64) error {
	return a2a.InvalidParams("message", "the task would grow over its limit of %d bytes", limit)
}
