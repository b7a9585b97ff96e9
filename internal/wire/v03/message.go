package v03

import (
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// messageMembers are the members of a Message.
type messageMembers struct {
	kind, id, role, parts, contextID, taskID []byte
	references, extensions, metadata         []byte
}

// partMembers are the members of all kinds of part.
type partMembers struct {
	kind, text, file, data, metadata []byte

	// Not of 0.3.0, see lenientPart: content of files beside "file", and the media
	// type of files and data.
	flat fileMembers
}

// fileMembers are the members of FileWithBytes and FileWithUri, and the names that
// dialects have for the first two.
type fileMembers struct {
	bytes, uri, name, mimeType    []byte
	data, withBytes, url, withURI []byte
}

// message reads the message of a send; m also holds what stands beside it.
func (d *decoder) message(m *sendMembers) a2a.Message {
	d.enter("message", -1)
	var found messageMembers
	for key, v := range rawjson.Members(m.message) {
		switch string(key) {
		case "kind":
			found.kind = v
		case "messageId":
			found.id = v
		case "role":
			found.role = v
		case "parts":
			found.parts = v
		case "contextId":
			found.contextID = v
		case "taskId":
			found.taskID = v
		case "referenceTaskIds":
			found.references = v
		case "extensions":
			found.extensions = v
		case "metadata":
			found.metadata = v
		}
	}
	d.lenientContext(&found, m.contextID)
	if kind := d.inferMessage(found.kind); kind != "message" {
		d.fail("kind", `must be "message"`)
	}
	msg := a2a.Message{
		ID:               d.name("messageId", found.id, d.limits.IDBytes),
		Role:             d.role(found.role),
		ContextID:        d.text("contextId", found.contextID, d.limits.IDBytes),
		TaskID:           d.text("taskId", found.taskID, d.limits.IDBytes),
		ReferenceTaskIDs: d.strings("referenceTaskIds", found.references, d.limits.IDBytes),
		Extensions:       d.strings("extensions", found.extensions, d.limits.URLBytes),
		Metadata:         d.raw("metadata", found.metadata),
	}
	msg.Parts = d.parts(found.parts)
	d.leave()
	return msg
}

// role takes both roles, as the official servers do: a client may bring along what
// another agent said.
func (d *decoder) role(v []byte) a2a.Role {
	d.need("role", v)
	switch d.word("role", v) {
	case "user":
		return a2a.RoleUser
	case "agent":
		return a2a.RoleAgent
	}
	d.fail("role", `must be "user" or "agent"`)
	return 0
}

func (d *decoder) parts(v []byte) []a2a.Part {
	d.need("parts", v)
	if d.err == nil && rawjson.KindOf(v) != rawjson.KindArray {
		d.fail("parts", "must be an array")
	}
	if d.err != nil {
		return nil
	}
	var parts []a2a.Part
	for e := range rawjson.Elements(v) {
		if len(parts) == d.limits.Parts {
			d.fail("parts", "must not have more than %d entries", d.limits.Parts)
			return nil
		}
		d.enter("parts", len(parts))
		part := d.part(e)
		d.leave()
		if d.err != nil {
			return nil
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		d.fail("parts", "must not be empty")
	}
	return parts
}

func (d *decoder) part(v []byte) a2a.Part {
	if rawjson.KindOf(v) != rawjson.KindObject {
		d.fail("", "must be an object")
		return a2a.Part{}
	}
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
		default:
			m.flat.take(key, v)
		}
	}
	kind := d.inferPart(&m)
	part := a2a.Part{Metadata: d.raw("metadata", m.metadata)}
	switch kind {
	case "text":
		d.need("text", m.text)
		part.Kind, part.Text = a2a.PartText, d.content("text", m.text)
		d.lift(&part)
	case "data":
		part.Kind = a2a.PartData
		d.data(&part, &m)
	case "file":
		d.file(&part, &m)
	case "":
		d.fail("kind", "is required")
	default:
		d.fail("kind", `must be "text", "file" or "data"`)
	}
	return part
}

// content reads a text of any content; unlike text it may hold U+0000.
func (d *decoder) content(member string, v []byte) string {
	if absent(v) {
		return ""
	}
	s, ok := rawjson.String(v)
	if !ok {
		d.fail(member, "must be a string")
	}
	d.fits(member, len(s))
	return s
}

func (d *decoder) fits(member string, size int) {
	if size > d.limits.PartBytes {
		d.fail(member, "must not be longer than %d bytes", d.limits.PartBytes)
	}
}

func (d *decoder) data(part *a2a.Part, m *partMembers) {
	d.need("data", m.data)
	if kind := rawjson.KindOf(m.data); kind != rawjson.KindObject && !d.lenientData(kind) {
		d.fail("data", "must be an object")
	}
	d.fits("data", len(m.data))
	part.Data = a2a.Raw(m.data[:len(m.data):len(m.data)])
	d.unwrap(part)
	d.lift(part)
	if part.MediaType == "" {
		part.MediaType = d.lenientMediaType(m)
	}
}

func (d *decoder) file(part *a2a.Part, m *partMembers) {
	var f fileMembers
	if d.isObject("file", m.file) {
		for key, v := range rawjson.Members(m.file) {
			f.take(key, v)
		}
	}
	d.lenientFile(m, &f)
	if absent(m.file) {
		d.fail("file", "is required")
	}
	d.enter("file", -1)
	defer d.leave()
	part.Filename = d.text("name", f.name, maxName)
	part.MediaType = d.text("mimeType", f.mimeType, maxName)
	switch {
	case absent(f.bytes) == absent(f.uri):
		d.fail("bytes", "exactly one of bytes and uri must be given")
	case absent(f.bytes):
		part.Kind, part.Text = a2a.PartURL, d.content("uri", f.uri)
		if part.Text == "" {
			d.fail("uri", "must not be empty")
		}
		if strings.IndexByte(part.Text, 0) >= 0 {
			d.fail("uri", "must not contain U+0000")
		}
	default:
		part.Kind, part.Text = a2a.PartFile, d.fileBytes(f.bytes)
	}
}

func (f *fileMembers) take(key, v []byte) {
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

func (d *decoder) fileBytes(v []byte) string {
	s, ok := rawjson.String(v)
	if !ok {
		d.fail("bytes", "must be a string")
		return ""
	}
	// Judged by the length of the text first, so that nothing large is decoded in vain.
	d.fits("bytes", len(s)/4*3-2)
	if d.err != nil {
		return ""
	}
	s, size, ok := standardBase64(s)
	if !ok {
		d.fail("bytes", "must be base64")
	}
	d.fits("bytes", size)
	return s
}
