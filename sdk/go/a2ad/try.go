package a2ad

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// endTimeout is how long a function may take to return after its context has ended. Then the library stops waiting.
const endTimeout = 2 * time.Second

// try is one call of the function of a step. The context of the function has it as a value.
type try struct {
	session *session
	key     string
	name    string
	input   []byte // what to send; nil if the step has none
	tried   int    // tries until now, with this one

	mu       sync.Mutex
	artifact string  // guarded by mu: that the step writes
	tail     tail    // guarded by mu: of its text
	usage    []Usage // guarded by mu: what the function has reported
	mistake  error   // guarded by mu: the first mistake of the function in a call of this package
	returned bool    // guarded by mu: the function has returned no error
	ended    bool    // guarded by mu
}

// run calls the function until it succeeds, or is not called again.
func (t *try) run(ctx context.Context, fn work, read reader, o *stepOptions) error {
	s := t.session
	for {
		t.tried++
		done, err := s.working()
		if err != nil {
			return err
		}
		at, err := t.once(ctx, fn, read, o)
		done()
		if err != nil || at.IsZero() {
			return err
		}
		if err := s.wrong(); err != nil { // the function has ended, for example
			return err
		}
		if err := s.pauseUntil(ctx, t.key, t.tried, at); err != nil {
			return err
		}
		t = &try{session: s, key: t.key, name: t.name, input: t.input, tried: t.tried, artifact: t.artifact}
		if err := t.beginAgain(ctx); err != nil {
			return err
		}
	}
}

// once calls the function once, and records the result or the failure. It returns when to call it again, if so.
func (t *try) once(ctx context.Context, fn work, read reader, o *stepOptions) (again time.Time, err error) {
	s := t.session
	started := time.Now()
	value, err := t.call(ctx, fn, o.timeout)
	if end := t.interrupted(ctx, err); end != nil {
		s.hold(ctx, t.takeUsage()...)
		return again, end
	}
	if err == nil {
		err = t.succeed(ctx, value, read, started)
		if err == nil || !errors.Is(err, errUnusable) {
			return again, err
		}
	}
	cause := firstOf(t.wrong(), err)
	failure := t.failure(cause)
	t.log(ctx, cause, o.retries)
	record := t.record()
	record.Error, record.Attempts = &stepFailure{failure.Type, failure.Text}, t.tried
	var how *ending
	mistaken := isMistake(cause)
	switch {
	case !mistaken && errors.As(cause, &how):
		s.hold(ctx, t.withUsage(record.times(started))...)
		return again, &ending{how.kind, failure.Text, how.after} // as recordedError does, and not what wraps it
	case mistaken || t.tried > o.retries:
		if !mistaken && o.retries == 0 { // recorded with what the agent does next
			s.hold(ctx, t.withUsage(record.times(started))...)
			return again, failure
		}
		failure.Recorded = true
		return again, firstOf(t.send(ctx, record.times(started)), failure)
	}
	again = s.clock.Now().Add(o.pause(t.tried))
	record.NextAt = stamp(again)
	return again, t.send(ctx, record)
}

// interrupted returns why a try ended that did not fail: the run has ended, or the agent's own context.
func (t *try) interrupted(ctx context.Context, err error) error {
	if err == nil || t.wrong() != nil {
		return nil
	}
	if stop := t.session.check(); stop != nil {
		return stop
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// call calls the function once.
func (t *try) call(ctx context.Context, fn work, timeout time.Duration) (any, error) {
	ctx = context.WithValue(ctx, stepKey{}, t)
	var giveUp <-chan time.Time
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, errStepTimeout)
		defer cancel()
		timer := time.NewTimer(timeout + endTimeout)
		defer timer.Stop()
		giveUp = timer.C
	}
	var r result
	select {
	case r = <-start(func() (any, error) { return fn(ctx) }):
	case <-giveUp:
		r.err = errStepTimeout
	}
	if errors.Is(context.Cause(ctx), errStepTimeout) { // also if it returned a result, which is late
		r.err = errStepTimeout
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended, t.returned = true, r.err == nil
	t.endTextLocked()
	return r.value, r.err
}

var (
	errStepTimeout = errors.New("the step took too long")
	// errUnusable is the error of a result that cannot be recorded or read.
	errUnusable = errors.New("a2ad: unusable result")
)

// succeed records the result.
func (t *try) succeed(ctx context.Context, value any, read reader, started time.Time) error {
	if t.wrong() != nil {
		return errUnusable
	}
	what := fmt.Sprintf("the result of step %q", t.name)
	data, err := encode(value, what)
	if err == nil {
		// What cannot be read now could not be read in a later attempt either.
		if err = read(data); err != nil {
			err = misuse("%s cannot be read back: %v", what, err)
		}
	}
	if err != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.mistake = err
		return errUnusable
	}
	record := t.record()
	record.Attempts, record.Result = t.tried, data
	return t.send(ctx, record.times(started))
}

// failure returns the error of the step.
func (t *try) failure(cause error) *StepError {
	f := &StepError{Step: t.name, Type: fmt.Sprintf("%T", cause), Text: clean(cause.Error(), maxReason), cause: cause}
	var wrong *UsageError
	var how *ending
	var panicked *panicError
	switch {
	case errors.As(cause, &wrong): // without the line, because a client may read it
		f.Type = "UsageError"
		f.Text = clean(wrong.Text+". The step is not done again, because its function was called", maxReason)
	case errors.As(cause, &how):
		f.Type, f.Text = endings[how.kind], clean(how.reason, maxReason)
	case errors.As(cause, &panicked):
		f.Type = "panic"
	case errors.Is(cause, errStepTimeout):
		f.Type, f.Text = timedOut, ""
	}
	return f
}

func (t *try) log(ctx context.Context, cause error, retries int) {
	var how *ending
	switch {
	case isMistake(cause):
		t.session.logMistake(ctx, cause)
	case errors.As(cause, &how):
	default:
		attrs := append(failureAttrs(cause), slog.String("step", t.name))
		if retries > 0 {
			attrs = append(attrs, slog.Int("try", t.tried), slog.Int("of", retries+1))
		}
		t.session.log(ctx, slog.LevelWarn, "step failed", attrs...)
	}
}

func (t *try) wrong() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mistake
}

// mistaken remembers a mistake of the function, and reports whether the step fails with it.
func (t *try) mistaken(err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return false
	}
	t.mistake = firstOf(t.mistake, err)
	return true
}

// checkLocked refuses what the function does after it has ended: that would not be recorded.
func (t *try) checkLocked() error {
	switch {
	case t.returned:
		return misuse("the step %q has ended: its function must wait for what it starts", t.name)
	case t.ended: // and failed, so it is no mistake that something of it still runs
		return &stopped{outcome: ended, text: fmt.Sprintf("this try of the step %q has ended", t.name)}
	}
	return nil
}

// write appends text to an artifact. It records that the step begins if it has not written before.
func (t *try) write(ctx context.Context, id, name, text string) error {
	full, err := t.addText(ctx, id, name, text)
	if err != nil || !full {
		return err
	}
	return t.session.flush(ctx)
}

func (t *try) addText(ctx context.Context, id, name, text string) (full bool, err error) {
	s := t.session
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.checkLocked(); err != nil {
		return false, err
	}
	switch t.artifact {
	case id:
	case "":
		s.continueSegment(id, nil) // what is written before the step does not belong to it
		if err := t.beginLocked(ctx, id); err != nil {
			return false, err
		}
	default:
		return false, misuse("step %q writes to %q and %q; a step can write to only one artifact",
			t.name, t.artifact, id)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.overLocked(); err != nil {
		return false, err
	}
	s.addText(id, name, t.tail.next(name, text))
	return s.sendTextLocked(), nil
}

// endTextLocked ends the text of the try, which may end in half a character.
func (t *try) endTextLocked() {
	s := t.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped == nil {
		s.addText(t.artifact, t.tail.name, t.tail.end())
	}
}

func (t *try) beginLocked(ctx context.Context, artifact string) error {
	if err := t.session.stream(ctx, artifact); err != nil {
		return err
	}
	t.artifact = artifact
	record := t.record()
	record.Artifact = artifact
	return t.session.add(ctx, stepEvent{record.stepRecord})
}

// beginAgain restores the artifact that an earlier try of the step wrote.
func (t *try) beginAgain(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.artifact == "" {
		return t.session.check()
	}
	return t.beginLocked(ctx, t.artifact)
}
