package v03_test

import (
	"crypto/sha256"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire"
	"github.com/a2ad/a2ad/internal/wire/v03"
	"github.com/a2ad/a2ad/internal/wire/wiretest"
)

const hello = `{"kind":"message","messageId":"m1","role":"user","parts":[{"kind":"text","text":"hi"}]}`

var helloMessage = a2a.Message{ID: "m1", Role: a2a.RoleUser, Parts: []a2a.Part{{Kind: a2a.PartText, Text: "hi"}}}

var toTheLast = a2a.StreamRules{LastStatus: true}

// decode decodes in one mode and returns the lenient rules that were used, each once.
func decode(t *testing.T, lenient bool, method, params string) (a2a.Op, []string, error) {
	t.Helper()
	var rules []string
	c := v03.Codec{Lenient: lenient, OnLenient: func(rule string) {
		if !slices.Contains(rules, rule) {
			rules = append(rules, rule)
		}
	}}
	var body []byte
	if params != "" {
		if err := rawjson.Check([]byte(params), 64); err != nil {
			t.Fatalf("%s: %v", params, err)
		}
		body = []byte(params)
	}
	op, err := c.Decode(method, body)
	return op, rules, err
}

func pointer(n int) *int { return &n }

func TestDecode(t *testing.T) {
	t.Parallel()
	send := func(edit func(*a2a.SendMessage)) *a2a.SendMessage {
		op := &a2a.SendMessage{Message: helloMessage, Blocking: true, StreamRules: toTheLast}
		edit(op)
		return op
	}
	for _, tc := range []struct {
		method, params string
		want           a2a.Op
	}{
		{"message/send", `{"message":` + hello + `}`, send(func(*a2a.SendMessage) {})},
		{"message/stream", `{"message":` + hello + `}`, send(func(op *a2a.SendMessage) { op.Stream = true })},
		{"message/send", `{"message":` + hello + `,"configuration":{},"metadata":null}`,
			send(func(*a2a.SendMessage) {})},
		{"message/send", `{"message":` + hello + `,"configuration":null,"metadata":{"n": 1.0}}`,
			send(func(op *a2a.SendMessage) { op.Metadata = a2a.Raw(`{"n": 1.0}`) })},
		{"message/send",
			`{"message":` + hello +
				`,"configuration":{"blocking":false,"historyLength":0,"acceptedOutputModes":["text/plain","*/*"],
			"pushNotificationConfig":{"url":"https://h/x","id":"p","token":"t",
			"authentication":{"schemes":["Bearer"],"credentials":"c"}}}}`,
			send(func(op *a2a.SendMessage) {
				op.Blocking, op.HistoryLength, op.AcceptedModes = false, pointer(0), []string{"text/plain", "*/*"}
				op.Push = &a2a.PushConfig{ID: "p", URL: "https://h/x", Version: a2a.PushV03, Token: "t",
					Schemes: []string{"Bearer"}, Credentials: "c"}
			})},
		{"message/send",
			`{"message":` + hello +
				`,"configuration":{"blocking":null,"historyLength":null,"acceptedOutputModes":null,` +
				`"pushNotificationConfig":null}}`,
			send(func(*a2a.SendMessage) {})},
		{"tasks/get", `{"id":"x"}`, &a2a.GetTask{ID: "x"}},
		{"tasks/get", `{"id":"","historyLength":3,"metadata":{},"unknown":{"id":1}}`,
			&a2a.GetTask{HistoryLength: pointer(3)}},
		{"tasks/get", `{"id":"x","historyLength":9007199254740993}`,
			&a2a.GetTask{ID: "x", HistoryLength: pointer(1<<31 - 1)}},
		{"tasks/cancel", `{"id":"x","metadata":{"a":[1e400]}}`,
			&a2a.CancelTask{ID: "x", Metadata: a2a.Raw(`{"a":[1e400]}`)}},
		{"tasks/resubscribe", `{"id":"x"}`, &a2a.Subscribe{ID: "x", EndedOK: true, StreamRules: toTheLast}},
		{"tasks/pushNotificationConfig/set", `{"taskId":"x","pushNotificationConfig":{"url":"https://h"}}`,
			&a2a.SetPushConfig{TaskID: "x", Config: a2a.PushConfig{URL: "https://h", Version: a2a.PushV03}}},
		{"tasks/pushNotificationConfig/get", `{"id":"x"}`, &a2a.GetPushConfig{TaskID: "x"}},
		{"tasks/pushNotificationConfig/get", `{"id":"x","pushNotificationConfigId":"p"}`,
			&a2a.GetPushConfig{TaskID: "x", ConfigID: "p"}},
		{"tasks/pushNotificationConfig/list", `{"id":"x"}`, &a2a.ListPushConfigs{TaskID: "x"}},
		{"tasks/pushNotificationConfig/delete", `{"id":"x","pushNotificationConfigId":"p"}`,
			&a2a.DeletePushConfig{TaskID: "x", ConfigID: "p"}},
		{"agent/getAuthenticatedExtendedCard", ``, &a2a.GetExtendedCard{Undeclared: a2a.CodeExtendedCardNotConfigured}},
		{"agent/getAuthenticatedExtendedCard", `{"x":1}`,
			&a2a.GetExtendedCard{Undeclared: a2a.CodeExtendedCardNotConfigured}},
	} {
		for _, lenient := range []bool{false, true} {
			got, rules, err := decode(t, lenient, tc.method, tc.params)
			if err != nil || len(rules) > 0 {
				t.Errorf("%s %s: %v, rules %v", tc.method, tc.params, err, rules)
				continue
			}
			if op, ok := tc.want.(*a2a.SendMessage); ok {
				op.Digest = sha256.Sum256([]byte(tc.params))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s %s: -want +got\n%s", tc.method, tc.params, diff)
			}
		}
	}
}

func TestDecodeMessage(t *testing.T) {
	t.Parallel()
	const params = `{"message":{"kind":"message","messageId":"ü","role":"agent","contextId":"c","taskId":"not a uuid",
		"referenceTaskIds":["a","b"],"extensions":["https://e"],"metadata":{"k":"\u0000","n":-0},
		"parts":[
			{"kind":"text","text":"a\u0000\n\ud83d\ude00","metadata":{"z":1,"a":2}},
			{"kind":"file","file":{"bytes":"-_8","mimeType":"a/b","name":"f"}},
			{"kind":"file","file":{"uri":"https://u/","bytes":null}},
			{"kind":"data","data":{"n": 12345678901234567890 }},
			{"kind":"data","data":[1]},
			{"text":"x"}]}}`
	got, _, err := decode(t, false, "message/send", params)
	if err != nil {
		t.Fatal(err)
	}
	want := a2a.Message{
		ID: "ü", Role: a2a.RoleAgent, ContextID: "c", TaskID: "not a uuid",
		ReferenceTaskIDs: []string{"a", "b"}, Extensions: []string{"https://e"},
		Metadata: a2a.Raw(`{"k":"\u0000","n":-0}`),
		Parts: []a2a.Part{
			{Kind: a2a.PartText, Text: "a\x00\n😀", Metadata: a2a.Raw(`{"z":1,"a":2}`)},
			{Kind: a2a.PartFile, Text: "+/8=", MediaType: "a/b", Filename: "f"},
			{Kind: a2a.PartURL, Text: "https://u/"},
			{Kind: a2a.PartData, Data: a2a.Raw(`{"n": 12345678901234567890 }`)},
			{Kind: a2a.PartData, Data: a2a.Raw(`[1]`)},
			{Kind: a2a.PartText, Text: "x"},
		},
	}
	if diff := cmp.Diff(want, got.(*a2a.SendMessage).Message); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	parts := func(list string) string {
		return `{"message":{"messageId":"m","role":"user","parts":[` + list + `]}}`
	}
	message := func(member string) string {
		return `{"message":{"messageId":"m","role":"user","parts":[{"kind":"text","text":""}],` + member + `}}`
	}
	long := func(n int) string { return `"` + strings.Repeat("x", n) + `"` }
	push := func(config string) string { return `{"taskId":"x","pushNotificationConfig":` + config + `}` }
	for _, tc := range []struct{ method, params, field string }{
		{"message/send", ``, "message"},
		{"message/send", `[1]`, "params"},
		{"message/send", `"x"`, "params"},
		{"message/send", `{"message":` + hello + `,"configuration":[]}`, "configuration"},
		{"message/send", `{"message":` + hello + `,"configuration":{"blocking":"true"}}`, "configuration.blocking"},
		{"message/send", `{"message":` + hello + `,"configuration":{"historyLength":-1}}`,
			"configuration.historyLength"},
		{"message/send", `{"message":` + hello + `,"configuration":{"historyLength":1.5}}`,
			"configuration.historyLength"},
		{"message/send", `{"message":` + hello + `,"configuration":{"acceptedOutputModes":["a",1]}}`,
			"configuration.acceptedOutputModes[1]"},
		{"message/send", `{"message":` + hello + `,"configuration":{"pushNotificationConfig":{"url":""}}}`,
			"configuration.pushNotificationConfig.url"},
		{"message/send",
			`{"message":` + hello + `,"configuration":{"pushNotificationConfig":{"url":"u","authentication":{}}}}`,
			"configuration.pushNotificationConfig.authentication.schemes"},
		{"message/send", parts(``), "message.parts"},
		{"message/send", parts(`null`), "message.parts[0]"},
		{"message/send", parts(`{"kind":"text","text":""},{"kind":"video"}`), "message.parts[1].kind"},
		{"message/send", parts(`{"kind":"text","text":1}`), "message.parts[0].text"},
		{"message/send", parts(`{"kind":"text"}`), "message.parts[0].text"},
		{"message/send", parts(`{"text":"a","data":{}}`), "message.parts[0].kind"},
		{"message/send", parts(`{"kind":"file","file":{}}`), "message.parts[0].file.bytes"},
		{"message/send", parts(`{"kind":"file","file":{"bytes":"","uri":"x"}}`), "message.parts[0].file.bytes"},
		{"message/send", parts(`{"kind":"file","file":{"bytes":"a"}}`), "message.parts[0].file.bytes"},
		{"message/send", parts(`{"kind":"file","file":{"bytes":"+_=="}}`), "message.parts[0].file.bytes"},
		{"message/send", parts(`{"kind":"file","file":{"uri":""}}`), "message.parts[0].file.uri"},
		{"message/send", parts(`{"kind":"file","file":{"uri":"a\u0000"}}`), "message.parts[0].file.uri"},
		{"message/send", parts(`{"kind":"file","file":{"uri":"u","name":"\u0000"}}`), "message.parts[0].file.name"},
		{"message/send", parts(`{"kind":"file","file":{"uri":"u","mimeType":"\u0000"}}`),
			"message.parts[0].file.mimeType"},
		{"message/send", parts(`{"kind":"file"}`), "message.parts[0].file"},
		{"message/send", parts(`{"kind":"data","data":null}`), "message.parts[0].data"},
		{"message/send", parts(`{"kind":"text","text":"x","metadata":{"a2ad/filename":"\u0000"}}`),
			`message.parts[0].metadata["a2ad/filename"]`},
		{"message/send", parts(`{"kind":"text","text":` + long(1<<20+1) + `}`), "message.parts[0].text"},
		{"message/send", parts(`{"kind":"data","data":{"a":` + long(1<<20) + `}}`), "message.parts[0].data"},
		{"message/send", parts(`{"kind":"file","file":{"bytes":"` + strings.Repeat("AAAA", 349526) + `"}}`),
			"message.parts[0].file.bytes"},
		{"message/send", parts(strings.Repeat(`{"text":""},`, 100) + `{"text":""}`), "message.parts"},
		{"message/send", `{"message":{"role":"user","parts":[{"text":""}]}}`, "message.messageId"},
		{"message/send", `{"message":{"messageId":"","role":"user","parts":[{"text":""}]}}`, "message.messageId"},
		{"message/send", `{"message":{"messageId":"m","parts":[{"text":""}]}}`, "message.role"},
		{"message/send", `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":""}]}}`, "message.role"},
		{"message/send", `{"message":{"messageId":` + long(257) + `,"role":"user","parts":[{"text":""}]}}`,
			"message.messageId"},
		{"message/send", `{"message":{"messageId":"a\u0000","role":"user","parts":[{"text":""}]}}`,
			"message.messageId"},
		{"message/send", message(`"kind":"task"`), "message.kind"},
		{"message/send", message(`"kind":1`), "message.kind"},
		{"message/send", message(`"contextId":"\u0000"`), "message.contextId"},
		{"message/send", message(`"contextId":` + long(257)), "message.contextId"},
		{"message/send", message(`"taskId":` + long(257)), "message.taskId"},
		{"message/send", message(`"taskId":"\u0000"`), "message.taskId"},
		{"message/send", message(`"referenceTaskIds":["a","\u0000"]`), "message.referenceTaskIds[1]"},
		{"message/send", message(`"referenceTaskIds":[` + strings.Repeat(`"",`, 100) + `""]`),
			"message.referenceTaskIds"},
		{"message/send", message(`"extensions":["\u0000"]`), "message.extensions[0]"},
		{"message/send", message(`"extensions":[null]`), "message.extensions[0]"},
		{"message/send", message(`"metadata":[]`), "message.metadata"},
		{"message/send", `{"message":` + hello + `,"metadata":1}`, "metadata"},
		{"tasks/get", `{"id":1}`, "id"},
		{"tasks/get", `{}`, "id"},
		{"tasks/get", `{"id":` + long(257) + `}`, "id"},
		{"tasks/get", `{"id":"\u0000"}`, "id"},
		{"tasks/get", `{"id":"x","historyLength":"1"}`, "historyLength"},
		{"tasks/get", `{"id":"x","historyLength":-1}`, "historyLength"},
		{"tasks/get", `{"id":"x","historyLength":1e400}`, "historyLength"},
		{"tasks/get", `{"ID":"x"}`, "id"},
		{"tasks/cancel", `{"id":"x","metadata":"y"}`, "metadata"},
		{"tasks/resubscribe", `{"id":null}`, "id"},
		{"tasks/pushNotificationConfig/set", push(`null`), "pushNotificationConfig"},
		{"tasks/pushNotificationConfig/set", push(`{"url":"` + strings.Repeat("x", 2049) + `"}`),
			"pushNotificationConfig.url"},
		{"tasks/pushNotificationConfig/set", push(`{"url":"\u0000"}`), "pushNotificationConfig.url"},
		{"tasks/pushNotificationConfig/set", push(`{"url":"u","token":"\u0000"}`), "pushNotificationConfig.token"},
		{"tasks/pushNotificationConfig/set", push(`{"url":"u","token":` + long(4097) + `}`),
			"pushNotificationConfig.token"},
		{"tasks/pushNotificationConfig/set", push(`{"url":"u","authentication":{"schemes":"Bearer"}}`),
			"pushNotificationConfig.authentication.schemes"},
		{"tasks/pushNotificationConfig/set", `{"pushNotificationConfig":{"url":"u"}}`, "taskId"},
		{"tasks/pushNotificationConfig/get", `{"id":"x","pushNotificationConfigId":7}`, "pushNotificationConfigId"},
		{"tasks/pushNotificationConfig/list", `{"taskId":"x"}`, "id"},
		{"tasks/pushNotificationConfig/delete", `{"id":"x"}`, "pushNotificationConfigId"},
		{"agent/getAuthenticatedExtendedCard", `[]`, "params"},
	} {
		for _, lenient := range []bool{false, true} {
			_, _, err := decode(t, lenient, tc.method, tc.params)
			wiretest.WantInvalid(t, err, tc.field, tc.method, tc.params)
		}
	}
}

func TestDecodeUnknownMethod(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"", "Message/Send", "message/Send", "SendMessage", "tasks/list/",
		"tasks/pushNotificationConfig", strings.Repeat("x", 1<<20)} {
		for _, lenient := range []bool{false, true} {
			if _, _, err := decode(t, lenient, method, `{"id":1}`); a2a.CodeOf(err) != a2a.CodeMethodNotFound ||
				len(err.Error()) > 200 {
				t.Errorf("%.80q: %v", method, err)
			}
		}
	}
}

func TestDecodeLimitsAreInclusive(t *testing.T) {
	t.Parallel()
	c := v03.Codec{Limits: wire.Limits{Parts: 2, PartBytes: 4, IDBytes: 3, URLBytes: 5, TokenSize: 2}}
	if d := (wire.Limits{Parts: 2}).OrDefault(); d.Parts != 2 || d.IDBytes != wire.DefaultLimits.IDBytes {
		t.Errorf("limits %+v", d)
	}
	for _, tc := range []struct{ params, field string }{
		{`{"message":{"messageId":"123","role":"user","parts":[{"text":"üü"},{"file":{"bytes":"AAAAAA=="}}]}}`, ""},
		{`{"message":{"messageId":"123","role":"user","parts":[{"text":"üü"},{"file":{"bytes":"AAAAAA"}}]}}`, ""},
		{`{"message":{"messageId":"123","role":"user","parts":[{"text":"üü"},{"file":{"bytes":"AAAAAAA="}}]}}`,
			"message.parts[1].file.bytes"},
		{`{"message":{"messageId":"1234","role":"user","parts":[{"text":""}]}}`, "message.messageId"},
		{`{"message":{"messageId":"123","role":"user","parts":[{"text":"12345"}]}}`, "message.parts[0].text"},
		{`{"message":{"messageId":"123","role":"user","parts":[{"data":{"":1}}]}}`, "message.parts[0].data"},
		{`{"message":{"messageId":"123","role":"user","parts":[{"text":""},{"text":""},{"text":""}]}}`,
			"message.parts"},
		{`{"message":{"messageId":"123","role":"user","parts":[{"text":""}]},` +
			`"configuration":{"pushNotificationConfig":{"url":"12345","token":"12"}}}`, ""},
		{`{"message":{"messageId":"123","role":"user","parts":[{"text":""}]},` +
			`"configuration":{"pushNotificationConfig":{"url":"123456"}}}`, "configuration.pushNotificationConfig.url"},
	} {
		_, err := c.Decode("message/send", []byte(tc.params))
		if tc.field != "" {
			wiretest.WantInvalid(t, err, tc.field, "message/send", tc.params)
		} else if err != nil {
			t.Errorf("%s: %v", tc.params, err)
		}
	}
}

func TestHas(t *testing.T) {
	t.Parallel()
	strict, lenient := v03.Codec{}, v03.Codec{Lenient: true, OnLenient: func(rule string) {
		t.Errorf("Has used %s", rule)
	}}
	for _, m := range methods {
		want := m != "unknown"
		if got := strict.Has(m); got != (want && m != "tasks/list") {
			t.Errorf("%s, strict: %v", m, got)
		}
		if got := lenient.Has(m); got != want {
			t.Errorf("%s, lenient: %v", m, got)
		}
	}
}
