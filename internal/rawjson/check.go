// Package rawjson reads and writes JSON as bytes: first a strict check of a whole document, then a
// walk over it without copies.
//
// Client input does not go through encoding/json, which uses the last of two equal keys, ignores
// the case of keys, replaces invalid UTF-8 by U+FFFD, and changes large numbers. Here a value keeps
// its bytes, and what Check accepts means the same to every reader.
package rawjson

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// Fault is the kind of an error in a document.
type Fault uint8

// The faults that Check distinguishes.
const (
	FaultSyntax    Fault = iota + 1 // not one JSON document in valid UTF-8
	FaultDuplicate                  // an object has the same key twice
	FaultDepth                      // nested deeper than allowed
)

// Error is the error of Check.
type Error struct {
	Fault  Fault
	Offset int // bytes before the fault
	Text   string
}

func (e *Error) Error() string { return fmt.Sprintf("%s at byte %d", e.Text, e.Offset) }

// Check reports whether data is exactly one JSON document (RFC 8259) in valid UTF-8, without a byte
// order mark, lone surrogates or duplicate keys, and nested at most depth levels. A non-nil error
// is an *Error. All other functions of this package require checked bytes.
func Check(data []byte, depth int) error {
	if !utf8.Valid(data) {
		return &Error{Fault: FaultSyntax, Offset: invalidAt(data), Text: "invalid UTF-8"}
	}
	c := checker{data: data, depth: depth}
	c.keys = make([][]byte, 0, 16) // enough for most requests
	if c.space(); c.err == nil {
		c.value(0)
	}
	if c.space(); c.err == nil && c.pos != len(data) {
		c.fail(FaultSyntax, "text after the document")
	}
	if c.err != nil {
		return c.err
	}
	return nil
}

func invalidAt(data []byte) int {
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(data)
}

type checker struct {
	data  []byte
	pos   int
	depth int
	keys  [][]byte // of the open objects, the outer ones first
	err   *Error
}

func (c *checker) fail(f Fault, text string) {
	if c.err == nil {
		c.err = &Error{Fault: f, Offset: c.pos, Text: text}
	}
}

func (c *checker) space() {
	for c.pos < len(c.data) {
		switch c.data[c.pos] {
		case ' ', '\t', '\n', '\r':
			c.pos++
		default:
			return
		}
	}
}

// next returns the byte at the position, or 0 at the end. No token starts with 0.
func (c *checker) next() byte {
	if c.pos < len(c.data) {
		return c.data[c.pos]
	}
	return 0
}

func (c *checker) value(level int) {
	switch b := c.next(); {
	case b == '{':
		c.object(level + 1)
	case b == '[':
		c.array(level + 1)
	case b == '"':
		c.str()
	case b == '-' || b >= '0' && b <= '9':
		c.number()
	case b == 't':
		c.word("true")
	case b == 'f':
		c.word("false")
	case b == 'n':
		c.word("null")
	case c.pos == len(c.data):
		c.fail(FaultSyntax, "unexpected end")
	default:
		c.fail(FaultSyntax, "unexpected character")
	}
}

func (c *checker) object(level int) {
	if level > c.depth {
		c.fail(FaultDepth, "nested too deeply")
		return
	}
	c.pos++
	c.space()
	if c.next() == '}' {
		c.pos++
		return
	}
	seen := keys{first: len(c.keys)}
	for c.err == nil {
		start := c.pos
		if c.next() != '"' {
			c.fail(FaultSyntax, "expected a key")
			return
		}
		if c.str(); c.err != nil {
			return
		}
		if !c.add(&seen, unquote(c.data[start:c.pos])) {
			c.pos = start
			c.fail(FaultDuplicate, "duplicate key")
			return
		}
		c.space()
		if c.next() != ':' {
			c.fail(FaultSyntax, "expected a colon")
			return
		}
		c.pos++
		c.space()
		c.value(level)
		c.space()
		if c.err != nil {
			return
		}
		if c.closed('}') {
			c.keys = c.keys[:seen.first]
			return
		}
	}
}

func (c *checker) array(level int) {
	if level > c.depth {
		c.fail(FaultDepth, "nested too deeply")
		return
	}
	c.pos++
	c.space()
	if c.next() == ']' {
		c.pos++
		return
	}
	for c.err == nil {
		c.value(level)
		c.space()
		if c.err != nil || c.closed(']') {
			return
		}
	}
}

// closed reads the end of an object or array, or else a comma and the space after it.
func (c *checker) closed(end byte) bool {
	switch c.next() {
	case end:
		c.pos++
		return true
	case ',':
		c.pos++
		c.space()
	default:
		c.fail(FaultSyntax, "expected a comma or the end")
	}
	return false
}

func (c *checker) word(w string) {
	if !bytes.HasPrefix(c.data[c.pos:], []byte(w)) {
		c.fail(FaultSyntax, "unexpected character")
		return
	}
	c.pos += len(w)
}

func (c *checker) digits() bool {
	start := c.pos
	for b := c.next(); b >= '0' && b <= '9'; b = c.next() {
		c.pos++
	}
	return c.pos > start
}

func (c *checker) number() {
	if c.next() == '-' {
		c.pos++
	}
	if c.next() == '0' {
		c.pos++
	} else if !c.digits() {
		c.fail(FaultSyntax, "malformed number")
		return
	}
	if c.next() == '.' {
		c.pos++
		if !c.digits() {
			c.fail(FaultSyntax, "malformed number")
			return
		}
	}
	if b := c.next(); b == 'e' || b == 'E' {
		c.pos++
		if b := c.next(); b == '+' || b == '-' {
			c.pos++
		}
		if !c.digits() {
			c.fail(FaultSyntax, "malformed number")
		}
	}
}

func (c *checker) str() {
	c.pos++
	for c.pos = plain(c.data, c.pos); c.pos < len(c.data); c.pos = plain(c.data, c.pos) {
		switch c.data[c.pos] {
		case '"':
			c.pos++
			return
		case '\\':
			if !c.escape() {
				return
			}
		default:
			c.fail(FaultSyntax, "control character in a string")
			return
		}
	}
	c.fail(FaultSyntax, "unexpected end")
}

func (c *checker) escape() bool {
	if c.pos+1 >= len(c.data) {
		c.pos = len(c.data)
		c.fail(FaultSyntax, "unexpected end")
		return false
	}
	switch c.data[c.pos+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		c.pos += 2
		return true
	case 'u':
		r, ok := hex4(c.data[c.pos+2:])
		if !ok {
			break
		}
		if r < 0xD800 || r > 0xDFFF {
			c.pos += 6
			return true
		}
		if low, ok := lowSurrogate(c.data[c.pos+6:]); ok && r < 0xDC00 && low != 0 {
			c.pos += 12
			return true
		}
		c.fail(FaultSyntax, "lone surrogate")
		return false
	}
	c.fail(FaultSyntax, "bad escape")
	return false
}

// keys are the keys of one object: a part of the checker's list and, if they are many, a set.
type keys struct {
	first int
	set   map[string]struct{}
}

// add reports whether key is new, and remembers it.
func (c *checker) add(k *keys, key []byte) bool {
	if k.set != nil {
		if _, dup := k.set[string(key)]; dup {
			return false
		}
		k.set[string(key)] = struct{}{}
		return true
	}
	for _, other := range c.keys[k.first:] {
		if bytes.Equal(other, key) {
			return false
		}
	}
	c.keys = append(c.keys, key)
	if all := c.keys[k.first:]; len(all) == 16 {
		k.set = make(map[string]struct{}, 32)
		for _, other := range all {
			k.set[string(other)] = struct{}{}
		}
	}
	return true
}
