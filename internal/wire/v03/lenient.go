package v03

import (
	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire/decode"
)

// This file has the lenient rules of docs/reference/protocol.md. They run after the members of an
// object were found and before they are checked. A rule moves what a dialect puts elsewhere to
// where 0.3.0 has it, and the strict reader then checks the request as if the client had sent it
// so. A rule only applies to input that has no other meaning in 0.3.0, so no conforming request is
// read differently.
//
// L-03 and L-08 apply even without Codec.Lenient, because examples in the specification leave out
// the kind. All other rules need Lenient.

// used reports that a rule was needed to read the request.
func (d *decoder) used(rule string) {
	if d.onLenient != nil {
		d.onLenient(rule)
	}
}

// lenientListMembers reads members of tasks/list in snake_case, as the Go client of a2aproject
// sends them (L-24). If they were ignored the list would contain tasks that the client did not ask
// for.
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

// lenientContext reads a contextId next to the message as one inside it (L-02).
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
		d.Fail("contextId", "differs from the contextId next to the message")
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

// lenientFile reads the content of a file part from where dialects put it: next to "file" if there
// is none, else inside it under other names (L-05, L-06).
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
	m.file = []byte("{}") // counts as given
}

// oneOf returns the only value that is given.
func (d *decoder) oneOf(values ...[]byte) []byte {
	var found []byte
	for _, v := range values {
		if decode.Absent(v) {
			continue
		}
		if found != nil {
			d.Fail("file", "must have exactly one content")
		}
		found = v
	}
	return found
}

// lenientData reports whether data may be a value of this kind, other than an object (L-07). An
// array is always allowed, because the 0.3 conformance kit sends one.
func (d *decoder) lenientData(kind rawjson.Kind) bool {
	if !d.lenient && kind != rawjson.KindArray {
		return false
	}
	d.used("L-07")
	return true
}

// lenientMediaType returns the media type of a data part, for which 0.3.0 has no member (L-07).
func (d *decoder) lenientMediaType(m *partMembers) string {
	if !d.lenient || rawjson.KindOf(m.flat.mimeType) != rawjson.KindString {
		return ""
	}
	d.used("L-07")
	return d.Text("mimeType", m.flat.mimeType, decode.MaxName)
}

// inferPart returns the kind of a part, which may be left out if exactly one of the three contents
// is given (L-08). A type that names another content is an error, because guessing could lose what
// the client sent.
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
		d.Fail("type", "must be %q, or absent: the part has only %s", kind, kind)
	}
	return kind
}
