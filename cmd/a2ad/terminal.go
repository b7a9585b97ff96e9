package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"unicode/utf8"
)

// terminalWriter writes to a terminal what a person can take at its word: code points that change how others are shown, or
// that are not shown at all, come as escapes, which in JSON mean the same. All that commands write goes through it, whatever
// its form, since names and texts are of others. It leaves control characters below 0x80 alone: printable deals with those of
// others, JSON has none, and colors are ours.
type terminalWriter struct {
	to io.Writer

	mu   sync.Mutex
	rest []byte // guarded by mu; the beginning of a character that comes in two writes
}

// onTerminal returns w, through a terminalWriter if it is a terminal.
func onTerminal(w io.Writer) io.Writer {
	if !isTerminal(w) {
		return w
	}
	return &terminalWriter{to: w}
}

// fileOf returns the file that w writes to, if it is one.
func fileOf(w io.Writer) (*os.File, bool) {
	if t, ok := w.(*terminalWriter); ok {
		w = t.to
	}
	f, ok := w.(*os.File)
	return f, ok
}

// Write writes p.
func (t *terminalWriter) Write(p []byte) (int, error) {
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
			out = append(out, "\ufffd"...) // a byte such as 0x9b steers terminals that are not of UTF-8
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

// deceives reports whether a code point steers a terminal, turns the order of others around, breaks a line without being a line
// break, or is not seen at all.
func deceives(r rune) bool {
	switch {
	case r >= 0x7f && r < 0xa0, r == 0xad, r == 0x61c, r == 0x180e, r == 0xfeff,
		r >= 0x200b && r <= 0x200f && r != 0x200c && r != 0x200d, // the two joiners are part of scripts and emoji
		r >= 0x2028 && r <= 0x202e, r >= 0x2060 && r <= 0x206f, r >= 0xfff9 && r <= 0xfffb, r >= 0xe0000 && r <= 0xe007f:
		return true
	}
	return false
}
