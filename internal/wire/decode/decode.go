// Package decode reads the params of requests: what the generations of the protocol have
// in common.
//
// Whatever a Reader returns fits the columns it is bound for and the limits that were
// set, or else the Reader has a fault, which names the member to blame. Free-form values
// are parts of the params, never copies.
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

// Bounds that wire.Limits does not name.
const (
	MaxToken   = 1 << 10 // page token
	MaxName    = 1 << 10 // file name, media type
	maxStrings = 100     // entries of a list of strings
	maxPage    = 100     // tasks of one page
)

// Reader reads the params of one request. Its first fault sticks, and whatever is read
// after it is of no use. Objects are read in two steps, members first and their values
// then, so that a codec can step in between the two.
type Reader struct {
	Limits wire.Limits
	// Proto reads as ProtoJSON does: members have a second name, in snake_case, and an
	// integer may be written as a string.
	Proto bool

	err  *a2a.Error
	path [4]step // of the object being read; push authentication is the deepest
	deep int
}

// step is one object on the way from the params: a member, or an element of one.
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

// Enter says that what is read next are members of the given one, up to Leave. An index
// of -1 is for a member that is no list.
func (r *Reader) Enter(member string, index int) {
	r.path[r.deep] = step{member, index}
	r.deep++
}

// Leave ends what Enter began.
func (r *Reader) Leave() { r.deep-- }

// Fail blames a member of the object being read, or with no member the object itself.
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

// Absent reports whether an optional member is not given; null says the same.
func Absent(v []byte) bool { return len(v) == 0 || v[0] == 'n' }

// Key returns the name of a member of obj: key itself, or with Proto its camelCase form
// if it is written in snake_case. A member that is given under both names is a fault.
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

// CamelCase returns a snake_case name as ProtoJSON writes it, and any other as it is.
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

// Need fails if a required member is not given.
func (r *Reader) Need(member string, v []byte) {
	if Absent(v) {
		r.Fail(member, "is required")
	}
}

// IsObject reports whether v is an object to be read, and fails if it is another value.
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

// Params fails unless the params are an object or absent.
func (r *Reader) Params(v []byte) { r.IsObject("params", v) }

// Raw reads an object of any content. It is a part of the params, not a copy.
func (r *Reader) Raw(member string, v []byte) a2a.Raw {
	if !r.IsObject(member, v) {
		return nil
	}
	return a2a.Raw(v[:len(v):len(v)])
}

// Text reads a string that ends in a column of type text, which cannot hold U+0000.
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

// Name reads a string that must be given and not be empty.
func (r *Reader) Name(member string, v []byte, limit int) string {
	r.Need(member, v)
	s := r.Text(member, v, limit)
	if s == "" {
		r.Fail(member, "must not be empty")
	}
	return s
}

// Elements yields the values of a list of up to limit, each entered. It stops at a fault.
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

// Strings reads a list of strings bound for text columns.
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

// Count reads a number that is not negative; without one it returns 0. What is too large
// to count anything here is as much as there can be.
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

// HistoryLength reads how many messages the caller wants; nil means all.
func (r *Reader) HistoryLength(v []byte) *int {
	if Absent(v) {
		return nil
	}
	n := r.Count("historyLength", v)
	return &n
}

// PageSize reads how many entries of a list the caller wants; 0 means that it does not say.
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

// Content reads the text of a part, which may be of any content: unlike Text it may hold
// U+0000.
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

// Data reads any JSON value as the content of a part. It is a part of the params, not a copy.
func (r *Reader) Data(member string, v []byte) a2a.Raw {
	r.fits(member, len(v))
	return a2a.Raw(v[:len(v):len(v)])
}

// URL reads the address of a file. Whether it is one is for those to say who fetch it.
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

// Bytes reads base64 in either alphabet, with or without padding, and returns it in the
// standard one, with padding.
func (r *Reader) Bytes(member string, v []byte) string {
	s, ok := rawjson.String(v)
	if !ok {
		r.Fail(member, "must be a string")
		return ""
	}
	// Judged by the length of the text first, so that nothing large is decoded in vain.
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
