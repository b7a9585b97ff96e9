package v03

import (
	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire/decode"
)

// messageMembers are the members of a Message.
type messageMembers struct {
	decode.MessageMembers
	kind []byte
}

// partMembers are the members of all kinds of part.
type partMembers struct {
	kind, text, file, data, metadata []byte

	typ []byte // not in 0.3.0: the name of kind in early drafts

	// Not in 0.3.0, see lenientPart: content of files next to "file", and the media type of files
	// and data.
	flat fileMembers
}

// fileMembers are the members of FileWithBytes and FileWithUri, and other names for the first two
// in dialects.
type fileMembers struct {
	bytes, uri, name, mimeType    []byte
	data, withBytes, url, withURI []byte
}

// message reads the message of a send. m also holds the members next to it.
func (d *decoder) message(m *sendMembers) a2a.Message {
	d.Enter("message", -1)
	var found messageMembers
	for key, v := range rawjson.Members(m.message) {
		if string(key) == "kind" {
			found.kind = v
			continue
		}
		found.Set(key, v)
	}
	d.lenientContext(&found, m.contextID)
	if kind := d.inferMessage(found.kind); kind != "message" {
		d.Fail("kind", `must be "message"`)
	}
	msg := d.Message(&found.MessageMembers)
	msg.Role = d.role(found.Role)
	for v := range d.Parts(found.Parts) {
		msg.Parts = append(msg.Parts, d.part(v))
	}
	d.Leave()
	return msg
}

// word reads a string that is one of a few. Known ones need no copy.
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
	return d.Text(member, v, decode.MaxName)
}

// role accepts both roles, as the official servers do: a client may pass on what another agent
// said.
func (d *decoder) role(v []byte) a2a.Role {
	d.Need("role", v)
	switch d.word("role", v) {
	case "user":
		return a2a.RoleUser
	case "agent":
		return a2a.RoleAgent
	}
	d.Fail("role", `must be "user" or "agent"`)
	return 0
}

func (d *decoder) part(v []byte) a2a.Part {
	var m partMembers
	for key, v := range rawjson.Members(v) {
		switch string(key) {
		case "kind":
			m.kind = v
		case "text":
			m.text = v
		case "file":
			m.file = v
		case "data":
			m.data = v
		case "metadata":
			m.metadata = v
		case "type":
			m.typ = v
		default:
			m.flat.set(key, v)
		}
	}
	kind := d.inferPart(&m)
	part := a2a.Part{Metadata: d.Raw("metadata", m.metadata)}
	switch kind {
	case "text":
		d.Need("text", m.text)
		part.Kind, part.Text = a2a.PartText, d.Content("text", m.text)
		d.lift(&part)
	case "data":
		part.Kind = a2a.PartData
		d.data(&part, &m)
	case "file":
		d.file(&part, &m)
	case "":
		d.Fail("kind", "is required")
	default:
		d.Fail("kind", `must be "text", "file" or "data"`)
	}
	return part
}

func (d *decoder) data(part *a2a.Part, m *partMembers) {
	d.Need("data", m.data)
	if kind := rawjson.KindOf(m.data); kind != rawjson.KindObject && !d.lenientData(kind) {
		d.Fail("data", "must be an object")
	}
	part.Data = d.Data("data", m.data)
	d.unwrap(part)
	d.lift(part)
	if part.MediaType == "" {
		part.MediaType = d.lenientMediaType(m)
	}
}

func (d *decoder) file(part *a2a.Part, m *partMembers) {
	var f fileMembers
	if d.IsObject("file", m.file) {
		for key, v := range rawjson.Members(m.file) {
			f.set(key, v)
		}
	}
	d.lenientFile(m, &f)
	d.Need("file", m.file)
	d.Enter("file", -1)
	defer d.Leave()
	part.Filename = d.Text("name", f.name, decode.MaxName)
	part.MediaType = d.Text("mimeType", f.mimeType, decode.MaxName)
	switch {
	case decode.Absent(f.bytes) == decode.Absent(f.uri):
		d.Fail("bytes", "exactly one of bytes and uri must be given")
	case decode.Absent(f.bytes):
		part.Kind, part.Text = a2a.PartURL, d.URL("uri", f.uri)
	default:
		part.Kind, part.Text = a2a.PartFile, d.Bytes("bytes", f.bytes)
	}
}

func (f *fileMembers) set(key, v []byte) {
	switch string(key) {
	case "bytes":
		f.bytes = v
	case "uri":
		f.uri = v
	case "name":
		f.name = v
	case "mimeType":
		f.mimeType = v
	case "data":
		f.data = v
	case "fileWithBytes":
		f.withBytes = v
	case "url":
		f.url = v
	case "fileWithUri":
		f.withURI = v
	}
}
