package v03

import (
	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire/decode"
)

// This file is the lenient stage: the rules of docs/reference/protocol.md. It stands between
// finding the members of an object and judging them, and moves what a dialect puts
// elsewhere to where 0.3.0 has it; the strict reader then judges as if the client had
// sent it so, and names members as 0.3.0 does. A rule applies only to what has no
// other meaning in 0.3.0, so that no conformant request is read differently.
//
// L-03 and L-08 hold without Codec.Lenient too: the specification's own examples
// leave the kind out. All others need it.

// used reports that a rule was needed to read the request.
func (d *decoder) used(rule string) {
	if d.onLenient != nil {
		d.onLenient(rule)
	}
}

// lenientListMembers takes the members of tasks/list in snake case, as the Go client of a2aproject sends them (L-24): ignored,
// they would list tasks that were not asked for.
func (d *decoder) lenientListMembers(m *decode.ListMembers, params []byte) {
	used := false
	for key, v := range rawjson.Members(params) {
		name := string(decode.CamelCase(key))
		if name == string(key) {
			continue
		}
		if name == "lastUpdatedAfter" {
			name = "statusTimestampAfter"
		}
		if to := m.Member(name); to != nil && decode.Absent(*to) && !decode.Absent(v) {
			*to, used = v, true
		}
	}
	if used {
		d.used("L-24")
	}
}

// lenientContext takes a contextId beside the message for one inside it (L-02).
func (d *decoder) lenientContext(m *messageMembers, beside []byte) {
	if !d.lenient || rawjson.KindOf(beside) != rawjson.KindString || len(beside) == len(`""`) {
		return
	}
	if decode.Absent(m.ContextID) {
		d.used("L-02")
		m.ContextID = beside
		return
	}
	inside, ok := rawjson.String(m.ContextID)
	outside, _ := rawjson.String(beside)
	if ok && inside != outside {
		d.used("L-02")
		d.Fail("contextId", "differs from contextId beside the message")
	}
}

// inferMessage returns the kind of a message, which may be left out (L-03).
func (d *decoder) inferMessage(kind []byte) string {
	if decode.Absent(kind) {
		d.used("L-03")
		return "message"
	}
	return d.word("kind", kind)
}

// lenientState reads a state in either spelling of canceled (L-04).
func (d *decoder) lenientState(member string, v []byte) a2a.State {
	if decode.Absent(v) {
		return a2a.StateNone
	}
	name := d.Text(member, v, decode.MaxName)
	state, ok := a2a.ParseState(name)
	if !ok {
		d.Fail(member, "must be the name of a task state")
	}
	if name == "cancelled" {
		d.used("L-04")
	}
	return state
}

// lenientFile takes the content of a file part from where dialects put it: beside
// "file" if there is none, else in it under other names (L-05, L-06).
func (d *decoder) lenientFile(m *partMembers, f *fileMembers) {
	if !d.lenient || !decode.Absent(f.bytes) || !decode.Absent(f.uri) {
		return
	}
	found := *f
	if decode.Absent(m.file) {
		found = m.flat
		found.data = m.data
	}
	found.bytes = d.oneOf(found.bytes, found.data, found.withBytes)
	found.uri = d.oneOf(found.uri, found.url, found.withURI)
	if decode.Absent(found.bytes) && decode.Absent(found.uri) {
		return
	}
	d.used("L-05")
	*f = found
	m.file = []byte("{}") // it counts as given
}

// oneOf returns the one value that is given.
func (d *decoder) oneOf(values ...[]byte) []byte {
	var found []byte
	for _, v := range values {
		if decode.Absent(v) {
			continue
		}
		if found != nil {
			d.Fail("file", "must have its content once")
		}
		found = v
	}
	return found
}

// lenientData says whether data may be a value of this kind that is not an object
// (L-07). An array always may: the 0.3 conformance kit sends one.
func (d *decoder) lenientData(kind rawjson.Kind) bool {
	if !d.lenient && kind != rawjson.KindArray {
		return false
	}
	d.used("L-07")
	return true
}

// lenientMediaType returns the media type of a data part, which 0.3.0 has no member for (L-07).
func (d *decoder) lenientMediaType(m *partMembers) string {
	if !d.lenient || rawjson.KindOf(m.flat.mimeType) != rawjson.KindString {
		return ""
	}
	d.used("L-07")
	return d.Text("mimeType", m.flat.mimeType, decode.MaxName)
}

// inferPart returns the kind of a part, which may be left out where exactly one of
// the three contents is given (L-08). A type that names another content contradicts the
// part: guessing which of the two was meant would lose what the client sent.
func (d *decoder) inferPart(m *partMembers) string {
	if !decode.Absent(m.kind) {
		return d.word("kind", m.kind)
	}
	kind := ""
	for _, c := range [...]struct {
		kind    string
		content []byte
	}{{"text", m.text}, {"file", m.file}, {"data", m.data}} {
		if decode.Absent(c.content) {
			continue
		}
		if kind != "" {
			return ""
		}
		kind = c.kind
	}
	if kind == "" {
		return ""
	}
	d.used("L-08")
	if named, ok := rawjson.String(m.typ); ok && named != kind {
		d.Fail("type", "must be %q, or absent: the part holds %s and nothing else", kind, kind)
	}
	return kind
}
