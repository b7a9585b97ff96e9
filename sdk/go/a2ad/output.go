package a2ad

import (
	"context"
	"encoding/json"
)

// Write appends text to the artifact "answer".
//
// The first text is sent at once, and later text every 50 ms. Write waits only if the server is slower than the agent.
// What is written between two other calls is recorded together. If the agent dies before that, the artifact is restored
// and the text is sent again.
//
// A character may be cut between two writes: its bytes wait for the next Write to the artifact, until the step ends or,
// outside steps, until another call. U+FFFD replaces what is not valid UTF-8.
func (t *Task) Write(ctx context.Context, text string) error {
	return (&ArtifactWriter{t: t, id: "answer"}).Write(ctx, text)
}

// Status tells the client what the agent is doing. U+FFFD replaces what is not valid UTF-8.
func (t *Task) Status(ctx context.Context, text string) error {
	return t.s.do(ctx, func() error {
		text := valid(text)
		if err := checkText(text, "the status", maxText); err != nil {
			return err
		}
		e := statusEvent{statusUpdate{status{stateWorking, &sentMessage{[]Part{Text(text)}}}}}
		_, err := t.s.once(ctx, "status", "status", "", e)
		return err
	})
}

// Artifact returns a writer for an artifact. Its id is the name.
func (t *Task) Artifact(name string) *ArtifactWriter {
	return &ArtifactWriter{t: t, id: name, name: name}
}

// ArtifactWriter writes an artifact. [Task.Artifact] returns it. Its methods return a [UsageError] for content that the
// server would refuse.
type ArtifactWriter struct {
	t        *Task
	id, name string
}

// WithID returns a writer for an artifact with the same name and another id.
func (a *ArtifactWriter) WithID(id string) *ArtifactWriter {
	return &ArtifactWriter{t: a.t, id: id, name: a.name}
}

// Write appends text, like [Task.Write].
func (a *ArtifactWriter) Write(ctx context.Context, text string) error {
	s := a.t.s
	return s.do(ctx, func() error {
		if err := a.check(); err != nil {
			return err
		}
		if running := stepOf(ctx, s); running != nil {
			return running.write(ctx, a.id, a.name, text)
		}
		if err := outsideGather(ctx, s, "Write"); err != nil {
			return err
		}
		return s.write(ctx, a.id, a.name, text)
	})
}

// Data sends a value of up to 1 MiB of JSON. It replaces the artifact.
func (a *ArtifactWriter) Data(ctx context.Context, value any) error {
	data, err := compact(value)
	if err != nil {
		err = misuse("the data of an artifact cannot be recorded as JSON: %v", err)
		return a.t.s.do(ctx, func() error { return err })
	}
	return a.Send(ctx, Part{Data: data})
}

// File sends a file of up to 768 KiB. It replaces the artifact.
func (a *ArtifactWriter) File(ctx context.Context, filename, mediaType string, content []byte) error {
	if content == nil {
		content = []byte{}
	}
	return a.Send(ctx, Part{Raw: content, Filename: filename, MediaType: mediaType})
}

// Link sends a link to a file. It replaces the artifact.
func (a *ArtifactWriter) Link(ctx context.Context, url string) error {
	return a.Send(ctx, Part{URL: url})
}

// Replace replaces the artifact with text of up to 1 MiB.
func (a *ArtifactWriter) Replace(ctx context.Context, text string) error {
	return a.Send(ctx, Text(text))
}

// Send replaces the artifact with parts.
func (a *ArtifactWriter) Send(ctx context.Context, parts ...Part) error {
	return a.send(ctx, parts, false)
}

// Append adds parts to the artifact.
func (a *ArtifactWriter) Append(ctx context.Context, parts ...Part) error {
	return a.send(ctx, parts, true)
}

func (a *ArtifactWriter) send(ctx context.Context, parts []Part, more bool) error {
	s := a.t.s
	return s.do(ctx, func() error {
		if err := firstOf(a.check(), outsideGather(ctx, s, "an artifact")); err != nil {
			return err
		}
		parts, err := checkParts(parts, "an artifact")
		if err != nil {
			return err
		}
		update := artifactUpdate{Artifact: Artifact{ID: a.id, Name: a.name, Parts: parts}, Append: more}
		_, err = s.once(ctx, "artifact:"+a.id, "artifact", a.id, artifactEvent{update})
		return err
	})
}

func (a *ArtifactWriter) check() error {
	if a.name != "" || a.id == "" {
		if err := checkName(a.name, "the name of an artifact"); err != nil {
			return err
		}
	}
	return checkName(a.id, "the id of an artifact")
}

// once sends an event, and records in the same transaction that it was sent. artifact is the id of the artifact that
// the event changes, if any. It returns whether this attempt sent it.
func (s *session) once(ctx context.Context, name, kind, artifact string, event any) (bool, error) {
	if err := outsideSteps(ctx, s, kind); err != nil {
		return false, err
	}
	if s.handler {
		if artifact != "" {
			recorded, err := s.changed(ctx, artifact, changeOf(event))
			if err != nil || recorded {
				return false, err
			}
		}
		if err := s.add(ctx, event); err != nil {
			return false, err
		}
		return true, s.store(ctx)
	}
	key, err := s.key(ctx, name)
	if err != nil {
		return false, err
	}
	var sent json.RawMessage
	if kind != "usage" { // work that is done again may use another number of tokens
		sent = fingerprint(mustCompact(event))
	}
	old, err := s.recorded(key, "step", kind, digest(sent))
	if err != nil {
		return false, err
	}
	if old != nil {
		s.closeSegments()
		return false, nil
	}
	if err := s.add(ctx, event, stepEvent{stepRecord{Key: key, Name: kind, Input: sent}}); err != nil {
		return false, err
	}
	return true, s.store(ctx)
}
