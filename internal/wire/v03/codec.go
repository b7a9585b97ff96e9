// Package v03 is A2A 0.3.0 in JSON: requests to operations, and domain values to the forms of the
// 0.3.0 schema.
//
// Its output always validates against that schema. With Lenient, its input may also be in one of
// the dialects that docs/reference/protocol.md lists. Values keep their bytes: ids, numbers,
// metadata and data come back as they were sent.
package v03

import (
	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/wire"
	"github.com/a2ad/a2ad/internal/wire/decode"
)

// Codec is the 0.3 generation. The zero value is strict and has the default limits.
type Codec struct {
	Limits  wire.Limits
	Lenient bool // accept the dialects of docs/reference/protocol.md
	// WorkshopCard adds the members of workshop material to cards (L-15 to L-18 in
	// docs/reference/protocol.md).
	WorkshopCard bool
	OnLenient    func(rule string) // called with "L-nn" each time a rule is used, concurrently; may be nil
}

var _ wire.Codec = Codec{}

// Version returns "0.3".
func (Codec) Version() string { return "0.3" }

// Form returns wire.FormV03.
func (Codec) Form() wire.Form { return wire.FormV03 }

// methodList is not in 0.3.0: only its dialects have it (L-01).
const methodList = "tasks/list"

// methods maps each method to the reader of its params.
var methods = map[string]func(*decoder, []byte) a2a.Op{
	"message/send":                        func(d *decoder, params []byte) a2a.Op { return d.send(params, false) },
	"message/stream":                      func(d *decoder, params []byte) a2a.Op { return d.send(params, true) },
	"tasks/get":                           (*decoder).get,
	methodList:                            (*decoder).list,
	"tasks/cancel":                        (*decoder).cancel,
	"tasks/resubscribe":                   (*decoder).resubscribe,
	"tasks/pushNotificationConfig/set":    (*decoder).pushSet,
	"tasks/pushNotificationConfig/get":    (*decoder).pushGet,
	"tasks/pushNotificationConfig/list":   (*decoder).pushList,
	"tasks/pushNotificationConfig/delete": (*decoder).pushDelete,
	"agent/getAuthenticatedExtendedCard":  (*decoder).extendedCard,
}

// Has reports whether 0.3 has the method; see wire.Codec.
func (c Codec) Has(method string) bool {
	return methods[method] != nil && (c.Lenient || method != methodList)
}

// Tenant returns "": 0.3 has no tenants.
func (Codec) Tenant([]byte) string { return "" }

// decoder reads the params of one request.
type decoder struct {
	decode.Reader
	lenient   bool
	onLenient func(rule string)
}

// Decode reads the params of one request; see wire.Codec.
func (c Codec) Decode(method string, params []byte) (a2a.Op, error) {
	if !c.Has(method) {
		return nil, a2a.Errorf(a2a.CodeMethodNotFound, "unknown method %.64q", method)
	}
	d := decoder{Reader: decode.Reader{Limits: c.Limits.OrDefault()}, lenient: c.Lenient, onLenient: c.OnLenient}
	op := methods[method](&d, params)
	if err := d.Err(); err != nil {
		return nil, err
	}
	return op, nil
}
