package v03_test

import (
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/wire/v03"
	"github.com/a2ad/a2ad/internal/wire/wiretest"
)

var (
	codec  = v03.Codec{Lenient: true}
	taskID = a2a.ID{0x01, 0x9a, 0x9d, 0x40, 0x12, 0x34, 0x7a, 0xbc, 0x8d, 0xef, 1, 2, 3, 4, 5, 6}
	at     = time.Date(2026, 11, 20, 11, 0, 0, 7_999_999, time.FixedZone("CET", 3600))
)

const wireID = "019a9d40-1234-7abc-8def-010203040506"

func TestAppendTask(t *testing.T) {
	t.Parallel()
	task := &a2a.Task{
		ID: taskID, Agent: "echo", ContextID: "c\n", Metadata: a2a.Raw(`{"x": 1.0}`),
		Status: a2a.Status{State: a2a.StateWorking, Time: at, Message: &a2a.Message{
			ID: "s", Role: a2a.RoleAgent, Parts: []a2a.Part{{Kind: a2a.PartText, Text: "a\x00\"\u2028<"}}}},
		Artifacts: []a2a.Artifact{{ID: "a", Name: "n", Description: "d", Extensions: []string{"e"},
			Metadata: a2a.Raw(`{}`), Parts: []a2a.Part{
				{Kind: a2a.PartFile, Text: "QQ==", MediaType: "m/t", Filename: "f"},
				{Kind: a2a.PartURL, Text: "https://u"},
				{Kind: a2a.PartData, Data: a2a.Raw(`{"n":1e400}`), Metadata: a2a.Raw(`{"k":1}`)},
				{Kind: a2a.PartData, Data: a2a.Raw(`[1, 2]`), MediaType: "x/y", Metadata: a2a.Raw(`{ "k":1}`)},
				{Kind: a2a.PartData, Data: a2a.Raw(`null`)},
				{Kind: a2a.PartText, Text: "t", MediaType: "text/markdown", Filename: "r.md"},
			}}},
		History: []a2a.Message{{ID: "m", Role: a2a.RoleUser, TaskID: "other", ContextID: "other",
			ReferenceTaskIDs: []string{"r"},
			Extensions:       []string{"e"}, Metadata: a2a.Raw(`{"a":1}`),
			Parts: []a2a.Part{{Kind: a2a.PartText, Text: ""}}}},
	}
	const ids = `"taskId":"` + wireID + `","contextId":"c\n"`
	want := `{"kind":"task","id":"` + wireID + `","contextId":"c\n","status":{"state":"working","message":` +
		`{"kind":"message","messageId":"s","role":"agent","parts":[{"kind":"text","text":"a\u0000\"` + "\u2028" +
		`<"}],` + ids + `},"timestamp":"2026-11-20T10:00:00.007Z"},` +
		`"artifacts":[{"artifactId":"a","name":"n","description":"d","parts":[` +
		`{"kind":"file","file":{"bytes":"QQ==","mimeType":"m/t","name":"f"}},` +
		`{"kind":"file","file":{"uri":"https://u"}},` +
		`{"kind":"data","data":{"n":1e400},"metadata":{"k":1}},` +
		`{"kind":"data","data":{"value":[1, 2]},"metadata":{"data_part_compat":true,"a2ad/mediaType":"x/y", "k":1}},` +
		`{"kind":"data","data":{"value":null},"metadata":{"data_part_compat":true}},` +
		`{"kind":"text","text":"t","metadata":{"a2ad/mediaType":"text/markdown","a2ad/filename":"r.md"}}],` +
		`"extensions":["e"],"metadata":{}}],` +
		`"history":[{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":""}],` + ids +
		`,"referenceTaskIds":["r"],"extensions":["e"],"metadata":{"a":1}}],` +
		`"metadata":{"x": 1.0}}`
	for name, got := range map[string][]byte{
		"AppendTask": codec.AppendTask(nil, task), "AppendSent": codec.AppendSent(nil, task),
		"AppendSnapshot": codec.AppendSnapshot(nil, task),
	} {
		if string(got) != want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
		wiretest.Valid(t, schema(t, "Task"), got)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	if v := codec.Version(); v != "0.3" {
		t.Errorf("version %q", v)
	}
}

func TestAppendDataWithoutValue(t *testing.T) {
	t.Parallel()
	doc := codec.AppendReply(nil, &a2a.Message{Parts: []a2a.Part{{Kind: a2a.PartData}}})
	wiretest.Valid(t, schema(t, "Message"), doc)
}

func TestAppendTaskOmitsWhatIsEmpty(t *testing.T) {
	t.Parallel()
	task := &a2a.Task{ID: taskID, ContextID: "c", Artifacts: []a2a.Artifact{}, History: []a2a.Message{}}
	for state, name := range map[a2a.State]string{
		a2a.StateSubmitted: "submitted", a2a.StateWorking: "working", a2a.StateInputRequired: "input-required",
		a2a.StateAuthRequired: "auth-required",
		a2a.StateCompleted:    "completed", a2a.StateFailed: "failed", a2a.StateCanceled: "canceled",
		a2a.StateRejected: "rejected", a2a.StateNone: "unknown",
	} {
		task.Status.State = state
		got := codec.AppendTask([]byte("x"), task)
		if want := `x{"kind":"task","id":"` + wireID + `","contextId":"c","status":{"state":"` + name +
			`"}}`; string(got) != want {
			t.Errorf("got %s, want %s", got, want)
		}
		wiretest.Valid(t, schema(t, "Task"), got[1:])
	}
}

func TestAppendEvent(t *testing.T) {
	t.Parallel()
	entry := func(e a2a.Event) *a2a.Entry { return &a2a.Entry{TaskID: taskID, ContextID: "c", Seq: 3, Event: e} }
	const ids = `"taskId":"` + wireID + `","contextId":"c"`
	text := []a2a.Part{{Kind: a2a.PartText, Text: "t"}}
	for _, tc := range []struct {
		event a2a.Event
		last  bool
		want  string
		def   string
	}{
		{&a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateCompleted, Time: at}, Metadata: a2a.Raw(`{"m":1}`)}, true,
			`{"kind":"status-update",` + ids +
				`,"status":{"state":"completed","timestamp":"2026-11-20T10:00:00.007Z"},"final":true,` +
				`"metadata":{"m":1}}`, "TaskStatusUpdateEvent"},
		{&a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateWorking,
			Message: &a2a.Message{ID: "s", Role: a2a.RoleAgent, Parts: text}}}, false,
			`{"kind":"status-update",` + ids +
				`,"status":{"state":"working","message":{"kind":"message","messageId":"s","role":"agent",` +
				`"parts":[{"kind":"text","text":"t"}],` + ids + `}},"final":false}`, "TaskStatusUpdateEvent"},
		{&a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: "a", Parts: text}, Append: true, LastChunk: true,
			Metadata: a2a.Raw(`{}`)}, false,
			`{"kind":"artifact-update",` + ids +
				`,"artifact":{"artifactId":"a","parts":[{"kind":"text","text":"t"}]},"append":true,"lastChunk":true,` +
				`"metadata":{}}`, "TaskArtifactUpdateEvent"},
		{&a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: "a", Parts: text}}, true,
			`{"kind":"artifact-update",` + ids +
				`,"artifact":{"artifactId":"a","parts":[{"kind":"text","text":"t"}]},"append":false,"lastChunk":false}`,
			"TaskArtifactUpdateEvent"},
		{&a2a.Message{ID: "m", Role: a2a.RoleAgent, Parts: text}, true,
			`{"kind":"message","messageId":"m","role":"agent","parts":[{"kind":"text","text":"t"}],"contextId":"c"}`,
			"Message"},
		{&a2a.Checkpoint{Body: a2a.Raw(`1`)}, false, `null`,
			"DeleteTaskPushNotificationConfigSuccessResponse/properties/result"},
	} {
		got := codec.AppendEvent([]byte("x"), entry(tc.event), tc.last)
		if string(got) != "x"+tc.want {
			t.Errorf("got\n%s\nwant\n%s", got, tc.want)
		}
		wiretest.Valid(t, schema(t, tc.def), got[1:])
	}
}

func TestAppendReply(t *testing.T) {
	t.Parallel()
	m := &a2a.Message{ID: "m", Role: a2a.RoleAgent, Parts: []a2a.Part{{Kind: a2a.PartText, Text: "t"}}, ContextID: "c",
		TaskID: "x"}
	got := codec.AppendReply(nil, m)
	if want := `{"kind":"message","messageId":"m","role":"agent","parts":[{"kind":"text","text":"t"}],"taskId":"x",` +
		`"contextId":"c"}`; string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
	wiretest.Valid(t, schema(t, "Message"), got)
}

func TestAppendPage(t *testing.T) {
	t.Parallel()
	page := &a2a.Page{Total: 7, PageSize: 2, NextToken: "n", Tasks: []a2a.Task{
		{ID: taskID, ContextID: "c", Artifacts: []a2a.Artifact{{ID: "a"}}}, {ID: taskID, ContextID: "c"}}}
	task := `{"kind":"task","id":"` + wireID + `","contextId":"c","status":{"state":"unknown"}`
	page1 := `{"tasks":[` + task + `},` + task + `}],"totalSize":7,"pageSize":2,"nextPageToken":"n"`
	if got, want := string(v03.Codec{}.AppendPage(nil, page, false)), page1+`}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := string(codec.AppendPage(nil, page, false)), page1+
		`,"total_size":7,"page_size":2,"next_page_token":"n"}`; got != want {
		t.Errorf("lenient: got %s, want %s", got, want)
	}
	if got := string(codec.AppendPage(nil, page, true)); strings.Count(got,
		`"artifacts":[{"artifactId":"a","parts":[]}]`) != 1 {
		t.Errorf("with artifacts: %s", got)
	}
	if got, want := string(v03.Codec{}.AppendPage(nil, &a2a.Page{},
		false)), `{"tasks":[],"totalSize":0,"pageSize":0,"nextPageToken":""}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAppendPushConfigKeepsSecrets(t *testing.T) {
	t.Parallel()
	configs := []a2a.PushConfig{
		{ID: "default", URL: "https://h/?a=1&b", Token: "s3cret", Schemes: []string{"Bearer"}, Credentials: "s3cret"},
		{URL: "u"},
	}
	got := codec.AppendPushConfigs(nil, "x", &a2a.PushPage{Configs: configs})
	want := `[{"taskId":"x","pushNotificationConfig":{"url":"https://h/?a=1&b","id":"default",` +
		`"authentication":{"schemes":["Bearer"]}}},` +
		`{"taskId":"x","pushNotificationConfig":{"url":"u"}}]`
	if string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
	wiretest.Valid(t, schema(t, "ListTaskPushNotificationConfigSuccessResponse/properties/result"), got)
	wiretest.Valid(t, schema(t, "TaskPushNotificationConfig"), codec.AppendPushConfig(nil, "x", &configs[0]))
	if got := string(codec.AppendPushConfigs(nil, "x", &a2a.PushPage{})); got != "[]" {
		t.Errorf("no configs: %s", got)
	}
	if got := string(codec.AppendDeleted(nil)); got != "null" {
		t.Errorf("deleted: %s", got)
	}
}
