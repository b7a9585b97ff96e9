package worker

import (
	"fmt"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/attempt"
	"github.com/a2ad/a2ad/internal/executor"
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

	artifacts map[string]bool // ids that the task has
	bounds    attempt.Bounds
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

// admit counts a new artifact.
func (b *batch) admit(e a2a.Event) error {
	u, ok := e.(*a2a.ArtifactUpdate)
	if !ok || b.artifacts[u.Artifact.ID] {
		return nil
	}
	if err := b.bounds.TooMany(len(b.artifacts) + 1); err != nil {
		return err
	}
	b.artifacts[u.Artifact.ID] = true
	return nil
}

// prepare makes an item of an event of the executor.
func prepare(e a2a.Event) (it item) {
	var err error
	if it.event, it.size, err = attempt.Prepare(e); err != nil {
		it = item{err: executor.Permanent(fmt.Errorf("invalid agent response: %w", err))}
	}
	return it
}
