package v03

import (
	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire/decode"
	"github.com/a2ad/a2ad/internal/wire/encode"
)

// Members of the metadata for what parts of 1.0 can hold and parts of 0.3 cannot. They are added in
// front and cut out again, so the rest keeps its bytes.
const (
	keyMediaType = "a2ad/mediaType"
	keyFilename  = "a2ad/filename"
	keyCompat    = "data_part_compat" // true: data is {"value": x} for x; the SDKs' convention
)

// lift moves the media type and the file name of a text or data part out of its metadata.
func (d *decoder) lift(p *a2a.Part) {
	if p.Metadata == nil {
		return
	}
	p.MediaType = d.liftText(p, keyMediaType)
	p.Filename = d.liftText(p, keyFilename)
}

func (d *decoder) liftText(p *a2a.Part, key string) string {
	v := rawjson.Get(p.Metadata, key)
	if rawjson.KindOf(v) != rawjson.KindString || len(v) == len(`""`) {
		return ""
	}
	p.Metadata = without(p.Metadata, key)
	return d.Text(`metadata["`+key+`"]`, v, decode.MaxName)
}

// unwrap undoes what appendData does to data that is no object.
func (d *decoder) unwrap(p *a2a.Part) {
	if p.Metadata == nil || rawjson.KindOf(p.Data) != rawjson.KindObject {
		return
	}
	if marked, _ := rawjson.Bool(rawjson.Get(p.Metadata, keyCompat)); !marked {
		return
	}
	var value []byte
	members := 0
	for key, v := range rawjson.Members(p.Data) {
		if members++; string(key) == "value" {
			value = v
		}
	}
	if members == 1 && value != nil {
		p.Data = a2a.Raw(value[:len(value):len(value)])
		p.Metadata = without(p.Metadata, keyCompat)
	}
}

// without returns metadata without one member, and nil if no member is left.
func without(metadata a2a.Raw, key string) a2a.Raw {
	rest := rawjson.Without(metadata, key)
	if rawjson.Empty(rest) {
		return nil
	}
	return rest
}

// appendPartMetadata appends the member "metadata" of a part, if it has any. wrapped says that its
// data was wrapped.
func appendPartMetadata(dst []byte, p *a2a.Part, wrapped bool) []byte {
	mediaType, filename := p.MediaType, p.Filename
	if p.Kind == a2a.PartFile || p.Kind == a2a.PartURL {
		mediaType, filename = "", "" // files have members for these
	}
	if !wrapped && mediaType == "" && filename == "" {
		return encode.Raw(dst, `,"metadata":`, p.Metadata)
	}
	rest := a2a.Raw(rawjson.Trim(p.Metadata))
	dst = append(dst, `,"metadata":{`...)
	if wrapped {
		rest = without(rest, keyCompat)
		dst = append(dst, `"`+keyCompat+`":true,`...)
	}
	if mediaType != "" {
		rest = without(rest, keyMediaType)
		dst = append(rawjson.AppendString(append(dst, `"`+keyMediaType+`":`...), mediaType), ',')
	}
	if filename != "" {
		rest = without(rest, keyFilename)
		dst = append(rawjson.AppendString(append(dst, `"`+keyFilename+`":`...), filename), ',')
	}
	if rawjson.Empty(rest) {
		dst[len(dst)-1] = '}'
		return dst
	}
	return append(dst, rest[1:]...)
}
