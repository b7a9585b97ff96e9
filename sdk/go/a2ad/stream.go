package a2ad

import (
	"context"
	"encoding/json"
	"time"
)

var jsonNull = json.RawMessage("null")

// write appends text to an artifact, and sends it soon.
func (s *session) write(ctx context.Context, artifact, name, text string) error {
	if !s.handler {
		s.mu.Lock()
		open := s.segments[artifact]
		s.mu.Unlock()
		if open == nil {
			var err error
			if open, err = s.openSegment(ctx, artifact); err != nil {
				return err
			}
		}
		if open.replayed {
			return s.ended()
		}
	}
	return s.chunk(ctx, artifact, name, text)
}

func (s *session) openSegment(ctx context.Context, artifact string) (*segment, error) {
	key, err := s.nextKey("write:" + artifact)
	if err != nil {
		return nil, err
	}
	old, err := s.recorded(key, "step", "write", "")
	if err != nil {
		return nil, err
	}
	g := &segment{key, artifact, old != nil && old.EndedAt != nil}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.segments[artifact] = g
	s.order = append(s.order, g)
	s.recordFailuresLocked(ctx)
	if g.replayed {
		return g, nil
	}
	return g, s.putLocked(event{Step: &stepEvent{Key: key, Name: "write", Artifact: artifact}})
}

// closeSegments records that the writes until now are complete.
func (s *session) closeSegments() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeSegmentsLocked()
}

func (s *session) closeSegmentsLocked() {
	for _, g := range s.order {
		if !g.replayed {
			e := event{Step: &stepEvent{Key: g.key, Name: "write", Result: jsonNull}}
			_ = s.putLocked(e) // it has a form in JSON
		}
	}
	s.order = nil
	clear(s.segments)
}

// chunk sends text to an artifact, whoever records it.
func (s *session) chunk(ctx context.Context, artifact, name, text string) error {
	for len(text) > maxChunk {
		n := maxChunk
		for n > 0 && text[n]&0xC0 == 0x80 { // not within a character
			n--
		}
		if n == 0 { // not UTF-8
			n = maxChunk
		}
		s.addText(artifact, name, text[:n])
		text = text[n:]
	}
	if full := s.addText(artifact, name, text); full || s.eager {
		return s.flush(ctx)
	}
	return s.ended()
}

// addText adds text to what waits to be sent, and reports whether too much waits.
func (s *session) addText(artifact, name, text string) (full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.pending) - 1
	if last < 0 || s.pending[last].events != nil || s.pending[last].artifact != artifact ||
		len(s.pending[last].text)+len(text) > maxChunk {
		s.pending = append(s.pending, pendingEvents{artifact: artifact, name: name})
		last++
	}
	s.pending[last].text = append(s.pending[last].text, text...)
	s.bytes += len(text)
	switch {
	case s.bytes >= blockBytes:
		return true
	case s.eager:
	case !s.flushing:
		s.flushing = true
		s.wg.Go(s.flushSoon)
	case s.bytes >= flushBytes:
		select {
		case s.full <- struct{}{}:
		default: // it knows
		}
	}
	return false
}

// nextTick is when a run sends streamed text again that has sent some at sentAt. All runs of a worker do so at the same
// ticks, which are counted from began. Then the server, the database and the worker wake up for many requests instead
// of each.
func nextTick(began, sentAt time.Time) time.Time {
	after := sentAt.Add(flushEvery / 2)
	return after.Add(flushEvery - after.Sub(began)%flushEvery)
}

// flushSoon sends streamed text: at once, if nothing was sent lately.
func (s *session) flushSoon() {
	for {
		s.mu.Lock()
		select {
		case <-s.full: // of text that was sent since
		default:
		}
		delay := time.Until(nextTick(s.began, s.sentAt))
		if len(s.pending) == 0 || s.err != nil {
			s.flushing = false
			s.mu.Unlock()
			return
		}
		if s.bytes >= flushBytes {
			delay = 0
		}
		s.mu.Unlock()
		if delay > 0 {
			timer := time.NewTimer(delay)
			select {
			case <-timer.C:
			case <-s.full:
			case <-s.done:
			}
			timer.Stop()
		}
		s.flushOnce(context.Background())
	}
}
