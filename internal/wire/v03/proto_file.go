package v03

import (
	"encoding/base64"
	"mime"
	"strings"
	"unicode/utf8"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire/decode"
)

func (d *protoDecoder) file(part *a2a.Part, obj []byte) {
	d.Enter("file", -1)
	defer d.Leave()
	var uri, content []byte
	for key, v := range rawjson.Members(obj) {
		switch string(d.Key(obj, key)) {
		case "fileWithUri":
			uri = v
		case "fileWithBytes":
			content = v
		case "mimeType":
			part.MediaType = d.Text("mimeType", v, decode.MaxName)
		case "name":
			part.Filename = d.Text("name", v, decode.MaxName)
		}
	}
	switch {
	case decode.Absent(uri) == decode.Absent(content):
		d.Fail("", "must have exactly one of fileWithUri and fileWithBytes")
	case decode.Absent(content):
		part.Kind, part.Text = a2a.PartURL, d.URL("fileWithUri", uri)
	default:
		part.Kind, part.Text = a2a.PartFile, d.fileBytes(content, part.MediaType)
	}
}

// fileBytes reads the content of a file. The official Go and Python clients put base64 text into
// the bytes field, so ProtoJSON encodes it in base64 twice. They cannot read tasks that do it
// right.
func (d *protoDecoder) fileBytes(v []byte, mediaType string) string {
	const member = "fileWithBytes"
	limit := d.Limits.PartBytes
	d.Limits.PartBytes = base64.StdEncoding.EncodedLen(limit)
	outer := d.Bytes(member, v)
	d.Limits.PartBytes = limit
	if d.Failed() {
		return ""
	}
	content, err := base64.StdEncoding.DecodeString(outer)
	if err != nil {
		d.Fail(member, "must be base64")
		return ""
	}
	text, size := outer, len(content)
	if inner, n, ok := twice(content, mediaType); ok {
		text, size = inner, n
	}
	if size > limit {
		d.Fail(member, "must not be longer than %d bytes", limit)
	}
	return text
}

// twice reports whether the content of a file is itself base64, and the size of what that decodes
// to. It is if it has the one form that all encoders write. But text can look like base64 (a word
// of four letters, the digits of a hash), so a text type is only decoded if the result is text.
func twice(content []byte, mediaType string) (text string, size int, ok bool) {
	inner := string(content)
	if text, size, ok = decode.Base64(inner); !ok || text != inner {
		return "", 0, false
	}
	if isUTF8(mediaType) {
		plain, err := base64.StdEncoding.DecodeString(text)
		ok = err == nil && utf8.Valid(plain)
	}
	return text, size, ok
}

// isUTF8 reports whether a media type says that the content is UTF-8 text.
func isUTF8(mediaType string) bool {
	kind, parameters, err := mime.ParseMediaType(mediaType)
	if err != nil {
		return false
	}
	if charset := parameters["charset"]; charset != "" {
		return strings.EqualFold(charset, "utf-8")
	}
	return strings.HasPrefix(kind, "text/") || kind == "application/json" || strings.HasSuffix(kind, "+json")
}
