package a2ad

import (
	"context"
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"
)

const (
	flushEvery = 50 * time.Millisecond // between two requests with streamed text
	flushBytes = 32 << 10              // of unsent text from which on it is sent at once
	blockBytes = 256 << 10             // of unsent text from which on Write waits
	chunkBytes = 256 << 10             // of one piece of streamed text
	maxEvents  = 1000                  // of a request
	maxBatch   = 1 << 20               // bytes of a request with several units; one unit may have more, up to 4 MiB
)

// queue is what waits to be sent.
type queue struct {
	pending    []unit
	bytes      int
	batches    int
	textSentAt time.Time
	flushing   int           // callers that wait until all is sent
	sender     chan struct{} // closed when the request in progress has ended; nil if there is none
	timer      *time.Timer   // until the next tick
}

// unit is what is sent together: events, which are stored all or none, or text that still grows.
type unit struct {
	events   []json.RawMessage
	artifact string
	name     string
	text     []byte
}

func (u *unit) size() int {
	n := len(u.text)
	for _, e := range u.events {
		n += len(e)
	}
	return n
}

// encode returns the events of the unit.
func (u *unit) encode() []json.RawMessage {
	if u.events != nil {
		return u.events
	}
	a := Artifact{ID: u.artifact, Name: u.name, Parts: []Part{Text(string(u.text))}}
	return []json.RawMessage{mustCompact(artifactEvent{artifactUpdate{Artifact: a, Append: true}})}
}

func (q *queue) put(u unit) {
	q.pending = append(q.pending, u)
	q.bytes += u.size()
}

// addText adds streamed text in pieces of whole characters.
func (q *queue) addText(artifact, name, text string) {
	for len(text) > 0 {
		piece := text
		if len(text) > chunkBytes {
			n := chunkBytes
			for !utf8.RuneStart(text[n]) {
				n--
			}
			piece = text[:n]
		}
		text = text[len(piece):]
		last := len(q.pending) - 1
		if last < 0 || q.pending[last].events != nil || q.pending[last].artifact != artifact ||
			len(q.pending[last].text)+len(piece) > chunkBytes {
			q.put(unit{artifact: artifact, name: name})
			last++
		}
		q.pending[last].text = append(q.pending[last].text, piece...)
		q.bytes += len(piece)
	}
}

// take removes and returns the events of one request.
func (q *queue) take() (events []json.RawMessage) {
	size, taken := 0, 0
	for i := range q.pending {
		u := &q.pending[i]
		more := u.encode()
		for _, e := range more {
			size += len(e)
		}
		if len(events) > 0 && (size > maxBatch || len(events)+len(more) > maxEvents) {
			break
		}
		events = append(events, more...)
		taken++
		if u.events == nil {
			q.textSentAt = time.Now()
		}
	}
	q.pending = append([]unit(nil), q.pending[taken:]...)
	q.bytes = 0
	for i := range q.pending {
		q.bytes += q.pending[i].size()
	}
	return events
}

// sendText sends streamed text now if there is much of it or its time has come, and otherwise later. It returns whether
// there is so much that the agent must wait.
func (s *session) sendTextLocked() (full bool) {
	switch {
	case s.eager, s.bytes >= blockBytes:
		return true
	case s.bytes >= flushBytes:
		s.startLocked()
	case s.timer == nil && s.sender == nil:
		s.sendLaterLocked()
	}
	return false
}

// sendLaterLocked sends the first text at once, and later text at a tick.
func (s *session) sendLaterLocked() {
	delay := time.Until(nextTick(s.began, s.textSentAt))
	if delay <= 0 {
		s.startLocked()
		return
	}
	s.timer = time.AfterFunc(delay, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.timer = nil
		s.startLocked()
	})
}

// nextTick returns when a run that sent streamed text at sentAt sends more. All runs of a worker send at the same
// ticks, which are counted from began. So the server, the database and the worker wake up once for many requests.
func nextTick(began, sentAt time.Time) time.Time {
	if sentAt.IsZero() {
		return began
	}
	after := sentAt.Add(flushEvery / 2)
	return after.Add(flushEvery - after.Sub(began)%flushEvery)
}

// startLocked starts to send what waits, in the background.
func (s *session) startLocked() {
	if s.sender == nil && len(s.pending) > 0 && s.stopped == nil {
		s.sender = make(chan struct{})
		s.requests.Go(s.send)
	}
}

// send sends what waits. Text that is added meanwhile is sent later, unless flush waits.
func (s *session) send() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.pending) > 0 && s.stopped == nil {
		events := s.take()
		s.batches++
		batch := strconv.Itoa(s.batches)
		s.mu.Unlock()
		wasCanceled, err := s.report(s.sendCtx, s.run, events, batch)
		s.mu.Lock()
		switch {
		case err != nil:
			s.stopLocked(err)
		case wasCanceled:
			s.stopLocked(errTaskCanceled())
		}
		if s.flushing == 0 && s.bytes < flushBytes {
			break
		}
	}
	close(s.sender)
	s.sender = nil
	if len(s.pending) > 0 && s.timer == nil && s.stopped == nil {
		s.sendLaterLocked()
	}
}

func errTaskCanceled() error { return &stopped{outcome: canceled, text: "the task was canceled"} }

// sent returns when the request in progress has ended, or the context ends.
func (s *session) sent(ctx context.Context) {
	s.mu.Lock()
	sender := s.sender
	s.mu.Unlock()
	if sender == nil {
		return
	}
	select {
	case <-sender:
	case <-ctx.Done():
	}
}

// store sends what waits, and returns when the server has stored it, or the run has ended. The end of the caller's
// context does not matter: the call would return something else when the agent runs again over the record.
func (s *session) store(ctx context.Context) error { return s.flush(context.WithoutCancel(ctx)) }

// flush is like store, but it also returns if the context ends. The request goes on then: nothing is lost or sent
// twice.
func (s *session) flush(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flushing++
	defer func() { s.flushing-- }()
	for {
		s.startLocked()
		sent := s.sender
		switch {
		case sent != nil:
		case s.stopped != nil:
			return s.stopped
		default:
			return nil
		}
		s.mu.Unlock()
		select {
		case <-sent:
		case <-s.done:
		case <-ctx.Done():
		}
		s.mu.Lock()
		if s.stopped != nil {
			return s.stopped
		}
		if ctx.Err() != nil {
			if s.sender != nil || len(s.pending) > 0 {
				return context.Cause(ctx)
			}
		}
	}
}
