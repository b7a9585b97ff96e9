package a2a

import (
	"context"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/backoff"
	"github.com/a2ad/a2ad/internal/wire/answer"
)

// The status that ends a turn is not always the last word of the upstream. Some servers send artifacts or the Task
// after it, and some show artifacts only in the Task. So a turn ends here after the rest of the stream, for a moment,
// and after one read of the Task.

// drain relays what follows the status that ends the turn in its stream. It returns nil if the turn goes on.
func (s *session) drain(ctx context.Context, st *stream, end *a2a.StatusUpdate) (*a2a.StatusUpdate, error) {
	if s.whole || s.reply {
		return end, nil
	}
	late := time.AfterFunc(s.e.c.Drain, func() { st.cancel(errSlow) })
	defer late.Stop()
	for end != nil {
		item, err := st.next()
		if err != nil { // the stream has ended, or what follows is not understood; the Task is read next
			return end, context.Cause(ctx)
		}
		if s.checkTask(&item) != nil {
			continue
		}
		if end, err = s.afterEnd(end, &item); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// afterEnd relays an item that follows the status that ends the turn, and returns the status that ends it now. It is
// nil if the upstream works on by itself.
func (s *session) afterEnd(end *a2a.StatusUpdate, item *answer.Item) (*a2a.StatusUpdate, error) {
	next := item.Status
	if item.Task != nil {
		s.whole = item.Task.Status.State == end.Status.State
		how := replaceNone
		if s.whole {
			how = replaceNewer
		}
		if _, err := s.catchUp(item.Task, how, end.Status.Message); err != nil {
			return nil, err
		}
		next = &a2a.StatusUpdate{Status: item.Task.Status}
	}
	switch {
	case next == nil:
		_, err := s.relayItem(item)
		return end, err
	case next.Status.State == end.Status.State:
		return s.both(end, next)
	case end.Status.State.Terminal() || next.Status.State == a2a.StateNone:
		return end, s.relayAsProgress(next)
	}
	s.whole = false
	if err := s.relayAsProgress(end); err != nil {
		return nil, err
	}
	if next.Status.State.EndsTurn() {
		return next, nil
	}
	return nil, s.progress(next)
}

// both returns the status that ends a turn that the upstream has ended twice, in the same state. A message that only
// the first has is relayed before it.
func (s *session) both(first, second *a2a.StatusUpdate) (*a2a.StatusUpdate, error) {
	a, b := named(first.Status.Message), named(second.Status.Message)
	if b == nil || a != nil && begins(a, b) {
		return first, nil
	}
	end := *second
	if len(end.Metadata) == 0 {
		end.Metadata = first.Metadata
	}
	if a == nil || begins(b, a) {
		return &end, nil
	}
	return &end, s.relayAsProgress(first)
}

// begins reports whether the content of a message begins with that of another one.
func begins(m, other *a2a.Message) bool {
	_, ok := contentOf(other.Parts, true).rest(m.Parts)
	return ok
}

func equal(a, b *a2a.Message) bool {
	return contentOf(a.Parts, true).sum() == contentOf(b.Parts, true).sum()
}

// maxReads is how often the Task is read until its status is as new as the one in the stream.
const maxReads = 3

// settle reads the Task after the status that ends the turn, and relays what the stream did not bring. It returns nil
// if the turn goes on.
func (s *session) settle(ctx context.Context, end *a2a.StatusUpdate) (*a2a.StatusUpdate, error) {
	s.whole, s.failures = true, 0
	bounded, stop := ctx, context.CancelFunc(func() {})
	if !s.broken {
		bounded, stop = context.WithTimeoutCause(ctx, s.e.c.Settle, errSlow)
	}
	defer stop()
	for reads := 1; ; {
		t, err := s.getTask(bounded)
		switch {
		case err == nil && older(&t.Status, &end.Status) && reads < maxReads:
			reads++
			err = wait(bounded, backoff.Jitter(s.e.c.Poll/4, nil))
		case err == nil:
			return s.afterRead(end, &t)
		case unanswered(err), s.broken && temporary(err):
			err = s.pause(bounded, err)
		}
		switch {
		case context.Cause(ctx) != nil:
			return nil, context.Cause(ctx)
		case err == nil:
		case s.broken && temporary(err):
			return nil, err // events are missing, so the next attempt reads it
		default:
			s.log.Info("upstream's task cannot be read at its end", "err", err)
			return end, nil
		}
	}
}

// older reports whether a status that was read is older than the one that ends the turn in the stream.
func older(read, end *a2a.Status) bool {
	return read.State != end.State && !read.State.Terminal() && !left(read, end)
}

// left reports whether the status that was read shows that the upstream has left a question, and works on by itself.
func left(read, end *a2a.Status) bool {
	switch {
	case !end.State.Interrupted() || read.State == end.State || read.State == a2a.StateNone:
		return false
	case read.State.EndsTurn():
		return true
	}
	return !end.Time.IsZero() && read.Time.After(end.Time)
}

// afterRead relays the rest of the Task that was read after the status that ends the turn. It returns the status that
// ends the turn now, or nil.
func (s *session) afterRead(end *a2a.StatusUpdate, t *answer.Task) (*a2a.StatusUpdate, error) {
	if left(&t.Status, &end.Status) {
		if err := s.relayAsProgress(end); err != nil {
			return nil, err
		}
		return s.snapshot(t)
	}
	if t.Status.State != end.Status.State {
		_, err := s.catchUp(t, replaceNone, end.Status.Message)
		return end, err
	}
	read, err := s.catchUp(t, s.replaces(), end.Status.Message)
	a, b := named(end.Status.Message), named(t.Status.Message)
	switch {
	case err != nil || b == nil || a != nil && begins(a, b):
		return end, err
	case a == nil && s.unrelayed(b, read, afterNewest) == nil:
		return end, nil
	case a == nil:
	case !begins(b, a): // two messages, of which the one in the stream stays the last
		if b = s.unrelayed(b, read, afterNewest); b != nil {
			err = s.progress(&a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateWorking, Message: b}})
		}
		return end, err
	}
	u := *end
	u.Status.Message = b
	return &u, nil
}

// relayAsProgress relays a status that does not end the turn here, although it ends one at the upstream.
func (s *session) relayAsProgress(end *a2a.StatusUpdate) error {
	if m := named(end.Status.Message); m != nil && s.rec.told(m) {
		s.pos.Status = markOf(&end.Status)
		return nil
	}
	return s.progress(end)
}

// finish relays the status that ends the turn.
func (s *session) finish(end *a2a.StatusUpdate) error {
	s.pos.Status = markOf(&end.Status)
	u := &a2a.StatusUpdate{Metadata: end.Metadata}
	u.Status = a2a.Status{State: end.Status.State, Message: named(end.Status.Message)}
	if u.Status.State == a2a.StateCanceled {
		u.Status.State = a2a.StateFailed
		if u.Status.Message == nil {
			text := a2a.Part{Kind: a2a.PartText, Text: "the upstream agent canceled the task"}
			u.Status.Message = &a2a.Message{Parts: []a2a.Part{text}}
		}
	}
	err := s.end(u)
	s.ended = err == nil
	return err
}

// end relays the last status, or only its message if that is an answer by itself.
func (s *session) end(u *a2a.StatusUpdate) error {
	if !s.reply || !s.run.MayReply || s.reported || u.Status.Message == nil {
		return s.status(u)
	}
	return s.emit(u.Status.Message)
}
