package rawjson

import (
	"bytes"
	"iter"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Kind is the type of a JSON value.
type Kind uint8

// The kinds of JSON values. KindNone is the kind of an absent one.
const (
	KindNone Kind = iota
	KindNull
	KindBool
	KindNumber
	KindString
	KindArray
	KindObject
)

// KindOf returns the kind of a checked value. JSON has been parsed by then, so the first byte
// decides.
func KindOf(v []byte) Kind {
	if len(v) == 0 {
		return KindNone
	}
	switch v[0] {
	case '{':
		return KindObject
	case '[':
		return KindArray
	case '"':
		return KindString
	case 't', 'f':
		return KindBool
	case 'n':
		return KindNull
	}
	return KindNumber
}

// Trim returns v without surrounding white space.
func Trim(v []byte) []byte { return bytes.Trim(v, " \t\r\n") }

// Members yields the members of an object in order: the key without quotes and escapes, and the
// bytes of the value. For other values it yields nothing. The slices are valid as long as v is. A
// key with escapes is a copy.
func Members(v []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		if KindOf(v) != KindObject {
			return
		}
		for i := skipSpace(v, 1); v[i] != '}'; {
			end := skip(v, i)
			key := unquote(v[i:end])
			start := skipSpace(v, skipSpace(v, end)+1)
			end = skip(v, start)
			if !yield(key, v[start:end]) {
				return
			}
			if i = skipSpace(v, end); v[i] == ',' {
				i = skipSpace(v, i+1)
			}
		}
	}
}

// Elements yields the values of an array in order. For other values it yields nothing.
func Elements(v []byte) iter.Seq[[]byte] {
	return func(yield func(value []byte) bool) {
		if KindOf(v) != KindArray {
			return
		}
		for i := skipSpace(v, 1); v[i] != ']'; {
			end := skip(v, i)
			if !yield(v[i:end]) {
				return
			}
			if i = skipSpace(v, end); v[i] == ',' {
				i = skipSpace(v, i+1)
			}
		}
	}
}

// Get returns the value of one member of an object, or nil.
func Get(obj []byte, key string) []byte {
	for k, v := range Members(obj) {
		if string(k) == key {
			return v
		}
	}
	return nil
}

// Empty reports whether v is absent or an object without members.
func Empty(v []byte) bool {
	return len(v) == 0 || v[0] == '{' && v[skipSpace(v, 1)] == '}'
}

// Without returns obj without the member of the given key. The rest keeps its bytes. If there is no
// such member it returns obj itself, else a copy. A member directly after the brace, with a comma
// directly after it, is removed without a trace.
func Without(obj []byte, key string) []byte {
	if KindOf(obj) != KindObject {
		return obj
	}
	comma := -1 // before the member
	for i := skipSpace(obj, 1); obj[i] != '}'; {
		colon := skip(obj, i)
		end := skip(obj, skipSpace(obj, skipSpace(obj, colon)+1))
		next := skipSpace(obj, end)
		switch found := string(unquote(obj[i:colon])) == key; {
		case found && obj[next] == ',':
			return slices.Concat(obj[:i], obj[next+1:])
		case found && comma >= 0:
			return slices.Concat(obj[:comma], obj[end:])
		case found:
			return slices.Concat(obj[:i], obj[end:])
		}
		if i = next; obj[next] == ',' {
			comma = next
			i = skipSpace(obj, next+1)
		}
	}
	return obj
}

// String returns the text of a string value. ok is false for any other kind.
func String(v []byte) (s string, ok bool) {
	if KindOf(v) != KindString {
		return "", false
	}
	return string(unquote(v)), true
}

// Bool returns a boolean value. ok is false for any other kind.
func Bool(v []byte) (b, ok bool) {
	if KindOf(v) != KindBool {
		return false, false
	}
	return v[0] == 't', true
}

// Int returns a number that is an integer and fits 64 bits, even if it is written with a zero
// fraction or an exponent. ok is false for anything else.
func Int(v []byte) (n int64, ok bool) {
	if KindOf(v) != KindNumber {
		return 0, false
	}
	if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil || f != float64(int64(f)) || f > 1<<53 || f < -1<<53 {
		return 0, false
	}
	return int64(f), true
}

// AppendString appends s as a JSON string. s must be valid UTF-8.
func AppendString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for i := 0; ; {
		end := plain(s, i)
		dst = append(dst, s[i:end]...)
		if end == len(s) {
			return append(dst, '"')
		}
		switch b := s[end]; b {
		case '"', '\\':
			dst = append(dst, '\\', b)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[b>>4], hex[b&15])
		}
		i = end + 1
	}
}

func skipSpace(v []byte, i int) int {
	for v[i] == ' ' || v[i] == '\n' || v[i] == '\t' || v[i] == '\r' {
		i++
	}
	return i
}

// skip returns the index after the value that starts at i.
func skip(v []byte, i int) int {
	switch v[i] {
	case '"':
		return skipString(v, i)
	case '{', '[':
		for level := 0; ; i++ {
			switch v[i] {
			case '"':
				i = skipString(v, i) - 1
			case '{', '[':
				level++
			case '}', ']':
				if level--; level == 0 {
					return i + 1
				}
			}
		}
	}
	for ; i < len(v); i++ {
		switch v[i] {
		case ',', '}', ']', ' ', '\n', '\t', '\r':
			return i
		}
	}
	return i
}

func skipString(v []byte, i int) int {
	for i++; ; {
		n := bytes.IndexByte(v[i:], '"')
		back := 0
		for i+n-1-back >= i && v[i+n-1-back] == '\\' {
			back++
		}
		i += n + 1
		if back%2 == 0 {
			return i
		}
	}
}

// unquote returns the text between the quotes. Without escapes it is a part of v.
func unquote(v []byte) []byte {
	v = v[1 : len(v)-1]
	at := bytes.IndexByte(v, '\\')
	if at < 0 {
		return v
	}
	out := append(make([]byte, 0, len(v)), v[:at]...)
	for i := at; i < len(v); {
		if v[i] != '\\' {
			end := len(v)
			if n := bytes.IndexByte(v[i:], '\\'); n >= 0 {
				end = i + n
			}
			out = append(out, v[i:end]...)
			i = end
			continue
		}
		switch b := v[i+1]; b {
		case 'u':
			r, _ := hex4(v[i+2:])
			i += 6
			if low, ok := lowSurrogate(v[i:]); ok && r >= 0xD800 && r < 0xDC00 {
				r = utf16.DecodeRune(r, low)
				i += 6
			}
			out = utf8.AppendRune(out, r)
		default:
			out = append(out, unescaped[b])
			i += 2
		}
	}
	return out
}

var unescaped = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

func hex4(v []byte) (r rune, ok bool) {
	if len(v) < 4 {
		return 0, false
	}
	for _, b := range v[:4] {
		switch {
		case b >= '0' && b <= '9':
			b -= '0'
		case b >= 'a' && b <= 'f':
			b -= 'a' - 10
		case b >= 'A' && b <= 'F':
			b -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(b)
	}
	return r, true
}

// lowSurrogate reads the second half of an escaped surrogate pair.
func lowSurrogate(v []byte) (r rune, ok bool) {
	if len(v) < 6 || v[0] != '\\' || v[1] != 'u' {
		return 0, false
	}
	r, ok = hex4(v[2:])
	return r, ok && r >= 0xDC00 && r <= 0xDFFF
}
