package a2ad

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// Sleep waits for at most ten years, without occupying a worker. A negative duration, such as one of [time.Until] when
// the function runs again, counts as 0.
func (t *Task) Sleep(ctx context.Context, d time.Duration) error {
	return t.s.do(ctx, func() error {
		d = max(d, 0)
		if err := checkDuration(d, "the duration"); err != nil {
			return err
		}
		_, err := t.s.waitFor(ctx, "sleep", waitRecord{For: waitSeconds(d)})
		return err
	})
}

// SleepUntil waits until a time, from 1970 to 9998, without occupying a worker.
func (t *Task) SleepUntil(ctx context.Context, at time.Time) error {
	return t.s.do(ctx, func() error {
		if err := checkMoment(at, "the time"); err != nil {
			return err
		}
		_, err := t.s.waitFor(ctx, "sleep", waitRecord{Until: stamp(at)})
		return err
	})
}

// Signal waits for a signal, without occupying a worker, and returns its value. It returns [ErrTimeout] if none comes
// within the time, at most ten years; 0 means for ever. A negative duration, such as one of [time.Until], counts as a
// millisecond.
func Signal[T any](ctx context.Context, t *Task, name string, within time.Duration) (value T, err error) {
	if within < 0 {
		within = time.Millisecond
	}
	err = t.s.do(ctx, func() error {
		if err := firstOf(checkName(name, "the name of a signal"), checkDuration(within, "the time")); err != nil {
			return err
		}
		w := waitRecord{condition: condition{Signal: name}}
		if within > 0 {
			w.For = waitSeconds(within)
		}
		r, err := t.s.waitFor(ctx, "signal:"+name, w)
		switch {
		case err != nil:
			return err
		case r.By != "signal":
			return fmt.Errorf("%w: the signal %q", ErrTimeout, name)
		case r.Value == nil:
			return nil
		}
		if err := json.Unmarshal(r.Value, &value); err != nil {
			return fmt.Errorf("read the signal %q: %w", name, err)
		}
		return nil
	})
	return value, err
}

// waitSeconds returns a duration for the server, which refuses a wait of zero.
func waitSeconds(d time.Duration) string {
	return strconv.FormatFloat(max(d, time.Millisecond).Seconds(), 'f', 3, 64) + "s"
}

// waitFor waits under the next key of a name.
func (s *session) waitFor(ctx context.Context, name string, w waitRecord) (waitResult, error) {
	err := outsideSteps(ctx, s, "a wait")
	if err == nil && branchOf(ctx, s) != nil {
		err = misuse("Gather can contain steps and calls, but no other waits")
	}
	if err != nil {
		return waitResult{}, err
	}
	if w.Key, err = s.key(ctx, name); err != nil {
		return waitResult{}, err
	}
	return s.wait(ctx, w)
}

// wait returns the result of a wait that has ended. Otherwise it begins the wait, which ends the run.
func (s *session) wait(ctx context.Context, w waitRecord) (waitResult, error) {
	w.Input = fingerprint(mustCompact(w.condition))
	old, err := s.recorded(w.Key, "wait", "", digest(w.Input))
	if err != nil {
		return waitResult{}, err
	}
	if old != nil && old.ended() {
		s.closeSegments()
		return old.over(), nil
	}
	if err := s.addWait(ctx, w); err != nil {
		return waitResult{}, err
	}
	if err := s.store(ctx); err != nil {
		return waitResult{}, err
	}
	s.stop(&stopped{outcome: waiting, text: "the task waits", line: s.callingLine(ctx)})
	return waitResult{}, s.check()
}

// addWait adds a wait, unless the agent has made a mistake or its function has returned.
func (s *session) addWait(ctx context.Context, w waitRecord) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mistake != nil {
		return s.mistake
	}
	return s.addLocked(ctx, mustCompact(waitEvent{w}))
}

// pause is what a run or a branch of Gather waits for: calls, or the next try of a step.
type pause struct {
	calls []string
	until time.Time // zero: only for calls
	key   string    // of the wait that ends at that time
}

// begin lets the task wait, or a branch of Gather. It always returns an error.
func (s *session) begin(ctx context.Context, p pause, key string, anyOf bool) error {
	if b := branchOf(ctx, s); b != nil {
		return b.group.block(ctx, b.number, p, 0)
	}
	w := waitRecord{Key: key, condition: condition{Tasks: p.calls}}
	if anyOf && len(p.calls) > 0 {
		w.Mode = "any"
	}
	if !p.until.IsZero() { // a duration, because the clocks of worker and server may differ
		w.For = waitSeconds(max(p.until.Sub(s.clock.Now()), 0))
	}
	if _, err := s.wait(ctx, w); err != nil {
		return err
	}
	return misuse("the wait %q ended before what it is for", key)
}
