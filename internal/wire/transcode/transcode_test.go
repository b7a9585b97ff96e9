package transcode

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	apb03 "github.com/a2aproject/a2a-go/a2apb"
	"github.com/a2aproject/a2a-go/a2apb/pbconv"
	apb1 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/a2a/a2atest"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire"
	"github.com/a2ad/a2ad/internal/wire/v03"
	v1 "github.com/a2ad/a2ad/internal/wire/v1"
)

var (
	json03  = v03.Codec{Lenient: true}
	codec03 = v03.Proto{Codec: json03, Parts: true}
	codec1  = v1.Codec{}

	v03Strict = v03.Proto{}
)

func method(t testing.TB, s *Service, name string) *Method {
	t.Helper()
	for i := range s.Methods {
		if s.Methods[i].Name == name {
			return &s.Methods[i]
		}
	}
	t.Fatalf("%s has no %s", s.Name, name)
	return nil
}

func TestCodecsKnowEveryMethod(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		service *Service
		codec   wire.Codec
		name    string
	}{{V1(), codec1, "lf.a2a.v1.A2AService"}, {V03(), codec03, "a2a.v1.A2AService"}} {
		if c.service.Name != c.name || c.service.Version != c.codec.Version() || len(c.service.Methods) != 11 {
			t.Errorf("%s %s has %d methods", c.service.Name, c.service.Version, len(c.service.Methods))
		}
		for i := range c.service.Methods {
			m := &c.service.Methods[i]
			if !c.codec.Has(m.Codec) {
				t.Errorf("%s: the codec does not know %q", m.Name, m.Codec)
			}
			if params, err := m.Params(m.Request()); err == nil && rawjson.Check(params, 64) != nil {
				t.Errorf("%s: an empty request becomes %s", m.Name, params)
			}
		}
	}
}

// fits returns a value as protobuf can represent it: numbers as doubles, or as text if they are too large.
func fits(raw []byte) any {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		panic(err)
	}
	return doubles(v)
}

func doubles(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = doubles(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = doubles(v[k])
		}
	case json.Number:
		if f, err := strconv.ParseFloat(v.String(), 64); err == nil {
			return f
		}
		return v.String()
	}
	return v
}

var sameRaw = cmp.Comparer(func(a, b a2a.Raw) bool {
	if len(a) == 0 || len(b) == 0 {
		return rawjson.Empty(a) && rawjson.Empty(b)
	}
	return reflect.DeepEqual(fits(a), fits(b))
})

// A message from an answer that a client sends back in a request must stay the same.
func TestMessageRoundTrip(t *testing.T) {
	t.Parallel()
	send1, send03 := method(t, V1(), "SendMessage"), method(t, V03(), "SendMessage")
	rapid.Check(t, func(t *rapid.T) {
		m := a2atest.Message().Draw(t, "message")
		got := result[*apb1.SendMessageResponse](t, send1, codec1.AppendReply(nil, &m))
		req := &apb1.SendMessageRequest{Message: got.GetMessage()}
		if diff := cmp.Diff(m, decode[*a2a.SendMessage](t, codec1, send1, req).Message, sameRaw); diff != "" {
			t.Fatalf("1.0: -want +got\n%s", diff)
		}
		got03 := result[*apb03.SendMessageResponse](t, send03, codec03.AppendReply(nil, &m))
		req03 := &apb03.SendMessageRequest{Request: got03.GetMsg()}
		if diff := cmp.Diff(m, decode[*a2a.SendMessage](t, codec03, send03, req03).Message, sameRaw); diff != "" {
			t.Fatalf("0.3: -want +got\n%s", diff)
		}
	})
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// result also checks that the message has a field for every member that the codec writes.
func result[M proto.Message](t fataler, m *Method, doc []byte) M {
	t.Helper()
	out, err := m.Result(doc)
	if err != nil {
		t.Fatalf("%s: %v\n%s", m.Name, err, doc)
	}
	return out.(M)
}

func decode[O a2a.Op](t fataler, c wire.Codec, m *Method, req proto.Message) O {
	t.Helper()
	wireForm, err := proto.Marshal(req)
	if err != nil {
		t.Fatalf("%v", err)
	}
	got := m.Request()
	if err := proto.Unmarshal(wireForm, got); err != nil {
		t.Fatalf("%v", err)
	}
	params, err := m.Params(got)
	if err != nil {
		t.Fatalf("%s: %v", m.Name, err)
	}
	if err := rawjson.Check(params, 64); err != nil {
		t.Fatalf("%s: %v\n%s", m.Name, err, params)
	}
	op, err := c.Decode(m.Codec, params)
	if err != nil {
		t.Fatalf("%s: %v\n%s", m.Name, err, params)
	}
	return op.(O)
}

// An answer of 1.0 that is converted back to JSON must equal the codec's output, except for members with
// default values, which protobuf omits.
func TestAnswersOf1LoseNothing(t *testing.T) {
	t.Parallel()
	s := V1()
	rapid.Check(t, func(t *rapid.T) {
		check := func(name string, doc []byte) {
			t.Helper()
			m := s.find(name)
			back, err := protojson.Marshal(result[proto.Message](t, m, doc))
			if err != nil {
				t.Fatalf("%v", err)
			}
			if diff := cmp.Diff(sparse(fits(doc)), sparse(fits(back))); diff != "" {
				t.Fatalf("%s: -want +got\n%s", name, diff)
			}
		}
		task := a2atest.Task().Draw(t, "task")
		check("GetTask", codec1.AppendTask(nil, &task))
		check("SendMessage", codec1.AppendSent(nil, &task))
		check("SubscribeToTask", codec1.AppendSnapshot(nil, &task))
		e := a2atest.Entry().Draw(t, "entry")
		check("SendStreamingMessage", codec1.AppendEvent(nil, &e, false))
		check("ListTasks",
			codec1.AppendPage(nil, &a2a.Page{Tasks: []a2a.Task{task}, NextToken: "n", PageSize: 2, Total: 9}, true))
		cs := rapid.SliceOfN(a2atest.PushConfig(), 1, 3).Draw(t, "configs")
		check("CreateTaskPushNotificationConfig", codec1.AppendPushConfig(nil, "x", &cs[0]))
		check("ListTaskPushNotificationConfigs", codec1.AppendPushConfigs(nil, "x", &a2a.PushPage{Configs: cs}))
		check("DeleteTaskPushNotificationConfig", codec1.AppendDeleted(nil))
		card := a2atest.Card().Draw(t, "card")
		check("GetExtendedAgentCard", codec1.AppendCard(nil, &card))
	})
}

func (s *Service) find(name string) *Method {
	for i := range s.Methods {
		if s.Methods[i].Name == name {
			return &s.Methods[i]
		}
	}
	return nil
}

// sparse drops members with default values at any depth, because protobuf omits them.
func sparse(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = sparse(v[i])
		}
	case map[string]any:
		if text, ok := v["timestamp"].(string); ok {
			if at, err := time.Parse(time.RFC3339, text); err == nil {
				v["timestamp"] = at.Format(time.RFC3339Nano) // protojson writes fewer digits
			}
		}
		for k, member := range v {
			switch m := sparse(member); m {
			case "", false, 0.0, nil:
				delete(v, k)
			default:
				if list, ok := m.([]any); ok && len(list) == 0 {
					delete(v, k)
				}
			}
		}
	}
	return v
}

// The Go client of 0.3 must read from an answer over gRPC what the codec wrote as JSON.
func TestAnswersOf03AreReadByTheOfficialClient(t *testing.T) {
	t.Parallel()
	s := V03()
	rapid.Check(t, func(t *rapid.T) {
		same := func(name string, doc []byte, got any, err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, doc)
			}
			back, err := json.Marshal(got)
			if err != nil {
				t.Fatalf("%v", err)
			}
			if diff := cmp.Diff(client03(fits(doc)), client03(fits(back))); diff != "" {
				t.Fatalf("%s: -want +got\n%s", name, diff)
			}
		}
		item := func(name string, want, doc []byte) {
			t.Helper()
			got, err := pbconv.FromProtoStreamResponse(result[*apb03.StreamResponse](t, s.find(name), doc))
			same(name, want, got, err)
		}
		task := a2atest.Task().Draw(t, "task")
		got, err := pbconv.FromProtoTask(result[*apb03.Task](t, s.find("GetTask"), codec03.AppendTask(nil, &task)))
		same("GetTask", json03.AppendTask(nil, &task), got, err)
		item("TaskSubscription", json03.AppendSnapshot(nil, &task), codec03.AppendSnapshot(nil, &task))
		e, last := a2atest.Entry().Draw(t, "entry"), rapid.Bool().Draw(t, "last")
		item("SendStreamingMessage", json03.AppendEvent(nil, &e, last), codec03.AppendEvent(nil, &e, last))
		page := result[*apb03.ListTasksResponse](t, s.find("ListTasks"),
			codec03.AppendPage(nil, &a2a.Page{Tasks: []a2a.Task{task, task}, NextToken: "n", PageSize: 2, Total: 9},
				false))
		if len(page.GetTasks()) != 2 || page.GetNextPageToken() != "n" || page.GetTotalSize() != 9 {
			t.Fatalf("page %v", page)
		}
		cs := rapid.SliceOfN(a2atest.PushConfig(), 1, 3).Draw(t, "configs")
		for i := range cs {
			cs[i].ID = "c" // always set in answers
		}
		list, err := pbconv.FromProtoListTaskPushConfig(result[*apb03.ListTaskPushNotificationConfigResponse](t,
			s.find("ListTaskPushNotificationConfig"), codec03.AppendPushConfigs(nil, "x", &a2a.PushPage{Configs: cs})))
		same("ListTaskPushNotificationConfig", json03.AppendPushConfigs(nil, "x", &a2a.PushPage{Configs: cs}), list,
			err)
		result[proto.Message](t, s.find("DeleteTaskPushNotificationConfig"), codec03.AppendDeleted(nil))
		card := a2atest.Card().Draw(t, "card")
		doc := codec03.AppendCard(nil, &card)
		read, err := pbconv.FromProtoAgentCard(result[*apb03.AgentCard](t, s.find("GetAgentCard"), doc))
		same("GetAgentCard", doc, read, err)
	})
}

// client03 drops members that the official types add or omit, and empty metadata.
func client03(v any) any {
	if m, ok := v.(map[string]any); ok {
		for k, member := range m {
			if o, ok := client03(member).(map[string]any); ok && len(o) == 0 {
				delete(m, k)
			}
		}
		return sparse(m)
	}
	if list, ok := v.([]any); ok {
		for i := range list {
			list[i] = client03(list[i])
		}
	}
	return v
}

func TestLargeNumbersBecomeText(t *testing.T) {
	t.Parallel()
	doc := `{"id":"1e999\"1e999","status":{"state":"TASK_STATE_WORKING"},` +
		`"metadata":{"a":1e999,"b":[-1e999,9007199254740993],"c":"1e999"}}`
	got := result[*apb1.Task](t, method(t, V1(), "GetTask"), []byte(doc))
	want := map[string]any{"a": "1e999", "b": []any{"-1e999", 9007199254740992.0}, "c": "1e999"}
	if diff := cmp.Diff(want, got.GetMetadata().AsMap()); diff != "" || got.GetId() != `1e999"1e999` {
		t.Errorf("id %q, -want +got\n%s", got.GetId(), diff)
	}
}

// BenchmarkItem measures the conversion of an item, which happens once for all streams that send it.
func BenchmarkItem(b *testing.B) {
	for name, item := range map[string]string{
		"status": `{"statusUpdate":{"taskId":"019a9d40-1234-7abc-8def-010203040506","contextId":"c",` +
			`"status":{"state":"TASK_STATE_WORKING","timestamp":"2026-11-20T10:00:00.007Z"}}}`,
		"34kB": `{"artifactUpdate":{"taskId":"019a9d40-1234-7abc-8def-010203040506","contextId":"c",` +
			`"artifact":{"artifactId":"a","parts":[{"text":"` + strings.Repeat("x", 34_000) + `"}]}}}`,
	} {
		b.Run(name, func(b *testing.B) {
			s := V1()
			b.ReportAllocs()
			for b.Loop() {
				if len(s.Pack([]byte(item))) == 0 {
					b.Fatal("no message")
				}
			}
		})
	}
}
