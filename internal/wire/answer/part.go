package answer

import (
	"cmp"
	"slices"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire/decode"
)

func (r *reader) parts(v []byte, path string) (parts []a2a.Part) {
	r.list(v, path, func(path string, v []byte) { parts = append(parts, r.part(v, path)) })
	return parts
}

// part reads a part. A part of an answer that cannot be read is kept as data, so that the rest is not lost.
func (r *reader) part(v []byte, path string) a2a.Part {
	one := reader{stored: r.stored, unknown: r.unknown}
	p := one.knownPart(v, path)
	r.unknown = one.unknown
	switch {
	case one.err == nil:
	case r.stored:
		r.err = cmp.Or(r.err, one.err)
	default:
		return a2a.Part{Kind: a2a.PartData, Data: slices.Clip(v)}
	}
	return p
}

func (r *reader) knownPart(v []byte, path string) a2a.Part {
	var p a2a.Part
	var contents []a2a.Part
	top := path
	content := func(k a2a.PartKind, text string, data []byte) {
		contents = append(contents, a2a.Part{Kind: k, Text: text, Data: slices.Clip(data)})
	}
	r.members(v, path, func(key, path string, v []byte) {
		switch key {
		case "text":
			content(a2a.PartText, r.text(v, path), nil)
		case "raw":
			content(a2a.PartFile, r.base64(v, path), nil)
		case "url":
			content(a2a.PartURL, r.text(v, path), nil)
		case "data":
			content(a2a.PartData, "", v)
		case "file":
			r.file(v, path, &p, content)
		case "mediaType":
			p.MediaType = r.text(v, path)
		case "filename":
			p.Filename = r.text(v, path)
		case "metadata":
			p.Metadata = r.object(v, path)
		default:
			r.other(key, path)
		}
	})
	for len(contents) > 1 { // some servers write empty values for what a part does not have
		empty := slices.IndexFunc(contents, func(p a2a.Part) bool {
			return p.Text == "" && (rawjson.Empty(p.Data) || decode.Absent(p.Data))
		})
		if empty < 0 {
			break
		}
		contents = slices.Delete(contents, empty, empty+1)
	}
	if len(contents) != 1 {
		r.fail(top, "must have exactly one of text, a file and data")
		return p
	}
	p.Kind, p.Text, p.Data = contents[0].Kind, contents[0].Text, contents[0].Data
	r.unwrap(&p)
	return p
}

// file reads the member that holds the file of a 0.3 part.
func (r *reader) file(v []byte, path string, p *a2a.Part, content func(a2a.PartKind, string, []byte)) {
	r.members(v, path, func(key, path string, v []byte) {
		switch key {
		case "bytes", "fileWithBytes":
			content(a2a.PartFile, r.base64(v, path), nil)
		case "uri", "fileWithUri":
			content(a2a.PartURL, r.text(v, path), nil)
		case "name":
			p.Filename = r.text(v, path)
		case "mimeType":
			p.MediaType = r.text(v, path)
		default:
			r.other(key, path)
		}
	})
}

// 0.3 has no members for the media type and the file name of text and data, and for wrapped data. They are in
// the metadata of the part, as a2ad and the SDKs write them.
const (
	keyMediaType = "a2ad/mediaType"
	keyFilename  = "a2ad/filename"
	keyWrapped   = "data_part_compat"
)

// unwrap moves what is in the metadata to where it belongs.
func (r *reader) unwrap(p *a2a.Part) {
	if p.Metadata == nil || p.Kind != a2a.PartText && p.Kind != a2a.PartData {
		return
	}
	lift := func(key string, dst *string) {
		if s, ok := rawjson.String(rawjson.Get(p.Metadata, key)); ok && s != "" && *dst == "" {
			*dst = s
			p.Metadata = without(p.Metadata, key)
		}
	}
	lift(keyMediaType, &p.MediaType)
	lift(keyFilename, &p.Filename)
	if marked, _ := rawjson.Bool(rawjson.Get(p.Metadata, keyWrapped)); !marked ||
		rawjson.KindOf(p.Data) != rawjson.KindObject {
		return
	}
	value := rawjson.Get(p.Data, "value")
	if value != nil && rawjson.Empty(rawjson.Without(p.Data, "value")) {
		p.Data, p.Metadata = slices.Clip(value), without(p.Metadata, keyWrapped)
	}
}

func without(metadata a2a.Raw, key string) a2a.Raw {
	if rest := rawjson.Without(metadata, key); !rawjson.Empty(rest) {
		return rest
	}
	return nil
}
