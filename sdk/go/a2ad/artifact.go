package a2ad

import "context"

// ArtifactWriter writes an artifact. [Task.Artifact] returns it.
type ArtifactWriter struct {
	t        *Task
	id, name string
}

// Write appends text. The client sees it at once: the first text is sent immediately, and more of it about every
// 50 ms or 32 KiB. If the server is slower than the agent, Write waits.
func (a *ArtifactWriter) Write(ctx context.Context, text string) error {
	if err := a.check(); err != nil {
		return err
	}
	if text == "" {
		return a.t.s.ended()
	}
	running := stepOf(ctx)
	switch {
	case running != nil && running.t == a.t:
		if err := running.writes(ctx, a.id); err != nil {
			return err
		}
		return a.t.s.chunk(ctx, a.id, a.name, text)
	case branchOf(ctx) != nil:
		return misuse("inside Gather, write in a step: otherwise the order of the text is not the same each time")
	}
	return a.t.s.write(ctx, a.id, a.name, text)
}

// Data sends a JSON value. It replaces the artifact.
func (a *ArtifactWriter) Data(ctx context.Context, value any) error {
	data, err := encode(value, "the data of artifact "+a.id)
	if err != nil {
		return err
	}
	return a.Send(ctx, Part{Data: data})
}

// File sends a file of up to 768 KiB. It replaces the artifact. Store larger ones elsewhere, and send a link.
func (a *ArtifactWriter) File(ctx context.Context, filename, mediaType string, content []byte) error {
	return a.Send(ctx, Part{Raw: content, Filename: filename, MediaType: mediaType})
}

// Link sends the URL of a file. It replaces the artifact.
func (a *ArtifactWriter) Link(ctx context.Context, url string) error {
	return a.Send(ctx, Part{URL: url})
}

// Replace replaces the artifact with a text.
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
	if err := a.check(); err != nil {
		return err
	}
	if err := checkParts("artifact "+a.id, parts); err != nil {
		return err
	}
	e := event{Artifact: &artifactUpdate{Artifact: Artifact{ID: a.id, Name: a.name, Parts: parts}, Append: more}}
	return a.t.once(ctx, "artifact:"+a.id, "artifact", e)
}

func (a *ArtifactWriter) check() error {
	if a.id == "" || len(a.id) > maxID || !plain(a.id) {
		return misuse("the name of an artifact must have 1 to %d bytes of text: %.60q", maxID, a.id)
	}
	return nil
}
