package v03_test

import (
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/a2a/a2atest"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire"
	"github.com/a2ad/a2ad/internal/wire/v03"
	"github.com/a2ad/a2ad/internal/wire/wiretest"
)

func readREST(t *testing.T, c v03.Codec, action wire.Action, query, body string) (a2a.Op, wire.Codec, error) {
	t.Helper()
	values, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	r := wire.Resource{Action: action, TaskID: "t", ConfigID: "c", Query: values}
	if body != "" {
		r.Body = []byte(body)
	}
	return wiretest.REST(c, &r)
}

// Both dialects give the same message, and the answer is in the dialect of the request.
func TestRESTReadsBothDialects(t *testing.T) {
	t.Parallel()
	want := a2a.Message{ID: "m", Role: a2a.RoleUser, ContextID: "c", Parts: []a2a.Part{
		{Kind: a2a.PartText, Text: "hi"}, {Kind: a2a.PartFile, Text: "QQ==", MediaType: "a/b", Filename: "f"},
		{Kind: a2a.PartData, Data: a2a.Raw(`{"n":9007199254740993}`)},
	}}
	for body, form := range map[string]wire.Form{
		`{"message":{"kind":"message","messageId":"m","role":"user","contextId":"c",` +
			`"parts":[{"kind":"text","text":"hi"},` +
			`{"kind":"file","file":{"bytes":"QQ==","mimeType":"a/b","name":"f"}},` +
			`{"kind":"data","data":{"n":9007199254740993}}]}}`: wire.FormV03REST,
		`{"message":{"messageId":"m","role":"ROLE_USER","contextId":"c","content":[{"text":"hi"},` +
			`{"file":{"fileWithBytes":"UVE9PQ==","mimeType":"a/b","name":"f"}},` +
			`{"data":{"data":{"n":9007199254740993}}}]}}`: wire.FormV03Proto,
		`{"request":{"message_id":"m","role":1,"context_id":"c","parts":[{"text":"hi"},` +
			`{"file":{"file_with_bytes":"UVE9PQ==","mime_type":"a/b","name":"f"}},` +
			`{"data":{"data":{"n":9007199254740993}}}]}}`: wire.FormV03Proto,
	} {
		for _, lenient := range []bool{false, true} {
			op, as, err := readREST(t, v03.Codec{Lenient: lenient}, wire.ActionSend, "", body)
			if err != nil || as.Form() != form {
				t.Errorf("%s: %v, form %v", body, err, as.Form())
				continue
			}
			sent := op.(*a2a.SendMessage)
			if diff := cmp.Diff(want, sent.Message); diff != "" || !sent.Blocking {
				t.Errorf("%s: -want +got\n%s", body, diff)
			}
		}
	}
}

func TestREST(t *testing.T) {
	t.Parallel()
	two := 2
	push := &a2a.SetPushConfig{TaskID: "t", Config: a2a.PushConfig{ID: "p", URL: "u", Version: a2a.PushV03}}
	for _, tc := range []struct {
		action wire.Action
		query  string
		body   string
		want   a2a.Op
		form   wire.Form
	}{
		{wire.ActionGet, "history_length=2", "", &a2a.GetTask{ID: "t", HistoryLength: &two}, wire.FormV03Proto},
		{wire.ActionGet, "historyLength=0", "", &a2a.GetTask{ID: "t"}, wire.FormV03Proto},
		{wire.ActionList, "status=completed&contextId=c", "", &a2a.ListTasks{State: a2a.StateCompleted, ContextID: "c"},
			wire.FormV03Proto},
		{wire.ActionList, "status=TASK_STATE_CANCELLED&page_size=2", "",
			&a2a.ListTasks{State: a2a.StateCanceled, PageSize: 2}, wire.FormV03Proto},
		{wire.ActionCancel, "", `{"name":"tasks/other","metadata":{}}`,
			&a2a.CancelTask{ID: "t", Metadata: a2a.Raw(`{}`)}, wire.FormV03Proto},
		{wire.ActionSubscribe, "", "",
			&a2a.Subscribe{ID: "t", EndedOK: true, StreamRules: a2a.StreamRules{LastStatus: true}}, wire.FormV03Proto},
		{wire.ActionSetPush, "", `{"taskId":"other","pushNotificationConfig":{"id":"p","url":"u"}}`, push,
			wire.FormV03REST},
		{wire.ActionSetPush, "",
			`{"parent":"tasks/other","configId":"p","config":{"pushNotificationConfig":{"url":"u"}}}`, push,
			wire.FormV03Proto},
		{wire.ActionSetPush, "", `{"name":"tasks/t/pushNotificationConfigs/p","pushNotificationConfig":{"url":"u"}}`,
			push, wire.FormV03Proto},
		{wire.ActionSetPush, "", `{"id":"p","url":"u"}`, push, wire.FormV03Proto},
		{wire.ActionSetPush, "", `{"id":"p","url":"u","authentication":{}}`, push, wire.FormV03Proto},
		{wire.ActionSetPush, "", `{"id":"p","url":"u","authentication":{"schemes":[]}}`, push, wire.FormV03Proto},
		{wire.ActionSetPush, "",
			`{"taskId":"t","pushNotificationConfig":{"id":"p","url":"u","authentication":{"schemes":[]}}}`, push,
			wire.FormV03REST},
		{wire.ActionGetPush, "", "", &a2a.GetPushConfig{TaskID: "t", ConfigID: "c"}, wire.FormV03Proto},
		{wire.ActionListPushes, "pageSize=2", "", &a2a.ListPushConfigs{TaskID: "t", PageSize: 2}, wire.FormV03Proto},
		{wire.ActionDeletePush, "", "", &a2a.DeletePushConfig{TaskID: "t", ConfigID: "c"}, wire.FormV03Proto},
		{wire.ActionExtendedCard, "", "", &a2a.GetExtendedCard{Undeclared: a2a.CodeExtendedCardNotConfigured},
			wire.FormV03Proto},
	} {
		op, as, err := readREST(t, v03.Codec{}, tc.action, tc.query, tc.body)
		if diff := cmp.Diff(tc.want, op); err != nil || diff != "" || as.Form() != tc.form {
			t.Errorf("%d ?%s %s: %v, form %d, -want +got\n%s", tc.action, tc.query, tc.body, err, as.Form(), diff)
		}
	}
	for _, tc := range [][3]string{{"pageSize=0", "", ""}, {"pageSize=101", "", "pageSize"},
		{"historyLength=x", "", "historyLength"}, {"status=busy", "", "status"}} {
		_, _, err := readREST(t, v03.Codec{}, wire.ActionList, tc[0], tc[1])
		if tc[2] == "" {
			tc[2] = "pageSize"
		}
		wiretest.WantInvalid(t, err, tc[2], "list", tc[0])
	}
}

// A client that asks for tasks gets an array, as 0.3.0 defines; a client that asks for a page gets a page. A
// list of webhooks is the message of ProtoJSON.
func TestRESTLists(t *testing.T) {
	t.Parallel()
	page := a2a.Page{NextToken: "n", Total: 7, PageSize: 2}
	for query, want := range map[string]string{"": `[]`, "unknown=1&pageSize=": `[]`,
		"pageSize=2": `{"tasks":[],"totalSize":7,"nextPageToken":"n"}`} {
		_, as, err := readREST(t, v03.Codec{}, wire.ActionList, query, "")
		if got := string(as.AppendPage(nil, &page, false)); err != nil || got != want {
			t.Errorf("tasks?%s: %v %s", query, err, got)
		}
		_, as, err = readREST(t, v03.Codec{}, wire.ActionListPushes, query, "")
		if got := string(as.AppendPushConfigs(nil, "t", &a2a.PushPage{})); err != nil ||
			got != `{"configs":[],"nextPageToken":""}` {
			t.Errorf("configs?%s: %v %s", query, err, got)
		}
	}
}

// In the dialect of the schema, the value inside the wrapper must be valid.
func TestRESTOutputIsValid(t *testing.T) {
	t.Parallel()
	item := map[string]string{"task": "Task", "message": "Message", "statusUpdate": "TaskStatusUpdateEvent",
		"artifactUpdate": "TaskArtifactUpdateEvent"}
	_, as, err := readREST(t, v03.Codec{}, wire.ActionSend, "", `{"message":`+hello+`}`)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		task, entry, message := a2atest.Task().Draw(rt, "task"), a2atest.Entry().Draw(rt,
			"entry"), a2atest.Message().Draw(rt, "message")
		for _, doc := range [][]byte{as.AppendSent(nil, &task), as.AppendSnapshot(nil, &task),
			as.AppendEvent(nil, &entry, true), as.AppendReply(nil, &message)} {
			members := 0
			for name, v := range rawjson.Members(doc) {
				wiretest.Valid(rt, schema(t, item[string(name)]), v)
				members++
			}
			if members != 1 {
				rt.Fatalf("%s", doc)
			}
		}
	})
}

func FuzzREST(f *testing.F) {
	for action := range uint8(11) {
		f.Add(action, "t", "c", "historyLength=2&pageSize=3&status=2&includeArtifacts=true",
			[]byte(`{"id":"x","task_id":"y","metadata":{},"url":"u","parent":"tasks/z","name":"x"}`))
		f.Add(action, "\u2028\\\"", "", "a=b",
			[]byte(`{"message":`+hello+`,"config":{"name":"tasks/q/pushNotificationConfigs/p"}}`))
	}
	f.Fuzz(func(t *testing.T, action uint8, task, config, query string, body []byte) {
		wiretest.CheckREST(t, v03.Codec{Lenient: true}, action, task, config, query, body)
	})
}
