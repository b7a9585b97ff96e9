package v1_test

import (
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	v1 "github.com/a2ad/a2ad/internal/wire/v1"
	"github.com/a2ad/a2ad/internal/wire/wiretest"
)

var (
	codec  = v1.Codec{}
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
				{Kind: a2a.PartData, Data: a2a.Raw(`[1, 9007199254740993]`), MediaType: "x/y"},
				{Kind: a2a.PartData, Data: a2a.Raw(`null`)}, {Kind: a2a.PartData},
				{Kind: a2a.PartText, Text: "t", MediaType: "text/markdown", Filename: "r.md"},
			}}},
		History: []a2a.Message{{ID: "m", Role: a2a.RoleUser, TaskID: "other", ContextID: "other",
			ReferenceTaskIDs: []string{"r"},
			Extensions:       []string{"e"}, Metadata: a2a.Raw(`{"a":1}`),
			Parts: []a2a.Part{{Kind: a2a.PartText, Text: ""}}}},
	}
	const ids = `"taskId":"` + wireID + `","contextId":"c\n"`
	want := `{"id":"` + wireID + `","contextId":"c\n","status":{"state":"TASK_STATE_WORKING","message":` +
		`{"messageId":"s","role":"ROLE_AGENT","parts":[{"text":"a\u0000\"` + "\u2028" + `<"}],` + ids +
		`},"timestamp":"2026-11-20T10:00:00.007Z"},` +
		`"artifacts":[{"artifactId":"a","name":"n","description":"d","parts":[` +
		`{"raw":"QQ==","filename":"f","mediaType":"m/t"},{"url":"https://u"},{"data":{"n":1e400},"metadata":{"k":1}},` +
		`{"data":[1, 9007199254740993],"mediaType":"x/y"},{"data":null},{"data":null},` +
		`{"text":"t","filename":"r.md","mediaType":"text/markdown"}],"extensions":["e"],"metadata":{}}],` +
		`"history":[{"messageId":"m","role":"ROLE_USER","parts":[{"text":""}],` + ids +
		`,"referenceTaskIds":["r"],"extensions":["e"],"metadata":{"a":1}}],` +
		`"metadata":{"x": 1.0}}`
	for _, tc := range []struct {
		got        []byte
		want, name string
	}{
		{codec.AppendTask(nil, task), want, "Task"},
		{codec.AppendSent(nil, task), `{"task":` + want + `}`, "SendMessageResponse"},
		{codec.AppendSnapshot(nil, task), `{"task":` + want + `}`, "StreamResponse"},
	} {
		if string(tc.got) != tc.want {
			t.Errorf("%s:\n%s\nwant\n%s", tc.name, tc.got, tc.want)
		}
		wiretest.Valid(t, schema(t, tc.name), tc.got)
	}
}

func TestAppendTaskOmitsWhatIsEmpty(t *testing.T) {
	t.Parallel()
	task := &a2a.Task{ID: taskID, ContextID: "c", Artifacts: []a2a.Artifact{}, History: []a2a.Message{}}
	for state, name := range map[a2a.State]string{
		a2a.StateSubmitted: "SUBMITTED", a2a.StateWorking: "WORKING", a2a.StateInputRequired: "INPUT_REQUIRED",
		a2a.StateAuthRequired: "AUTH_REQUIRED",
		a2a.StateCompleted:    "COMPLETED", a2a.StateFailed: "FAILED", a2a.StateCanceled: "CANCELED",
		a2a.StateRejected: "REJECTED", a2a.StateNone: "UNSPECIFIED",
		a2a.State(99): "UNSPECIFIED",
	} {
		task.Status.State = state
		got := codec.AppendTask([]byte("x"), task)
		if want := `x{"id":"` + wireID + `","contextId":"c","status":{"state":"TASK_STATE_` + name +
			`"}}`; string(got) != want {
			t.Errorf("got %s, want %s", got, want)
		}
		wiretest.Valid(t, schema(t, "Task"), got[1:])
	}
	if v := codec.Version(); v != "1.0" {
		t.Errorf("version %q", v)
	}
}

func TestAppendEvent(t *testing.T) {
	t.Parallel()
	entry := func(e a2a.Event) *a2a.Entry { return &a2a.Entry{TaskID: taskID, ContextID: "c", Seq: 3, Event: e} }
	const ids = `"taskId":"` + wireID + `","contextId":"c"`
	text := []a2a.Part{{Kind: a2a.PartText, Text: "t"}}
	for _, tc := range []struct {
		event a2a.Event
		want  string
	}{
		{&a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateCompleted, Time: at}, Metadata: a2a.Raw(`{"m":1}`)},
			`{"statusUpdate":{` + ids +
				`,"status":{"state":"TASK_STATE_COMPLETED","timestamp":"2026-11-20T10:00:00.007Z"},` +
				`"metadata":{"m":1}}}`},
		{&a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateWorking,
			Message: &a2a.Message{ID: "s", Role: a2a.RoleAgent, Parts: text}}},
			`{"statusUpdate":{` + ids +
				`,"status":{"state":"TASK_STATE_WORKING",` +
				`"message":{"messageId":"s","role":"ROLE_AGENT","parts":[{"text":"t"}],` + ids + `}}}}`},
		{&a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: "a", Parts: text}, Append: true, LastChunk: true,
			Metadata: a2a.Raw(`{}`)},
			`{"artifactUpdate":{` + ids +
				`,"artifact":{"artifactId":"a","parts":[{"text":"t"}]},"append":true,"lastChunk":true,"metadata":{}}}`},
		{&a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: "a", Parts: text}},
			`{"artifactUpdate":{` + ids + `,"artifact":{"artifactId":"a","parts":[{"text":"t"}]}}}`},
		{&a2a.Message{ID: "m", Role: a2a.RoleAgent, Parts: text},
			`{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"t"}],"contextId":"c"}}`},
	} {
		for _, last := range []bool{false, true} {
			got := codec.AppendEvent([]byte("x"), entry(tc.event), last)
			if string(got) != "x"+tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
			wiretest.Valid(t, schema(t, "StreamResponse"), got[1:])
		}
	}
	if got := string(codec.AppendEvent(nil, entry(&a2a.Checkpoint{}), false)); got != "null" {
		t.Errorf("a checkpoint: %s", got)
	}
}

func TestAppendReply(t *testing.T) {
	t.Parallel()
	m := &a2a.Message{ID: "m", Role: a2a.RoleAgent, Parts: []a2a.Part{{Kind: a2a.PartText, Text: "t"}}, ContextID: "c",
		TaskID: "x"}
	got := codec.AppendReply(nil, m)
	if want := `{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"t"}],"taskId":"x",` +
		`"contextId":"c"}}`; string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
	wiretest.Valid(t, schema(t, "SendMessageResponse"), got)
}

func TestAppendPage(t *testing.T) {
	t.Parallel()
	page := &a2a.Page{Total: 7, PageSize: 2, NextToken: "n", Tasks: []a2a.Task{
		{ID: taskID, ContextID: "c", Artifacts: []a2a.Artifact{{ID: "a"}}}, {ID: taskID, ContextID: "c"}}}
	task := `{"id":"` + wireID + `","contextId":"c","status":{"state":"TASK_STATE_UNSPECIFIED"}`
	for _, tc := range []struct {
		page      *a2a.Page
		artifacts bool
		want      string
	}{
		{page, false, `{"tasks":[` + task + `},` + task + `}],"totalSize":7,"pageSize":2,"nextPageToken":"n"}`},
		{page, true,
			`{"tasks":[` + task + `,"artifacts":[{"artifactId":"a","parts":[]}]},` + task +
				`,"artifacts":[]}],"totalSize":7,"pageSize":2,"nextPageToken":"n"}`},
		{&a2a.Page{}, false, `{"tasks":[],"totalSize":0,"pageSize":0,"nextPageToken":""}`},
	} {
		got := codec.AppendPage(nil, tc.page, tc.artifacts)
		if string(got) != tc.want {
			t.Errorf("got %s, want %s", got, tc.want)
		}
		wiretest.Valid(t, schema(t, "ListTasksResponse"), got)
	}
}

func TestAppendPushConfigKeepsSecrets(t *testing.T) {
	t.Parallel()
	configs := []a2a.PushConfig{
		{ID: "default", URL: "https://h/?a=1&b", Token: "s3cret", Schemes: []string{"Bearer", "Basic"},
			Credentials: "s3cret"}, {URL: "u"},
	}
	got := codec.AppendPushConfigs(nil, "x", &a2a.PushPage{Configs: configs})
	want := `{"configs":[{"taskId":"x","url":"https://h/?a=1&b","id":"default","authentication":{"scheme":"Bearer"}},` +
		`{"taskId":"x","url":"u"}],"nextPageToken":""}`
	if string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
	wiretest.Valid(t, schema(t, "ListTaskPushNotificationConfigsResponse"), got)
	wiretest.Valid(t, schema(t, "TaskPushNotificationConfig"), codec.AppendPushConfig(nil, "x", &configs[0]))
	if got := string(codec.AppendPushConfigs(nil, "x", &a2a.PushPage{})); got != `{"configs":[],"nextPageToken":""}` {
		t.Errorf("no configs: %s", got)
	}
	if got := string(codec.AppendDeleted(nil)); got != "{}" {
		t.Errorf("deleted: %s", got)
	}
}

func TestAppendCard(t *testing.T) {
	t.Parallel()
	card := &a2a.Card{
		Name: "n", Description: "d", Version: "1.2.3", DocumentationURL: "https://doc", IconURL: "https://icon",
		Provider: &a2a.Provider{Organization: "o", URL: "https://o"},
		Skills: []a2a.Skill{
			{ID: "s", Name: "S", Description: "does", Tags: []string{"t"}, Examples: []string{"e"},
				InputModes: []string{"i"}, OutputModes: []string{"o"}},
			{ID: "untagged", Name: "U", Description: ""},
		},
		InputModes: []string{"text/plain"}, OutputModes: []string{"text/plain", "application/json"},
		Interfaces: []a2a.Interface{
			{URL: "https://h/", Binding: "JSONRPC", Version: "1.0"},
			{URL: "https://h/", Binding: "JSONRPC", Version: "0.3"},
		},
		Streaming: true, ExtendedCard: true,
		Security: []a2a.SecurityScheme{
			{Name: "key", Kind: a2a.SecurityAPIKey, Header: "X-API-Key", Description: "k"},
			{Name: "bearer", Kind: a2a.SecurityBearer, Format: "JWT"},
			{Name: "oidc", Kind: a2a.SecurityOIDC, URL: "https://i/.well-known/openid-configuration"},
			{Name: "mtls", Kind: a2a.SecurityMTLS, Description: "m"},
		},
		Extensions: []a2a.Extension{{URI: "https://x", Description: "x", Params: a2a.Raw(`{"p":1}`)},
			{URI: "https://y", Required: true}},
	}
	got := codec.AppendCard(nil, card)
	const want = `{"supportedInterfaces":[{"url":"https://h/","protocolBinding":"JSONRPC","protocolVersion":"1.0"},` +
		`{"url":"https://h/","protocolBinding":"JSONRPC","protocolVersion":"0.3"}],` +
		`"name":"n","description":"d","version":"1.2.3","provider":{"organization":"o","url":"https://o"},` +
		`"iconUrl":"https://icon","documentationUrl":"https://doc",` +
		`"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain","application/json"],` +
		`"skills":[{"id":"s","name":"S","description":"does","tags":["t"],"examples":["e"],"inputModes":["i"],` +
		`"outputModes":["o"]},` +
		`{"id":"untagged","name":"U","description":"","tags":["untagged"]}],` +
		`"capabilities":{"streaming":true,"pushNotifications":false,"extensions":[` +
		`{"uri":"https://x","description":"x","required":false,"params":{"p":1}},` +
		`{"uri":"https://y","required":true}],"extendedAgentCard":true},` +
		`"securitySchemes":{"key":{"apiKeySecurityScheme":{"location":"header","name":"X-API-Key",` +
		`"description":"k"}},` +
		`"bearer":{"httpAuthSecurityScheme":{"scheme":"Bearer","bearerFormat":"JWT"}},` +
		`"oidc":{"openIdConnectSecurityScheme":{"openIdConnectUrl":"https://i/.well-known/openid-configuration"}},` +
		`"mtls":{"mtlsSecurityScheme":{"description":"m"}}},` +
		`"securityRequirements":[{"schemes":{"key":{"list":[]}}},{"schemes":{"bearer":{"list":[]}}},` +
		`{"schemes":{"oidc":{"list":[]}}},{"schemes":{"mtls":{"list":[]}}}]}`
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	wiretest.Valid(t, schema(t, "AgentCard"), got)
	if bare := codec.AppendCard(nil, &a2a.Card{}); strings.Contains(string(bare), "security") {
		t.Errorf("a card without schemes: %s", bare)
	} else {
		wiretest.Valid(t, schema(t, "AgentCard"), bare)
	}
}
