package tasks

import (
	"bytes"
	"context"
	"fmt"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// What a row of a2a.tasks says of the answer to its client. Zero, which is reply_task in SQL, is the task itself.
const (
	replyOpen    int16 = 1 // the agent may still answer with a message
	replyMessage int16 = 2 // the agent has: the message of the status is the answer
)

// undecided reports whether an answer may still be a message. Whatever ends or interrupts the
// turn without being one makes a task of it, without having to know of this.
func undecided(reply, state int16) bool {
	return reply == replyOpen && a2a.State(state) <= a2a.StateWorking
}

// hidden reports whether clients cannot know of a task.
func hidden(reply, state int16) bool { return reply == replyMessage || undecided(reply, state) }

// Tells reports whether an event tells a client more than that its message is being worked
// on. The first one that does decides whether the answer is a task.
func Tells(e a2a.Event) bool {
	s, ok := e.(*a2a.StatusUpdate)
	return !ok || s.Status.State > a2a.StateWorking || s.Status.Message != nil ||
		len(s.Metadata) > 0 && !bytes.HasPrefix(s.Metadata, []byte(`{"a2ad/attempt"`)) // as claims have it
}

// Reveal makes a task of a submission that is undecided, because its client is told of it. It
// does nothing if the agent was faster.
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
