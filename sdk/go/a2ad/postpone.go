package a2ad

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// The key of the step that says why a task is postponed, and the pauses until its agent runs again.
const (
	postponedKey  = "postponed"
	firstPostpone = 5 * time.Second
	mostPostpone  = 5 * time.Minute
)

// postpone records why the agent cannot go on, and lets the task wait for a corrected program. Its client sees no
// failure, and no attempt is counted.
func (s *session) postpone(ctx context.Context, wrong *UsageError, log *slog.Logger) runEnd {
	log.ErrorContext(ctx, "the program is wrong", "agent", s.run.Agent, "task_id", s.run.TaskID,
		"attempt", s.run.Attempt, "err", wrong)
	s.drop()
	events, err := s.postponement(wrong)
	if err == nil {
		// The session may have been stopped, by a refusal. So its events are sent directly.
		_, err = s.report(context.WithoutCancel(ctx), s.run, events)
	}
	var end *stopped
	switch {
	case err == nil:
		return runEnd{outcome: postponed, reason: wrong.Error(), wrong: wrong}
	case errors.As(err, &end):
		return runEnd{outcome: end.outcome, reason: end.text}
	case errors.Is(err, ErrStopped): // of a test
		return runEnd{outcome: lost, reason: err.Error()}
	}
	// Such as a task with too many steps.
	return runEnd{outcome: retry, reason: fmt.Sprintf("%v (%v)", wrong, err)}
}

// postponement is the step that records the mistake, and the wait after it.
func (s *session) postponement(wrong *UsageError) ([]json.RawMessage, error) {
	times := 1
	if old := s.known[postponedKey]; old != nil {
		times += old.Attempts
	}
	pause := min(firstPostpone<<min(times-1, 10), mostPostpone)
	at := s.clock.Now().Add(pause).UTC()
	step, err := json.Marshal(event{Step: &stepEvent{
		Key: postponedKey, Name: postponedKey, Error: encodeError(wrong), Attempts: times, NextAt: &at,
	}})
	if err != nil {
		return nil, err
	}
	wait, err := json.Marshal(event{Wait: &waitEvent{
		Key: fmt.Sprintf("%s/pause#%d", postponedKey, times), For: pause.String(),
	}})
	return []json.RawMessage{step, wait}, err
}
