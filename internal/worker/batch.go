package worker

import (
	"errors"
	"fmt"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/attempt"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// batch is what a run has reported and not yet written. A checkpoint belongs to the event after it and is saved
// with that event. A checkpoint that is followed by another checkpoint has no event, and is saved by itself. A
// checkpoint that is followed by nothing is dropped: an executor that fails between the two has not done what the
// checkpoint says.
type batch struct {
	events  []a2a.Event
	steps   []a2a.StepRecord
	wait    *a2a.Wait // recorded by the last step
	usage   []a2a.Usage
	bytes   int
	calls   bool      // the newest item is a call
	until   time.Time // when the batch has waited for callWait; zero without a call
	ends    bool      // the last event ends the run
	due     a2a.Raw   // newest checkpoint that may be saved with events
	pending a2a.Raw   // checkpoint whose event has not come yet

	artifacts map[string]bool // ids that the task has
	lease     *tasks.Lease    // for the depth of calls
	journal   *attempt.Journal
	bounds    attempt.Bounds

	// restored returns what sets the artifact of a step back that begins again: see attempt.Restored.
	restored func(pending []a2a.Event, s *a2a.StepRecord) (*a2a.ArtifactUpdate, int, error)

	mayReply bool // a message by itself is an answer
	taskSeen bool // an event was reported that belongs to a task, so the answer is no longer a direct reply
	reply    bool // the last event is a direct reply

	first, last int // numbers of the events in their run
}

// The most that one append writes: events that clients see and reports of usage, steps, and bytes.
const (
	batchEvents = 64
	batchSteps  = 256
	batchBytes  = 1 << 20
)

// callWait is how long a batch waits for what follows its first call, so that one append writes all of it. An agent
// that calls a task calls more of them, or waits for it.
const callWait = 2 * time.Millisecond

// gather adds an item, and the items that have arrived after it. It waits for more only after a call.
// The error ends the run after the gathered events.
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
		if b.ends || b.full() {
			return nil
		}
		var more bool
		if it, open, more = b.next(items); !more {
			return nil
		}
	}
}

func (b *batch) full() bool {
	return len(b.events)+len(b.usage) >= batchEvents || len(b.steps) >= batchSteps || b.bytes >= batchBytes
}

// next returns the next item if it has arrived, or arrives soon enough. Without more, there is none yet.
func (b *batch) next(items <-chan item) (it item, open, more bool) {
	select {
	case it, open = <-items:
		return it, open, true
	default:
	}
	left := time.Until(b.until)
	if !b.calls || left <= 0 {
		return it, false, false
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case it, open = <-items:
		return it, open, true
	case <-timer.C:
		return it, false, false
	}
}

func (b *batch) add(it item) error {
	b.bytes += it.size
	if b.last = it.n; b.first == 0 {
		b.first = it.n
	}
	if _, b.calls = it.event.(*a2a.Call); b.calls && b.until.IsZero() {
		b.until = time.Now().Add(callWait)
	}
	if c, ok := it.event.(*a2a.Checkpoint); ok {
		if b.pending != nil {
			b.due = b.pending
		}
		b.pending = c.Body
		return nil
	}
	if m, ok := it.event.(*a2a.Message); ok {
		if err := b.admitReply(); err != nil {
			return invalidEvent(it.n, err)
		}
		it.event, b.reply = &a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateCompleted, Message: m}}, true
	}
	var err error
	switch e := it.event.(type) {
	case *a2a.Step:
		err = b.record(it.n, e)
	case *a2a.Call:
		err = b.record(it.n, e)
	case *a2a.Wait:
		if err = b.record(it.n, e); err == nil {
			b.wait = e
			if e.Status != nil {
				err = b.addEvent(it.n, &a2a.StatusUpdate{Status: *e.Status})
			}
		}
	case *a2a.Usage:
		b.usage = append(b.usage, *e)
	default:
		err = b.addEvent(it.n, e)
	}
	if err != nil {
		return err
	}
	b.ends = a2a.EndsRun(it.event)
	if b.pending != nil {
		b.due, b.pending = b.pending, nil
	}
	return nil
}

// addEvent adds the n-th event of the run, which clients see.
func (b *batch) addEvent(n int, e a2a.Event) error {
	b.taskSeen = b.taskSeen || tasks.DecidesAnswer(e)
	if err := b.admit(e); err != nil {
		return executor.Permanent(fmt.Errorf("event %d: %w", n, err))
	}
	b.events = append(b.events, e)
	return nil
}

// record adds the n-th event of the run, which is stored as a step.
func (b *batch) record(n int, e a2a.Event) error {
	s, err := b.journal.Record(e, b.lease.LastSeq+int64(len(b.events)))
	if s != nil && err == nil {
		err = b.bounds.AdmitCall(b.lease, s, b.journal.Calls())
	}
	if err != nil {
		return invalidEvent(n, err)
	}
	if s == nil {
		return nil
	}
	if s.Again {
		u, size, err := b.restored(b.events, s)
		if err != nil {
			return err
		}
		if u != nil {
			b.bytes += size
			if err := b.addEvent(n, u); err != nil {
				return err
			}
		}
	}
	b.steps = attempt.AddStep(b.steps, *s)
	return nil
}

// written empties the batch, except for a checkpoint that waits for its event.
func (b *batch) written() {
	b.events, b.bytes, b.ends, b.due, b.first = nil, len(b.pending), false, nil, 0
	b.steps, b.wait, b.usage = nil, nil, nil
	b.calls, b.until = false, time.Time{}
}

// numbers names the events of the batch, so that the agent's author can find the bad one.
func (b *batch) numbers() string {
	if b.first == b.last {
		return fmt.Sprintf("event %d", b.last)
	}
	return fmt.Sprintf("one of the events %d to %d", b.first, b.last)
}

// admitReply checks that a message may be an answer by itself: only if its agent has direct_reply, and only instead
// of a task, not after events of one (T-37 in docs/reference/protocol.md).
func (b *batch) admitReply() error {
	switch {
	case !b.mayReply:
		return attempt.ErrReply
	case b.taskSeen:
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
	if err := b.bounds.TooMany(len(b.artifacts) + 1); err != nil {
		return err
	}
	b.artifacts[u.Artifact.ID] = true
	return nil
}

// prepare turns the n-th event of the executor into an item.
func prepare(n int, e a2a.Event) item {
	it := item{n: n}
	var err error
	if m, ok := e.(*a2a.Message); ok {
		it.event, it.size, err = attempt.PrepareReply(m) // add checks whether it may reply
	} else {
		it.event, it.size, err = attempt.Prepare(e)
	}
	if err != nil {
		return item{n: n, err: invalidEvent(n, err)}
	}
	return it
}

// invalidEvent ends a run because of its n-th event. The agent's author has only this text to find the event.
func invalidEvent(n int, err error) error { return executor.InvalidResponse("event %d: %w", n, err) }
