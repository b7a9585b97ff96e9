package v03

import (
	"net/http"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire"
	"github.com/a2ad/a2ad/internal/wire/decode"
	"github.com/a2ad/a2ad/internal/wire/encode"
)

// This file is 0.3 over HTTP+JSON, which has two dialects (T-13 in docs/reference/protocol.md): the
// JSON of the 0.3.0 schema, and the ProtoJSON of a2a.v1. A request with a body is answered in the
// dialect of the body. All others are answered in ProtoJSON, which the official clients use.

// restMethods maps the actions of HTTP+JSON to the methods of JSON-RPC that do the same.
var restMethods = map[wire.Action]string{
	wire.ActionSend: "message/send", wire.ActionStream: "message/stream", wire.ActionGet: "tasks/get",
	wire.ActionList:   methodList,
	wire.ActionCancel: "tasks/cancel", wire.ActionSubscribe: "tasks/resubscribe",
	wire.ActionSetPush: "tasks/pushNotificationConfig/set",
	wire.ActionGetPush: "tasks/pushNotificationConfig/get", wire.ActionListPushes: "tasks/pushNotificationConfig/list",
	wire.ActionDeletePush:   "tasks/pushNotificationConfig/delete",
	wire.ActionExtendedCard: "agent/getAuthenticatedExtendedCard",
}

// Paths returns the prefix v1, which is how 0.3 names itself in paths.
func (Codec) Paths() (prefix, card string) { return "v1", "card" }

// REST returns the params of a request over HTTP+JSON: its body, or else its query, with the id of
// the path, which overrides the one in the body.
func (c Codec) REST(r *wire.Resource) (method string, params []byte, as wire.Codec, err error) {
	method, as = restMethods[r.Action], protoREST{Proto{Codec: c}}
	var p decode.Params
	switch r.Action {
	case wire.ActionSend, wire.ActionStream:
		if isSchema(rawjson.Get(r.Body, "message")) {
			as = schemaREST{c}
		}
		return method, r.Body, as, nil
	case wire.ActionSetPush:
		p.Text("taskId", r.TaskID)
		if rawjson.Get(r.Body, "taskId") != nil {
			as = schemaREST{c}
		}
	case wire.ActionGet, wire.ActionCancel, wire.ActionSubscribe, wire.ActionListPushes:
		p.Text("id", r.TaskID)
	case wire.ActionGetPush, wire.ActionDeletePush:
		p.Text("id", r.TaskID)
		p.Text("pushNotificationConfigId", r.ConfigID)
	}
	ok, err := p.Add(r, parameter(r.Action))
	if !ok {
		return method, r.Body, as, nil
	}
	if params = p.Bytes(); r.Action == wire.ActionList && string(params) != "{}" {
		as = Proto{Codec: c} // a client that asks for pages gets one
	}
	return method, params, as, err
}

// isSchema reports whether a message is in the dialect of the 0.3.0 schema.
func isSchema(message []byte) bool {
	role := rawjson.Get(message, "role")
	if word, ok := rawjson.String(role); ok && !strings.HasPrefix(word, "ROLE_") {
		return true
	}
	return role == nil && (rawjson.Get(message, "kind") != nil || rawjson.Get(message, "parts") != nil)
}

// parameter returns the query parameters of an action.
func parameter(a wire.Action) func(name string) (string, decode.Kind) {
	return func(name string) (string, decode.Kind) {
		switch {
		case a == wire.ActionList:
			return decode.ListParameter(name)
		case a == wire.ActionGet && name == "historyLength", a == wire.ActionListPushes && name == "pageSize":
			return name, decode.KindInteger
		case a == wire.ActionListPushes && name == "pageToken":
			return name, decode.KindText
		}
		return "", 0
	}
}

// Status returns the HTTP status of an error. 0.3.0 defines none, so these are those of the
// official Python server.
func (Codec) Status(code a2a.ErrorCode) int {
	switch code {
	case a2a.CodeInvalidParams, a2a.CodeTaskTerminal:
		return http.StatusUnprocessableEntity
	case a2a.CodeTaskNotCancelable:
		return http.StatusConflict
	case a2a.CodePushNotSupported, a2a.CodeUnsupportedOperation:
		return http.StatusNotImplemented
	case a2a.CodeContentTypeNotSupported:
		return http.StatusUnsupportedMediaType
	case a2a.CodeInvalidAgentResponse:
		return http.StatusBadGateway
	case a2a.CodeExtendedCardNotConfigured:
		return http.StatusNotFound
	}
	status, _ := encode.Status(code)
	return status
}

// errorTypes are the names of errors in 0.3.0.
var errorTypes = map[int]string{
	-32700: "JSONParseError", -32600: "InvalidRequestError", -32601: "MethodNotFoundError",
	-32602: "InvalidParamsError", -32603: "InternalError",
	-32001: "TaskNotFoundError", -32002: "TaskNotCancelableError", -32003: "PushNotificationNotSupportedError",
	-32004: "UnsupportedOperationError",
	-32005: "ContentTypeNotSupportedError", -32006: "InvalidAgentResponseError",
	-32007: "AuthenticatedExtendedCardNotConfiguredError",
}

// AppendStatus appends the error as in JSON-RPC, which the official JavaScript client reads,
// because 0.3.0 does not define the body. It adds the type by which the Python client distinguishes
// errors, and a google.rpc.Status for the Go client.
func (c Codec) AppendStatus(dst []byte, status int, err *a2a.Error, requestID string) []byte {
	dst = c.AppendError(dst, err, requestID)
	dst = encode.Text(dst[:len(dst)-1], `,"type":`, errorTypes[number(err.Code)])
	dst = append(dst, `,"error":`...)
	return append(encode.RPCStatus(dst, status, err, requestID), '}')
}

// protoREST answers in ProtoJSON. A list of tasks is a bare array, because the definitions of
// ProtoJSON have none and the specification requires it. The specification requires a bare array of
// webhooks too, but ProtoJSON has a message for it, and the official JavaScript client ignores an
// array.
type protoREST struct{ Proto }

// AppendPage appends an array of Tasks.
func (c protoREST) AppendPage(dst []byte, p *a2a.Page, artifacts bool) []byte {
	return c.form().AppendTasks(dst, p, artifacts)
}

// schemaREST answers in the JSON of the 0.3.0 schema. A value of one of several kinds is wrapped in
// a member that names its kind.
type schemaREST struct{ Codec }

// Form returns wire.FormV03REST.
func (schemaREST) Form() wire.Form { return wire.FormV03REST }

// AppendSent appends {"task": Task}.
func (c schemaREST) AppendSent(dst []byte, t *a2a.Task) []byte { return c.AppendSnapshot(dst, t) }

// AppendReply appends {"message": Message}.
func (c schemaREST) AppendReply(dst []byte, m *a2a.Message) []byte {
	return append(c.Codec.AppendReply(append(dst, `{"message":`...), m), '}')
}

// AppendSnapshot appends {"task": Task}, or {"message": Message} for a direct reply.
func (c schemaREST) AppendSnapshot(dst []byte, t *a2a.Task) []byte {
	if m := encode.Reply(t); m != nil {
		return c.AppendReply(dst, m)
	}
	return append(c.Codec.AppendSnapshot(append(dst, `{"task":`...), t), '}')
}

// AppendEvent appends {"statusUpdate": …}, {"artifactUpdate": …} or {"message": …}.
func (c schemaREST) AppendEvent(dst []byte, e *a2a.Entry, last bool) []byte {
	member := `{"message":`
	switch e.Event.(type) {
	case *a2a.StatusUpdate:
		member = `{"statusUpdate":`
	case *a2a.ArtifactUpdate:
		member = `{"artifactUpdate":`
	}
	return append(c.Codec.AppendEvent(append(dst, member...), e, last), '}')
}
