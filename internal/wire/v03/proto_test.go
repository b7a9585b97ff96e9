package v03_test

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/a2a/a2atest"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire/v03"
	"github.com/a2ad/a2ad/internal/wire/wiretest"
)

var proto = v03.Proto{Codec: codec}

// A message in ProtoJSON is read back unchanged, under either name of its content.
func TestProtoMessageRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := a2atest.Message().Draw(t, "message")
		parts := rapid.Bool().Draw(t, "parts")
		doc := v03.Proto{Parts: parts}.AppendReply(nil, &m)
		if err := rawjson.Check(doc, 80); err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		message := rawjson.Get(doc, "message")
		if (rawjson.Get(message, "parts") != nil) != parts || (rawjson.Get(message, "content") != nil) == parts {
			t.Fatalf("parts %v: %s", parts, message)
		}
		op, err := proto.Decode("message/send", doc)
		if err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		if diff := cmp.Diff(m, op.(*a2a.SendMessage).Message, sameRaw); diff != "" {
			t.Fatalf("-want +got\n%s\n%s", diff, doc)
		}
	})
}

// Both dialects must write the same tasks and events, each with its own names.
func TestBothDialectsWriteTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		x := a2atest.Task().Draw(t, "task")
		doc := proto.AppendTask(nil, &x)
		if err := rawjson.Check(doc, 80); err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		other := codec.AppendTask(nil, &x)
		for _, member := range []string{"id", "contextId", "metadata"} {
			if got, want := rawjson.Get(doc, member), rawjson.Get(other, member); !bytes.Equal(got, want) {
				t.Fatalf("%s is %s, want %s", member, got, want)
			}
		}
		if rawjson.Get(doc, "kind") != nil ||
			!bytes.Equal(proto.AppendSent(nil, &x), append(append([]byte(`{"task":`), doc...), '}')) {
			t.Fatalf("%s", doc)
		}
		e := a2atest.Entry().Draw(t, "entry")
		last := rapid.Bool().Draw(t, "last")
		doc = proto.AppendEvent(nil, &e, last)
		if err := rawjson.Check(doc, 80); err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		members := 0
		for name, v := range rawjson.Members(doc) {
			members++
			if final, _ := rawjson.Bool(rawjson.Get(v, "final")); string(name) == "statusUpdate" && final != last {
				t.Fatalf("final %v: %s", last, doc)
			}
		}
		if members != 1 {
			t.Fatalf("%d members: %s", members, doc)
		}
	})
}

func TestProtoSend(t *testing.T) {
	t.Parallel()
	const message = `{"messageId":"m","role":"ROLE_USER","content":[{"text":"hi"}]}`
	n := 3
	for params, want := range map[string]a2a.SendMessage{
		`{"message":` + message + `}`:                                                     {Blocking: true},
		`{"request":` + message + `}`:                                                     {Blocking: true},
		`{"message":` + message + `,"configuration":{}}`:                                  {},
		`{"message":` + message + `,"configuration":{"blocking":true,"historyLength":0}}`: {Blocking: true},
		`{"message":` + message + `,"configuration":{"history_length":"3"}}`:              {HistoryLength: &n},
		`{"message":` + message +
			`,"configuration":{"acceptedOutputModes":["a/b"]}}`: {AcceptedModes: []string{"a/b"}},
		`{"message":` + message +
			`,"configuration":{"push_notification":{"url":"u"}}}`: {Push: &a2a.PushConfig{URL: "u",
			Version: a2a.PushV03}},
		`{"message":{"message_id":"m","role":1,"parts":[{"text":"hi"}]},"metadata":{"a":1}}`: {Blocking: true,
			Metadata: a2a.Raw(`{"a":1}`)},
	} {
		op, err := proto.Decode("message/send", []byte(params))
		if err != nil {
			t.Errorf("%s: %v", params, err)
			continue
		}
		want.LastStatus = true
		want.Message = a2a.Message{ID: "m", Role: a2a.RoleUser, Parts: []a2a.Part{{Kind: a2a.PartText, Text: "hi"}}}
		if diff := cmp.Diff(&want, op, cmpopts.IgnoreFields(a2a.SendMessage{}, "Digest")); diff != "" {
			t.Errorf("%s: -want +got\n%s", params, diff)
		}
	}
}

func TestProtoBadParams(t *testing.T) {
	t.Parallel()
	part := func(p string) string {
		return `{"message":{"messageId":"m","role":"ROLE_USER","content":[` + p + `]}}`
	}
	for _, tc := range [][3]string{
		{"message/send", `[]`, "params"}, {"message/send", `{}`, "message"},
		{"message/send", `{"message":[]}`, "message"},
		{"message/send", `{"message":{"role":"ROLE_USER","content":[{"text":""}]}}`, "message.messageId"},
		{"message/send", `{"message":{"messageId":"m","role":"user","content":[{"text":""}]}}`, "message.role"},
		{"message/send", `{"message":{"messageId":"m","role":0,"content":[{"text":""}]}}`, "message.role"},
		{"message/send", `{"message":{"messageId":"m","content":[{"text":""}]}}`, "message.role"},
		{"message/send", `{"message":{"messageId":"m","role":1}}`, "message.content"},
		{"message/send", `{"message":{"messageId":"m","role":1,"content":[]}}`, "message.parts"},
		{"message/send", part(`{}`), "message.parts[0]"},
		{"message/send", part(`{"text":"","data":{}}`), "message.parts[0]"},
		{"message/send", part(`{"kind":"file","uri":"u"}`), "message.parts[0]"},
		{"message/send", part(`{"file":{}}`), "message.parts[0].file"},
		{"message/send", part(`{"file":{"fileWithUri":"u","fileWithBytes":"QQ=="}}`), "message.parts[0].file"},
		{"message/send", part(`{"file":{"fileWithBytes":"?"}}`), "message.parts[0].file.fileWithBytes"},
		{"message/send", part(`{"data":[1]}`), "message.parts[0].data"},
		{"message/send", part(`{"data":{"data":1}}`), "message.parts[0].data.data"},
		{"message/send",
			`{"message":{"messageId":"m","role":1,"content":[{"text":""}]},"configuration":{"blocking":1}}`,
			"configuration.blocking"},
		{"tasks/get", `{}`, "name"}, {"tasks/get", `{"name":"abc"}`, "name"},
		{"tasks/get", `{"name":"tasks/"}`, "name"}, {"tasks/get", `{"name":"tasks/a/b"}`, "name"},
		{"tasks/get", `{"id":"a","historyLength":-1}`, "historyLength"}, {"tasks/cancel", `{"name":7}`, "name"},
		{"tasks/resubscribe", `{}`, "name"},
		{"tasks/list", `{"status":"BUSY"}`, "status"}, {"tasks/list", `{"pageSize":101}`, "pageSize"},
		{"tasks/list", `{"includeArtifacts":"yes"}`, "includeArtifacts"},
		{"tasks/pushNotificationConfig/get", `{"name":"tasks/a"}`, "name"},
		{"tasks/pushNotificationConfig/delete", `{"name":"tasks/a/pushNotificationConfigs/"}`, "name"},
		{"tasks/pushNotificationConfig/set", `{"config":{"pushNotificationConfig":{"url":"u"}}}`, "parent"},
		{"tasks/pushNotificationConfig/set", `{"parent":"tasks/a","config":{}}`, "pushNotificationConfig"},
		{"tasks/pushNotificationConfig/set", `{"parent":"tasks/a","config":{"pushNotificationConfig":{}}}`,
			"pushNotificationConfig.url"},
		{"tasks/pushNotificationConfig/set", `{"parent":"tasks/a"}`, "pushNotificationConfig.url"},
	} {
		_, err := v03.Proto{}.Decode(tc[0], []byte(tc[1]))
		wiretest.WantInvalid(t, err, tc[2], tc[0], tc[1])
	}
}

func TestProtoResources(t *testing.T) {
	t.Parallel()
	n := 2
	push := a2a.PushConfig{ID: "p", URL: "u", Version: a2a.PushV03}
	for _, tc := range []struct {
		method, params string
		want           a2a.Op
	}{
		{"tasks/get", `{"name":"tasks/a","history_length":2}`, &a2a.GetTask{ID: "a", HistoryLength: &n}},
		{"tasks/get", `{"id":"a","historyLength":"0"}`, &a2a.GetTask{ID: "a"}},
		{"tasks/get", `{"id":"a","name":"tasks/b"}`, &a2a.GetTask{ID: "a"}},
		{"tasks/cancel", `{"name":"tasks/a","metadata":{"k":1}}`,
			&a2a.CancelTask{ID: "a", Metadata: a2a.Raw(`{"k":1}`)}},
		{"tasks/resubscribe", `{"name":"tasks/a"}`,
			&a2a.Subscribe{ID: "a", EndedOK: true, StreamRules: a2a.StreamRules{LastStatus: true}}},
		{"tasks/list", `{"context_id":"c","status":"TASK_STATE_CANCELLED","pageSize":0}`,
			&a2a.ListTasks{ContextID: "c", State: a2a.StateCanceled}},
		{"tasks/list", `{"status":"TASK_STATE_CANCELED"}`, &a2a.ListTasks{State: a2a.StateCanceled}},
		{"tasks/list", `{"status":"working"}`, &a2a.ListTasks{State: a2a.StateWorking}},
		{"tasks/list", `{"status":0,"includeArtifacts":true}`, &a2a.ListTasks{IncludeArtifacts: true}},
		{"tasks/pushNotificationConfig/get", `{"name":"tasks/a/pushNotificationConfigs/p"}`,
			&a2a.GetPushConfig{TaskID: "a", ConfigID: "p"}},
		{"tasks/pushNotificationConfig/list", `{"parent":"tasks/a","pageSize":2}`,
			&a2a.ListPushConfigs{TaskID: "a", PageSize: 2}},
		{"tasks/pushNotificationConfig/delete", `{"id":"a","pushNotificationConfigId":"p"}`,
			&a2a.DeletePushConfig{TaskID: "a", ConfigID: "p"}},
		{"tasks/pushNotificationConfig/set",
			`{"parent":"tasks/a","configId":"p","config":{"pushNotificationConfig":{"url":"u"}}}`,
			&a2a.SetPushConfig{TaskID: "a", Config: push}},
		{"tasks/pushNotificationConfig/set",
			`{"config":{"name":"tasks/a/pushNotificationConfigs/p","push_notification_config":{"url":"u"}}}`,
			&a2a.SetPushConfig{TaskID: "a", Config: push}},
		{"tasks/pushNotificationConfig/set", `{"taskId":"a","pushNotificationConfig":{"id":"p","url":"u"}}`,
			&a2a.SetPushConfig{TaskID: "a", Config: push}},
		{"tasks/pushNotificationConfig/set", `{"taskId":"a","id":"p","url":"u"}`,
			&a2a.SetPushConfig{TaskID: "a", Config: push}},
		{"agent/getAuthenticatedExtendedCard", `{}`,
			&a2a.GetExtendedCard{Undeclared: a2a.CodeExtendedCardNotConfigured}},
	} {
		op, err := proto.Decode(tc.method, []byte(tc.params))
		if diff := cmp.Diff(tc.want, op); err != nil || diff != "" {
			t.Errorf("%s %s: %v, -want +got\n%s", tc.method, tc.params, err, diff)
		}
	}
}

// Content in base64 is read once, and content in double base64, as the official Go and Python clients send it,
// is decoded twice. Both may have the maximum size of a part. Content is not decoded a second time if no
// encoder would write it so, or if its type is text and the result is not.
func TestProtoFileBytes(t *testing.T) {
	t.Parallel()
	twice := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	largest := base64.StdEncoding.EncodeToString(make([]byte, 1<<20))
	for in, want := range map[string]string{
		"": "", "/w==": "/w==", "_w": "/w==", twice("/w=="): "/w==", twice("_w"): twice("_w"),
		twice("tests"): twice("tests"), twice("/x=="): twice("/x=="), twice("QUJD"): "QUJD",
		twice("no base64"): twice("no base64"),
		twice(largest):     largest, largest: largest,
	} {
		op, err := proto.Decode("message/send",
			[]byte(`{"message":{"messageId":"m","role":1,"content":[{"file":{"fileWithBytes":"`+in+`"}}]}}`))
		if err != nil {
			t.Errorf("%.40q: %v", in, err)
		} else if got := op.(*a2a.SendMessage).Message.Parts[0]; got.Kind != a2a.PartFile || got.Text != want {
			t.Errorf("%.40q: %.40q, want %.40q", in, got.Text, want)
		}
	}
	const hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	for _, tc := range []struct{ mediaType, in, want string }{
		{"text/plain", twice("test"), twice("test")},
		{"text/plain", twice(hash), twice(hash)},
		{"application/json", twice("true"), twice("true")},
		{"application/problem+json", twice("1234"), twice("1234")},
		{"text/plain", twice(twice("grüezi")), twice("grüezi")},
		{"text/csv; charset=UTF-8", twice("test"), twice("test")},
		{"text/plain; charset=latin1", twice("test"), "test"},
		{"image/png", twice("test"), "test"},
		{"", twice("test"), "test"},
		{"not a type", twice("test"), "test"},
	} {
		op, err := proto.Decode("message/send",
			[]byte(`{"message":{"messageId":"m","role":1,"content":[{"file":{"fileWithBytes":"`+tc.in+`","mimeType":"`+
				tc.mediaType+`"}}]}}`))
		if err != nil {
			t.Errorf("%v: %v", tc, err)
		} else if got := op.(*a2a.SendMessage).Message.Parts[0].Text; got != tc.want {
			t.Errorf("%s of type %q: %q, want %q", tc.in, tc.mediaType, got, tc.want)
		}
	}
	over := base64.StdEncoding.EncodeToString(make([]byte, 1<<20+1))
	for _, in := range []string{over, twice(over), strings.Repeat("QUJD", 1<<20)} {
		_, err := proto.Decode("message/send",
			[]byte(`{"message":{"messageId":"m","role":1,"content":[{"file":{"fileWithBytes":"`+in+`"}}]}}`))
		wiretest.WantInvalid(t, err, "message.parts[0].file.fileWithBytes", "message/send", "")
	}
}

// FuzzProtoDecode checks that no method panics, changes its params, returns an error that is not for the
// client, or accepts a message that it would not read back unchanged.
func FuzzProtoDecode(f *testing.F) {
	for i := range methods {
		f.Add(uint8(i),
			[]byte(`{"id":"x","name":"tasks/a/pushNotificationConfigs/p","parent":"tasks/a","historyLength":"1",`+
				`"metadata":{}}`))
	}
	f.Add(uint8(0),
		[]byte(`{"message":{"messageId":"m","role":"ROLE_USER",`+
			`"content":[{"text":"x","metadata":{"a2ad/mediaType":"m"}},`+
			`{"file":{"file_with_bytes":"UVE9PQ==","name":"n"}},`+
			`{"data":{"data":{"value":1}},"metadata":{"data_part_compat":true}}]},"configuration":{"blocking":true}}`))
	f.Add(uint8(6),
		[]byte(`{"config":{"name":"tasks/a/pushNotificationConfigs/p","pushNotificationConfig":`+fullPush+`}}`))
	f.Fuzz(func(t *testing.T, method uint8, params []byte) {
		if rawjson.Check(params, 64) != nil {
			return
		}
		params = rawjson.Trim(params)
		before := bytes.Clone(params)
		op, err := proto.Decode(methods[int(method)%len(methods)], params)
		if !bytes.Equal(before, params) {
			t.Fatalf("changed its input: %q", before)
		}
		if err != nil {
			wiretest.WantClientError(t, codec, err)
			return
		}
		sent, ok := op.(*a2a.SendMessage)
		if !ok {
			return
		}
		again, err := proto.Decode("message/send", proto.AppendReply(nil, &sent.Message))
		if err != nil {
			t.Fatalf("own output: %v", err)
		}
		m := again.(*a2a.SendMessage).Message
		withoutOurs(&m)
		withoutOurs(&sent.Message)
		if diff := cmp.Diff(sent.Message, m, sameRaw); diff != "" {
			t.Fatalf("-want +got\n%s", diff)
		}
	})
}
