package term

import (
	"encoding/base64"
	"fmt"
	"io"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// Transcript shows a task as it happens. What the agent says goes to stdout unchanged, so that it
// can be piped; everything else goes to stderr in brackets.
type Transcript struct {
	out, notes io.Writer
	terminal   bool // out is a terminal: notes must not cut a line, and agents must not steer it
	paint      Painter

	midLine  bool            // the last text on out did not end its line
	artifact string          // id of the artifact being written; "" for anything else
	seen     map[string]bool // artifacts that have been shown
	state    a2a.State
}

// NewTranscript begins a transcript.
func NewTranscript(c *Console) *Transcript {
	return &Transcript{
		out: c.Stdout, notes: c.Stderr, terminal: c.Terminal, paint: Painter(c.ColorStderr), seen: map[string]bool{},
	}
}

// Note writes a line about the task.
func (t *Transcript) Note(format string, args ...any) { t.bracket(t.paint.Dim, format, args...) }

func (t *Transcript) bracket(style func(string) string, format string, args ...any) {
	if t.terminal {
		t.EndLine()
	}
	fmt.Fprintln(t.notes, style("["+OneLine(fmt.Sprintf(format, args...))+"]"))
}

// EndLine ends the line that the agent is writing.
func (t *Transcript) EndLine() {
	if t.midLine {
		fmt.Fprintln(t.out)
		t.midLine = false
	}
}

// say writes text from the agent.
func (t *Transcript) say(text string) {
	if t.terminal {
		text = Printable(text)
	}
	if text == "" {
		return
	}
	_, _ = io.WriteString(t.out, text)
	t.midLine = !strings.HasSuffix(text, "\n")
}

// State says which state the task is in, if that is new. A message with the end of a turn is what
// the agent says. Any other message is a sign of progress, and so is the attempt that metadata
// names.
func (t *Transcript) State(state a2a.State, parts []a2a.Part, metadata []byte) {
	text := client.Text(parts)
	if text == "" && !state.EndsTurn() {
		text = DescribeAttempt(metadata)
	}
	if state == t.state && text == "" {
		return
	}
	t.state = state
	style := t.paint.State(state)
	if text == "" || state.EndsTurn() {
		t.bracket(style, "%s", state)
		t.Parts(parts)
		return
	}
	t.bracket(style, "%s: %s", state, strings.ReplaceAll(text, "\n", " "))
}

// Parts writes a whole message.
func (t *Transcript) Parts(parts []a2a.Part) {
	if len(parts) == 0 {
		return
	}
	t.artifact = ""
	for _, p := range parts {
		t.EndLine()
		t.part(p)
	}
	t.EndLine()
}

func (t *Transcript) part(p a2a.Part) {
	switch p.Kind {
	case a2a.PartText:
		t.say(p.Text)
	case a2a.PartData:
		t.EndLine()
		t.say(string(p.Data) + "\n")
	case a2a.PartURL:
		t.Note("file%s at %s", describeFile(p), p.Text)
	case a2a.PartFile:
		size := base64.StdEncoding.DecodedLen(len(p.Text)) - strings.Count(p.Text, "=")
		t.Note("file%s, %d bytes", describeFile(p), size)
	}
}

// Chunk writes a piece of an artifact: the next one, or the first one unless more is set.
func (t *Transcript) Chunk(a client.Artifact, more, last bool) {
	if t.artifact != a.ID {
		t.EndLine()
	}
	switch {
	case !more && t.seen[a.ID]:
		t.EndLine()
		t.Note("artifact %s again, from its start", ArtifactName(a))
	case t.artifact != a.ID:
		t.Note("artifact %s", ArtifactName(a))
	}
	t.artifact, t.seen[a.ID] = a.ID, true
	for _, p := range a.Parts {
		t.part(p)
	}
	if last {
		t.EndLine()
	}
}

// Artifacts writes the artifacts of a task as they are now.
func (t *Transcript) Artifacts(artifacts []client.Artifact) {
	for _, a := range artifacts {
		delete(t.seen, a.ID)
		t.artifact = ""
		t.Chunk(a, false, false)
	}
}

// MarkSeen counts artifacts of earlier turns as shown.
func (t *Transcript) MarkSeen(artifacts []client.Artifact) {
	for _, a := range artifacts {
		t.seen[a.ID] = true
	}
}

// ArtifactName returns the name of an artifact, or else its id.
func ArtifactName(a client.Artifact) string {
	if a.Name != "" {
		return a.Name
	}
	return a.ID
}

// DescribeAttempt reads from the metadata of a status which attempt begins, and why, or why the task is parked.
func DescribeAttempt(metadata []byte) string {
	why, _ := rawjson.String(rawjson.Get(metadata, "a2ad/reason"))
	n, ok := rawjson.Int(rawjson.Get(metadata, "a2ad/attempt"))
	if !ok {
		return why
	}
	text := fmt.Sprintf("attempt %d", n)
	if why != "" {
		text += ", " + why
	}
	return text
}

func describeFile(p a2a.Part) string {
	d := ""
	if p.Filename != "" {
		d = " " + p.Filename
	}
	if p.MediaType != "" {
		d += " (" + p.MediaType + ")"
	}
	return d
}

// DescribeParts returns content that stands after a colon: on the same line, or indented below it.
func DescribeParts(parts []a2a.Part) string {
	var out []string
	for _, p := range parts {
		switch p.Kind {
		case a2a.PartText:
			out = append(out, strings.TrimRight(p.Text, "\n"))
		case a2a.PartData:
			out = append(out, string(p.Data))
		case a2a.PartURL:
			out = append(out, "[file"+describeFile(p)+" at "+p.Text+"]")
		case a2a.PartFile:
			out = append(out, "[file"+describeFile(p)+"]")
		}
	}
	text := Printable(strings.Join(out, "\n"))
	if strings.Contains(text, "\n") {
		return "\n  " + strings.ReplaceAll(text, "\n", "\n  ")
	}
	return " " + text
}
