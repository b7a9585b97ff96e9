// Package decode reads the params of requests: what the generations of the protocol have in common.
//
// Whatever a Reader returns fits its database columns and the configured limits. Otherwise the
// Reader has a fault that names the member with the error. Free-form values are parts of the
// params, never copies.
package decode

import (
	"bytes"
	"iter"
	"math"
	"strconv"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire"
)

// Limits that wire.Limits does not have.
const (
	MaxToken   = 1 << 10 // page token
	MaxName    = 1 << 10 // file name, media type
	maxStrings = 100     // entries of a list of strings
	maxPage    = 100     // tasks of one page
)

// Reader reads the params of one request. It keeps its first fault, and what it returns after that
// is useless. Objects are read in two steps, first the members and then their values, so that a
// codec can change members in between.
type Reader struct {
	Limits wire.Limits
	// Proto reads as ProtoJSON does: members may be in snake_case, and integers may be strings.
	Proto bool

	err  *a2a.Error
	path [4]step // to the object being read; push authentication is the deepest
	deep int
}

// step is one object on the path from the params: a member, or an element of one.
type step struct {
	member string
	index  int // -1: not an element
}

// Err returns the first fault as an *a2a.Error, or nil.
func (r *Reader) Err() error {
	if r.err == nil {
		return nil
	}
	return r.err
}

// Failed reports whether there was a fault.
func (r *Reader) Failed() bool { return r.err != nil }

// Enter says that the following members belong to the given one, until Leave. index is -1 if the
// member is no list.
func (r *Reader) Enter(member string, index int) {
	r.path[r.deep] = step{member, index}
	r.deep++
}

// Leave ends the last Enter.
func (r *Reader) Leave() { r.deep-- }

// Fail records a fault of a member of the current object, or without a member of the object itself.
func (r *Reader) Fail(member, format string, args ...any) {
	if r.err != nil {
		return
	}
	var path strings.Builder
	for _, s := range r.path[:r.deep] {
		path.WriteByte('.')
		path.WriteString(s.member)
		if s.index >= 0 {
			path.WriteString("[" + strconv.Itoa(s.index) + "]")
		}
	}
	if member != "" {
		path.WriteString("." + member)
	}
	r.err = a2a.InvalidParams(path.String()[1:], format, args...)
}

// Absent reports whether an optional member is missing or null.
func Absent(v []byte) bool { return len(v) == 0 || v[0] == 'n' }

// Key returns the name of a member of obj. With Proto it turns snake_case into camelCase, and a
// member under both names is a fault.
func (r *Reader) Key(obj, key []byte) []byte {
	if !r.Proto || bytes.IndexByte(key, '_') < 0 {
		return key
	}
	name := CamelCase(key)
	if len(name) < len(key) && rawjson.Get(obj, string(name)) != nil {
		r.Fail(string(name), "is given twice")
	}
	return name
}

// CamelCase returns a snake_case name in camelCase, as ProtoJSON writes it. It returns other names
// unchanged.
func CamelCase(key []byte) []byte {
	name := make([]byte, 0, len(key))
	for i := 0; i < len(key); i++ {
		b := key[i]
		if b == '_' {
			if i++; i == 1 || i == len(key) {
				return key
			}
			if b = key[i]; b < 'a' || b > 'z' {
				return key
			}
			b -= 'a' - 'A'
		} else if b >= 'A' && b <= 'Z' {
			return key
		}
		name = append(name, b)
	}
	return name
}

// Need fails if a required member is missing.
func (r *Reader) Need(member string, v []byte) {
	if Absent(v) {
		r.Fail(member, "is required")
	}
}

// IsObject reports whether v is an object, and fails if it is another value.
func (r *Reader) IsObject(member string, v []byte) bool {
	if Absent(v) {
		return false
	}
	if rawjson.KindOf(v) != rawjson.KindObject {
		r.Fail(member, "must be an object")
		return false
	}
	return true
}

// Params fails unless the params are an object or missing.
func (r *Reader) Params(v []byte) { r.IsObject("params", v) }

// Raw reads an object with any content. The result is a part of the params, not a copy.
func (r *Reader) Raw(member string, v []byte) a2a.Raw {
	if !r.IsObject(member, v) {
		return nil
	}
	return a2a.Raw(v[:len(v):len(v)])
}

// Text reads a string for a column of type text, which cannot hold U+0000.
func (r *Reader) Text(member string, v []byte, limit int) string {
	if Absent(v) {
		return ""
	}
	s, ok := rawjson.String(v)
	switch {
	case !ok:
		r.Fail(member, "must be a string")
	case len(s) > limit:
		r.Fail(member, "must not be longer than %d bytes", limit)
	case strings.IndexByte(s, 0) >= 0:
		r.Fail(member, "must not contain U+0000")
	default:
		return s
	}
	return ""
}

// Name reads a required string that must not be empty.
func (r *Reader) Name(member string, v []byte, limit int) string {
	r.Need(member, v)
	s := r.Text(member, v, limit)
	if s == "" {
		r.Fail(member, "must not be empty")
	}
	return s
}

// Elements yields the values of a list of up to limit elements, each inside Enter. It stops at a
// fault.
func (r *Reader) Elements(member string, v []byte, limit int) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if Absent(v) {
			return
		}
		if rawjson.KindOf(v) != rawjson.KindArray {
			r.Fail(member, "must be an array")
			return
		}
		n := 0
		for e := range rawjson.Elements(v) {
			if n == limit {
				r.Fail(member, "must not have more than %d entries", limit)
				return
			}
			r.Enter(member, n)
			more := yield(e)
			r.Leave()
			if !more || r.err != nil {
				return
			}
			n++
		}
	}
}

// Strings reads a list of strings for text columns.
func (r *Reader) Strings(member string, v []byte, limit int) []string {
	var list []string
	for e := range r.Elements(member, v, maxStrings) {
		r.Need("", e)
		list = append(list, r.Text("", e, limit))
	}
	return list
}

// Bool reads true or false.
func (r *Reader) Bool(member string, v []byte, otherwise bool) bool {
	if Absent(v) {
		return otherwise
	}
	b, ok := rawjson.Bool(v)
	if !ok {
		r.Fail(member, "must be true or false")
	}
	return b
}

// integer reads a number without a fraction.
func (r *Reader) integer(member string, v []byte) int64 {
	n, ok := rawjson.Int(v)
	if s, quoted := rawjson.String(v); quoted && r.Proto {
		var err error
		n, err = strconv.ParseInt(s, 10, 64)
		ok = err == nil
	}
	if !ok {
		r.Fail(member, "must be an integer")
	}
	return n
}

// Count reads a number that is not negative, or 0 if it is missing. Numbers too large to count
// anything here are reduced to the largest one.
func (r *Reader) Count(member string, v []byte) int {
	if Absent(v) {
		return 0
	}
	n := r.integer(member, v)
	if n < 0 {
		r.Fail(member, "must not be negative")
	}
	return int(min(n, math.MaxInt32))
}

// HistoryLength reads how many messages the caller wants. nil means all.
func (r *Reader) HistoryLength(v []byte) *int {
	if Absent(v) {
		return nil
	}
	n := r.Count("historyLength", v)
	return &n
}

// PageSize reads how many entries of a list the caller wants. 0 means the default.
func (r *Reader) PageSize(v []byte) int {
	const member = "pageSize"
	if Absent(v) {
		return 0
	}
	n := r.integer(member, v)
	if n < 1 || n > maxPage {
		r.Fail(member, "must be an integer from 1 to %d", maxPage)
		return 0
	}
	return int(n)
}

// Content reads the text of a part. Unlike Text it may contain U+0000.
func (r *Reader) Content(member string, v []byte) string {
	if Absent(v) {
		return ""
	}
	s, ok := rawjson.String(v)
	if !ok {
		r.Fail(member, "must be a string")
	}
	r.fits(member, len(s))
	return s
}

func (r *Reader) fits(member string, size int) {
	if size > r.Limits.PartBytes {
		r.Fail(member, "must not be longer than %d bytes", r.Limits.PartBytes)
	}
}

// Data reads any JSON value as the content of a part. The result is a part of the params, not a
// copy.
func (r *Reader) Data(member string, v []byte) a2a.Raw {
	r.fits(member, len(v))
	return a2a.Raw(v[:len(v):len(v)])
}

// URL reads the address of a file. Those who fetch it check it.
func (r *Reader) URL(member string, v []byte) string {
	s := r.Content(member, v)
	if s == "" {
		r.Fail(member, "must not be empty")
	}
	if strings.IndexByte(s, 0) >= 0 {
		r.Fail(member, "must not contain U+0000")
	}
	return s
}

// Bytes reads base64 in either alphabet, with or without padding, and returns it in the standard
// alphabet with padding.
func (r *Reader) Bytes(member string, v []byte) string {
	s, ok := rawjson.String(v)
	if !ok {
		r.Fail(member, "must be a string")
		return ""
	}
	// The length of the text decides first, so that nothing too large is decoded.
	r.fits(member, len(s)/4*3-2)
	if r.err != nil {
		return ""
	}
	s, size, ok := Base64(s)
	if !ok {
		r.Fail(member, "must be base64")
	}
	r.fits(member, size)
	return s
}
