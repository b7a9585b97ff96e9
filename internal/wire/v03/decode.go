package v03

import (
	"math"
	"strconv"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire"
)

// Bounds that wire.Limits does not name.
const (
	maxToken   = 1 << 10 // page token
	maxName    = 1 << 10 // file name, media type
	maxStrings = 100     // entries of a list of strings
	maxPage    = 100     // tasks of one page
)

// decoder reads the params of one request. Its first fault sticks, and whatever is
// read after it is of no use. Objects are read in two steps, members first and their
// values then, so that the lenient stage can stand between the two.
type decoder struct {
	limits    wire.Limits
	lenient   bool
	onLenient func(rule string)

	err  *a2a.Error
	path [4]step // of the object being read; push schemes are the deepest
	deep int
}

// step is one object on the way from the params: a member, or an element of one.
type step struct {
	member string
	index  int // -1: not an element
}

func (d *decoder) enter(member string, index int) {
	d.path[d.deep] = step{member, index}
	d.deep++
}

func (d *decoder) leave() { d.deep-- }

// fail blames a member of the object being read, or with no member the object itself.
func (d *decoder) fail(member, format string, args ...any) {
	if d.err != nil {
		return
	}
	var path strings.Builder
	for _, s := range d.path[:d.deep] {
		path.WriteByte('.')
		path.WriteString(s.member)
		if s.index >= 0 {
			path.WriteString("[" + strconv.Itoa(s.index) + "]")
		}
	}
	if member != "" {
		path.WriteString("." + member)
	}
	d.err = a2a.InvalidParams(path.String()[1:], format, args...)
}

// absent reports whether an optional member is not given; null says the same.
func absent(v []byte) bool { return len(v) == 0 || v[0] == 'n' }

// need fails if a required member is not given.
func (d *decoder) need(member string, v []byte) {
	if absent(v) {
		d.fail(member, "is required")
	}
}

// isObject reports whether v is an object to be read, and fails if it is another value.
func (d *decoder) isObject(member string, v []byte) bool {
	if absent(v) {
		return false
	}
	if rawjson.KindOf(v) != rawjson.KindObject {
		d.fail(member, "must be an object")
		return false
	}
	return true
}

// params fails unless the params are an object or absent.
func (d *decoder) params(v []byte) { d.isObject("params", v) }

// raw reads an object of any content. It is a part of the params, not a copy.
func (d *decoder) raw(member string, v []byte) a2a.Raw {
	if !d.isObject(member, v) {
		return nil
	}
	return a2a.Raw(v[:len(v):len(v)])
}

// text reads a string that ends in a column of type text, which cannot hold U+0000.
func (d *decoder) text(member string, v []byte, limit int) string {
	if absent(v) {
		return ""
	}
	s, ok := rawjson.String(v)
	switch {
	case !ok:
		d.fail(member, "must be a string")
	case len(s) > limit:
		d.fail(member, "must not be longer than %d bytes", limit)
	case strings.IndexByte(s, 0) >= 0:
		d.fail(member, "must not contain U+0000")
	default:
		return s
	}
	return ""
}

// word reads a string that is one of a few. Those that 0.3.0 has need no copy.
func (d *decoder) word(member string, v []byte) string {
	switch string(v) {
	case `"text"`:
		return "text"
	case `"file"`:
		return "file"
	case `"data"`:
		return "data"
	case `"message"`:
		return "message"
	case `"user"`:
		return "user"
	case `"agent"`:
		return "agent"
	}
	return d.text(member, v, maxName)
}

// name reads a string that must be given and not be empty.
func (d *decoder) name(member string, v []byte, limit int) string {
	d.need(member, v)
	s := d.text(member, v, limit)
	if s == "" {
		d.fail(member, "must not be empty")
	}
	return s
}

// strings reads a list of strings bound for text columns.
func (d *decoder) strings(member string, v []byte, limit int) []string {
	if absent(v) {
		return nil
	}
	if rawjson.KindOf(v) != rawjson.KindArray {
		d.fail(member, "must be an array")
		return nil
	}
	var list []string
	for e := range rawjson.Elements(v) {
		if len(list) == maxStrings {
			d.fail(member, "must not have more than %d entries", maxStrings)
		}
		d.enter(member, len(list))
		d.need("", e)
		list = append(list, d.text("", e, limit))
		d.leave()
		if d.err != nil {
			return nil
		}
	}
	return list
}

func (d *decoder) boolean(member string, v []byte, otherwise bool) bool {
	if absent(v) {
		return otherwise
	}
	b, ok := rawjson.Bool(v)
	if !ok {
		d.fail(member, "must be true or false")
	}
	return b
}

// historyLength reads how many messages the caller wants; nil means all, and so does
// any number that is too large to be a number of messages.
func (d *decoder) historyLength(v []byte) *int {
	if absent(v) {
		return nil
	}
	n, ok := rawjson.Int(v)
	switch {
	case !ok:
		d.fail("historyLength", "must be an integer")
	case n < 0:
		d.fail("historyLength", "must not be negative")
	}
	length := int(min(n, math.MaxInt32))
	return &length
}
