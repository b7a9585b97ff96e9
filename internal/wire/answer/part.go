package answer

import (
	"slices"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire/decode"
)

func (r *reader) parts(v []byte, path string) (parts []a2a.Part) {
	r.list(v, path, func(path string, v []byte) { parts = append(parts, r.part(v, path)) })
	return parts
}

func (r *reader) part(v []byte, path string) (p a2a.Part) {
	contents, top := 0, path
	var null []byte
	content := func(k a2a.PartKind, text string) {
		contents++
		p.Kind, p.Text = k, text
	}
	r.members(v, path, func(key, path string, v []byte) {
		switch key {
		case "text":
			content(a2a.PartText, r.text(v, path))
		case "raw":
			content(a2a.PartFile, r.base64(v, path))
		case "url":
			content(a2a.PartURL, r.text(v, path))
		case "data":
			if decode.Absent(v) {
				null = v
				return
			}
			content(a2a.PartData, "")
			p.Data = slices.Clip(v)
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
	if contents == 0 && null != nil { // data that is null, unless there is other content
		content(a2a.PartData, "")
		p.Data = slices.Clip(null)
	}
	if contents != 1 {
		r.fail(top, "must have exactly one of text, a file and data")
	}
	r.unwrap(&p)
	return p
}

// file reads the member that holds the file of a 0.3 part.
func (r *reader) file(v []byte, path string, p *a2a.Part, content func(a2a.PartKind, string)) {
	r.members(v, path, func(key, path string, v []byte) {
		switch key {
		case "bytes", "fileWithBytes":
			content(a2a.PartFile, r.base64(v, path))
		case "uri", "fileWithUri":
			content(a2a.PartURL, r.text(v, path))
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
