package v1_test

import (
	"crypto/sha256"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire"
	v1 "github.com/a2ad/a2ad/internal/wire/v1"
	"github.com/a2ad/a2ad/internal/wire/wiretest"
)

const hello = `{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"hi"}]}`

var (
	helloMessage = a2a.Message{ID: "m1", Role: a2a.RoleUser, Parts: []a2a.Part{{Kind: a2a.PartText, Text: "hi"}}}
	rules        = a2a.StreamRules{ResumeAsTask: true}
)

func decode(t *testing.T, method, params string) (a2a.Op, error) {
	t.Helper()
	if params == "" {
		return codec.Decode(method, nil)
	}
	if err := rawjson.Check([]byte(params), 64); err != nil {
		t.Fatalf("%s: %v", params, err)
	}
	return codec.Decode(method, []byte(params))
}

func pointer(n int) *int { return &n }

func TestDecode(t *testing.T) {
	t.Parallel()
	send := func(edit func(*a2a.SendMessage)) *a2a.SendMessage {
		op := &a2a.SendMessage{Message: helloMessage, Blocking: true, StreamRules: rules}
		edit(op)
		return op
	}
	asIs := func(*a2a.SendMessage) {}
	hook := &a2a.PushConfig{ID: "p", URL: "https://h/x", Version: a2a.PushV10, Token: "t", Schemes: []string{"Bearer"},
		Credentials: "c"}
	for _, tc := range []struct {
		method, params string
		want           a2a.Op
	}{
		{"SendMessage", `{"message":` + hello + `}`, send(asIs)},
		{"SendStreamingMessage", `{"message":` + hello + `}`, send(func(op *a2a.SendMessage) { op.Stream = true })},
		{"SendMessage", `{"tenant":null,"message":` + hello + `,"configuration":{},"metadata":null,"unknown":{"x":1}}`,
			send(asIs)},
		{"SendMessage", `{"message":` + hello + `,"configuration":null,"metadata":{"n": 1.0}}`,
			send(func(op *a2a.SendMessage) { op.Metadata = a2a.Raw(`{"n": 1.0}`) })},
		{"SendMessage", `{"message":` + hello + `,"configuration":{"returnImmediately":false}}`, send(asIs)},
		// a member of 0.3 is unknown in 1.0
		{"SendMessage", `{"message":` + hello + `,"configuration":{"blocking":false}}`, send(asIs)},
		{"SendMessage",
			`{"message":` + hello +
				`,"configuration":{"returnImmediately":true,"historyLength":0,
			"acceptedOutputModes":["text/plain","*/*"],
			"taskPushNotificationConfig":{"url":"https://h/x","id":"p","taskId":"ignored","token":"t",
			"authentication":{"scheme":"Bearer","credentials":"c"}}}}`,
			send(func(op *a2a.SendMessage) {
				op.Blocking, op.HistoryLength, op.Push = false, pointer(0), hook
				op.AcceptedModes = []string{"text/plain", "*/*"}
			})},
		{"SendMessage",
			`{"message":` + hello +
				`,"configuration":{"return_immediately":true,"history_length":"3","accepted_output_modes":[],
			"task_push_notification_config":{"url":"https://h/x","id":"p","task_id":"","token":"t",
			"authentication":{"scheme":"Bearer","credentials":"c"}}}}`,
			send(func(op *a2a.SendMessage) { op.Blocking, op.HistoryLength, op.Push = false, pointer(3), hook })},
		{"SendMessage",
			`{"message":` + hello +
				`,"configuration":{"returnImmediately":null,"historyLength":null,"acceptedOutputModes":null,` +
				`"taskPushNotificationConfig":null}}`, send(asIs)},
		{"GetTask", `{"id":"x"}`, &a2a.GetTask{ID: "x"}},
		{"GetTask", `{"id":"x","historyLength":3,"tenant":"echo"}`, &a2a.GetTask{ID: "x", HistoryLength: pointer(3)}},
		{"GetTask", `{"id":"x","history_length":"0"}`, &a2a.GetTask{ID: "x", HistoryLength: pointer(0)}},
		{"GetTask", `{"id":"x","historyLength":9007199254740993}`,
			&a2a.GetTask{ID: "x", HistoryLength: pointer(1<<31 - 1)}},
		{"CancelTask", `{"id":"x","metadata":{"a":[1e400]}}`,
			&a2a.CancelTask{ID: "x", Metadata: a2a.Raw(`{"a":[1e400]}`), RepeatOK: true}},
		{"SubscribeToTask", `{"id":"x"}`, &a2a.Subscribe{ID: "x", StreamRules: rules}},
		{"ListTasks", ``, &a2a.ListTasks{}},
		{"ListTasks", `{}`, &a2a.ListTasks{}},
		{"ListTasks",
			`{"context_id":"c","status":"TASK_STATE_INPUT_REQUIRED","page_size":"10","page_token":"p",
			"history_length":0,"include_artifacts":true,
			"status_timestamp_after":"2026-11-20T11:00:00.123456789+01:00"}`, &a2a.ListTasks{
				ContextID: "c", State: a2a.StateInputRequired, PageSize: 10, PageToken: "p", HistoryLength: pointer(0),
				IncludeArtifacts: true,
				UpdatedAfter:     time.Date(2026, 11, 20, 10, 0, 0, 123456789, time.UTC)}},
		{"ListTasks", `{"status":"TASK_STATE_UNSPECIFIED","contextId":"","pageToken":"","statusTimestampAfter":null}`,
			&a2a.ListTasks{}},
		{"ListTasks", `{"status":0}`, &a2a.ListTasks{}},
		{"ListTasks", `{"status":7,"pageSize":1.0e2}`, &a2a.ListTasks{State: a2a.StateRejected, PageSize: 100}},
		{"ListTasks", `{"status":"TASK\u005fSTATE_FAILED"}`, &a2a.ListTasks{State: a2a.StateFailed}},
		{"CreateTaskPushNotificationConfig", `{"taskId":"x","url":"https://h"}`,
			&a2a.SetPushConfig{TaskID: "x", Config: a2a.PushConfig{URL: "https://h", Version: a2a.PushV10}}},
		{"CreateTaskPushNotificationConfig",
			`{"task_id":"x","id":"p","url":"https://h/x","token":"t",` +
				`"authentication":{"scheme":"Bearer","credentials":"c"}}`,
			&a2a.SetPushConfig{TaskID: "x", Config: *hook}},
		{"GetTaskPushNotificationConfig", `{"taskId":"x","id":"p"}`, &a2a.GetPushConfig{TaskID: "x", ConfigID: "p"}},
		{"ListTaskPushNotificationConfigs", `{"taskId":"x"}`, &a2a.ListPushConfigs{TaskID: "x"}},
		{"ListTaskPushNotificationConfigs", `{"task_id":"x","page_size":0,"page_token":"p"}`,
			&a2a.ListPushConfigs{TaskID: "x", PageToken: "p"}},
		{"ListTaskPushNotificationConfigs", `{"taskId":"x","pageSize":1000}`,
			&a2a.ListPushConfigs{TaskID: "x", PageSize: 1000}},
		{"DeleteTaskPushNotificationConfig", `{"task_id":"x","id":"p"}`,
			&a2a.DeletePushConfig{TaskID: "x", ConfigID: "p"}},
		{"GetExtendedAgentCard", ``, &a2a.GetExtendedCard{Undeclared: a2a.CodeUnsupportedOperation}},
		{"GetExtendedAgentCard", `{"x":1}`, &a2a.GetExtendedCard{Undeclared: a2a.CodeUnsupportedOperation}},
	} {
		got, err := decode(t, tc.method, tc.params)
		if err != nil {
			t.Errorf("%s %s: %v", tc.method, tc.params, err)
			continue
		}
		if op, ok := tc.want.(*a2a.SendMessage); ok {
			op.Digest = sha256.Sum256([]byte(tc.params))
		}
		if list, ok := got.(*a2a.ListTasks); ok {
			list.UpdatedAfter = list.UpdatedAfter.UTC()
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s %s: -want +got\n%s", tc.method, tc.params, diff)
		}
	}
}

func TestDecodeMessage(t *testing.T) {
	t.Parallel()
	got, err := decode(t, "SendMessage",
		`{"message":{"message_id":"ü","role":2,"context_id":"c","taskId":"not a uuid","kind":"message",
		"reference_task_ids":["a","b"],"extensions":["https://e"],
		"metadata":{"snake_case":"\u0000","n":9007199254740993},
		"parts":[
			{"text":"a\u0000\n\ud83d\ude00","metadata":{"z":1,"a":2}},
			{"text":"","kind":"text","raw":null,"url":null,"data":null},
			{"raw":"-_8","media_type":"a/b","filename":"f"},
			{"raw":""},
			{"url":"https://u/"},
			{"data":{"n": 12345678901234567890 },"mediaType":"application/json"},
			{"data":null},{"data":[1]},{"data":"\u0000"},{"data":1.0},{"data":false,"text":null}]}}`)
	if err != nil {
		t.Fatal(err)
	}
	data := func(raw string) a2a.Part { return a2a.Part{Kind: a2a.PartData, Data: a2a.Raw(raw)} }
	want := a2a.Message{
		ID: "ü", Role: a2a.RoleAgent, ContextID: "c", TaskID: "not a uuid",
		ReferenceTaskIDs: []string{"a", "b"}, Extensions: []string{"https://e"},
		Metadata: a2a.Raw(`{"snake_case":"\u0000","n":9007199254740993}`),
		Parts: []a2a.Part{
			{Kind: a2a.PartText, Text: "a\x00\n😀", Metadata: a2a.Raw(`{"z":1,"a":2}`)},
			{Kind: a2a.PartText},
			{Kind: a2a.PartFile, Text: "+/8=", MediaType: "a/b", Filename: "f"},
			{Kind: a2a.PartFile},
			{Kind: a2a.PartURL, Text: "https://u/"},
			{Kind: a2a.PartData, Data: a2a.Raw(`{"n": 12345678901234567890 }`), MediaType: "application/json"},
			data(`null`), data(`[1]`), data(`"\u0000"`), data(`1.0`), data(`false`),
		},
	}
	if diff := cmp.Diff(want, got.(*a2a.SendMessage).Message); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	parts := func(list string) string {
		return `{"message":{"messageId":"m","role":"ROLE_USER","parts":[` + list + `]}}`
	}
	message := func(member string) string {
		return `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":""}],` + member + `}}`
	}
	long := func(n int) string { return `"` + strings.Repeat("x", n) + `"` }
	push := func(members string) string { return `{"taskId":"x",` + members + `}` }
	for _, tc := range []struct{ method, params, field string }{
		{"SendMessage", ``, "message"},
		{"SendMessage", `[1]`, "params"},
		{"SendMessage", `{"tenant":1,"message":` + hello + `}`, "tenant"},
		{"SendMessage", `{"message":` + hello + `,"configuration":{"returnImmediately":"true"}}`,
			"configuration.returnImmediately"},
		{"SendMessage", `{"message":` + hello + `,"configuration":{"return_immediately":1}}`,
			"configuration.returnImmediately"},
		{"SendMessage", `{"message":` + hello + `,"configuration":{"historyLength":-1}}`,
			"configuration.historyLength"},
		{"SendMessage", `{"message":` + hello + `,"configuration":{"historyLength":"-1"}}`,
			"configuration.historyLength"},
		{"SendMessage", `{"message":` + hello + `,"configuration":{"taskPushNotificationConfig":{"url":""}}}`,
			"configuration.taskPushNotificationConfig.url"},
		{"SendMessage",
			`{"message":` + hello + `,"configuration":{"taskPushNotificationConfig":{"url":"u","authentication":{}}}}`,
			"configuration.taskPushNotificationConfig.authentication.scheme"},
		{"SendMessage",
			`{"message":` + hello +
				`,"configuration":{"taskPushNotificationConfig":{"url":"u","authentication":{"schemes":["Bearer"]}}}}`,
			"configuration.taskPushNotificationConfig.authentication.scheme"},
		{"SendMessage", parts(``), "message.parts"},
		{"SendMessage", parts(`null`), "message.parts[0]"},
		{"SendMessage", parts(`{"text":"a"},{}`), "message.parts[1]"},
		{"SendMessage", parts(`{"text":null}`), "message.parts[0]"},
		{"SendMessage", parts(`{"text":"a","url":"b"}`), "message.parts[0]"},
		{"SendMessage", parts(`{"raw":"","data":{}}`), "message.parts[0]"},
		{"SendMessage", parts(`{"kind":"file","file":{"bytes":"QQ=="}}`), "message.parts[0]"},
		{"SendMessage", parts(`{"raw":"a"}`), "message.parts[0].raw"},
		{"SendMessage", parts(`{"raw":"+_=="}`), "message.parts[0].raw"},
		{"SendMessage", parts(`{"url":""}`), "message.parts[0].url"},
		{"SendMessage", parts(`{"url":"a\u0000"}`), "message.parts[0].url"},
		{"SendMessage", parts(`{"url":"u","filename":"\u0000"}`), "message.parts[0].filename"},
		{"SendMessage", parts(`{"url":"u","media_type":"\u0000"}`), "message.parts[0].mediaType"},
		{"SendMessage", parts(`{"text":` + long(1<<20+1) + `}`), "message.parts[0].text"},
		{"SendMessage", parts(`{"data":{"a":` + long(1<<20) + `}}`), "message.parts[0].data"},
		{"SendMessage", parts(`{"raw":"` + strings.Repeat("AAAA", 349526) + `"}`), "message.parts[0].raw"},
		{"SendMessage", parts(strings.Repeat(`{"text":""},`, 100) + `{"text":""}`), "message.parts"},
		{"SendMessage", `{"message":{"messageId":"","role":"ROLE_USER","parts":[{"text":""}]}}`, "message.messageId"},
		{"SendMessage", `{"message":{"messageId":"m","parts":[{"text":""}]}}`, "message.role"},
		{"SendMessage", `{"message":{"messageId":"m","role":"ROLE_UNSPECIFIED","parts":[{"text":""}]}}`,
			"message.role"},
		{"SendMessage", `{"message":{"messageId":"m","role":0,"parts":[{"text":""}]}}`, "message.role"},
		{"SendMessage", `{"message":{"messageId":"m","role":"user","parts":[{"text":""}]}}`, "message.role"},
		{"SendMessage", `{"message":{"messageId":` + long(257) + `,"role":"ROLE_USER","parts":[{"text":""}]}}`,
			"message.messageId"},
		{"SendMessage", message(`"contextId":"\u0000"`), "message.contextId"},
		{"SendMessage", message(`"taskId":` + long(257)), "message.taskId"},
		{"SendMessage", message(`"contextId":"a","context_id":"a"`), "message.contextId"},
		{"SendMessage", message(`"contextId":"a","context_id":null`), "message.contextId"},
		{"SendMessage", message(`"referenceTaskIds":["a","\u0000"]`), "message.referenceTaskIds[1]"},
		{"SendMessage", message(`"metadata":[]`), "message.metadata"},
		{"GetTask", `{}`, "id"},
		{"GetTask", `{"id":""}`, "id"},
		{"GetTask", `{"id":` + long(257) + `}`, "id"},
		{"GetTask", `{"id":"x","historyLength":"x"}`, "historyLength"},
		{"GetTask", `{"id":"x","historyLength":1e400}`, "historyLength"},
		{"CancelTask", `{"id":"x","metadata":"y"}`, "metadata"},
		{"SubscribeToTask", `{"name":"tasks/x"}`, "id"},
		{"ListTasks", `{"status":"WORKING"}`, "status"},
		{"ListTasks", `{"status":"working"}`, "status"},
		{"ListTasks", `{"status":9}`, "status"},
		{"ListTasks", `{"pageSize":0}`, "pageSize"},
		{"ListTasks", `{"pageSize":101}`, "pageSize"},
		{"ListTasks", `{"pageSize":150}`, "pageSize"},
		{"ListTasks", `{"pageSize":"0"}`, "pageSize"},
		{"ListTasks", `{"statusTimestampAfter":"2026-11-20"}`, "statusTimestampAfter"},
		{"ListTasks", `{"statusTimestampAfter":"2026-11-20T10:00:00"}`, "statusTimestampAfter"},
		{"ListTasks", `{"statusTimestampAfter":1}`, "statusTimestampAfter"},
		{"ListTasks", `{"statusTimestampAfter":""}`, "statusTimestampAfter"},
		{"ListTasks", `{"includeArtifacts":"true"}`, "includeArtifacts"},
		{"CreateTaskPushNotificationConfig", push(`"url":""`), "url"},
		{"CreateTaskPushNotificationConfig", `{"url":"u"}`, "taskId"},
		{"CreateTaskPushNotificationConfig", push(`"url":"u","authentication":{"scheme":""}`), "authentication.scheme"},
		{"CreateTaskPushNotificationConfig", push(`"url":"u","authentication":[]`), "authentication"},
		{"CreateTaskPushNotificationConfig",
			push(`"url":"u","authentication":{"scheme":"B","credentials":` + long(4097) + `}`),
			"authentication.credentials"},
		{"GetTaskPushNotificationConfig", `{"taskId":"x"}`, "id"},
		{"ListTaskPushNotificationConfigs", `{"taskId":"x","pageSize":-1}`, "pageSize"},
		{"DeleteTaskPushNotificationConfig", `{"id":"x"}`, "taskId"},
		{"GetExtendedAgentCard", `[]`, "params"},
	} {
		_, err := decode(t, tc.method, tc.params)
		wiretest.WantInvalid(t, err, tc.field, tc.method, tc.params)
	}
}

// A name that is not exactly the snake_case name is an unknown member.
func TestOtherSpellingsAreUnknownMembers(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"context_Id", "Context_id", "context__id", "_contextId", "context_id_", "ContextId",
		"contextid", "context-id", "_context_id", "context_1d"} {
		op, err := decode(t, "ListTasks", `{"`+name+`":"c"}`)
		if err != nil || op.(*a2a.ListTasks).ContextID != "" {
			t.Errorf("%s: %+v, %v", name, op, err)
		}
	}
}

func TestDecodeUnknownMethod(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"", "message/send", "sendMessage", "SENDMESSAGE", "SendMessage ",
		"TaskSubscription", strings.Repeat("x", 1<<20)} {
		if _, err := decode(t, method, `{"id":1}`); a2a.CodeOf(err) != a2a.CodeMethodNotFound ||
			len(err.Error()) > 200 || codec.Has(method) {
			t.Errorf("%.80q: %v", method, err)
		}
	}
	for _, r := range requests {
		if !codec.Has(r.method) {
			t.Errorf("Has does not know %s", r.method)
		}
	}
}

func TestTenant(t *testing.T) {
	t.Parallel()
	for params, want := range map[string]string{
		``: "", `[]`: "", `{}`: "", `{"tenant":null}`: "", `{"tenant":1}`: "", `{"tenant":""}`: "",
		`{"message":{"tenant":"no"},"tenant":"w\u006frds"}`: "words",
	} {
		if got := codec.Tenant([]byte(params)); got != want {
			t.Errorf("%s: %q, want %q", params, got, want)
		}
	}
}

func TestDecodeLimitsAreInclusive(t *testing.T) {
	t.Parallel()
	c := v1.Codec{Limits: wire.Limits{Parts: 2, PartBytes: 4, IDBytes: 3, URLBytes: 5, TokenSize: 2}}
	for _, tc := range []struct{ params, field string }{
		{`{"message":{"messageId":"123","role":1,"parts":[{"text":"üü"},{"raw":"AAAAAA=="}]}}`, ""},
		{`{"message":{"messageId":"123","role":1,"parts":[{"text":"üü"},{"raw":"AAAAAAA="}]}}`,
			"message.parts[1].raw"},
		{`{"message":{"messageId":"1234","role":1,"parts":[{"text":""}]}}`, "message.messageId"},
		{`{"message":{"messageId":"123","role":1,"parts":[{"url":"12345"}]}}`, "message.parts[0].url"},
		{`{"message":{"messageId":"123","role":1,"parts":[{"text":""},{"text":""},{"text":""}]}}`, "message.parts"},
		{`{"message":{"messageId":"123","role":1,"parts":[{"text":""}]},` +
			`"configuration":{"taskPushNotificationConfig":{"url":"12345","token":"12"}}}`, ""},
		{`{"message":{"messageId":"123","role":1,"parts":[{"text":""}]},` +
			`"configuration":{"taskPushNotificationConfig":{"url":"123456"}}}`,
			"configuration.taskPushNotificationConfig.url"},
	} {
		_, err := c.Decode("SendMessage", []byte(tc.params))
		if tc.field != "" {
			wiretest.WantInvalid(t, err, tc.field, "SendMessage", tc.params)
		} else if err != nil {
			t.Errorf("%s: %v", tc.params, err)
		}
	}
}
