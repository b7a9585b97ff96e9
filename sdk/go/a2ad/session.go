package a2ad

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// reporter stores events of a run, all or none, and returns whether the task was canceled. It tries again until the
// lease is lost, and then returns an ErrStopped. For events that the server refuses it returns a UsageError.
type reporter func(
	ctx context.Context, run *runInput, events []json.RawMessage, batch string,
) (canceled bool, err error)

// settings are what a session gets from its worker or its test.
type settings struct {
	report  reporter
	clock   clock
	began   time.Time // of the worker: all its sessions send streamed text at the same ticks
	trace   Trace
	logger  *slog.Logger
	handler bool // the function is for messages, and does not run again over its recorded steps
	eager   bool // for tests: each write sends its text and waits, so that the requests of a run are always the same
}

// session is one run of an agent. It numbers what the agent records, compares it with the record, and sends it in
// order.
type session struct {
	settings
	run    *runInput
	number int    // of the message that the function gets
	turn   string // prefix of keys if that is not the first message: work for one message is not work for another
	known  map[string]*recordedStep

	done       <-chan struct{}         // closed when the run has ended
	endContext context.CancelCauseFunc // of the agent
	sendCtx    context.Context         //nolint:containedctx // of requests in the background, which outlive calls
	endSending context.CancelFunc
	requests   sync.WaitGroup // in the background

	mu       sync.Mutex
	scope    string            // guarded by mu: prefix of keys; that of a handler also has its checkpoint
	stopped  error             // guarded by mu: why the run has ended
	final    bool              // guarded by mu: the state of the task is added, which ends it
	mistake  error             // guarded by mu: the first of the program; after it, the agent may begin no other call
	calling  map[string]*place // guarded by mu: by the prefix of their branch, where the calls in progress were made
	answered int               // guarded by mu: the message of the turn that has answered the last question
	streams  map[string]string // guarded by mu: by artifact that steps write, the prefix of their branch
	counts   map[string]int    // guarded by mu
	used     map[string]bool   // guarded by mu: keys of recorded steps that the agent has come to
	segments []*segment        // guarded by mu: the open ones
	passed   map[string]int    // guarded by mu: by artifact, the recorded step where the handler is at least
	held     []heldUnit        // guarded by mu: failures that the agent may handle
	steps    []chan struct{}   // guarded by mu: of the steps at work; closed when they end
	idle     chan struct{}     // closed when no call is in progress; nil until the function has returned an error
	queue                      // guarded by mu
}

// heldUnit is the record of a failure, with the prefix of its branch.
type heldUnit struct {
	branch string
	events []json.RawMessage
}

// open begins a session. The context that it returns ends with the run.
func open(ctx context.Context, run *runInput, set settings) (*session, context.Context) {
	s := &session{
		settings: set, run: run, number: run.number(0), known: make(map[string]*recordedStep, len(run.Steps)),
		calling: make(map[string]*place), streams: make(map[string]string), counts: make(map[string]int),
		used: make(map[string]bool), passed: make(map[string]int),
	}
	s.sendCtx, s.endSending = context.WithCancel(context.WithoutCancel(ctx))
	ctx, s.endContext = context.WithCancelCause(ctx)
	s.done = ctx.Done()
	for i, step := range run.Steps {
		step.place = i + 1
		s.known[step.Key] = step
	}
	if set.handler {
		s.number = run.number(len(run.Messages) - 1)
	}
	if s.number > 1 {
		s.turn = fmt.Sprintf("m%d/", s.number)
	}
	s.scope = s.turn
	if set.handler {
		s.setScope(run.Checkpoint)
		for _, e := range takeBack(run.Steps) {
			s.put(unit{events: []json.RawMessage{e}})
		}
	}
	return s, ctx
}

// close stops the background requests. The run must have been stopped before.
func (s *session) close() {
	s.mu.Lock()
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	s.mu.Unlock()
	s.endSending()
	s.requests.Wait()
}

// setScope begins new keys after a checkpoint of a handler.
func (s *session) setScope(checkpoint json.RawMessage) {
	if !s.handler {
		return
	}
	s.scope = s.turn
	if data := inOrder(checkpoint); len(data) > 0 && string(data) != "null" {
		s.scope += digest(data)[:8] + "/"
	}
}

// key returns the key of the next use of a name in this branch: plan#1, then plan#2.
func (s *session) key(ctx context.Context, name string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	prefix := s.scope
	if b := branchOf(ctx, s); b != nil {
		prefix = b.prefix
	}
	key := s.nextKeyLocked(prefix + name)
	if len(key) > maxKey-16 { // the key of a pause is longer
		return "", misuse("the name %.60q is too long at this depth of nested Gathers", name)
	}
	return key, nil
}

func (s *session) nextKeyLocked(name string) string {
	s.counts[name]++
	return fmt.Sprintf("%s#%d", name, s.counts[name])
}

// recorded returns what is recorded under a key; nil if nothing is. sha is the hash of the input of a step or a wait,
// or of the message of a call.
func (s *session) recorded(key, kind, name, sha string) (*recordedStep, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.recordedLocked(key, kind, name, sha)
}

func (s *session) recordedLocked(key, kind, name, sha string) (*recordedStep, error) {
	old := s.known[key]
	if old == nil {
		return nil, s.stopped
	}
	s.used[key] = true
	expected, got := "a "+old.Kind, "a "+kind
	switch {
	case old.Kind != kind:
	case old.Name != name:
		expected, got = fmt.Sprintf("%s named %q", expected, old.Name), fmt.Sprintf("%s named %q", got, name)
	case old.InputSHA != sha && (kind == "step" || old.InputSHA != ""):
		// A wait may have been recorded by a server that did not store its hash.
		expected += " with the input hash " + shortSHA(old.InputSHA)
		got += " with the input hash " + shortSHA(sha)
	default:
		return old, s.stopped
	}
	return nil, &NondeterminismError{Key: key, Expected: expected, Got: got, Line: callers().line()}
}

func shortSHA(sha string) string {
	if sha == "" {
		return "none"
	}
	return sha[:min(len(sha), 12)]
}

// unused returns the keys of recorded steps that the agent has not come to in this run.
func (s *session) unused() (keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	here := make(map[string]bool)
	for name := range s.counts {
		here[scopeOf(name)] = true
	}
	for _, step := range s.run.Steps {
		if !s.used[step.Key] && !ofLibrary(step.Key) && here[scopeOf(step.Key)] {
			keys = append(keys, step.Key)
		}
	}
	return keys
}

// check returns why the run has ended; nil if it has not.
func (s *session) check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

// stop ends the run: from now on the agent's calls return the reason.
func (s *session) stop(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopLocked(reason)
}

func (s *session) stopLocked(reason error) {
	if s.stopped == nil {
		s.stopped = reason
		s.endContext(reason)
	}
}

// working notes that the function of a step begins its work, until done is called. It returns an error if no work may
// begin.
func (s *session) working() (done func(), err error) {
	ended := make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := firstOf(s.stopped, s.mistake); err != nil {
		return nil, err
	}
	s.steps = append(s.steps, ended)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.steps = slices.DeleteFunc(s.steps, func(c chan struct{}) bool { return c == ended })
		close(ended)
	}, nil
}

// refuse remembers a mistake: from now on calls are refused, so that a mistake that the agent handles is not forgotten.
// Calls in progress go on: the work of a step is recorded.
func (s *session) refuse(ctx context.Context, mistake error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mistake == nil {
		s.mistake = mistake
		s.releaseHeldLocked(ctx) // the agent did something else, if only a mistake
	}
}

// wrong returns the first mistake of the program; nil if there is none.
func (s *session) wrong() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mistake
}

func errAttemptEnded() error { return &stopped{outcome: ended, text: "the attempt has ended"} }

// overLocked returns why nothing can be added; nil if it can. Nothing may follow the state that ends the task.
func (s *session) overLocked() error {
	if s.stopped == nil && s.final {
		return errAttemptEnded()
	}
	return s.stopped
}

// add adds events, which are stored together, to those that wait to be sent.
func (s *session) add(ctx context.Context, events ...any) error {
	encoded := make([]json.RawMessage, len(events))
	for i, e := range events {
		encoded[i] = mustCompact(e)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addLocked(ctx, encoded...)
}

func (s *session) addLocked(ctx context.Context, events ...json.RawMessage) error {
	if err := s.overLocked(); err != nil {
		return err
	}
	s.closeSegmentsLocked()
	s.releaseHeldLocked(ctx)
	s.put(unit{events: events})
	return nil
}

// addLast adds the state that ends the task, unless the agent's function has left a call in progress.
func (s *session) addLast(ctx context.Context, event any) error {
	encoded := mustCompact(event)
	s.mu.Lock()
	defer s.mu.Unlock()
	if left := s.inProgressLocked("", "function"); left != nil {
		return left
	}
	err := s.addLocked(ctx, encoded)
	s.final = err == nil
	return err
}

// inProgressLocked returns the mistake if a function or a branch has returned before a call that it has made. prefix is
// that of the branch.
func (s *session) inProgressLocked(prefix, what string) error {
	for _, branch := range slices.Sorted(maps.Keys(s.calling)) {
		if strings.HasPrefix(branch, prefix) {
			text := " has returned, but this call is still in progress: wait for it, or use Gather"
			return &UsageError{Text: "the " + what + text, Line: s.calling[branch].line()}
		}
	}
	return nil
}

// leave waits, after a function has returned an error, until the calls that it has left in progress have ended. No
// other call begins, and no wait.
func (s *session) leave(ctx context.Context) {
	s.mu.Lock()
	if s.mistake != nil || s.stopped != nil {
		s.mu.Unlock()
		return
	}
	left := s.inProgressLocked("", "function")
	s.mistake = firstOf(left, misuse("the function has returned")) // a failure that it has returned is not handled
	s.idle = make(chan struct{})
	s.mu.Unlock()
	if left == nil {
		return
	}
	s.log(ctx, slog.LevelWarn, left.Error()+". The attempt ends after it")
	select {
	case <-s.idle:
	case <-s.done:
	}
}

// hold keeps the record of a failure until the agent does something else, so has handled it.
func (s *session) hold(ctx context.Context, events ...any) {
	h := heldUnit{branch: prefixOf(ctx, s)}
	for _, e := range events {
		h.events = append(h.events, mustCompact(e))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = append(s.held, h)
}

func (s *session) releaseHeld(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releaseHeldLocked(ctx)
}

// releaseHeldLocked records the failures of this branch and of branches in it. Others may not be handled yet.
func (s *session) releaseHeldLocked(ctx context.Context) {
	here := prefixOf(ctx, s)
	var kept []heldUnit
	for _, h := range s.held {
		switch {
		case !strings.HasPrefix(h.branch, here):
			kept = append(kept, h)
		case len(h.events) > 0:
			s.put(unit{events: h.events})
		}
	}
	s.held = kept
}
