package a2ad

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// StepOption is an option of a step.
type StepOption func(*stepOptions)

type stepOptions struct {
	args    []any
	retries int
	backoff time.Duration
	timeout time.Duration
	wrong   error
}

// Input names the values that the step depends on. If they differ when the agent runs again, the step returns a
// [NondeterminismError]. Values are compared as JSON; one without a JSON form is compared by the name of its type.
func Input(values ...any) StepOption { return func(o *stepOptions) { o.args = values } }

// Retries is how often the function is called again after it has failed, from 0 to 1,000. The default is 0.
func Retries(n int) StepOption {
	var wrong error
	if n < 0 || n > maxRetries {
		wrong = misuse("Retries must be between 0 and %d, not %d", maxRetries, n)
	}
	return func(o *stepOptions) { o.retries, o.wrong = n, firstOf(o.wrong, wrong) }
}

// Backoff is the pause before the first retry. It doubles with each further one, up to an hour. The default is one
// second. From ten seconds on, no worker is occupied during the pause.
func Backoff(d time.Duration) StepOption {
	wrong := checkDuration(d, "Backoff")
	return func(o *stepOptions) { o.backoff, o.wrong = d, firstOf(o.wrong, wrong) }
}

// Timeout is how long each call of the function may take. Then its context ends, and the call counts as failed, even if
// it returns a result later. A negative duration, such as one of [time.Until], counts as a millisecond.
func Timeout(d time.Duration) StepOption {
	if d < 0 {
		d = time.Millisecond
	}
	wrong := checkDuration(d, "Timeout")
	if wrong == nil && d == 0 {
		wrong = misuse("Timeout must not be 0")
	}
	return func(o *stepOptions) { o.timeout, o.wrong = d, firstOf(o.wrong, wrong) }
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Step calls fn, records what it returns, and returns that. When the agent runs again, Step returns the recorded value
// without calling fn. If the attempt ends before the value is recorded, fn is called again.
//
// The value must convert to at most 1 MiB of JSON. It is returned as read from JSON, also in the attempt that calls fn.
// Inside fn, use only [Task.Write], [ArtifactWriter.Write] and [Task.Usage], with the context that fn gets. These may
// be called from several goroutines, as long as fn waits for them.
//
// If fn returns an error, panics, or takes longer than the [Timeout], it is called again up to the number of [Retries].
// Then Step returns a [StepError], which does not wrap the error of fn. If fn does not return within 2 seconds after
// its timeout, Step no longer waits for it, and nothing that it writes is recorded. If fn returns [Retry], [Fail] or
// [Reject], also wrapped in another error, it is not called again, and Step returns that one.
//
// If ctx has ended when fn returns an error, Step returns the cause, and nothing is recorded. What fn has completed is
// recorded even then.
//
// If the agent handles the error, or the retries are used up, the failure is recorded. Otherwise the attempt fails, and
// the next one does the step again. A mistake that is found after fn was called fails the step for good, so that the
// work is not repeated: a result that cannot be recorded, or a wrong call of this package in fn.
func Step[T any](
	ctx context.Context, t *Task, name string, fn func(ctx context.Context) (T, error), options ...StepOption,
) (T, error) {
	var value T
	work := func(ctx context.Context) (any, error) { return fn(ctx) }
	if fn == nil {
		work = nil
	}
	read := func(data json.RawMessage) error {
		var read T // what a try before has left must not remain
		err := json.Unmarshal(data, &read)
		value = read
		return err
	}
	err := t.s.do(ctx, func() error { return t.s.step(ctx, name, work, read, options) })
	if err != nil {
		var none T
		return none, err
	}
	return value, nil
}

// Do is [Step] for a function without a result.
func Do(ctx context.Context, t *Task, name string, fn func(ctx context.Context) error, options ...StepOption) error {
	work := func(ctx context.Context) (any, error) { return nil, fn(ctx) }
	if fn == nil {
		work = nil
	}
	read := func(json.RawMessage) error { return nil }
	return t.s.do(ctx, func() error { return t.s.step(ctx, name, work, read, options) })
}

// work is the function of a step.
type work func(ctx context.Context) (any, error)

// reader stores a value that is read from JSON.
type reader func(data json.RawMessage) error

func (s *session) step(ctx context.Context, name string, fn work, read reader, options []StepOption) error {
	o := stepOptions{backoff: time.Second}
	for _, set := range options {
		set(&o)
	}
	if fn == nil {
		return misuse("step %q has no function", name)
	}
	if err := firstOf(o.wrong, checkName(name, "the name of a step"), outsideSteps(ctx, s, "Step")); err != nil {
		return err
	}
	key, err := s.key(ctx, name)
	if err != nil {
		return err
	}
	t := &try{session: s, key: key, name: name, input: inputs(o.args)}
	old, err := s.recorded(key, "step", name, digest(t.input))
	if err != nil {
		return err
	}
	if old != nil && old.Artifact != "" {
		if err := s.stream(ctx, old.Artifact); err != nil {
			return err
		}
		t.artifact = old.Artifact
		s.continueSegment(old.Artifact, old)
	}
	s.closeSegments() // now, so that it does not depend on how the step ends
	switch {
	case old != nil && old.ended() && old.failed():
		return recordedError(name, old.Error)
	case old != nil && old.ended():
		if err := read(old.Result); err != nil {
			return misuse("the recorded result of step %q cannot be read back: %v", name, err)
		}
		return nil
	}
	if err := t.beginAgain(ctx); err != nil {
		return err
	}
	if old != nil && old.NextAt != nil {
		t.tried = old.Attempts
		if err := s.pauseUntil(ctx, key, t.tried, *old.NextAt); err != nil {
			return err
		}
	}
	ctx, done := s.startSpan(ctx, Span{Kind: SpanStep, Name: name, Key: key})
	err = t.run(ctx, fn, read, &o)
	done(SpanEnd{Err: err})
	return err
}

const (
	// longPause is the pause between two tries from which on the task waits without a worker.
	longPause    = 10 * time.Second
	longestPause = time.Hour
)

// backoff returns the pause after a number of tries.
func (o *stepOptions) pause(tried int) time.Duration {
	d := min(o.backoff, longestPause)
	for range tried - 1 {
		if d = min(2*d, longestPause); d == 0 || d == longestPause {
			break
		}
	}
	return d
}

// pauseUntil waits until the time of the next try: in the process, or without a worker if that is long.
func (s *session) pauseUntil(ctx context.Context, step string, tried int, at time.Time) error {
	first := fmt.Sprintf("%s/pause#%d", step, tried)
	key := first
	for n := 2; ; n++ {
		old := s.known[key]
		if old == nil {
			break
		}
		if old.over().By != "tasks" {
			return nil
		}
		key = fmt.Sprintf("%s.%d", first, n) // a call of another branch has ended before the pause
	}
	now := s.clock.Now()
	delay := min(max(at.Sub(now), 0), longestPause) // the clock may have been set back
	if delay < longPause {
		return s.clock.Sleep(ctx, delay)
	}
	p := pause{until: now.Add(delay), key: key}
	if b := branchOf(ctx, s); b != nil {
		return b.group.block(ctx, b.number, p, delay)
	}
	return s.begin(ctx, p, key, false)
}

// recordedError returns the recorded failure of a step. Another library may have recorded it.
func recordedError(name string, data json.RawMessage) error {
	var e stepFailure
	if json.Unmarshal(data, &e) != nil {
		var text string
		if json.Unmarshal(data, &text) != nil {
			text = string(data)
		}
		e = stepFailure{Type: "Error", Message: text}
	}
	for kind, name := range endings {
		if e.Type == name {
			return &ending{kind: kind, reason: e.Message}
		}
	}
	return &StepError{Step: name, Type: e.Type, Text: e.Message, Recorded: true}
}

// endings are the types of recorded failures that end an attempt or a task.
var endings = map[error]string{ErrRetry: "a2ad.Retry", ErrFail: "a2ad.Fail", ErrReject: "a2ad.Reject"}
