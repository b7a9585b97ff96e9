package a2ad

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// segment is what is written to an artifact between two other calls. It is recorded as one step.
type segment struct {
	key      string
	artifact string
	replayed bool
	recorded *string // what a replayed segment of a handler has said; nil if everything is replayed
	at       int     // how much of that the handler has said again
	said     []byte  // what a handler has written, and for each other change its hash
	size     int     // of that, with what is not noted
	tail     tail    // of its text
}

const (
	segmentName = "write"
	// maxSaid is how many bytes of what a handler says are recorded. What comes after them is sent again.
	maxSaid = 128 << 10
)

// continuedResult is the result of a segment of a handler that a step has continued: what it has said.
type continuedResult struct {
	Continued *string `json:"continued"`
}

// continued returns what a segment has said that a step has continued, or nil for another one.
func continued(r *recordedStep) *string {
	var result continuedResult
	if r == nil || json.Unmarshal(r.Result, &result) != nil {
		return nil
	}
	return result.Continued
}

// say notes what a handler has written.
func (g *segment) say(text string) {
	if g.size += len(text); g.size <= maxSaid {
		g.said = append(g.said, text...)
	}
}

// result returns the result of the segment of a handler that a step continues.
func (g *segment) result() json.RawMessage {
	said := string(g.said)
	return mustCompact(continuedResult{&said})
}

// skip returns what of a text is not recorded: all from the first difference on.
func (g *segment) skip(text string) string {
	if g.recorded == nil || strings.HasPrefix((*g.recorded)[g.at:], text) {
		g.at += len(text)
		return ""
	}
	rest := (*g.recorded)[g.at:]
	same := 0
	for same < len(text) && same < len(rest) && text[same] == rest[same] {
		same++
	}
	for same > 0 && !utf8.RuneStart(text[same]) {
		same--
	}
	return text[same:]
}

// changeOf returns how a change other than text is noted.
func changeOf(event any) string { return "\ufffc" + digest(fingerprint(mustCompact(event))) }

// beginSegment returns the event that begins a segment. If it began before, the server restores the artifact.
func beginSegment(key, artifact string) json.RawMessage {
	return mustCompact(stepEvent{stepRecord{Key: key, Name: segmentName, Artifact: artifact}})
}

func endSegment(key string, result json.RawMessage) json.RawMessage {
	return mustCompact(stepEvent{stepRecord{Key: key, Name: segmentName, Result: result}})
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
		events = append(events, endSegment(r.Key, jsonNull))
	}
	return events
}

// write appends text to an artifact, as part of its current segment.
func (s *session) write(ctx context.Context, artifact, name, text string) error {
	s.mu.Lock()
	g, err := s.segmentLocked(ctx, artifact)
	if err != nil {
		s.mu.Unlock()
		return err
	}
	g, err = s.writeLocked(ctx, g, g.tail.next(name, text))
	if err != nil || g.replayed {
		s.mu.Unlock()
		return err
	}
	full := s.sendTextLocked()
	s.mu.Unlock()
	if full {
		return s.store(ctx)
	}
	return nil
}

// writeLocked appends text to the segment of an artifact, or to the next one if it differs from what is recorded. It
// returns the segment.
func (s *session) writeLocked(ctx context.Context, g *segment, text string) (*segment, error) {
	for g.replayed {
		text = g.skip(text)
		if text == "" {
			return g, nil
		}
		next, err := s.nextSegmentLocked(ctx, g)
		if err != nil {
			return nil, err
		}
		g = next
	}
	if s.handler {
		g.say(text)
	}
	s.addText(g.artifact, g.tail.name, text)
	return g, nil
}

// changed notes that a handler changes an artifact other than by text. It returns whether the change is recorded
// already.
func (s *session) changed(ctx context.Context, artifact, change string) (recorded bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, err := s.segmentLocked(ctx, artifact)
	if err == nil {
		g, err = s.writeLocked(ctx, g, g.tail.end())
	}
	for err == nil && g.replayed {
		if g.skip(change) == "" {
			return true, nil
		}
		g, err = s.nextSegmentLocked(ctx, g)
	}
	if err != nil {
		return false, err
	}
	g.say(change)
	return false, nil
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
	return s.openSegmentLocked(ctx, artifact)
}

// nextSegmentLocked returns the segment after a replayed one, which the handler has left.
func (s *session) nextSegmentLocked(ctx context.Context, old *segment) (*segment, error) {
	s.segments = slices.DeleteFunc(s.segments, func(g *segment) bool { return g == old })
	g, err := s.openSegmentLocked(ctx, old.artifact)
	if err == nil {
		g.tail = old.tail
	}
	return g, err
}

func (s *session) openSegmentLocked(ctx context.Context, artifact string) (*segment, error) {
	key := s.nextKeyLocked(s.scope + "write:" + artifact)
	for s.handler && s.known[key] != nil && !s.followsLocked(s.known[key]) {
		key = s.nextKeyLocked(s.scope + "write:" + artifact)
	}
	old, err := s.recordedLocked(key, "step", segmentName, "")
	if err != nil {
		return nil, err
	}
	g := &segment{key: key, artifact: artifact, replayed: old != nil && old.ended(), recorded: continued(old)}
	s.segments = append(s.segments, g)
	s.releaseHeldLocked(ctx)
	if !g.replayed {
		s.put(unit{events: []json.RawMessage{beginSegment(key, artifact)}})
	}
	return g, nil
}

// followsLocked returns whether the handler can come to a recorded segment, which was not taken back.
func (s *session) followsLocked(r *recordedStep) bool {
	return continued(r) != nil && r.place > s.passed[r.Artifact]
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

func (s *session) endSegmentsLocked() {
	for _, g := range s.segments {
		s.endSegmentLocked(g, false)
	}
	s.segments = nil
	s.textSentAt = time.Time{}
}

// continueSegment records that a step continues an artifact, so that what it has is not taken back. old is what is
// recorded of the step. What follows a step that is not replayed is new.
func (s *session) continueSegment(artifact string, old *recordedStep) {
	s.mu.Lock()
	defer s.mu.Unlock()
	place := len(s.known)
	if old != nil && old.ended() {
		place = old.place
	}
	s.passed[artifact] = max(s.passed[artifact], place)
	s.segments = slices.DeleteFunc(s.segments, func(g *segment) bool {
		if g.artifact == artifact {
			s.endSegmentLocked(g, s.handler)
		}
		return g.artifact == artifact
	})
	s.textSentAt = time.Time{}
}

func (s *session) endSegmentLocked(g *segment, continues bool) {
	if g.replayed {
		return
	}
	rest := g.tail.end() // half a character
	g.say(rest)
	s.addText(g.artifact, g.tail.name, rest)
	result := jsonNull
	if continues {
		result = g.result()
	}
	s.put(unit{events: []json.RawMessage{endSegment(g.key, result)}})
}
