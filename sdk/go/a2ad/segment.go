package a2ad

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// segment is what is written to an artifact between two other calls. It is recorded as one step.
type segment struct {
	key      string
	artifact string
	replayed bool
	tail     tail // of its text
}

const segmentName = "write"

// beginSegment returns the event that begins a segment. If it began before, the server restores the artifact.
func beginSegment(key, artifact string) json.RawMessage {
	return mustCompact(stepEvent{stepRecord{Key: key, Name: segmentName, Artifact: artifact}})
}

func endSegment(key string) json.RawMessage {
	return mustCompact(stepEvent{stepRecord{Key: key, Name: segmentName, Result: jsonNull}})
}

func isSegment(r *recordedStep) bool {
	return r.Name == segmentName && strings.Contains(r.Key, "write:"+r.Artifact+"#")
}

// takeBack returns events that remove what a handler wrote after its last checkpoint. If it has asked the client, and
// the client has answered, that text remains.
func takeBack(steps []*recordedStep) (events []json.RawMessage) {
	answered := make(map[string]bool)
	for _, r := range steps {
		if r.Kind == "wait" && r.ended() && r.over().By == "message" {
			answered[turnOf(r.Key)] = true
		}
	}
	for _, r := range steps {
		if !isSegment(r) || r.ended() {
			continue
		}
		if !answered[turnOf(r.Key)] {
			events = append(events, beginSegment(r.Key, r.Artifact))
		}
		events = append(events, endSegment(r.Key))
	}
	return events
}

// write appends text to an artifact, as part of its current segment.
func (s *session) write(ctx context.Context, artifact, name, text string) error {
	s.mu.Lock()
	open, err := s.segmentLocked(ctx, artifact)
	if err != nil || open.replayed {
		s.mu.Unlock()
		return err
	}
	s.addText(artifact, name, open.tail.next(name, text))
	full := s.sendTextLocked()
	s.mu.Unlock()
	if full {
		return s.store(ctx)
	}
	return nil
}

// segmentLocked returns the current segment of an artifact. Without one, it begins the next.
func (s *session) segmentLocked(ctx context.Context, artifact string) (*segment, error) {
	if err := s.overLocked(); err != nil {
		return nil, err
	}
	for _, g := range s.segments {
		if g.artifact == artifact {
			return g, nil
		}
	}
	key := s.nextKeyLocked(s.scope + "write:" + artifact)
	for s.handler && s.known[key] != nil { // of an earlier attempt, and over
		key = s.nextKeyLocked(s.scope + "write:" + artifact)
	}
	old, err := s.recordedLocked(key, "step", segmentName, "")
	if err != nil {
		return nil, err
	}
	g := &segment{key: key, artifact: artifact, replayed: old != nil && old.ended()}
	s.segments = append(s.segments, g)
	s.releaseHeldLocked(ctx)
	if !g.replayed {
		s.put(unit{events: []json.RawMessage{beginSegment(key, artifact)}})
	}
	return g, nil
}

// closeSegments records that the writes until now are complete. Those of a handler are complete when it saves a
// checkpoint or ends.
func (s *session) closeSegments() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeSegmentsLocked()
}

func (s *session) closeSegmentsLocked() {
	if !s.handler {
		s.endSegmentsLocked()
	}
}

// endSegments ends the segments of all artifacts, also those of a handler.
func (s *session) endSegments() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endSegmentsLocked()
}

// endSegmentsOf ends the segment of one artifact.
func (s *session) endSegmentsOf(artifact string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endSegmentsLocked(artifact)
}

// endTextLocked ends the text of a segment until now, which may end in half a character.
func (s *session) endTextLocked(g *segment) { s.addText(g.artifact, g.tail.name, g.tail.end()) }

// endSegmentsLocked ends the segments of these artifacts, or of all.
func (s *session) endSegmentsLocked(artifacts ...string) {
	var kept []*segment
	for _, g := range s.segments {
		switch {
		case len(artifacts) > 0 && !slices.Contains(artifacts, g.artifact):
			kept = append(kept, g)
		case !g.replayed:
			s.endTextLocked(g)
			s.put(unit{events: []json.RawMessage{endSegment(g.key)}})
		}
	}
	s.segments = kept
	s.textSentAt = time.Time{}
}
