//go:build unix

package exec

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"unicode/utf8"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/executor/vocab"
)

// eventSink reads one event per line.
type eventSink struct {
	emit      func(a2a.Event) error
	last      func() // called before the event that ends the turn
	decoder   *vocab.Decoder
	maxLine   int
	maxOutput int
}

func (s *eventSink) read(stdout *output) error {
	total := 0
	for n := 1; ; n++ {
		line, err := stdout.line(s.maxLine)
		if errors.Is(err, errLineTooLong) {
			return executor.InvalidResponse("line %d of stdout is longer than %d bytes", n, s.maxLine)
		}
		if total += len(line) + 1; total > s.maxOutput {
			return executor.InvalidResponse("stdout is longer than %d bytes", s.maxOutput)
		}
		if line := bytes.TrimSpace(line); len(line) > 0 {
			event, bad := s.decoder.Decode(line)
			if bad != nil {
				return executor.InvalidResponse("line %d of stdout is not an event: %w", n, bad)
			}
			final := a2a.EndsRun(event)
			if final {
				s.last()
			}
			if err := s.emit(event); err != nil {
				return err
			}
			if final {
				return errTurnEnded
			}
		}
		if err != nil {
			return eof(err)
		}
	}
}

func (s *eventSink) done() error { return s.emit(completed()) }

// textSink turns all output into one artifact.
type textSink struct {
	emit      func(a2a.Event) error
	id        string
	maxPart   int
	maxOutput int

	rest   []byte // not reported so far
	chunks int    // reported so far
}

func (s *textSink) read(stdout *output) error {
	for total := 0; ; {
		n, err := stdout.read(&s.rest)
		if total += n; total > s.maxOutput {
			return executor.InvalidResponse("stdout is longer than %d bytes", s.maxOutput)
		}
		for len(s.rest) > s.maxPart {
			cut := whole(s.rest[:s.maxPart])
			if !utf8.Valid(cut) {
				return s.notText()
			}
			if err := s.report(a2a.Part{Kind: a2a.PartText, Text: string(cut)}, false); err != nil {
				return err
			}
			s.rest = append(s.rest[:0], s.rest[len(cut):]...)
		}
		if err != nil {
			return eof(err)
		}
	}
}

// whole returns b without an incomplete character at its end.
func whole(b []byte) []byte {
	for i := 1; i <= min(utf8.UTFMax, len(b)); i++ {
		if c := b[len(b)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-i:]) {
				return b[:len(b)-i]
			}
			break
		}
	}
	return b
}

// done reports the last chunk, which for most outputs is the only one.
func (s *textSink) done() error {
	part := a2a.Part{Kind: a2a.PartText, Text: string(s.rest)}
	if !utf8.Valid(s.rest) {
		text := base64.StdEncoding.EncodeToString(s.rest)
		part = a2a.Part{Kind: a2a.PartFile, Text: text, MediaType: "application/octet-stream"}
		if s.chunks > 0 || len(part.Text) > s.maxPart {
			return s.notText()
		}
	}
	if err := s.report(part, true); err != nil {
		return err
	}
	return s.emit(completed())
}

func (s *textSink) notText() error {
	return executor.InvalidResponse(
		"stdout is not UTF-8 text, and too long for a file of %d bytes in base64", s.maxPart)
}

func (s *textSink) report(part a2a.Part, last bool) error {
	s.chunks++
	artifact := a2a.Artifact{ID: s.id, Parts: []a2a.Part{part}}
	return s.emit(&a2a.ArtifactUpdate{Artifact: artifact, Append: s.chunks > 1, LastChunk: last})
}

// eof returns nil for the ends of stdout that are not faults: the last writer has closed it, or is no longer waited
// for.
func eof(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, errAbandoned) {
		return nil
	}
	return err
}
