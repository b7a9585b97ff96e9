package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/stream"
)

// undecided is a stream whose agent may still reply directly: then the message is all that it
// has. Else it starts with a task, and every event that came meanwhile follows.
type undecided struct {
	engine *Engine
	first  Frame
	items  []*stream.Item // since first
	until  time.Time      // when its client is told of the task in any case; zero: never
}

// leaveOpen keeps the first frame of s back until it is known what s is the stream of.
func (e *Engine) leaveOpen(s *Stream) {
	s.open = &undecided{engine: e, first: s.ready[0]}
	s.ready = nil
	if e.cfg.BlockingMaxWait > 0 {
		s.open.until = time.Now().Add(e.cfg.BlockingMaxWait)
	}
}

// decide waits for the first event that tells something. Where it takes too long, and where
// the server drains, the client is given the task, which it can come back for.
func (s *Stream) decide(ctx context.Context) error {
	u := s.open
	for {
		items, err := u.next(ctx, s.cursor)
		switch cause := context.Cause(ctx); {
		case err == nil:
			u.items = append(u.items, items...)
		case errors.Is(err, errWaitedEnough), errors.Is(cause, ErrDraining):
			if err := u.engine.store.Reveal(context.WithoutCancel(ctx), s.TaskID); err != nil {
				return err
			}
			return s.resolve(context.WithoutCancel(ctx))
		default:
			return err
		}
		if slices.ContainsFunc(items, func(it *stream.Item) bool { return store.Tells(it.Event) }) {
			return s.resolve(ctx)
		}
	}
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

// resolve makes s the stream of a message or of a task.
func (s *Stream) resolve(ctx context.Context) error {
	t, err := s.open.engine.snapshot(ctx, s.caller, s.TaskID, store.Want{History: new(int)})
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
