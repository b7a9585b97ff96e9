package importer

import (
	"bytes"
	"errors"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire/answer"
	"github.com/a2ad/a2ad/internal/wire/decode"
)

var errEncrypted = errors.New("it is not a JSON object, perhaps because the old server encrypted it: " +
	"its client must set it again")

// decodeHook reads a push notification config. 0.3 has a list of schemes, 1.0 has one scheme. Its payloads are those
// of the generation that it is written in, or of the member wireVersion, which the store of JavaScript adds.
func decodeHook(h Hook) (*a2a.PushConfig, error) {
	data := rawjson.Trim(h.Data)
	if !bytes.HasPrefix(data, []byte("{")) {
		return nil, errEncrypted
	}
	if err := rawjson.Check(data, answer.MaxDepth); err != nil {
		return nil, err
	}
	c := &a2a.PushConfig{Version: a2a.PushV03}
	var d hookReader
	for key, v := range rawjson.Members(data) {
		switch string(decode.CamelCase(key)) {
		case "id":
			c.ID = d.text("id", v)
		case "url":
			c.URL = d.text("url", v)
		case "token":
			c.Token = a2a.Secret(d.text("token", v))
		case "authentication":
			d.authentication(c, v)
		case "taskId":
			d.current = d.current || !decode.Absent(v)
		case "wireVersion":
			d.wire = d.text("wireVersion", v)
		}
	}
	if h.ID != "" {
		c.ID = h.ID
	}
	if d.wire == "1.0" || d.wire == "" && d.current {
		c.Version = a2a.PushV10
	}
	return c, d.err
}

type hookReader struct {
	err     error
	current bool // it is written as in 1.0
	wire    string
}

func (d *hookReader) text(member string, v []byte) string {
	if decode.Absent(v) {
		return ""
	}
	s, ok := rawjson.String(v)
	if !ok && d.err == nil {
		d.err = a2a.InvalidParams(member, "must be a string")
	}
	return s
}

func (d *hookReader) authentication(c *a2a.PushConfig, v []byte) {
	for key, v := range rawjson.Members(v) {
		switch string(key) {
		case "credentials":
			c.Credentials = a2a.Secret(d.text("authentication.credentials", v))
		case "schemes":
			for e := range rawjson.Elements(v) {
				c.Schemes = append(c.Schemes, d.text("authentication.schemes", e))
			}
		case "scheme":
			d.current = true
			if s := d.text("authentication.scheme", v); s != "" {
				c.Schemes = append(c.Schemes, s)
			}
		}
	}
}
