package term

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"unicode/utf8"
)

// safeWriter writes to a terminal and escapes the code points that deceive its reader. In JSON the
// escapes mean the same as the code points.
//
// Everything that a command writes goes through it, because names and texts come from clients. It
// passes control characters below 0x80: Printable replaces those of clients, JSON has none, and
// the colors are ours.
type safeWriter struct {
	to io.Writer

	mu   sync.Mutex
	rest []byte // guarded by mu; the first bytes of a character that arrives in two writes
}

// safe returns w through a safeWriter if w is a terminal.
func safe(w io.Writer) io.Writer {
	if !isTerminal(w) {
		return w
	}
	return &safeWriter{to: w}
}

// fileOf returns the file that w writes to, if it is one.
func fileOf(w io.Writer) (*os.File, bool) {
	if t, ok := w.(*safeWriter); ok {
		w = t.to
	}
	f, ok := w.(*os.File)
	return f, ok
}

// Write writes p.
func (t *safeWriter) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := append(t.rest, p...)
	t.rest = nil
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && size == 1 && !utf8.FullRune(text):
			t.rest = append([]byte(nil), text...)
			text = nil
			continue
		case r == utf8.RuneError && size == 1:
			out = append(out, "\ufffd"...) // a byte such as 0x9b steers a terminal that does not read UTF-8
		case deceives(r) && r <= 0xffff:
			out = fmt.Appendf(out, `\u%04x`, r)
		case deceives(r):
			out = append(out, "\ufffd"...)
		default:
			out = append(out, text[:size]...)
		}
		text = text[size:]
	}
	if _, err := t.to.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// deceives reports whether a code point steers a terminal, reorders other code points, breaks a
// line without being a line break, or is invisible.
func deceives(r rune) bool {
	switch {
	case r >= 0x7f && r < 0xa0, r == 0xad, r == 0x61c, r == 0x180e, r == 0xfeff,
		r >= 0x200b && r <= 0x200f && r != 0x200c && r != 0x200d, // the two joiners are part of scripts and emoji
		r >= 0x2028 && r <= 0x202e, r >= 0x2060 && r <= 0x206f,
		r >= 0xfff9 && r <= 0xfffb, r >= 0xe0000 && r <= 0xe007f:
		return true
	}
	return false
}

// Printable removes carriage returns and replaces the other control characters, except line breaks
// and tabs.
func Printable(s string) string {
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

// OneLine is Printable with spaces in place of line breaks and tabs, so that a name cannot look
// like two things.
func OneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' {
			return ' '
		}
		return r
	}, Printable(s))
}

// Cell is OneLine for a table: "-" stands for no text.
func Cell(s string) string {
	if s == "" {
		return "-"
	}
	return OneLine(s)
}

// Blank replaces control characters with spaces, so that columns stay where they are.
func Blank(line string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, line)
}
