// Package v1 is A2A 1.0 in JSON: the ProtoJSON form of the protocol's definitions, written and read
// by hand.
//
// Its output validates against the strict schema of 1.0 and has every required member, even if it
// is empty. Its input may use any spelling that ProtoJSON allows: member names in camelCase or
// snake_case, enumerations by name or number, integers as strings, and either base64 alphabet. Null
// means unset, and unknown members are ignored.
//
// Free-form values keep their bytes, which a codec generated from protobuf would not do.
package v1

import (
	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire"
	"github.com/a2ad/a2ad/internal/wire/decode"
)

// Codec is the 1.0 generation. The zero value has the default limits.
type Codec struct {
	Limits    wire.Limits
	OldErrors bool // use the HTTP statuses of 1.0.0 instead of 1.0.1
}

var _ wire.Codec = Codec{}

// Version returns "1.0".
func (Codec) Version() string { return "1.0" }

// Form returns wire.FormV1.
func (Codec) Form() wire.Form { return wire.FormV1 }

// methods maps each method to the reader of its params.
var methods = map[string]func(*decoder, []byte) a2a.Op{
	"SendMessage":                      func(d *decoder, params []byte) a2a.Op { return d.send(params, false) },
	"SendStreamingMessage":             func(d *decoder, params []byte) a2a.Op { return d.send(params, true) },
	"GetTask":                          (*decoder).get,
	"ListTasks":                        (*decoder).list,
	"CancelTask":                       (*decoder).cancel,
	"SubscribeToTask":                  (*decoder).subscribe,
	"CreateTaskPushNotificationConfig": (*decoder).pushCreate,
	"GetTaskPushNotificationConfig":    (*decoder).pushGet,
	"ListTaskPushNotificationConfigs":  (*decoder).pushList,
	"DeleteTaskPushNotificationConfig": (*decoder).pushDelete,
	"GetExtendedAgentCard":             (*decoder).extendedCard,
}

// Has reports whether 1.0 has the method; see wire.Codec.
func (Codec) Has(method string) bool { return methods[method] != nil }

// Tenant returns the tenant of a request, with which A2A 1.0 names an agent.
func (Codec) Tenant(params []byte) string {
	name, _ := rawjson.String(rawjson.Get(params, "tenant"))
	return name
}

// decoder reads the params of one request.
type decoder struct{ decode.Reader }

// Decode reads the params of one request; see wire.Codec.
func (c Codec) Decode(method string, params []byte) (a2a.Op, error) {
	read := methods[method]
	if read == nil {
		return nil, a2a.Errorf(a2a.CodeMethodNotFound, "unknown method %.64q", method)
	}
	d := decoder{decode.Reader{Limits: c.Limits.OrDefault(), Proto: true}}
	d.Params(params)
	d.Text("tenant", rawjson.Get(params, "tenant"), d.Limits.IDBytes)
	op := read(&d, params)
	if err := d.Err(); err != nil {
		return nil, err
	}
	return op, nil
}
