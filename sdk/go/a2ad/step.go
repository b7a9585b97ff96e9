package a2ad

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// longPause is the pause between two tries of a step from which on the task waits without a worker.
const longPause = 10 * time.Second

// StepOption is an option of a step.
type StepOption func(*stepOptions)

type stepOptions struct {
	input   any
	retries int
	backoff time.Duration
	timeout time.Duration
}

// Input is what the step depends on. If it differs when the agent runs again, the program has changed.
func Input(v any) StepOption { return func(o *stepOptions) { o.input = v } }

// Retries is how often the function is called again after it has failed. The default is 0.
func Retries(n int) StepOption { return func(o *stepOptions) { o.retries = n } }

// Backoff is the pause before the first retry, doubled from there. The default is one second.
func Backoff(d time.Duration) StepOption { return func(o *stepOptions) { o.backoff = d } }

// Timeout ends the context of each call of the function.
func Timeout(d time.Duration) StepOption { return func(o *stepOptions) { o.timeout = d } }

// runningStep is a step whose function runs now.
type runningStep struct {
	t     *Task
	key   string
	name  string
	input json.RawMessage

	mu       sync.Mutex
	artifact string  // guarded by mu: that it writes
	usage    []Usage // guarded by mu: that this call of the function has reported
}

func (s *runningStep) addUsage(u Usage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.usage = append(s.usage, u)
}

// takeUsage returns what the call of the function has reported, and forgets it.
func (s *runningStep) takeUsage() []Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.usage
	s.usage = nil
	return taken
}

// writes notes that the function writes an artifact, and records that the step begins if it is the first time.
func (s *runningStep) writes(ctx context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.artifact {
	case id:
		return nil
	case "":
		s.artifact = id
		return s.t.s.add(ctx, s.record(stepEvent{Artifact: id}))
	}
	return misuse("step %q writes %q and %q; a step writes one artifact", s.name, s.artifact, id)
}

type stepKey struct{}

func stepOf(ctx context.Context) *runningStep {
	s, _ := ctx.Value(stepKey{}).(*runningStep)
	return s
}

func outsideSteps(ctx context.Context, t *Task, what string) error {
	if s := stepOf(ctx); s != nil && s.t == t {
		return misuse("%s inside the step %q: a step can only write and report usage", what, s.name)
	}
	return nil
}

// Step calls a function and records what it returns. When the agent runs again, it gets the recorded value and the
// function is not called. The value is stored as JSON.
//
// If the function fails, Step returns a [StepError]. With [Retries], the function is called again that many times
// first. If the agent handles the StepError, the failure is recorded. If the agent returns it, the attempt fails, and
// the next one does the step again, unless its retries were used up.
func Step[T any](
	ctx context.Context, t *Task, name string, fn func(ctx context.Context) (T, error), options ...StepOption,
) (result T, err error) {
	if fn == nil {
		return result, misuse("step %q has no function", name)
	}
	data, err := t.step(ctx, name, func(ctx context.Context) (any, error) { return fn(ctx) }, options)
	if err != nil {
		return result, err
	}
	if err := json.Unmarshal(data, &result); err != nil {
		return result, misuse("the result of step %q is not a %T: %v", name, result, err)
	}
	return result, nil
}

// Do is Step for a function without a result.
func Do(ctx context.Context, t *Task, name string, fn func(ctx context.Context) error, options ...StepOption) error {
	if fn == nil {
		return misuse("step %q has no function", name)
	}
	_, err := Step(ctx, t, name, func(ctx context.Context) (any, error) { return nil, fn(ctx) }, options...)
	return err
}

func (t *Task) step(
	ctx context.Context, name string, fn func(ctx context.Context) (any, error), options []StepOption,
) (json.RawMessage, error) {
	o := stepOptions{backoff: time.Second}
	for _, set := range options {
		set(&o)
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	if err := checkName("Step: the name", name); err != nil {
		return nil, err
	}
	if err := outsideSteps(ctx, t, "Step"); err != nil {
		return nil, err
	}
	s := &runningStep{t: t, name: name}
	sha := ""
	if o.input != nil {
		var err error
		if s.input, err = encode(o.input, "the input of step "+name); err != nil {
			return nil, err
		}
		sha = digest(s.input)
	}
	var err error
	if s.key, err = t.key(ctx, name); err != nil {
		return nil, err
	}
	old, err := t.s.recorded(s.key, "step", name, sha)
	if err != nil {
		return nil, err
	}
	if old != nil && old.EndedAt != nil {
		t.s.closeSegments()
		if old.Error != nil {
			return nil, &StepError{Step: name, Text: errorText(old.Error), Final: true}
		}
		return old.Result, nil
	}
	tried, err := s.resume(ctx, old)
	if err != nil {
		return nil, err
	}
	return s.try(ctx, fn, &o, tried)
}

func (o *stepOptions) check() error {
	switch {
	case o.retries < 0:
		return misuse("Retries must not be negative: %d", o.retries)
	case o.backoff <= 0:
		return misuse("Backoff must be positive: %s", o.backoff)
	case o.timeout < 0:
		return misuse("Timeout must not be negative: %s", o.timeout)
	}
	return nil
}

// resume continues a step that an earlier attempt has begun, and returns how often it was tried.
func (s *runningStep) resume(ctx context.Context, old *recordedStep) (tried int, err error) {
	if old == nil {
		return 0, nil
	}
	s.artifact = old.Artifact
	if old.NextAt != nil {
		tried = max(old.Attempts, 1)
		if err := s.t.pause(ctx, s.key, tried, *old.NextAt); err != nil {
			return tried, err
		}
	}
	return tried, s.begin(ctx)
}

// begin records that the step begins again, if it writes an artifact.
func (s *runningStep) begin(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.artifact == "" {
		return nil
	}
	return s.t.s.add(ctx, s.record(stepEvent{Artifact: s.artifact}))
}

func (s *runningStep) record(e stepEvent) event {
	e.Key, e.Name, e.Input = s.key, s.name, s.input
	return event{Step: &e}
}

// try calls the function until it succeeds or its retries are used up.
func (s *runningStep) try(
	ctx context.Context, fn func(ctx context.Context) (any, error), o *stepOptions, tried int,
) (json.RawMessage, error) {
	for {
		tried++
		started := s.t.s.clock.Now().UTC()
		value, err := s.call(ctx, fn, o.timeout, tried)
		if end := s.t.s.ended(); end != nil {
			return nil, end
		}
		if err == nil {
			return s.succeed(ctx, value, tried, started)
		}
		if endsAttempt(err) {
			return nil, err
		}
		now := s.t.s.clock.Now().UTC()
		failed := stepEvent{Error: encodeError(err), Attempts: tried}
		if tried > o.retries {
			failed.StartedAt, failed.EndedAt = &started, &now
			return nil, s.fail(ctx, err, failed, o.retries > 0)
		}
		at := now.Add(backoff(o.backoff, tried))
		failed.NextAt = &at
		if err := s.send(ctx, failed); err != nil {
			return nil, err
		}
		if err := s.t.pause(ctx, s.key, tried, at); err != nil {
			return nil, err
		}
		if err := s.begin(ctx); err != nil {
			return nil, err
		}
	}
}

// endsAttempt reports whether an error of a step's function is no failure of the step, but ends the attempt.
func endsAttempt(err error) bool {
	var wrong *UsageError
	var changed *NondeterminismError
	var how *ending
	return errors.As(err, &wrong) || errors.As(err, &changed) || errors.As(err, &how)
}

const maxBackoff = time.Hour

// backoff returns the pause after a number of tries.
func backoff(first time.Duration, tried int) time.Duration {
	for range tried - 1 {
		if first *= 2; first >= maxBackoff {
			return maxBackoff
		}
	}
	return first
}

func (s *runningStep) call(
	ctx context.Context, fn func(ctx context.Context) (any, error), timeout time.Duration, tried int,
) (value any, err error) {
	s.takeUsage() // of an earlier try, which was sent with its record
	ctx, done := s.t.s.startSpan(ctx, Span{Kind: SpanStep, Name: s.name, Key: s.key, Attempt: tried})
	defer func() {
		s.mu.Lock()
		end := SpanEnd{Err: err, Usage: slices.Clone(s.usage)}
		s.mu.Unlock()
		done(end)
	}()
	ctx = context.WithValue(ctx, stepKey{}, s)
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	err = guard(func() (err error) {
		value, err = fn(ctx)
		return err
	})
	return value, err
}

func (s *runningStep) succeed(
	ctx context.Context, value any, tried int, started time.Time,
) (json.RawMessage, error) {
	data, err := encode(value, "the result of step "+s.name)
	if err != nil {
		return nil, err
	}
	now := s.t.s.clock.Now().UTC()
	return data, s.send(ctx, stepEvent{Result: data, Attempts: tried, StartedAt: &started, EndedAt: &now})
}

// withUsage returns the record of a call of the function, after the usage that it has reported.
func (s *runningStep) withUsage(e stepEvent) []event {
	var events []event
	for _, u := range s.takeUsage() {
		events = append(events, event{Usage: &u})
	}
	return append(events, s.record(e))
}

func (s *runningStep) send(ctx context.Context, e stepEvent) error {
	if err := s.t.s.add(ctx, s.withUsage(e)...); err != nil {
		return err
	}
	return s.t.s.flush(ctx)
}

// fail returns the StepError. The failure is recorded now if it is final, otherwise with what the agent does next.
func (s *runningStep) fail(ctx context.Context, cause error, e stepEvent, final bool) error {
	if final {
		if err := s.send(ctx, e); err != nil {
			return err
		}
	} else {
		s.t.s.closeSegments()
		s.t.s.hold(ctx, s.withUsage(e)...)
	}
	return &StepError{Step: s.name, Text: errorText(e.Error), Final: final, Cause: cause}
}

// pause waits until the time of the next try: in the process, or without a worker if that is long.
func (t *Task) pause(ctx context.Context, step string, tried int, at time.Time) error {
	key := fmt.Sprintf("%s/pause#%d", step, tried)
	old, err := t.s.recorded(key, "wait", "", "")
	if err != nil || old != nil && old.EndedAt != nil {
		return err
	}
	left := at.Sub(t.s.clock.Now())
	if old == nil && left < longPause {
		return t.s.clock.Sleep(ctx, max(left, 0))
	}
	_, err = t.wait(ctx, waitEvent{Key: key, Until: &at})
	return err
}

// maxError bounds the text of a recorded error, in bytes.
const maxError = 4000

func encodeError(err error) json.RawMessage {
	text := err.Error()
	if len(text) > maxError {
		text = strings.ToValidUTF8(text[:maxError], "")
	}
	data, _ := json.Marshal(map[string]string{"type": fmt.Sprintf("%T", err), "message": text}) // texts have a form
	return data
}

// errorText returns the text of a recorded error, which another library may have recorded.
func errorText(data json.RawMessage) string {
	var e struct{ Message string }
	var text string
	switch {
	case json.Unmarshal(data, &e) == nil:
		return e.Message
	case json.Unmarshal(data, &text) == nil:
		return text
	}
	return string(data)
}
