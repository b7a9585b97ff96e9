package rpc_test

import (
	"net/http"
	"regexp"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	apb03 "github.com/a2aproject/a2a-go/a2apb"

	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire/wiretest"
)

var (
	schemas03 = wiretest.SchemasV03("../wire/v03/testdata/a2a-0.3.0.schema.json")
	schemas1  = wiretest.SchemasV1("../wire/v1/testdata/a2a-1.0.0.schema.json")
)

// The schema definitions of the answers, for each version and dialect.
var (
	results1 = map[string]string{
		"SendMessage":                      "SendMessageResponse",
		"SendStreamingMessage":             "StreamResponse",
		"SubscribeToTask":                  "StreamResponse",
		"GetTask":                          "Task",
		"CancelTask":                       "Task",
		"ListTasks":                        "ListTasksResponse",
		"CreateTaskPushNotificationConfig": "TaskPushNotificationConfig",
		"GetTaskPushNotificationConfig":    "TaskPushNotificationConfig",
		"ListTaskPushNotificationConfigs":  "ListTaskPushNotificationConfigsResponse",
	}
	responses03 = map[string]string{ // with their envelopes
		"SendMessage":                      "SendMessageResponse",
		"SendStreamingMessage":             "SendStreamingMessageResponse",
		"SubscribeToTask":                  "SendStreamingMessageResponse",
		"GetTask":                          "GetTaskResponse",
		"CancelTask":                       "CancelTaskResponse",
		"ListTasks":                        "JSONRPCSuccessResponse",
		"CreateTaskPushNotificationConfig": "SetTaskPushNotificationConfigResponse",
		"GetTaskPushNotificationConfig":    "GetTaskPushNotificationConfigResponse",
		"ListTaskPushNotificationConfigs":  "ListTaskPushNotificationConfigResponse",
		"DeleteTaskPushNotificationConfig": "DeleteTaskPushNotificationConfigResponse",
	}
	items03 = map[string]string{ // by the member in which REST wraps them
		"task":           "Task",
		"message":        "Message",
		"statusUpdate":   "TaskStatusUpdateEvent",
		"artifactUpdate": "TaskArtifactUpdateEvent",
	}
	messages03 = map[string]func() proto.Message{
		"SendMessage":                      func() proto.Message { return new(apb03.SendMessageResponse) },
		"SendStreamingMessage":             func() proto.Message { return new(apb03.StreamResponse) },
		"SubscribeToTask":                  func() proto.Message { return new(apb03.StreamResponse) },
		"GetTask":                          func() proto.Message { return new(apb03.Task) },
		"CancelTask":                       func() proto.Message { return new(apb03.Task) },
		"ListTasks":                        func() proto.Message { return new(apb03.ListTasksResponse) },
		"CreateTaskPushNotificationConfig": func() proto.Message { return new(apb03.TaskPushNotificationConfig) },
		"GetTaskPushNotificationConfig":    func() proto.Message { return new(apb03.TaskPushNotificationConfig) },
		"ListTaskPushNotificationConfigs": func() proto.Message {
			return new(apb03.ListTaskPushNotificationConfigResponse)
		},
	}
)

// valid fails unless an answer over HTTP is an instance of its definition in the schema of the
// version. The answer is that of an operation, or an item of its stream. enveloped says that it is
// of JSON-RPC. Over REST, errors are not checked.
func (w words) valid(t *testing.T, name string, enveloped bool, body []byte) {
	t.Helper()
	switch {
	case enveloped && rawjson.Get(body, "error") != nil: // in 1.0 too, whose details are data to 0.3
		wiretest.Valid(t, schemas03.Get(t, "JSONRPCErrorResponse"), body)
	case enveloped && w == wordsSchema:
		wiretest.Valid(t, schemas03.Get(t, responses03[name]), body)
		for task := range rawjson.Elements(rawjson.Get(rawjson.Get(body, "result"), "tasks")) {
			wiretest.Valid(t, schemas03.Get(t, "Task"), task)
		}
	case enveloped:
		wiretest.Valid(t, schemas03.Get(t, "JSONRPCSuccessResponse"), body) // the envelope is the same
		w.valid(t, name, false, rawjson.Get(body, "result"))
	case w == wordsV1 && results1[name] != "":
		wiretest.Valid(t, schemas1.Get(t, results1[name]), body)
	case name == "DeleteTaskPushNotificationConfig":
		if string(body) != "{}" {
			t.Errorf("deleted: %s", body)
		}
	case w == wordsSchema && name == "CreateTaskPushNotificationConfig":
		wiretest.Valid(t, schemas03.Get(t, "TaskPushNotificationConfig"), body)
	case w == wordsSchema:
		for member, item := range rawjson.Members(body) {
			wiretest.Valid(t, schemas03.Get(t, items03[string(member)]), item)
		}
	default:
		// The definitions from which code is generated have another name for the content of a
		// message.
		renamed := contentName.ReplaceAll(body, []byte(`"parts":[`))
		if err := protojson.Unmarshal(renamed, messages03[name]()); err != nil {
			t.Errorf("%s: %v\n%s", name, err, body)
		}
	}
}

// contentName is the name of a message's content in ProtoJSON.
var contentName = regexp.MustCompile(`"content":\[`)

// TestCardsOverHTTPFitTheirSchemas: the cards of each version alone do.
func TestCardsOverHTTPFitTheirSchemas(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for version, schemas := range map[string]*wiretest.Schemas{"0.3": schemas03, "1.0": schemas1} {
		got := send(t, s.Server, http.MethodGet, cardPath, "", http.Header{"A2a-Version": {version}})
		wiretest.Valid(t, schemas.Get(t, "AgentCard"), []byte(got.body))
	}
}
