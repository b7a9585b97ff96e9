package answer_test

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/a2a/a2atest"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire"
	"github.com/a2ad/a2ad/internal/wire/answer"
	"github.com/a2ad/a2ad/internal/wire/v03"
	v1 "github.com/a2ad/a2ad/internal/wire/v1"
)

var codecs = []wire.Codec{v03.Codec{}, v1.Codec{}}

// same ignores members that only the server sets and the reader drops, and differences between empty and nil.
var same = cmp.Options{
	cmpopts.IgnoreFields(a2a.Message{}, "TaskID", "ContextID", "ReferenceTaskIDs"),
	cmp.FilterPath(func(p cmp.Path) bool {
		return p.Last().Type() != reflect.TypeFor[a2a.Raw]()
	}, cmpopts.EquateEmpty()),
	cmp.Comparer(func(a, b a2a.Raw) bool {
		return rawjson.Empty(a) && rawjson.Empty(b) || bytes.Equal(rawjson.Trim(a), rawjson.Trim(b))
	}),
}

// The reader must understand every task and event that our codecs write, in both generations.
func TestOurAnswersAreReadBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		task, entry := a2atest.Task().Draw(t, "task"), a2atest.Entry().Draw(t, "entry")
		for _, c := range codecs {
			want := answer.Task{ID: task.ID.String(), ContextID: task.ContextID, Status: task.Status,
				Artifacts: task.Artifacts, History: task.History, Metadata: task.Metadata}
			got, err := answer.DecodeTask(c.AppendTask(nil, &task))
			if diff := cmp.Diff(want, got, same); err != nil || diff != "" {
				t.Fatalf("%s: %v, task (-want +got):\n%s", c.Version(), err, diff)
			}
			item, err := answer.Decode(c.AppendSnapshot(nil, &task))
			if err != nil || item.Task == nil || item.TaskID != want.ID {
				t.Fatalf("%s: %v, %+v", c.Version(), err, item)
			}
			item, err = answer.Decode(c.AppendEvent(nil, &entry, true))
			if err != nil {
				t.Fatalf("%s: %v", c.Version(), err)
			}
			checkEvent(t, &entry, &item)
		}
	})
}

func checkEvent(t *rapid.T, e *a2a.Entry, item *answer.Item) {
	var got a2a.Event
	switch {
	case item.Status != nil:
		got = item.Status
	case item.Artifact != nil:
		got = item.Artifact
	case item.Message != nil:
		got = item.Message
	}
	want := e.Event
	if m, ok := want.(*a2a.Message); ok && m.TaskID == "" {
		e.TaskID = a2a.ID{}
	}
	if diff := cmp.Diff(want, got, same); diff != "" {
		t.Fatalf("event (-want +got):\n%s", diff)
	}
}

func TestAnswersOfOtherServersAreRead(t *testing.T) {
	t.Parallel()
	text := []a2a.Part{{Kind: a2a.PartText, Text: "x"}}
	for name, c := range map[string]struct {
		raw  string
		want answer.Item
	}{
		"0.3 without kinds": {
			`{"id":"t","contextId":"c","status":{"state":"cancelled"},` +
				`"artifacts":[{"artifactId":"a","parts":[{"text":"x"}]}]}`,
			answer.Item{TaskID: "t", ContextID: "c",
				Task: &answer.Task{ID: "t", ContextID: "c", Status: a2a.Status{State: a2a.StateCanceled},
					Artifacts: []a2a.Artifact{{ID: "a", Parts: text}}}},
		},
		"0.3 with an unknown state": {
			`{"kind":"status-update","taskId":"t","contextId":"c","final":false,` +
				`"status":{"state":"unknown","timestamp":"now"}}`,
			answer.Item{TaskID: "t", ContextID: "c", Status: &a2a.StatusUpdate{}},
		},
		"1.0 in snake case with numbers": {
			`{"status_update":{"task_id":"t","context_id":"c",` +
				`"status":{"state":6,"message":{"message_id":"m","role":2,` +
				`"parts":[{"text":"x","media_type":"a/b","data":null}]}}}}`,
			answer.Item{TaskID: "t", ContextID: "c",
				Status: &a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateInputRequired, Message: &a2a.Message{
					ID: "m", Role: a2a.RoleAgent, Parts: []a2a.Part{{Kind: a2a.PartText, Text: "x", MediaType: "a/b"}},
				}}}},
		},
		"files": {
			`{"kind":"artifact-update","taskId":"t","append":true,` +
				`"artifact":{"artifactId":"a","parts":[{"kind":"file",` +
				`"file":{"bytes":"-_8","name":"n","mimeType":"a/b"}},{"url":"https://u"},{"data":null}]}}`,
			answer.Item{TaskID: "t",
				Artifact: &a2a.ArtifactUpdate{Append: true, Artifact: a2a.Artifact{ID: "a", Parts: []a2a.Part{
					{Kind: a2a.PartFile, Text: "+/8=", Filename: "n", MediaType: "a/b"},
					{Kind: a2a.PartURL, Text: "https://u"}, {Kind: a2a.PartData, Data: a2a.Raw("null")},
				}}}},
		},
		"parts that are filled up or unknown": {
			`{"artifactUpdate":{"artifact":{"artifactId":"a","parts":[` +
				`{"text":"","raw":"","url":"","data":{"k":1},"filename":""},{"text":"x","raw":"","url":"","data":{}},` +
				`{"raw":"","data":null,"text":""},` +
				`{"kind":"video","video":{"frames":3}},{},{"raw":"%"},{"text":"a","raw":"QQ=="},7]}}}`,
			answer.Item{Artifact: &a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: "a", Parts: []a2a.Part{
				{Kind: a2a.PartData, Data: a2a.Raw(`{"k":1}`)}, text[0],
				{Kind: a2a.PartText},
				{Kind: a2a.PartData, Data: a2a.Raw(`{"kind":"video","video":{"frames":3}}`)},
				{Kind: a2a.PartData, Data: a2a.Raw(`{}`)}, {Kind: a2a.PartData, Data: a2a.Raw(`{"raw":"%"}`)},
				{Kind: a2a.PartData, Data: a2a.Raw(`{"text":"a","raw":"QQ=="}`)},
				{Kind: a2a.PartData, Data: a2a.Raw(`7`)},
			}}}},
		},
		"a direct reply": {
			`{"kind":"message","messageId":"m","role":"agent","parts":[{"kind":"text","text":"x"}],` +
				`"referenceTaskIds":["theirs"]}`,
			answer.Item{Message: &a2a.Message{ID: "m", Role: a2a.RoleAgent, Parts: text}},
		},
	} {
		got, err := answer.Decode([]byte(c.raw))
		if diff := cmp.Diff(c.want, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

func TestInvalidAnswersAreRefusedWithAPath(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ raw, want string }{
		{`[]`, "must be an object"},
		{`{}`, "is no task, message, statusUpdate or artifactUpdate"},
		{`{"kind":"dog"}`, `kind "dog"`},
		{`{"task":{"status":{}}}`, "task.id is missing"},
		{`{"task":{"id":"t"}}`, "task.status is missing"},
		{`{"statusUpdate":{"taskId":"t"}}`, "statusUpdate.status is missing"},
		{`{"task":{"id":"t","status":{"state":"x"}}}`, `task.status.state "x" is not a state`},
		{`{"task":{"id":"t","status":{},"history":[{"role":"god"}]}}`, `task.history[0].role "god"`},
		{`{"artifactUpdate":{"taskId":"t","artifact":{"parts":[]}}}`, "artifactUpdate.artifact.artifactId is missing"},
		{`{"artifactUpdate":{"taskId":"t","append":"yes","artifact":{"artifactId":"a"}}}`,
			"append must be true or false"},
		{`{"artifactUpdate":{"taskId":"t","artifact":{"artifactId":"a"},"metadata":[]}}`,
			"artifactUpdate.metadata must be an object"},
		{`{"message":{"messageId":"` + strings.Repeat("m", answer.MaxID+1) + `","parts":[]}}`,
			"message.messageId is longer"},
		{`{"statusUpdate":{"taskId":"t","status":{"message":{"parts":{"text":"no list"}}}}}`,
			"status.message.parts must be an array"},
		{`{"statusUpdate":{"taskId":"t","status":{"state":["TASK_STATE_WORKING"]}}}`, "status.state must be a string"},
		{`{"kind":"task","id":"t","status":{"state":"working"},"artifacts":[null]}`,
			"task.artifacts[0] must be an object"},
		{`{"kind":"task","id":"t","status":{"state":"working"},"artifacts":[{"artifactId":"\u0000"}]}`, "has a NUL"},
	} {
		if _, err := answer.Decode([]byte(c.raw)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want %q", c.raw, err, c.want)
		}
	}
}

func TestErrorsAndResponses(t *testing.T) {
	t.Parallel()
	for _, c := range codecs {
		body := []byte(`{"jsonrpc":"2.0","id":null,"error":` + string(c.AppendError(nil, a2a.ErrTaskNotFound, "")) +
			`}`)
		var e *answer.Error
		if _, err := answer.Response(body, 1); !errors.As(err, &e) || e.Code != answer.CodeTaskNotFound ||
			e.Reason != "TASK_NOT_FOUND" || e.Message != "task not found" {
			t.Errorf("%s: %v", c.Version(), err)
		}
	}
	for _, body := range []string{``, `{`, `[]`, `{"id":1}`, `{"id":2,"result":{}}`, `{"id":"2","result":{}}`,
		`{"id":1,"id":1,"result":{}}`} {
		if result, err := answer.Response([]byte(body), 1); err == nil {
			t.Errorf("%s gives %s", body, result)
		}
	}
}

// Each request has a connection of its own, so a missing id is harmless.
func TestIDsOfResponsesMayBeTextsOrMissing(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		`{"id":1,"result":{}}`, `{"id":"1","result":{}}`, `{"id":null,"result":{}}`, `{"result":{}}`,
	} {
		if _, err := answer.Response([]byte(body), 1); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestCardsOfBothGenerations(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		card := a2atest.Card().Draw(t, "card")
		got, err := answer.DecodeCard(v1.Codec{}.AppendCard(nil, &card))
		if len(card.Interfaces) == 0 {
			if err == nil {
				t.Fatal("got no error for a card without interfaces")
			}
			return
		}
		if err != nil || got.Streaming != card.Streaming || len(got.Interfaces) != len(card.Interfaces) ||
			got.Interfaces[0].URL != card.Interfaces[0].URL {
			t.Fatalf("%v: %+v of %+v", err, got, card)
		}
	})
	got, err := answer.DecodeCard([]byte(`{"name":"n","url":"u","protocolVersion":"0.3.0",
		"preferredTransport":"GRPC","capabilities":{"streaming":true},
		"additionalInterfaces":[{"url":"v","transport":"JSONRPC"}],
		"supportedInterfaces":[{"url":"w","protocolBinding":"JSONRPC","protocolVersion":"1.0.1","tenant":"t"}]}`))
	want := answer.Card{Name: "n", Streaming: true, Interfaces: []answer.Interface{
		{URL: "w", Binding: "JSONRPC", Version: "1.0", Tenant: "t"}, {URL: "u", Binding: "GRPC", Version: "0.3"},
		{URL: "v", Binding: "JSONRPC", Version: "0.3"},
	}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// FuzzDecode checks that any input gives an error or values of the promised form.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`{"task":{"id":"t","status":{"state":"TASK_STATE_WORKING",` +
			`"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"x"}]}},"history":[{}]}}`,
		`{"kind":"artifact-update","taskId":"t","artifact":{"artifactId":"a",` +
			`"parts":[{"kind":"data","data":{"value":1},"metadata":{"data_part_compat":true}}]}}`,
		`{"status_update":{"task_id":"t","status":{"state":3,"timestamp":"2026-11-20T10:00:00Z"},"metadata":{}}}`,
		`{"kind":"message","parts":[{"file":{"bytes":"-_8"}}]}`,
		`{"jsonrpc":"2.0","id":1,"result":{"artifact":{}}}`, `{"error":{"code":-32001,"data":[{"reason":"X"}]}}`,
		`{"name":"n","supportedInterfaces":[{"url":"u"}],"url":"v"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if result, err := answer.Response(data, 1); err == nil && rawjson.Check(result, answer.MaxDepth) != nil {
			t.Fatalf("got a result that is not JSON: %s", result)
		}
		if card, err := answer.DecodeCard(data); err == nil && len(card.Interfaces) == 0 {
			t.Fatal("a card without interfaces")
		}
		if rawjson.Check(data, answer.MaxDepth) != nil {
			return
		}
		data = rawjson.Trim(data)
		if task, err := answer.DecodeTask(data); err == nil {
			checkTask(t, &task)
		}
		item, err := answer.Decode(data)
		if err != nil {
			return
		}
		set := 0
		if item.Task != nil {
			set++
			checkTask(t, item.Task)
		}
		if item.Status != nil {
			set++
			checkStatus(t, &item.Status.Status)
			checkRaw(t, item.Status.Metadata)
		}
		if item.Artifact != nil {
			set++
			checkParts(t, item.Artifact.Artifact.Parts)
			checkRaw(t, item.Artifact.Metadata)
		}
		if item.Message != nil {
			set++
			checkParts(t, item.Message.Parts)
		}
		if set != 1 || item.TaskID == "" && item.Task != nil {
			t.Fatalf("%d are set, task %q: %s", set, item.TaskID, data)
		}
	})
}

func checkTask(t *testing.T, task *answer.Task) {
	t.Helper()
	if task.ID == "" {
		t.Fatal("a task without an id")
	}
	checkStatus(t, &task.Status)
	for _, a := range task.Artifacts {
		checkParts(t, a.Parts)
		checkRaw(t, a.Metadata)
	}
	for _, m := range task.History {
		checkParts(t, m.Parts)
	}
	checkRaw(t, task.Metadata)
}

func checkStatus(t *testing.T, s *a2a.Status) {
	t.Helper()
	if s.State != a2a.StateNone && !s.State.Valid() {
		t.Fatalf("state %d", s.State)
	}
	if s.Message != nil {
		checkParts(t, s.Message.Parts)
		checkRaw(t, s.Message.Metadata)
	}
}

// checkParts checks that both codecs can write the parts, and that the reader returns the same parts.
func checkParts(t *testing.T, parts []a2a.Part) {
	t.Helper()
	for i := range parts {
		checkRaw(t, parts[i].Metadata)
		if k := parts[i].Kind; k < a2a.PartText || k > a2a.PartData || k == a2a.PartData && len(parts[i].Data) == 0 {
			t.Fatalf("a part of kind %d with data %q", k, parts[i].Data)
		}
	}
	if len(parts) == 0 {
		return
	}
	m := a2a.Message{ID: "m", Role: a2a.RoleAgent, Parts: parts}
	doc := v1.Codec{}.AppendReply(nil, &m)
	if err := rawjson.Check(doc, 2*answer.MaxDepth); err != nil {
		t.Fatalf("%v: %s", err, doc)
	}
	if err := rawjson.Check(v03.Codec{}.AppendReply(nil, &m), 2*answer.MaxDepth); err != nil {
		t.Fatalf("%v: %s", err, doc)
	}
}

func checkRaw(t *testing.T, v a2a.Raw) {
	t.Helper()
	if v != nil && (rawjson.Check(v, answer.MaxDepth) != nil || rawjson.KindOf(v) != rawjson.KindObject) {
		t.Fatalf("metadata %q", v)
	}
}
