package main

import (
	"encoding/base64"
	"fmt"
	"io"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// screen shows a task to a person as it happens. What the agent says goes to stdout as
// it is, so that it can be piped on; everything else goes to stderr in brackets.
type screen struct {
	out, notes io.Writer
	terminal   bool // out is one: notes must not cut a line, and agents must not steer the terminal
	paint      painter

	midLine  bool            // the last thing written to out did not end its line
	artifact string          // id of the artifact being written; "" if it is something else
	seen     map[string]bool // artifacts that have been shown
	state    a2a.State
}

func newScreen(app *App) *screen {
	return &screen{out: app.Stdout, notes: app.Stderr, terminal: app.Terminal, paint: painter(app.ColorNotes), seen: map[string]bool{}}
}

// note writes one line about the task.
func (s *screen) note(format string, args ...any) { s.bracket(s.paint.dim, format, args...) }

func (s *screen) bracket(style func(string) string, format string, args ...any) {
	if s.terminal {
		s.endLine()
	}
	fmt.Fprintln(s.notes, style("["+oneLine(fmt.Sprintf(format, args...))+"]"))
}

// endLine ends what the agent is writing.
func (s *screen) endLine() {
	if s.midLine {
		fmt.Fprintln(s.out)
		s.midLine = false
	}
}

// say writes text of the agent.
func (s *screen) say(text string) {
	if s.terminal {
		text = printable(text)
	}
	if text == "" {
		return
	}
	_, _ = io.WriteString(s.out, text)
	s.midLine = !strings.HasSuffix(text, "\n")
}

// setState says what state the task is in, if that is news. A message that comes with
// an end of the turn is what the agent has to say; any other is a sign of progress, and
// so is what a2ad itself says about a new attempt.
func (s *screen) setState(state a2a.State, parts []a2a.Part, metadata []byte) {
	text := client.Text(parts)
	if text == "" && !state.EndsTurn() {
		text = attempt(metadata)
	}
	if state == s.state && text == "" {
		return
	}
	s.state = state
	style := s.paint.state(state)
	if text == "" || state.EndsTurn() {
		s.bracket(style, "%s", state)
		s.parts(parts)
		return
	}
	s.bracket(style, "%s: %s", state, strings.ReplaceAll(text, "\n", " "))
}

// attempt reads which attempt at a turn begins, and why, from the metadata of a status.
func attempt(metadata []byte) string {
	n, ok := rawjson.Int(rawjson.Get(metadata, "a2ad/attempt"))
	if !ok {
		return ""
	}
	text := fmt.Sprintf("attempt %d", n)
	if why, _ := rawjson.String(rawjson.Get(metadata, "a2ad/reason")); why != "" {
		text += ", " + why
	}
	return text
}

// parts writes a whole message.
func (s *screen) parts(parts []a2a.Part) {
	if len(parts) == 0 {
		return
	}
	s.artifact = ""
	for _, p := range parts {
		s.endLine()
		s.part(p)
	}
	s.endLine()
}

func (s *screen) part(p a2a.Part) {
	switch p.Kind {
	case a2a.PartText:
		s.say(p.Text)
	case a2a.PartData:
		s.endLine()
		s.say(string(p.Data) + "\n")
	case a2a.PartURL:
		s.note("file%s at %s", describeFile(p), p.Text)
	case a2a.PartFile:
		s.note("file%s, %d bytes", describeFile(p), base64.StdEncoding.DecodedLen(len(p.Text))-strings.Count(p.Text, "="))
	}
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

// chunk writes a piece of an artifact behind the pieces before it.
func (s *screen) chunk(a client.Artifact, more, last bool) {
	if s.artifact != a.ID {
		s.endLine()
	}
	switch {
	case !more && s.seen[a.ID]:
		s.endLine()
		s.note("artifact %s again, from its start", artifactName(a))
	case s.artifact != a.ID:
		s.note("artifact %s", artifactName(a))
	}
	s.artifact, s.seen[a.ID] = a.ID, true
	for _, p := range a.Parts {
		s.part(p)
	}
	if last {
		s.endLine()
	}
}

func artifactName(a client.Artifact) string {
	if a.Name != "" {
		return a.Name
	}
	return a.ID
}

// snapshot shows the artifacts of a task as they are now.
func (s *screen) snapshot(artifacts []client.Artifact) {
	for _, a := range artifacts {
		delete(s.seen, a.ID)
		s.artifact = ""
		s.chunk(a, false, false)
	}
}

// oneLine is printable without line breaks and tabs: a name does not look like more than one thing.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' {
			return ' '
		}
		return r
	}, printable(s))
}

// printable replaces what would steer a terminal: control characters other than line
// breaks and tabs.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r == '\r':
			return -1
		case r < 0x20 || r >= 0x7f && r < 0xa0:
			return '\ufffd'
		}
		return r
	}, s)
}
