package worker

import (
	"errors"
	"fmt"
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

func (b *batch) add(e a2a.Event) error {
	if c, ok := e.(*a2a.Checkpoint); ok {
		if b.pending != nil {
			b.due = b.pending
		}
		b.pending = c.Body
		b.bytes += len(c.Body)
		return nil
	}
	size, err := prepare(e)
	if err != nil {
		return executor.Permanent(fmt.Errorf("invalid agent response: %w", err))
	}
	if err := b.admit(e); err != nil {
		return executor.Permanent(err)
	}
	b.events = append(b.events, e)
	b.bytes += size
	if b.pending != nil {
		b.due, b.pending = b.pending, nil
	}
	if s, ok := e.(*a2a.StatusUpdate); ok {
		b.ends = s.Status.State.EndsTurn()
	}
	return nil
}

// written empties the batch, but for a checkpoint that waits for its event.
func (b *batch) written() {
	b.events, b.bytes, b.ends, b.due = nil, len(b.pending), false, nil
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

// prepare checks an event and fills in what an agent may leave out. It returns about how
// many bytes the event has.
func prepare(e a2a.Event) (int, error) {
	switch e := e.(type) {
	case *a2a.StatusUpdate:
		return prepareStatus(e)
	case *a2a.ArtifactUpdate:
		if e.Artifact.ID == "" {
			return 0, errors.New("an artifact without an id")
		}
		if err := checkID("artifactId", e.Artifact.ID); err != nil {
			return 0, err
		}
		e.Artifact.Name, e.Artifact.Description = cleanText(e.Artifact.Name), cleanText(e.Artifact.Description)
		n, err := prepareParts(e.Artifact.Parts)
		return n + len(e.Metadata) + len(e.Artifact.Metadata), err
	case *a2a.Message:
		return 0, errors.New("a message by itself: report a status with it")
	}
	return 0, fmt.Errorf("an event of type %T", e)
}

func prepareStatus(e *a2a.StatusUpdate) (int, error) {
	switch s := e.Status.State; {
	case s == a2a.StateSubmitted || s == a2a.StateCanceled || !s.Valid():
		return 0, fmt.Errorf("an agent cannot set the state %q", s)
	case e.Status.Message == nil:
		return len(e.Metadata), nil
	}
	m := *e.Status.Message
	m.Role = a2a.RoleAgent
	if m.ID == "" {
		m.ID = store.NewUID().String()
	}
	e.Status.Message = &m
	if err := checkID("messageId", m.ID); err != nil {
		return 0, err
	}
	n, err := prepareParts(m.Parts)
	return n + len(e.Metadata) + len(m.Metadata), err
}

func checkID(what, id string) error {
	if len(id) > maxID || cleanText(id) != id {
		return fmt.Errorf("%s is longer than %d bytes, not UTF-8 or has a NUL: %.40q", what, maxID, id)
	}
	return nil
}

func prepareParts(parts []a2a.Part) (n int, err error) {
	if len(parts) == 0 || len(parts) > maxParts {
		return 0, fmt.Errorf("%d parts: must be 1 to %d", len(parts), maxParts)
	}
	for i := range parts {
		p := &parts[i]
		if p.Kind < a2a.PartText || p.Kind > a2a.PartData || p.Kind == a2a.PartData && len(p.Data) == 0 {
			return 0, fmt.Errorf("part %d has no content", i)
		}
		p.Text = strings.ToValidUTF8(p.Text, "\uFFFD")
		p.MediaType, p.Filename = cleanText(p.MediaType), cleanText(p.Filename)
		size := len(p.Text) + len(p.Data) + len(p.Metadata)
		if size > maxPart {
			return 0, fmt.Errorf("part %d is larger than %d bytes", i, maxPart)
		}
		n += size
	}
	return n, nil
}
