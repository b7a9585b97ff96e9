package answer

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// base64 reads the four usual forms and returns the standard one with padding.
func (r *reader) base64(v []byte, path string) string {
	s := r.text(v, path)
	if _, err := base64.StdEncoding.Strict().DecodeString(s); err == nil && !strings.ContainsAny(s, "\r\n") {
		return s
	}
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding,
		base64.RawURLEncoding} {
		if b, err := enc.DecodeString(s); err == nil {
			return base64.StdEncoding.EncodeToString(b)
		}
	}
	r.fail(path, "must be base64")
	return ""
}

func (r *reader) list(v []byte, path string, one func(path string, v []byte)) {
	if rawjson.KindOf(v) != rawjson.KindArray {
		r.fail(path, "must be an array")
		return
	}
	n := 0
	for e := range rawjson.Elements(v) {
		if r.err != nil {
			return
		}
		one(path+"["+strconv.Itoa(n)+"]", e)
		n++
	}
}

func (r *reader) texts(v []byte, path string) (list []string) {
	r.list(v, path, func(path string, v []byte) { list = append(list, r.text(v, path)) })
	return list
}

func (r *reader) text(v []byte, path string) string {
	s, ok := rawjson.String(v)
	if !ok {
		r.fail(path, "must be a string")
	}
	return s
}

func (r *reader) id(v []byte, path string) string {
	s := r.text(v, path)
	if len(s) > MaxID || strings.IndexByte(s, 0) >= 0 {
		r.fail(path, "is longer than %d bytes or has a NUL", MaxID)
	}
	return s
}

// idOf reads an id that may be absent.
func (r *reader) idOf(v []byte, path, name string) string {
	if m := member(v, name); m != nil {
		return r.id(m, path+"."+name)
	}
	return ""
}

func (r *reader) truth(v []byte, path string) bool {
	b, ok := rawjson.Bool(v)
	if !ok {
		r.fail(path, "must be true or false")
	}
	return b
}

func (r *reader) object(v []byte, path string) a2a.Raw {
	if rawjson.KindOf(v) != rawjson.KindObject {
		r.fail(path, "must be an object")
		return nil
	}
	return slices.Clip(v)
}
