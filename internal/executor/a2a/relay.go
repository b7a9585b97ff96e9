package a2a

import (
	"context"
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
	for {
		if s.at.streaming && !s.noStream {
			if end, err := s.resume(ctx); end != nil || err != nil {
				return end, err
			}
		}
		t, err := s.getTask(ctx)
		if err == nil {
			s.failures = 0
			s.compare(&t)
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
	s.compare(item.Task)
	end, err := s.relayItem(&item)
	if err != nil {
		return nil, err
	}
	return s.listen(ctx, st, end)
}

// compare notes whether the upstream has sent events since the last one that was relayed.
func (s *session) compare(t *answer.Task) {
	if !s.pos.Status.State.Interrupted() || !markOf(&t.Status).same(s.pos.Status) {
		s.broken = true
	}
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

// checkTask refuses an item of another task. Some servers do not send the id of the task with each item.
func (s *session) checkTask(item *answer.Item) error {
	if item.TaskID != "" && s.pos.Task != "" && item.TaskID != s.pos.Task {
		return executor.InvalidResponse("an event of another task than the requested one")
	}
	return nil
}

// relayItem relays one item. A status that ends the turn is returned instead.
func (s *session) relayItem(item *answer.Item) (*a2a.StatusUpdate, error) {
	if err := s.checkTask(item); err != nil {
		return nil, err
	}
	if s.pos.Task == "" && item.TaskID != "" {
		s.pos.Task, s.pos.Context = item.TaskID, item.ContextID
		if err := s.save(); err != nil {
			return nil, err
		}
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
		s.whole = false
		return item.Status, nil
	}
	s.fruitless = 0
	return nil, s.progress(item.Status)
}

// artifactID makes the artifact ids of several upstream tasks distinct.
func (s *session) artifactID(id string) string {
	if s.pos.Nth == 0 {
		return id
	}
	return id + "~" + strconv.Itoa(s.pos.Nth+1)
}

// artifact relays an update from the upstream. An update without parts may empty an artifact, or say that it is
// complete. In the log it has an empty text, because an update must have a part.
func (s *session) artifact(u *a2a.ArtifactUpdate) error {
	c := *u
	c.Artifact.ID = s.artifactID(u.Artifact.ID)
	if _, known := s.rec.artifacts[c.Artifact.ID]; !known {
		c.Append = false
	} else if len(c.Artifact.Parts) == 0 && (c.LastChunk || !c.Append) {
		c.Artifact.Parts = []a2a.Part{{Kind: a2a.PartText}}
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
		s.rec.addMessage(m)
	}
	s.fruitless = 0
	if err := s.emit(&a2a.Checkpoint{Body: s.pos.encode()}); err != nil {
		return err
	}
	return s.emit(u)
}
