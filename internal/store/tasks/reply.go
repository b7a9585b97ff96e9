package tasks

import (
	"context"
	"fmt"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// What a row of a2a.tasks says of the answer to its client. Zero, which is reply_task in SQL, is the task itself.
const (
	replyOpen    int16 = 1 // the agent may still answer with a message
	replyMessage int16 = 2 // the agent has: the message of the status is the answer
)

// undecided reports whether the answer may still be a message. A state that ends or interrupts the turn makes the task
// the answer, so code that sets one need not know of replies.
func undecided(reply, state int16) bool {
	return reply == replyOpen && a2a.State(state) <= a2a.StateWorking
}

// hidden reports whether a task does not exist for clients.
func hidden(reply, state int16) bool { return reply == replyMessage || undecided(reply, state) }

// DecidesAnswer reports whether an event of a run tells the client more than that its message is being worked on. The
// first such event makes the task the answer, unless it is the reply.
func DecidesAnswer(e a2a.Event) bool {
	s, ok := e.(*a2a.StatusUpdate)
	return !ok || s.Status.State > a2a.StateWorking || s.Status.Message != nil || len(s.Metadata) > 0
}

// RepeatsClaim reports whether an event of the log says that the task was claimed again. Such an event has metadata but
// decides nothing.
func RepeatsClaim(e a2a.Event) bool {
	s, ok := e.(*a2a.StatusUpdate)
	return ok && s.Status.State == a2a.StateWorking && s.Status.Message == nil &&
		rawjson.Get(s.Metadata, "a2ad/attempt") != nil // as TaskClaim writes it
}

// Reveal makes the task the answer of an undecided submission, because its client is told of the task. It does nothing
// if the agent has decided before.
func (s *Store) Reveal(ctx context.Context, task a2a.ID) error {
	_, err := db.InTxOnce(ctx, s.db, func(tx *db.Tx) (none struct{}, err error) {
		n, err := dbsqlc.New(tx).TaskReveal(ctx, db.PGID(task))
		if err != nil || n == 0 {
			return none, err
		}
		var m webhooks.HeadMoves
		m.Add(db.PGID(task), true, true)
		return none, m.Move(ctx, tx)
	})
	if err != nil {
		return fmt.Errorf("reveal task: %w", db.Unavailable(err))
	}
	return nil
}
