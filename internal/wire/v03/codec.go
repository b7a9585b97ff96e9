// Package v03 is A2A 0.3.0 on JSON: requests to operations, domain values to the
// shapes of the 0.3.0 schema.
//
// What it writes always validates against that schema. What it reads may also be one
// of the dialects that PROTOCOL.md §5 lists, if Lenient is set. Values keep their
// bytes: ids, numbers, metadata and data come back as they were sent.
package v03

import (
	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/wire"
)

// Codec is the 0.3 generation. The zero value is strict and has the default limits.
type Codec struct {
	Limits    wire.Limits
	Lenient   bool              // accept the dialects of PROTOCOL.md §5
	OnLenient func(rule string) // told "L-nn" each time a rule is used; may be nil; concurrent
}

var _ wire.Codec = Codec{}

// Version returns "0.3".
func (Codec) Version() string { return "0.3" }

// The methods of the generation, and the one that only its dialects know.
const (
	methodSend        = "message/send"
	methodStream      = "message/stream"
	methodGet         = "tasks/get"
	methodList        = "tasks/list"
	methodCancel      = "tasks/cancel"
	methodResubscribe = "tasks/resubscribe"
	methodPushSet     = "tasks/pushNotificationConfig/set"
	methodPushGet     = "tasks/pushNotificationConfig/get"
	methodPushList    = "tasks/pushNotificationConfig/list"
	methodPushDelete  = "tasks/pushNotificationConfig/delete"
	methodCard        = "agent/getAuthenticatedExtendedCard"
)

// Decode reads the params of one request; see wire.Codec.
func (c Codec) Decode(method string, params []byte) (a2a.Op, error) {
	d := decoder{limits: c.Limits.OrDefault(), lenient: c.Lenient, onLenient: c.OnLenient}
	var op a2a.Op
	switch method {
	case methodSend, methodStream:
		op = d.send(params, method == methodStream)
	case methodGet:
		op = d.get(params)
	case methodCancel:
		op = d.cancel(params)
	case methodResubscribe:
		op = d.resubscribe(params)
	case methodPushSet:
		op = d.pushSet(params)
	case methodPushGet:
		op = d.pushGet(params)
	case methodPushList:
		op = d.pushList(params)
	case methodPushDelete:
		op = d.pushDelete(params)
	case methodCard:
		op = d.extendedCard(params)
	default:
		if method != methodList || !d.lenientList() {
			return nil, a2a.Errorf(a2a.CodeMethodNotFound, "unknown method %.64q", method)
		}
		op = d.list(params)
	}
	if d.err != nil {
		return nil, d.err
	}
	return op, nil
}
