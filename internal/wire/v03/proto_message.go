package v03

import (
	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire/decode"
)

func (d *protoDecoder) message(obj []byte) a2a.Message {
	d.Enter("message", -1)
	var found decode.MessageMembers
	member := "content"
	for key, v := range rawjson.Members(obj) {
		name := d.Key(obj, key)
		switch string(name) {
		case "content":
			found.Parts = v
		case "parts":
			if found.Parts == nil {
				found.Parts, member = v, "parts"
			}
		default:
			found.Set(name, v)
		}
	}
	msg := d.Message(&found)
	msg.Role = d.Role(found.Role)
	d.Need(member, found.Parts)
	for v := range d.Parts(found.Parts) {
		msg.Parts = append(msg.Parts, d.part(v))
	}
	d.Leave()
	return msg
}

func (d *protoDecoder) part(obj []byte) a2a.Part {
	var text, file, data []byte
	var part a2a.Part
	for key, v := range rawjson.Members(obj) {
		switch string(key) {
		case "text":
			text = v
		case "file":
			file = v
		case "data":
			data = v
		case "metadata":
			part.Metadata = d.Raw("metadata", v)
		}
	}
	contents := 0
	for _, v := range [...][]byte{text, file, data} {
		if !decode.Absent(v) {
			contents++
		}
	}
	switch {
	case contents != 1:
		d.Fail("", "must have exactly one of text, file and data")
	case !decode.Absent(text):
		part.Kind, part.Text = a2a.PartText, d.Content("text", text)
		d.lift(&part)
	case !decode.Absent(file):
		if d.IsObject("file", file) {
			d.file(&part, file)
		}
	default:
		if d.IsObject("data", data) {
			d.data(&part, data)
		}
	}
	return part
}

// data reads a DataPart, which holds its data in a member of the same name.
func (d *protoDecoder) data(part *a2a.Part, obj []byte) {
	d.Enter("data", -1)
	defer d.Leave()
	v := rawjson.Get(obj, "data")
	part.Kind, part.Data = a2a.PartData, a2a.Raw("{}")
	if !decode.Absent(v) {
		if kind := rawjson.KindOf(v); kind != rawjson.KindObject && !d.lenientData(kind) {
			d.Fail("data", "must be an object")
		}
		part.Data = d.Data("data", v)
	}
	d.unwrap(part)
	d.lift(part)
}
