package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/stream"
)

// undecided is a stream whose agent may still reply directly. If it does, its message is all of the
// stream. Otherwise the stream starts with a task and continues with every event since then.
type undecided struct {
	engine *Engine
	first  Frame
	items  []*stream.Item // events after first
	until  time.Time      // when the client gets the task in any case; zero: never
}

// leaveOpen withholds the first frame of s until it is known whether s streams a task or a reply.
func (e *Engine) leaveOpen(s *Stream) {
	s.open = &undecided{engine: e, first: s.ready[0]}
	s.ready = nil
	if e.cfg.BlockingMaxWait > 0 {
		s.open.until = time.Now().Add(e.cfg.BlockingMaxWait)
	}
}

// decide waits for the first event that decides this. If it takes too long, or the server drains,
// the client gets the task and can come back for it.
func (s *Stream) decide(ctx context.Context) error {
	u := s.open
	for {
		items, err := u.next(ctx, s.cursor)
		switch cause := context.Cause(ctx); {
		case err == nil:
			u.items = append(u.items, items...)
		case errors.Is(err, errWaitedEnough), errors.Is(cause, ErrDraining):
			ctx := context.WithoutCancel(ctx) // and not patient, because nothing would end it
			if err := u.engine.store.Tasks.Reveal(ctx, s.TaskID); err != nil {
				return err
			}
			return s.resolve(ctx)
		default:
			return err
		}
		if slices.ContainsFunc(items, decides) {
			return s.resolve(db.Patient(ctx))
		}
	}
}

// decides reports whether an event of the log makes the answer known.
func decides(it *stream.Item) bool {
	return tasks.DecidesAnswer(it.Event) && !tasks.RepeatsClaim(it.Event)
}

func (u *undecided) next(ctx context.Context, cursor *stream.Cursor) ([]*stream.Item, error) {
	if u.until.IsZero() {
		return cursor.Next(ctx)
	}
	wait, cancel := context.WithDeadlineCause(ctx, u.until, errWaitedEnough)
	defer cancel()
	items, err := cursor.Next(wait)
	if err != nil && errors.Is(context.Cause(wait), errWaitedEnough) {
		err = errWaitedEnough
	}
	return items, err
}

// resolve makes s the stream of a reply or of a task.
func (s *Stream) resolve(ctx context.Context) error {
	t, err := s.open.engine.snapshotOf(ctx, s.caller, s.TaskID, 0, tasks.Want{History: new(int)})
	if err != nil {
		return err
	}
	if t.Replied {
		s.ready, s.done = []Frame{{Task: t, Last: true}}, true
	} else {
		s.ready, s.items = []Frame{s.open.first}, s.open.items
	}
	s.open = nil
	return nil
}
