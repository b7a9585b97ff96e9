package v1

import (
	"github.com/a2ad/a2ad/internal/wire"
	"github.com/a2ad/a2ad/internal/wire/decode"
)

// restMethods maps the actions of HTTP+JSON to the methods of JSON-RPC that do the same.
var restMethods = map[wire.Action]string{
	wire.ActionSend: "SendMessage", wire.ActionStream: "SendStreamingMessage", wire.ActionGet: "GetTask",
	wire.ActionList:   "ListTasks",
	wire.ActionCancel: "CancelTask", wire.ActionSubscribe: "SubscribeToTask",
	wire.ActionSetPush: "CreateTaskPushNotificationConfig",
	wire.ActionGetPush: "GetTaskPushNotificationConfig", wire.ActionListPushes: "ListTaskPushNotificationConfigs",
	wire.ActionDeletePush: "DeleteTaskPushNotificationConfig", wire.ActionExtendedCard: "GetExtendedAgentCard",
}

// Paths returns no prefix, because paths of 1.0 have none.
func (Codec) Paths() (prefix, card string) { return "", "extendedAgentCard" }

// REST returns the params of a request over HTTP+JSON: its body, or else its query, with the ids of
// the path, which override those in the body.
func (c Codec) REST(r *wire.Resource) (method string, params []byte, as wire.Codec, err error) {
	method = restMethods[r.Action]
	var p decode.Params
	switch r.Action {
	case wire.ActionSend, wire.ActionStream:
		return method, r.Body, c, nil
	case wire.ActionGet, wire.ActionCancel, wire.ActionSubscribe:
		p.Text("id", r.TaskID)
	case wire.ActionSetPush, wire.ActionListPushes:
		p.Text("taskId", r.TaskID)
	case wire.ActionGetPush, wire.ActionDeletePush:
		p.Text("taskId", r.TaskID)
		p.Text("id", r.ConfigID)
	}
	ok, err := p.Add(r, parameter(r.Action))
	if !ok {
		return method, r.Body, c, nil
	}
	return method, p.Bytes(), c, err
}

// parameter returns the query parameters of an action.
func parameter(a wire.Action) func(name string) (string, decode.Kind) {
	return func(name string) (string, decode.Kind) {
		switch {
		case name == "tenant":
			return name, decode.KindText
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
