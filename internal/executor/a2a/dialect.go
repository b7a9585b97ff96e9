package a2a

import (
	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire/v03"
	v1 "github.com/a2ad/a2ad/internal/wire/v1"
)

// dialect writes the requests of one protocol version; package answer reads the answers of both. The version is the
// one in cards, without the patch.
type dialect struct {
	version                              string
	send, stream, get, subscribe, cancel string // methods
	message                              func(dst []byte, m *a2a.Message) []byte
	noWait                               string // the configuration of a send that does not block
}

// dialects are the protocol versions, newest first.
var dialects = []*dialect{
	{
		version: "1.0", send: "SendMessage", stream: "SendStreamingMessage", get: "GetTask",
		subscribe: "SubscribeToTask", cancel: "CancelTask",
		message: func(dst []byte, m *a2a.Message) []byte {
			dst = v1.Codec{}.AppendReply(dst, m) // {"message": …}, the same as in a request
			return dst[:len(dst)-1]
		},
		noWait: `,"configuration":{"returnImmediately":true}`,
	},
	{
		version: "0.3", send: "message/send", stream: "message/stream", get: "tasks/get",
		subscribe: "tasks/resubscribe", cancel: "tasks/cancel",
		message: func(dst []byte, m *a2a.Message) []byte {
			return v03.Codec{}.AppendReply(append(dst, `{"message":`...), m)
		},
		noWait: `,"configuration":{"blocking":false}`,
	},
}

// endpoint is the address of the upstream and the protocol version that it speaks.
type endpoint struct {
	*dialect
	url       string
	tenant    string
	streaming bool
}

func (p *endpoint) sendParams(m *a2a.Message, wait bool) []byte {
	b := p.message(nil, m)
	if !wait {
		b = append(b, p.noWait...)
	}
	return p.close(b, m.RequestMetadata)
}

func (p *endpoint) taskParams(id string, metadata a2a.Raw) []byte {
	return p.close(rawjson.AppendString([]byte(`{"id":`), id), metadata)
}

// close ends the params with the metadata of the client's own request.
func (p *endpoint) close(b []byte, metadata a2a.Raw) []byte {
	if metadata != nil {
		b = append(append(b, `,"metadata":`...), metadata...)
	}
	if p.tenant != "" {
		b = rawjson.AppendString(append(b, `,"tenant":`...), p.tenant)
	}
	return append(b, '}')
}
