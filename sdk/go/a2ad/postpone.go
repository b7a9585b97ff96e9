package a2ad

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// The pauses until the agent of a postponed task runs again.
const (
	firstPostpone = 5 * time.Second
	mostPostpone  = 5 * time.Minute
)

// drop drops what was not sent, because the next attempt does it again. Only its usage counts. What is being sent is
// stored first: the run must not end before.
func (s *session) drop() {
	s.mu.Lock()
	var usage []json.RawMessage
	add := func(events []json.RawMessage) {
		for _, e := range events {
			if bytes.HasPrefix(e, []byte(`{"usage":`)) {
				usage = append(usage, e)
			}
		}
	}
	for _, h := range s.held {
		add(h.events)
	}
	for _, u := range s.pending {
		add(u.events)
	}
	s.pending, s.held, s.segments, s.bytes = nil, nil, nil, 0
	s.mu.Unlock()
	s.sent(s.sendCtx)
	if len(usage) > 0 {
		_, _ = s.report(s.sendCtx, s.run, usage, "usage") // if it is lost, so is the lease
	}
}

// postpone records a mistake in the program, and lets the task wait for a corrected one. That counts no attempt. What
// the agent has done until then is recorded first.
func (s *session) postpone(ctx context.Context, wrong error) runEnd {
	s.logMistake(ctx, wrong)
	s.refuse(ctx, wrong)
	s.waitForSteps()
	if err := s.store(ctx); err != nil && !isMistake(err) {
		return s.ended(err)
	}
	s.drop()
	_, err := s.report(s.sendCtx, s.run, s.postponement(wrong), postponedKey)
	switch {
	case err == nil:
		return runEnd{outcome: postponed, reason: wrong.Error(), wrong: wrong}
	case isMistake(err): // such as a task with too many steps
		return s.again(fmt.Sprintf("%v (%v)", wrong, err))
	}
	return s.ended(err)
}

// ended returns the end of a run that cannot report any more.
func (s *session) ended(err error) runEnd {
	if stop := stopOf(err); stop != nil {
		return runEnd{outcome: stop.outcome, reason: stop.Error()}
	}
	return runEnd{outcome: lost, reason: err.Error()}
}

// waitForSteps waits until the steps in progress have ended and are recorded.
func (s *session) waitForSteps() {
	s.mu.Lock()
	steps := slices.Clone(s.steps)
	s.mu.Unlock()
	for _, ended := range steps {
		select {
		case <-ended:
		case <-s.done: // so nothing more can be recorded
		}
	}
}

// postponement is the step that records the mistake, and the wait after it.
func (s *session) postponement(wrong error) []json.RawMessage {
	times := 1
	if old := s.known[postponedKey]; old != nil {
		times += old.Attempts
	}
	pause := min(firstPostpone<<min(times-1, 20), mostPostpone)
	return []json.RawMessage{
		mustCompact(stepEvent{stepRecord{
			Key: postponedKey, Name: postponedKey, Attempts: times, NextAt: stamp(s.clock.Now().Add(pause)),
			Error: &stepFailure{"UsageError", clean(wrong.Error(), maxReason)},
		}}),
		mustCompact(waitEvent{waitRecord{
			Key: fmt.Sprintf("%s/pause#%d", postponedKey, times), For: waitSeconds(pause),
		}}),
	}
}
