package worker

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/store"
)

// batch is what a run has reported and not yet written. A checkpoint belongs to the event
// that follows it and is saved with that; one that is followed by another checkpoint has
// none, and is saved by itself. One that is followed by nothing is dropped: an executor that
// fails between the two has not done what the checkpoint says.
type batch struct {
	events  []a2a.Event
	bytes   int
	ends    bool    // the last event ends the turn
	due     a2a.Raw // newest checkpoint that may be saved with events
	pending a2a.Raw // checkpoint whose event has not come yet

	artifacts    map[string]bool // ids that the task has
	maxArtifacts int             // 0: no limit

	mayReply bool // a message by itself is an answer
	told     bool // something was reported that tells of a task
	reply    bool // the last event is a direct reply
}

// At most so much is written in one append.
const (
	batchEvents = 64
	batchBytes  = 1 << 20
)

// gather adds an item, and those that wait behind it, without waiting for more. The error is
// what ends the run behind the events gathered.
func (b *batch) gather(it item, open bool, items <-chan item) error {
	for {
		switch {
		case !open:
			return errNoEnd
		case it.err != nil:
			return agentError{it.err}
		}
		if err := b.add(it); err != nil {
			return err
		}
		if b.ends || len(b.events) >= batchEvents || b.bytes >= batchBytes {
			return nil
		}
		select {
		case it, open = <-items:
		default:
			return nil
		}
	}
}

func (b *batch) add(it item) error {
	b.bytes += it.size
	if c, ok := it.event.(*a2a.Checkpoint); ok {
		if b.pending != nil {
			b.due = b.pending
		}
		b.pending = c.Body
		return nil
	}
	if m, ok := it.event.(*a2a.Message); ok {
		if err := b.admitReply(); err != nil {
			return executor.Permanent(fmt.Errorf("invalid agent response: %w", err))
		}
		it.event, b.reply = &a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateCompleted, Message: m}}, true
	}
	b.told = b.told || store.Tells(it.event)
	if err := b.admit(it.event); err != nil {
		return executor.Permanent(err)
	}
	b.events = append(b.events, it.event)
	if b.pending != nil {
		b.due, b.pending = b.pending, nil
	}
	if s, ok := it.event.(*a2a.StatusUpdate); ok {
		b.ends = s.Status.State.EndsTurn()
	}
	return nil
}

// written empties the batch, but for a checkpoint that waits for its event.
func (b *batch) written() {
	b.events, b.bytes, b.ends, b.due = nil, len(b.pending), false, nil
}

// admitReply says whether a message may stand by itself: only if its agent is marked so, and
// only in place of a task, not after parts of one (T-37 in docs/protocol.md).
func (b *batch) admitReply() error {
	switch {
	case !b.mayReply:
		return errors.New("a message by itself: report a status with it, or set direct_reply")
	case b.told:
		return errors.New("a message by itself after other events: report a status with it")
	}
	return nil
}

// admit counts a new artifact.
func (b *batch) admit(e a2a.Event) error {
	u, ok := e.(*a2a.ArtifactUpdate)
	if !ok || b.artifacts[u.Artifact.ID] {
		return nil
	}
	if b.maxArtifacts > 0 && len(b.artifacts) >= b.maxArtifacts {
		return fmt.Errorf("the task would have more than %d artifacts", b.maxArtifacts)
	}
	b.artifacts[u.Artifact.ID] = true
	return nil
}

// Limits of one event.
const (
	maxParts = 1000
	maxPart  = 1 << 20
	maxID    = 256
)

// prepare checks an event and makes an item of a copy of it, with what an agent may leave
// out: the event is the executor's, which may yield it in another run at the same time. The
// size is about that of the event in bytes.
func prepare(e a2a.Event) item {
	it, err := copyEvent(e)
	if err != nil {
		it.err = executor.Permanent(fmt.Errorf("invalid agent response: %w", err))
	}
	return it
}

func copyEvent(e a2a.Event) (item, error) {
	switch e := e.(type) {
	case *a2a.Checkpoint:
		if e != nil {
			return item{event: &a2a.Checkpoint{Body: e.Body}, size: len(e.Body)}, nil
		}
	case *a2a.StatusUpdate:
		if e != nil {
			return copyStatus(*e)
		}
	case *a2a.ArtifactUpdate:
		if e != nil {
			return copyArtifact(*e)
		}
	case *a2a.Message:
		if e != nil {
			m, n, err := copyMessage(*e)
			return item{event: m, size: n}, err
		}
	}
	return item{}, fmt.Errorf("an event of type %T without content", e)
}

func copyArtifact(u a2a.ArtifactUpdate) (item, error) {
	a := &u.Artifact
	if a.ID == "" {
		return item{}, errors.New("an artifact without an id")
	}
	if err := checkID("artifactId", a.ID); err != nil {
		return item{}, err
	}
	a.Name, a.Description, a.Extensions = cleanText(a.Name), cleanText(a.Description), cleanList(a.Extensions)
	var n int
	var err error
	a.Parts, n, err = copyParts(a.Parts)
	return item{event: &u, size: n + len(u.Metadata) + len(a.Metadata)}, err
}

func copyStatus(u a2a.StatusUpdate) (item, error) {
	switch s := u.Status.State; {
	case s == a2a.StateSubmitted || s == a2a.StateCanceled || !s.Valid():
		return item{}, fmt.Errorf("an agent cannot set the state %q", s)
	case u.Status.Message == nil:
		return item{event: &u, size: len(u.Metadata)}, nil
	}
	m, n, err := copyMessage(*u.Status.Message)
	u.Status.Message = m
	return item{event: &u, size: n + len(u.Metadata)}, err
}

func copyMessage(m a2a.Message) (_ *a2a.Message, size int, err error) {
	m.Role = a2a.RoleAgent
	if m.ID == "" {
		m.ID = store.NewUID().String()
	}
	if err := checkID("messageId", m.ID); err != nil {
		return nil, 0, err
	}
	m.Extensions, m.ReferenceTaskIDs = cleanList(m.Extensions), cleanList(m.ReferenceTaskIDs)
	m.Parts, size, err = copyParts(m.Parts)
	return &m, size + len(m.Metadata), err
}

func cleanList(list []string) []string {
	list = slices.Clone(list)
	for i := range list {
		list[i] = cleanText(list[i])
	}
	return list
}

func checkID(what, id string) error {
	if len(id) > maxID || cleanText(id) != id {
		return fmt.Errorf("%s is longer than %d bytes, not UTF-8 or has a NUL: %.40q", what, maxID, id)
	}
	return nil
}

func copyParts(parts []a2a.Part) (_ []a2a.Part, n int, err error) {
	if len(parts) == 0 || len(parts) > maxParts {
		return nil, 0, fmt.Errorf("%d parts: must be 1 to %d", len(parts), maxParts)
	}
	parts = slices.Clone(parts)
	for i := range parts {
		p := &parts[i]
		if p.Kind < a2a.PartText || p.Kind > a2a.PartData || p.Kind == a2a.PartData && len(p.Data) == 0 {
			return nil, 0, fmt.Errorf("part %d has no content", i)
		}
		p.Text = strings.ToValidUTF8(p.Text, "\uFFFD")
		p.MediaType, p.Filename = cleanText(p.MediaType), cleanText(p.Filename)
		size := len(p.Text) + len(p.Data) + len(p.Metadata)
		if size > maxPart {
			return nil, 0, fmt.Errorf("part %d is larger than %d bytes", i, maxPart)
		}
		n += size
	}
	return parts, n, nil
}
