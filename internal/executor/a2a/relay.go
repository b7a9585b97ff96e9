package a2a

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/backoff"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/wire/answer"
)

// maxStale is how often a relayed question may be shown again before it counts as a new question. A server that is
// slow to process an answer shows the old question for a moment.
const maxStale = 5

// follow continues an upstream task whose events may have been missed, until the turn ends there.
func (s *session) follow(ctx context.Context) (*a2a.StatusUpdate, error) {
	s.broken = true
	for {
		if s.at.streaming && !s.noStream {
			if end, err := s.resume(ctx); end != nil || err != nil {
				return end, err
			}
		}
		t, err := s.getTask(ctx)
		if err == nil {
			s.failures = 0
			end, err := s.snapshot(&t)
			if end != nil || err != nil {
				return end, err
			}
			if err := wait(ctx, backoff.Jitter(s.e.c.Poll, nil)); err != nil {
				return nil, err
			}
			continue
		}
		if isTaskNotFound(err) {
			return nil, errTaskLost
		}
		if !temporary(err) {
			return nil, err
		}
		if err := s.pause(ctx, err); err != nil {
			return nil, err
		}
	}
}

// resume relays a resumed stream. The stream must begin with the Task, because otherwise the events before its first
// one would be missed. If the upstream refuses the request, the reason does not matter. A read of the task follows, and
// a server may find a task by that method and not by this one.
func (s *session) resume(ctx context.Context) (*a2a.StatusUpdate, error) {
	if s.fruitless++; s.fruitless > 2 {
		s.noStream = true
		return nil, nil
	}
	st, err := s.e.open(ctx, s.at, s.at.subscribe, s.at.taskParams(s.pos.Task, nil), "")
	if err != nil {
		return nil, context.Cause(ctx)
	}
	defer st.close()
	late := time.AfterFunc(s.e.c.Resume, func() { st.cancel(errSlow) })
	item, err := st.next()
	if !late.Stop() || err == nil && item.Task == nil {
		s.noStream = true
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, context.Cause(ctx)
	}
	s.failures = 0
	if end, err := s.relayItem(&item); end != nil || err != nil {
		return end, err
	}
	return s.listen(ctx, st)
}

// getTask reads the upstream task.
func (s *session) getTask(ctx context.Context) (answer.Task, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, errSlow)
	defer cancel()
	result, err := s.e.call(ctx, s.at, s.at.get, s.at.taskParams(s.pos.Task, nil), "")
	if err != nil {
		return answer.Task{}, err
	}
	t, err := answer.DecodeTask(result)
	if err != nil {
		return answer.Task{}, executor.InvalidResponse("the upstream's %s: %w", s.at.get, err)
	}
	if t.ID != s.pos.Task {
		return answer.Task{}, executor.InvalidResponse("the upstream returned another task than the requested one")
	}
	return t, nil
}

// checkTask refuses an item of another task.
func (s *session) checkTask(item *answer.Item) error {
	if item.TaskID != "" && item.TaskID != s.pos.Task {
		return executor.InvalidResponse("an event of another task than the requested one")
	}
	return nil
}

// relayItem relays one item. A status that ends the turn is returned instead.
func (s *session) relayItem(item *answer.Item) (*a2a.StatusUpdate, error) {
	if err := s.checkTask(item); err != nil {
		return nil, err
	}
	switch {
	case item.Task != nil:
		return s.snapshot(item.Task)
	case item.Artifact != nil:
		s.fruitless = 0
		return nil, s.artifact(item.Artifact)
	case item.Message != nil:
		s.fruitless = 0
		return nil, s.progress(&a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateWorking, Message: item.Message}})
	case item.Status.Status.State.EndsTurn():
		return item.Status, nil
	}
	s.fruitless = 0
	return nil, s.progress(item.Status)
}

// snapshot relays the parts of a Task that the local log lacks. A status that ends the turn is returned instead.
func (s *session) snapshot(t *answer.Task) (*a2a.StatusUpdate, error) {
	s.findReceived(t.History)
	if err := s.catchUp(t); err != nil {
		return nil, err
	}
	u := &a2a.StatusUpdate{Status: t.Status}
	switch now := markOf(&t.Status); {
	case t.Status.State.Terminal():
		return u, nil
	case t.Status.State.Interrupted():
		if now.same(s.pos.Status) && s.pos.Said == len(s.said) {
			if s.stale++; s.stale <= maxStale {
				return nil, nil
			}
		}
		return u, nil
	case now.same(s.pos.Status):
		return nil, nil
	}
	s.stale = 0
	if m := named(t.Status.Message); m == nil || s.rec.messages[m.ID] {
		return nil, nil
	}
	return nil, s.progress(u)
}

// findReceived finds the client's messages in the upstream's history that the upstream has received although the
// answer to them was lost.
func (s *session) findReceived(history []a2a.Message) {
	for s.pos.Said < len(s.said) {
		id := s.messageID(s.pos.Said)
		if !slices.ContainsFunc(history, func(m a2a.Message) bool { return m.ID == id && m.Role == a2a.RoleUser }) {
			return
		}
		s.pos.Said++
	}
}

// catchUp relays messages and artifacts that the local log lacks, except for the message of the status, which some
// servers also have in the history.
func (s *session) catchUp(t *answer.Task) error {
	current := named(t.Status.Message)
	for i := range t.History {
		m := &t.History[i]
		if m.Role != a2a.RoleAgent {
			continue
		}
		if m = named(m); m == nil || s.rec.messages[m.ID] || current != nil && current.ID == m.ID {
			continue
		}
		if err := s.progress(&a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateWorking, Message: m}}); err != nil {
			return err
		}
	}
	for i := range t.Artifacts {
		a := t.Artifacts[i]
		a.ID = s.artifactID(a.ID)
		u := s.rec.missing(&a)
		if u == nil {
			continue
		}
		u.LastChunk = t.Status.State.Terminal()
		if err := s.relay(u); err != nil {
			return err
		}
	}
	return nil
}

// artifactID makes the artifact ids of several upstream tasks distinct.
func (s *session) artifactID(id string) string {
	if s.pos.Nth == 0 {
		return id
	}
	return id + "~" + strconv.Itoa(s.pos.Nth+1)
}

// artifact relays an update from the upstream.
func (s *session) artifact(u *a2a.ArtifactUpdate) error {
	c := *u
	c.Artifact.ID = s.artifactID(u.Artifact.ID)
	if _, known := s.rec.artifacts[c.Artifact.ID]; !known {
		c.Append = false
	}
	return s.relay(&c)
}

func (s *session) relay(u *a2a.ArtifactUpdate) error {
	s.stale = 0
	for _, piece := range split(u) {
		s.rec.add(piece)
		s.fruitless = 0
		if err := s.emit(piece); err != nil {
			return err
		}
	}
	return nil
}

// progress relays a status that does not end the turn, if it has a message or metadata.
func (s *session) progress(u *a2a.StatusUpdate) error {
	s.stale = 0
	working := a2a.Status{State: a2a.StateWorking, Message: named(u.Status.Message)}
	c := &a2a.StatusUpdate{Status: working, Metadata: u.Metadata}
	s.pos.Status = markOf(&u.Status)
	if c.Status.Message == nil && len(c.Metadata) == 0 {
		return nil
	}
	return s.status(c)
}

// status relays a status together with the position after it.
func (s *session) status(u *a2a.StatusUpdate) error {
	if m := u.Status.Message; m != nil {
		s.rec.messages[m.ID] = true
	}
	s.fruitless = 0
	if err := s.emit(&a2a.Checkpoint{Body: s.pos.encode()}); err != nil {
		return err
	}
	return s.emit(u)
}

// relayAsProgress relays a status that would end the turn if the client had not sent more messages.
func (s *session) relayAsProgress(end *a2a.StatusUpdate) error {
	if m := named(end.Status.Message); m != nil && s.rec.messages[m.ID] {
		s.pos.Status = markOf(&end.Status)
		return nil
	}
	return s.progress(end)
}

// finish relays the status that ends the turn. If a connection broke in this run, it first relays what the upstream's
// task has and the local log lacks.
func (s *session) finish(ctx context.Context, end *a2a.StatusUpdate) error {
	message := named(end.Status.Message)
	if message != nil {
		s.rec.messages[message.ID] = true
	}
	if s.broken && s.pos.Task != "" {
		t, err := s.getTask(ctx)
		if err == nil {
			err = s.catchUp(&t)
		}
		if context.Cause(ctx) != nil || errors.Is(err, executor.ErrUnread) {
			return err
		}
		if err != nil {
			s.log.Warn("read the upstream's task at its end", "err", err)
		}
	}
	s.pos.Status = markOf(&end.Status)
	u := &a2a.StatusUpdate{Status: a2a.Status{State: end.Status.State, Message: message}, Metadata: end.Metadata}
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
	m := *u.Status.Message
	m.TaskID, m.ContextID = "", "" // of the upstream
	return s.emit(&m)
}
