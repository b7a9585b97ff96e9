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

// What operations are answered with, by the definitions of each version and of its dialects.
var (
	results1 = map[string]string{
		"SendMessage": "SendMessageResponse", "SendStreamingMessage": "StreamResponse", "SubscribeToTask": "StreamResponse",
		"GetTask": "Task", "CancelTask": "Task", "ListTasks": "ListTasksResponse",
		"CreateTaskPushNotificationConfig": "TaskPushNotificationConfig", "GetTaskPushNotificationConfig": "TaskPushNotificationConfig",
		"ListTaskPushNotificationConfigs": "ListTaskPushNotificationConfigsResponse",
	}
	responses03 = map[string]string{ // with their envelopes
		"SendMessage": "SendMessageResponse", "SendStreamingMessage": "SendStreamingMessageResponse", "SubscribeToTask": "SendStreamingMessageResponse",
		"GetTask": "GetTaskResponse", "CancelTask": "CancelTaskResponse", "ListTasks": "JSONRPCSuccessResponse",
		"CreateTaskPushNotificationConfig": "SetTaskPushNotificationConfigResponse", "GetTaskPushNotificationConfig": "GetTaskPushNotificationConfigResponse",
		"ListTaskPushNotificationConfigs": "ListTaskPushNotificationConfigResponse", "DeleteTaskPushNotificationConfig": "DeleteTaskPushNotificationConfigResponse",
	}
	items03 = map[string]string{ // by the member that REST wraps them in
		"task": "Task", "message": "Message", "statusUpdate": "TaskStatusUpdateEvent", "artifactUpdate": "TaskArtifactUpdateEvent",
	}
	messages03 = map[string]func() proto.Message{
		"SendMessage":          func() proto.Message { return new(apb03.SendMessageResponse) },
		"SendStreamingMessage": func() proto.Message { return new(apb03.StreamResponse) }, "SubscribeToTask": func() proto.Message { return new(apb03.StreamResponse) },
		"GetTask": func() proto.Message { return new(apb03.Task) }, "CancelTask": func() proto.Message { return new(apb03.Task) },
		"ListTasks":                        func() proto.Message { return new(apb03.ListTasksResponse) },
		"CreateTaskPushNotificationConfig": func() proto.Message { return new(apb03.TaskPushNotificationConfig) },
		"GetTaskPushNotificationConfig":    func() proto.Message { return new(apb03.TaskPushNotificationConfig) },
		"ListTaskPushNotificationConfigs":  func() proto.Message { return new(apb03.ListTaskPushNotificationConfigResponse) },
	}
)

// valid fails unless what came back over HTTP is an instance of the definition that its version
// has for the answer to an operation, or for an item of its stream. enveloped is what JSON-RPC
// answers; a body of REST is an answer that is no error.
func (w words) valid(t *testing.T, name string, enveloped bool, body []byte) {
	t.Helper()
	switch {
	case enveloped && rawjson.Get(body, "error") != nil: // of 1.0 too: its details are data to 0.3
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
		// The definitions that code is generated from have another name for the content of a message.
		renamed := contentName.ReplaceAll(body, []byte(`"parts":[`))
		if err := protojson.Unmarshal(renamed, messages03[name]()); err != nil {
			t.Errorf("%s: %v\n%s", name, err, body)
		}
	}
}

// contentName is where a message of ProtoJSON has its content.
var contentName = regexp.MustCompile(`"content":\[`)

// TestCardsOverHTTPFitTheirSchemas: those of one version alone do.
func TestCardsOverHTTPFitTheirSchemas(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for version, schemas := range map[string]*wiretest.Schemas{"0.3": schemas03, "1.0": schemas1} {
		got := send(t, s.Server, http.MethodGet, cardPath, "", http.Header{"A2a-Version": {version}})
		wiretest.Valid(t, schemas.Get(t, "AgentCard"), []byte(got.body))
	}
}
