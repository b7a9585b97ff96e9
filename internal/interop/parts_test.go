package interop

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/a2a"
)

// Everything that the client can send comes back unchanged: in the history, and from the agent echo as an artifact.
func TestPartsAreUnchanged(t *testing.T) {
	t.Parallel()
	meta := map[string]any{"trace": map[string]any{"id": "⟨é⟩", "n": 1.5, "none": nil, "list": []any{true, "x"}}}
	m := a2a.NewMessage(a2a.MessageRoleUser,
		a2a.TextPart{Text: "zero \x00, a line\nbreak, \u2028, <&>, 🙂", Metadata: meta},
		a2a.TextPart{Text: ""},
		a2a.TextPart{Text: strings.Repeat("long ", 100_000)},
		a2a.DataPart{Data: map[string]any{"a": []any{1.0, "two", nil, map[string]any{}}, "": "no name"},
			Metadata: meta},
		a2a.DataPart{Data: map[string]any{}},
		a2a.FilePart{File: a2a.FileBytes{
			FileMeta: a2a.FileMeta{Name: "naïve.bin", MimeType: "application/octet-stream"},
			Bytes:    base64.StdEncoding.EncodeToString([]byte{0, 255, 254, 62, 63}),
		}, Metadata: meta},
		a2a.FilePart{File: a2a.FileURI{URI: "https://example.com/a%20b?c=d&e",
			FileMeta: a2a.FileMeta{MimeType: "text/plain"}}},
	)
	m.Metadata, m.Extensions = meta, []string{"https://example.com/ext/v1"}

	p := dial(t, echoAgent)
	task := p.send(m)
	checkState(t, task, a2a.TaskStateCompleted)
	m.TaskID, m.ContextID = task.ID, task.ContextID
	got := p.get(task.ID)
	checkSame(t, "the message", got.History, []*a2a.Message{m})
	checkSame(t, "the artifact", got.Artifacts[0].Parts, m.Parts)

	m = a2a.NewMessage(a2a.MessageRoleUser, m.Parts...)
	stream := p.stream(m).rest()
	checkStream(t, stream)
	checkSame(t, "the artifact, as a stream", fold(t, stream).Artifacts[0].Parts, m.Parts)
}
