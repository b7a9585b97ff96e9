package a2ad

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Limits of what is sent.
const (
	flushEvery = 50 * time.Millisecond // between two requests with streamed text
	flushBytes = 32 << 10              // of streamed text, which are sent without that pause
	blockBytes = 256 << 10             // of streamed text that may wait to be sent before Write waits
	maxEvents  = 1000                  // of one request
	maxBatch   = 1 << 20               // of one request, unless one group is larger
	maxChunk   = 256 << 10             // of one part
)

// reporter stores events of a run, all or none, and returns whether the task was canceled. It tries again until the
// lease is lost. Then it returns an error that is ErrStopped.
type reporter func(ctx context.Context, run *runInput, events []json.RawMessage) (canceled bool, err error)

// settings are what a session gets from its worker or its test.
type settings struct {
	report  reporter
	clock   clock
	began   time.Time // of the worker
	trace   Trace
	handler bool // the function is for messages: nothing is replayed
	eager   bool // each write sends its text at once, in a test
}

// session is one run: it numbers and compares what the agent records, and sends it in order.
type session struct {
	settings
	run   *runInput
	known map[string]*recordedStep // written before the agent starts
	end   context.CancelCauseFunc  // of the agent's context

	done chan struct{} // closed when the run has ended
	full chan struct{} // ends the pause before streamed text is sent; has room for one

	sending chan struct{} // has a value while a request is sent; a channel, so that tests have fake time

	mu       sync.Mutex
	err      error               // guarded by mu: what has ended the run
	counts   map[string]int      // guarded by mu
	segments map[string]*segment // guarded by mu: open writes, by artifact
	order    []*segment          // guarded by mu: the same, in the order of their beginning
	held     []heldFailure       // guarded by mu: what the agent may handle
	pending  []pendingEvents     // guarded by mu
	bytes    int                 // guarded by mu
	sentAt   time.Time           // guarded by mu
	flushing bool                // guarded by mu: a goroutine will flush
	wg       sync.WaitGroup      // of that goroutine
}

// segment is successive writes to an artifact, which are recorded as one step.
type segment struct {
	key      string
	artifact string
	replayed bool
}

// heldFailure is the record of a failed step, with the branch of Gather that it is in.
type heldFailure struct {
	within string // the prefix of the branch
	events []event
}

// pendingEvents are events that are stored together, or streamed text that still grows.
type pendingEvents struct {
	events   []json.RawMessage
	artifact string
	name     string
	text     []byte
}

// open begins a session. Its context ends with the run.
func open(ctx context.Context, run *runInput, set settings) (*session, context.Context) {
	ctx, end := context.WithCancelCause(ctx)
	s := &session{
		settings: set, run: run, known: make(map[string]*recordedStep, len(run.Steps)),
		end: end, counts: make(map[string]int), segments: make(map[string]*segment), done: make(chan struct{}),
		full: make(chan struct{}, 1), sending: make(chan struct{}, 1),
	}
	s.learn()
	return s, ctx
}

// learn keeps the steps of the run by their keys.
func (s *session) learn() {
	for i := range s.run.Steps {
		s.known[s.run.Steps[i].Key] = &s.run.Steps[i]
	}
}

// close waits for what runs in the background.
func (s *session) close() {
	s.stop(&stopped{lost, "the run is over"})
	s.wg.Wait()
}

// nextKey returns the key of the next use of a name: plan#1, then plan#2.
func (s *session) nextKey(name string) (string, error) {
	if len(name) > maxKey || !plain(name) {
		return "", misuse("a name must have at most %d bytes of text: %.60q", maxName, name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[name]++
	return fmt.Sprintf("%s#%d", name, s.counts[name]), nil
}

// recorded returns what is recorded under a key; nil if nothing is. sha is the digest of a step's input.
func (s *session) recorded(key, kind, name, sha string) (*recordedStep, error) {
	old := s.known[key]
	if old == nil {
		return nil, s.ended()
	}
	oldName := old.Name
	if kind == "call" {
		oldName = old.Agent
	}
	differs := func(expected, got string) error { return &NondeterminismError{key, expected, got, callSite()} }
	switch {
	case old.Kind != kind:
		return nil, differs("a "+old.Kind, "a "+kind)
	case oldName != name:
		return nil, differs(fmt.Sprintf("a %s named %q", kind, oldName), fmt.Sprintf("a %s named %q", kind, name))
	case kind == "step" && old.InputSHA != sha:
		return nil, differs("a step with the input "+short(old.InputSHA), "a step with the input "+short(sha))
	}
	return old, s.ended()
}

func short(sha string) string {
	if sha == "" {
		return "nothing"
	}
	return sha[:min(len(sha), 12)]
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// ended returns what has ended the run; nil if it has not ended.
func (s *session) ended() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// stop ends the run: from now on the agent's calls return err.
func (s *session) stop(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = err
		close(s.done)
	}
	s.mu.Unlock()
	s.end(err)
}

func (s *session) cancel() { s.stop(&stopped{canceled, "the task was canceled"}) }

// add adds events, which are stored together, to those that wait to be sent, after what the agent has done before.
func (s *session) add(ctx context.Context, events ...event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	s.closeSegmentsLocked()
	s.recordFailuresLocked(ctx)
	return s.putLocked(events...)
}

func (s *session) putLocked(events ...event) error {
	var p pendingEvents
	for i := range events {
		data, err := json.Marshal(&events[i])
		if err != nil {
			return misuse("what is recorded has no form in JSON: %v", err)
		}
		p.events = append(p.events, data)
		s.bytes += len(data)
	}
	s.pending = append(s.pending, p)
	return nil
}

// hold keeps the record of a failure until the agent does something else: it has handled it.
func (s *session) hold(ctx context.Context, events ...event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = append(s.held, heldFailure{prefixOf(ctx), events})
}

// recordFailuresLocked records the failures of this branch, and of the branches in it. The agent may not have handled
// those of others.
func (s *session) recordFailuresLocked(ctx context.Context) {
	here := prefixOf(ctx)
	s.held = slices.DeleteFunc(s.held, func(h heldFailure) bool {
		if !strings.HasPrefix(h.within, here) {
			return false
		}
		_ = s.putLocked(h.events...) // they have a form in JSON
		return true
	})
}

// drop forgets what was not sent: the attempt has failed, and the next one does it again.
func (s *session) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending, s.held, s.order = nil, nil, nil
	clear(s.segments)
}

// flush sends what waits, and returns when the server has stored it.
func (s *session) flush(ctx context.Context) error {
	s.sending <- struct{}{}
	defer func() { <-s.sending }()
	for {
		if more, err := s.sendOne(ctx); err != nil || !more {
			return err
		}
	}
}

// flushOnce sends what waits in one request, if it fits. What comes meanwhile waits for the next tick.
func (s *session) flushOnce(ctx context.Context) {
	s.sending <- struct{}{}
	defer func() { <-s.sending }()
	_, _ = s.sendOne(ctx) // the agent's next call returns the error
}

// sendOne makes one request, if something waits. The caller has a place in s.sending.
func (s *session) sendOne(ctx context.Context) (more bool, err error) {
	events, err := s.take()
	if err != nil || len(events) == 0 {
		return false, err
	}
	// A caller that gives up does not stop the request: nothing may be lost or sent twice.
	wasCanceled, err := s.report(context.WithoutCancel(ctx), s.run, events)
	if err != nil {
		s.stop(err)
	}
	if wasCanceled {
		s.cancel()
	}
	return true, nil
}

// take removes the events of one request from those that wait.
func (s *session) take() ([]json.RawMessage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	var events []json.RawMessage
	size := 0
	for len(s.pending) > 0 {
		group, bytes, err := s.pending[0].encode()
		if err != nil {
			return nil, err
		}
		size += bytes
		if len(events) > 0 && (size > maxBatch || len(events)+len(group) > maxEvents) {
			break
		}
		events = append(events, group...)
		s.pending = s.pending[1:]
	}
	if len(s.pending) == 0 {
		s.pending, s.bytes = nil, 0
	}
	if len(events) > 0 {
		s.sentAt = time.Now()
	}
	return events, nil
}

func (p *pendingEvents) encode() (events []json.RawMessage, bytes int, err error) {
	if p.events == nil {
		data, err := json.Marshal(&event{Artifact: &artifactUpdate{
			Artifact: Artifact{ID: p.artifact, Name: p.name, Parts: []Part{Text(string(p.text))}}, Append: true,
		}})
		return []json.RawMessage{data}, len(data), err
	}
	for _, data := range p.events {
		bytes += len(data)
	}
	return p.events, bytes, nil
}
