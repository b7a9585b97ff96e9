package client

import (
	"crypto/rand"
	"net/http"
	"strconv"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// NewMessageID returns a unique id of a message.
func NewMessageID() string { return "msg-" + rand.Text() }

func (p *SendParams) header() http.Header {
	h := http.Header{}
	if p.IdempotencyKey != "" {
		h.Set("Idempotency-Key", p.IdempotencyKey)
	}
	return h
}

// append writes the params of a send or a stream. It leaves out an empty configuration, and the
// server waits then.
func (p *SendParams) append(dst []byte, v Version, noWait bool) []byte {
	dst = appendMessage(append(dst, `{"message":`...), v, &p.Message)
	var conf []byte
	switch {
	case noWait && v == V10:
		conf = append(conf, `,"returnImmediately":true`...)
	case noWait:
		conf = append(conf, `,"blocking":false`...)
	}
	if p.HistoryLength != nil {
		conf = strconv.AppendInt(append(conf, `,"historyLength":`...), int64(*p.HistoryLength), 10)
	}
	if len(p.AcceptedModes) > 0 {
		conf = appendStrings(append(conf, `,"acceptedOutputModes":`...), p.AcceptedModes)
	}
	if conf != nil {
		if !noWait && v == V03 {
			conf = append(conf, `,"blocking":true`...) // absent would mean false to some servers
		}
		dst = append(append(append(dst, `,"configuration":{`...), conf[1:]...), '}')
	}
	if p.Metadata != nil {
		dst = append(append(dst, `,"metadata":`...), p.Metadata...)
	}
	return append(dst, '}')
}

func appendMessage(dst []byte, v Version, m *a2a.Message) []byte {
	part := appendPart
	if v == V10 {
		dst, part = append(dst, `{"role":"ROLE_USER",`...), appendPart10
	} else {
		dst = append(dst, `{"kind":"message","role":"user",`...)
	}
	dst = appendMember(dst, "messageId", m.ID)
	dst = append(dst, `,"parts":[`...)
	for i := range m.Parts {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = part(dst, &m.Parts[i])
	}
	dst = append(dst, ']')
	if m.TaskID != "" {
		dst = appendMember(append(dst, ','), "taskId", m.TaskID)
	}
	if m.ContextID != "" {
		dst = appendMember(append(dst, ','), "contextId", m.ContextID)
	}
	if len(m.ReferenceTaskIDs) > 0 {
		dst = appendStrings(append(dst, `,"referenceTaskIds":`...), m.ReferenceTaskIDs)
	}
	if len(m.Extensions) > 0 {
		dst = appendStrings(append(dst, `,"extensions":`...), m.Extensions)
	}
	return append(appendMetadata(dst, m.Metadata), '}')
}

func appendPart(dst []byte, p *a2a.Part) []byte {
	switch p.Kind {
	case a2a.PartData:
		dst = append(append(dst, `{"kind":"data","data":`...), p.Data...)
	case a2a.PartFile, a2a.PartURL:
		key := "bytes"
		if p.Kind == a2a.PartURL {
			key = "uri"
		}
		dst = appendMember(append(dst, `{"kind":"file","file":{`...), key, p.Text)
		if p.MediaType != "" {
			dst = appendMember(append(dst, ','), "mimeType", p.MediaType)
		}
		if p.Filename != "" {
			dst = appendMember(append(dst, ','), "name", p.Filename)
		}
		dst = append(dst, '}')
	default:
		dst = appendMember(append(dst, `{"kind":"text",`...), "text", p.Text)
	}
	return append(appendMetadata(dst, p.Metadata), '}')
}

func appendPart10(dst []byte, p *a2a.Part) []byte {
	switch p.Kind {
	case a2a.PartData:
		dst = append(append(dst, `{"data":`...), p.Data...)
	case a2a.PartFile:
		dst = appendMember(append(dst, '{'), "raw", p.Text)
	case a2a.PartURL:
		dst = appendMember(append(dst, '{'), "url", p.Text)
	default:
		dst = appendMember(append(dst, '{'), "text", p.Text)
	}
	if p.MediaType != "" {
		dst = appendMember(append(dst, ','), "mediaType", p.MediaType)
	}
	if p.Filename != "" {
		dst = appendMember(append(dst, ','), "filename", p.Filename)
	}
	return append(appendMetadata(dst, p.Metadata), '}')
}

func appendMetadata(dst []byte, m a2a.Raw) []byte {
	if m == nil {
		return dst
	}
	return append(append(dst, `,"metadata":`...), m...)
}

func appendStrings(dst []byte, list []string) []byte {
	dst = append(dst, '[')
	for i, s := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = rawjson.AppendString(dst, s)
	}
	return append(dst, ']')
}
