package a2a

import (
	"slices"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/wire/answer"
)

// snapshot relays the parts of a Task that the local log lacks. A status that ends the turn is returned instead.
func (s *session) snapshot(t *answer.Task) (*a2a.StatusUpdate, error) {
	s.findReceived(t.History)
	before := s.pos.Status
	read, err := s.catchUp(t, s.replaces(), nil)
	if err != nil {
		return nil, err
	}
	s.whole = true
	u := &a2a.StatusUpdate{Status: t.Status}
	now := markOf(&t.Status)
	switch {
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
	m := named(t.Status.Message)
	// A message with a new id is a new one, unless the time shows that the status is the same.
	if m != nil && (s.rec.byID[m.ID] != nil || !now.Time.IsZero() && now.Time.Equal(before.Time)) {
		m = s.unrelayed(m, read, afterNewest)
	}
	if m == nil {
		s.pos.Status = now
		return nil, nil
	}
	u.Status.Message = m
	return nil, s.progress(u)
}

// replaces says which artifacts of a Task that was just read replace local ones.
func (s *session) replaces() replacing {
	if s.broken {
		return replaceAll
	}
	return replaceNewer
}

// unrelayed returns a message of the upstream without what the client has of it, or nil if the client has all of it.
func (s *session) unrelayed(m *a2a.Message, read *reading, at age) *a2a.Message {
	c := named(m)
	if c == nil {
		return nil
	}
	if c.Parts, c.ID = s.rec.lacking(c, read, at); len(c.Parts) == 0 {
		return nil
	}
	return c
}

// findReceived finds the client's messages in the upstream's history that the upstream has received although the
// answer to them was lost.
func (s *session) findReceived(history []a2a.Message) {
	for s.pos.Said < len(s.said) {
		if !slices.ContainsFunc(history, s.isMessage(s.pos.Said)) {
			return
		}
		s.received()
	}
}

// received notes that the upstream has the client's next message.
func (s *session) received() {
	s.pos.Heard = len(s.rec.messages)
	if s.pos.Said == s.pos.From {
		s.pos.Began = s.pos.Heard
	}
	s.pos.Said++
}

// isMessage returns a function that reports whether a message of the upstream's is the client's message n.
func (s *session) isMessage(n int) func(a2a.Message) bool {
	id := s.messageID(n)
	return func(m a2a.Message) bool { return m.ID == id && m.Role == a2a.RoleUser }
}

// catchUp relays messages and artifacts that the local log lacks, except for the message of the status, which some
// servers also have in the history. held is a message that the client is about to get, or nil.
func (s *session) catchUp(t *answer.Task, how replacing, held *a2a.Message) (*reading, error) {
	history, ages := s.historyOf(t)
	artifacts := s.artifactsOf(t)
	task := shown{messages: map[string]bool{}, artifacts: map[string]bool{}, tail: s.artifactID("")}
	for i := range history {
		task.messages[history[i].ID] = true
	}
	for i := range artifacts {
		task.artifacts[artifacts[i].ID] = true
	}
	read := s.rec.read(task, &s.pos, held)
	current := named(t.Status.Message)
	for i := range history {
		if current != nil && current.ID == history[i].ID && equal(current, &history[i]) {
			continue
		}
		m := s.unrelayed(&history[i], read, ages[i])
		if m == nil {
			continue
		}
		if err := s.progress(&a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateWorking, Message: m}}); err != nil {
			return nil, err
		}
	}
	for i := range artifacts {
		u := s.rec.missing(&artifacts[i], read, how)
		if u == nil {
			continue
		}
		u.LastChunk = t.Status.State.Terminal()
		if err := s.relay(u); err != nil {
			return nil, err
		}
	}
	return read, nil
}

// historyOf returns the agent's messages in the upstream's task. Messages with the same id are pieces of one. Some
// servers show the history of the whole context.
func (s *session) historyOf(t *answer.Task) (list []a2a.Message, ages []age) {
	begin, newest := s.indexOf(t.History, s.pos.From), s.indexOf(t.History, s.pos.Said-1)
	at, pieces := map[string]int{}, map[int]bool{}
	for i := range t.History {
		m := &t.History[i]
		if m.Role != a2a.RoleAgent || m.TaskID == "" && i < begin || m.TaskID != "" && m.TaskID != s.pos.Task {
			continue
		}
		if m = named(m); m == nil {
			continue
		}
		if k, ok := at[m.ID]; ok {
			pieces[k] = true
			list[k].Parts = append(list[k].Parts, m.Parts...)
			continue
		}
		at[m.ID] = len(list)
		m.Parts = slices.Clip(m.Parts)
		when := ageUnknown
		if newest >= 0 && i < newest {
			when = beforeNewest
		} else if newest >= 0 {
			when = afterNewest
		}
		list, ages = append(list, *m), append(ages, when)
	}
	for k := range pieces {
		list[k].Parts = fit(join(list[k].Parts))
	}
	return list, ages
}

// indexOf returns the index of the client's message n in the upstream's history, or -1. Some servers give it another
// id.
func (s *session) indexOf(history []a2a.Message, n int) int {
	if n < 0 || n >= len(s.said) {
		return -1
	}
	if i := slices.IndexFunc(history, s.isMessage(n)); i >= 0 {
		return i
	}
	for i := len(history) - 1; i >= 0; i-- {
		if history[i].Role == a2a.RoleUser && equal(&history[i], &s.said[n]) {
			return i
		}
	}
	return -1
}

// artifactsOf returns the artifacts of the upstream's task with their local ids. Artifacts with the same id are chunks
// of one.
func (s *session) artifactsOf(t *answer.Task) (list []a2a.Artifact) {
	at := make(map[string]int, len(t.Artifacts))
	for i := range t.Artifacts {
		a := t.Artifacts[i]
		if k, ok := at[a.ID]; ok {
			list[k].Parts = append(list[k].Parts, a.Parts...)
			continue
		}
		at[a.ID] = len(list)
		a.ID, a.Parts = s.artifactID(a.ID), slices.Clip(a.Parts)
		list = append(list, a)
	}
	return list
}
