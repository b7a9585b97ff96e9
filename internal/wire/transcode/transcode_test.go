package transcode

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	old "github.com/a2aproject/a2a-go/a2a"
	apb03 "github.com/a2aproject/a2a-go/a2apb"
	"github.com/a2aproject/a2a-go/a2apb/pbconv"
	apb1 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
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

// fits returns a value as protobuf can hold it: numbers are doubles, or text where they are too large.
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

// TestMessageRoundTrip: a message that an answer brings and a request sends back is the same.
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

// result also checks that the message has a place for every member that the codec writes.
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

// TestAnswersOf1LoseNothing: written back as JSON an answer is what the codec wrote, but for members with the default value,
// which JSON has and protobuf does not.
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
		check("ListTasks", codec1.AppendPage(nil, &a2a.Page{Tasks: []a2a.Task{task}, NextToken: "n", PageSize: 2, Total: 9}, true))
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

// sparse drops members with default values, at any depth: what protobuf does not write.
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

// TestAnswersOf03AreReadByTheOfficialClient: what the Go client of 0.3 makes of an answer over gRPC is what the codec wrote as JSON.
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
			codec03.AppendPage(nil, &a2a.Page{Tasks: []a2a.Task{task, task}, NextToken: "n", PageSize: 2, Total: 9}, false))
		if len(page.GetTasks()) != 2 || page.GetNextPageToken() != "n" || page.GetTotalSize() != 9 {
			t.Fatalf("page %v", page)
		}
		cs := rapid.SliceOfN(a2atest.PushConfig(), 1, 3).Draw(t, "configs")
		for i := range cs {
			cs[i].ID = "c" // always set in answers
		}
		list, err := pbconv.FromProtoListTaskPushConfig(result[*apb03.ListTaskPushNotificationConfigResponse](t,
			s.find("ListTaskPushNotificationConfig"), codec03.AppendPushConfigs(nil, "x", &a2a.PushPage{Configs: cs})))
		same("ListTaskPushNotificationConfig", json03.AppendPushConfigs(nil, "x", &a2a.PushPage{Configs: cs}), list, err)
		result[proto.Message](t, s.find("DeleteTaskPushNotificationConfig"), codec03.AppendDeleted(nil))
		card := a2atest.Card().Draw(t, "card")
		doc := codec03.AppendCard(nil, &card)
		read, err := pbconv.FromProtoAgentCard(result[*apb03.AgentCard](t, s.find("GetAgentCard"), doc))
		same("GetAgentCard", doc, read, err)
	})
}

// client03 drops what the official types write or leave out by themselves, and metadata that is empty.
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

// TestRequestsOfTheOfficialClientOf03 writes what the Go client of 0.3 says, over JSON and over gRPC: both mean the same.
func TestRequestsOfTheOfficialClientOf03(t *testing.T) {
	t.Parallel()
	s := V03()
	s03 := func(name string) *Method { return method(t, s, name) }
	yes := true
	five := 5
	push := old.PushConfig{ID: "p", URL: "https://u", Token: "t", Auth: &old.PushAuthInfo{Schemes: []string{"Bearer", "Basic"}, Credentials: "c"}}
	for _, c := range []struct {
		rpc  string
		json any
	}{
		{"SendStreamingMessage", &old.MessageSendParams{
			Message: old.NewMessageForTask(old.MessageRoleUser, old.TaskInfo{TaskID: "t", ContextID: "c"}, old.TextPart{Text: "", Metadata: map[string]any{"k": 1.5}},
				old.DataPart{Data: map[string]any{"k": []any{nil, "x"}}}, old.FilePart{File: old.FileURI{FileMeta: old.FileMeta{MimeType: "a/b", Name: "n"}, URI: "https://u"}}),
			Metadata: map[string]any{"a": true},
			Config:   &old.MessageSendConfig{Blocking: &yes, HistoryLength: &five, AcceptedOutputModes: []string{"a/b"}, PushConfig: &push},
		}},
		{"GetTask", &old.TaskQueryParams{ID: "t", HistoryLength: &five}},
		{"CancelTask", &old.TaskIDParams{ID: "t"}},
		{"TaskSubscription", &old.TaskIDParams{ID: "t"}},
		{"CreateTaskPushNotificationConfig", &old.TaskPushConfig{TaskID: "t", Config: push}},
		{"CreateTaskPushNotificationConfig", &old.TaskPushConfig{TaskID: "t", Config: old.PushConfig{URL: "https://u", Auth: &old.PushAuthInfo{Schemes: []string{}}}}},
		{"SendMessage", &old.MessageSendParams{
			Message: old.NewMessage(old.MessageRoleUser, old.TextPart{Text: ""}, old.DataPart{Data: map[string]any{}}, old.FilePart{File: old.FileBytes{}}),
			Config:  &old.MessageSendConfig{Blocking: &yes, AcceptedOutputModes: []string{}, PushConfig: &old.PushConfig{URL: "u", Auth: &old.PushAuthInfo{Schemes: []string{}}}},
		}},
		{"GetTaskPushNotificationConfig", &old.GetTaskPushConfigParams{TaskID: "t", ConfigID: "p"}},
		{"ListTaskPushNotificationConfig", &old.ListTaskPushConfigParams{TaskID: "t"}},
		{"DeleteTaskPushNotificationConfig", &old.DeleteTaskPushConfigParams{TaskID: "t", ConfigID: "p"}},
	} {
		m := s03(c.rpc)
		doc, err := json.Marshal(c.json)
		if err != nil {
			t.Fatal(err)
		}
		want, err := json03.Decode(m.Codec, doc)
		if err != nil {
			t.Fatalf("%s: %v\n%s", c.rpc, err, doc)
		}
		req, err := toProto(c.rpc, c.json)
		if err != nil {
			t.Fatal(err)
		}
		got := decode[a2a.Op](t, codec03, m, req)
		if diff := cmp.Diff(want, got, sameRaw, ignoreDigest); diff != "" {
			t.Errorf("%s: -JSON +gRPC\n%s", c.rpc, diff)
		}
	}
}

func toProto(rpc string, v any) (proto.Message, error) {
	switch v := v.(type) {
	case *old.MessageSendParams:
		return pbconv.ToProtoSendMessageRequest(v)
	case *old.TaskQueryParams:
		return pbconv.ToProtoGetTaskRequest(v)
	case *old.TaskIDParams:
		if rpc == "CancelTask" {
			return pbconv.ToProtoCancelTaskRequest(v)
		}
		return pbconv.ToProtoTaskSubscriptionRequest(v)
	case *old.TaskPushConfig:
		return pbconv.ToProtoCreateTaskPushConfigRequest(v)
	case *old.GetTaskPushConfigParams:
		return pbconv.ToProtoGetTaskPushConfigRequest(v)
	case *old.ListTaskPushConfigParams:
		return pbconv.ToProtoListTaskPushConfigRequest(v)
	case *old.DeleteTaskPushConfigParams:
		return pbconv.ToProtoDeleteTaskPushConfigRequest(v)
	}
	return nil, errors.New("unknown params")
}

// TestDefaultsOf03 covers what its definitions cannot tell from what is not set (T-07, T-08).
func TestDefaultsOf03(t *testing.T) {
	t.Parallel()
	s := V03()
	msg := &apb03.Message{MessageId: "m", Role: apb03.Role_ROLE_USER, Parts: []*apb03.Part{{Part: &apb03.Part_Text{Text: "x"}}}}
	send := method(t, s, "SendMessage")
	if op := decode[*a2a.SendMessage](t, codec03, send, &apb03.SendMessageRequest{Request: msg}); !op.Blocking || op.HistoryLength != nil {
		t.Errorf("without a configuration: %+v", op)
	}
	op := decode[*a2a.SendMessage](t, codec03, send, &apb03.SendMessageRequest{Request: msg, Configuration: &apb03.SendMessageConfiguration{}})
	if op.Blocking || op.HistoryLength != nil {
		t.Errorf("with an empty configuration: %+v", op)
	}
	if op := decode[*a2a.GetTask](t, codec03, method(t, s, "GetTask"), &apb03.GetTaskRequest{Name: "tasks/x"}); op.HistoryLength != nil || op.ID != "x" {
		t.Errorf("get: %+v", op)
	}
	list := decode[*a2a.ListTasks](t, codec03, method(t, s, "ListTasks"), &apb03.ListTasksRequest{
		Status: apb03.TaskState_TASK_STATE_CANCELLED, ContextId: "c", PageSize: 3, PageToken: "p", HistoryLength: 1, IncludeArtifacts: true, LastUpdatedTime: &timestamppb.Timestamp{Seconds: 10},
	})
	if list.State != a2a.StateCanceled || list.ContextID != "c" || list.PageSize != 3 || list.PageToken != "p" || *list.HistoryLength != 1 || !list.IncludeArtifacts || list.UpdatedAfter.Unix() != 10 {
		t.Errorf("list: %+v", list)
	}
	set := decode[*a2a.SetPushConfig](t, codec03, method(t, s, "CreateTaskPushNotificationConfig"), &apb03.CreateTaskPushNotificationConfigRequest{
		Parent: "tasks/x", ConfigId: "c", Config: &apb03.TaskPushNotificationConfig{PushNotificationConfig: &apb03.PushNotificationConfig{Url: "https://u"}},
	})
	if set.TaskID != "x" || set.Config.ID != "c" {
		t.Errorf("push: %+v", set)
	}
}

func TestMalformedRequestsAreInvalidParams(t *testing.T) {
	t.Parallel()
	bad := []struct {
		service *Service
		method  string
		req     proto.Message
	}{
		{V03(), "GetTask", &apb03.GetTaskRequest{Name: "x"}},
		{V03(), "GetTask", &apb03.GetTaskRequest{Name: "tasks/"}},
		{V03(), "GetTask", &apb03.GetTaskRequest{Name: "tasks/a/b"}},
		{V03(), "CancelTask", &apb03.CancelTaskRequest{Name: "task/x"}},
		{V03(), "TaskSubscription", &apb03.TaskSubscriptionRequest{}},
		{V03(), "GetTaskPushNotificationConfig", &apb03.GetTaskPushNotificationConfigRequest{Name: "tasks/x"}},
		{V03(), "GetTaskPushNotificationConfig", &apb03.GetTaskPushNotificationConfigRequest{Name: "x/pushNotificationConfigs/c"}},
		{V03(), "DeleteTaskPushNotificationConfig", &apb03.DeleteTaskPushNotificationConfigRequest{Name: "tasks/x/pushNotificationConfigs/c/d"}},
		{V03(), "ListTaskPushNotificationConfig", &apb03.ListTaskPushNotificationConfigRequest{Parent: "x"}},
		{V03(), "CreateTaskPushNotificationConfig", &apb03.CreateTaskPushNotificationConfigRequest{Parent: "tasks/x", ConfigId: "c",
			Config: &apb03.TaskPushNotificationConfig{PushNotificationConfig: &apb03.PushNotificationConfig{Id: "d"}}}},
		{V03(), "ListTasks", &apb03.ListTasksRequest{LastUpdatedTime: &timestamppb.Timestamp{Seconds: 1 << 60}}},
		{V1(), "ListTasks", &apb1.ListTasksRequest{StatusTimestampAfter: &timestamppb.Timestamp{Seconds: 1 << 60}}},
		{V1(), "SendMessage", &apb1.SendMessageRequest{Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"x": {}}}}},
		{V03(), "SendMessage", &apb03.SendMessageRequest{Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"x": {}}}}},
	}
	for _, c := range bad {
		m, codec := method(t, c.service, c.method), wire.Codec(codec1)
		if c.service.Version == "0.3" {
			codec = codec03
		}
		params, err := m.Params(c.req)
		if err == nil {
			_, err = codec.Decode(m.Codec, params)
		}
		if a2a.CodeOf(err) != a2a.CodeInvalidParams {
			t.Errorf("%s %v: %s, %v", c.method, c.req, params, err)
		}
	}
}

// TestParamsHaveOneSpelling: an idempotency key is compared by what was sent with it.
func TestParamsHaveOneSpelling(t *testing.T) {
	t.Parallel()
	fields := map[string]*structpb.Value{}
	for _, k := range []string{"b", "a", "d", "c", "e"} {
		fields[k] = structpb.NewNumberValue(1)
	}
	m := method(t, V1(), "SendMessage")
	got, err := m.Params(&apb1.SendMessageRequest{Tenant: "x y", Metadata: &structpb.Struct{Fields: fields}})
	if want := `{"tenant":"x y","metadata":{"a":1,"b":1,"c":1,"d":1,"e":1}}`; string(got) != want || err != nil {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
}

func TestPageSizeZeroOf1IsNone(t *testing.T) {
	t.Parallel()
	m := method(t, V1(), "ListTasks")
	for _, size := range []*int32{nil, proto.Int32(0)} {
		if op := decode[*a2a.ListTasks](t, codec1, m, &apb1.ListTasksRequest{PageSize: size, HistoryLength: proto.Int32(0)}); op.PageSize != 0 || *op.HistoryLength != 0 {
			t.Errorf("%v: %+v", size, op)
		}
	}
}

func TestLargeNumbersBecomeText(t *testing.T) {
	t.Parallel()
	doc := `{"id":"1e999\"1e999","status":{"state":"TASK_STATE_WORKING"},"metadata":{"a":1e999,"b":[-1e999,9007199254740993],"c":"1e999"}}`
	got := result[*apb1.Task](t, method(t, V1(), "GetTask"), []byte(doc))
	want := map[string]any{"a": "1e999", "b": []any{"-1e999", 9007199254740992.0}, "c": "1e999"}
	if diff := cmp.Diff(want, got.GetMetadata().AsMap()); diff != "" || got.GetId() != `1e999"1e999` {
		t.Errorf("id %q, -want +got\n%s", got.GetId(), diff)
	}
}

// FuzzRequests: whatever bytes are a request become params that pass the check, and that the codec takes or refuses.
func FuzzRequests(f *testing.F) {
	services := []*Service{V1(), V03()}
	codecs := []wire.Codec{codec1, codec03}
	for g, s := range services {
		for i := range s.Methods {
			f.Add(g == 1, uint8(i), []byte{10, 3, 'a', '/', 'b'})
		}
	}
	full, err := proto.Marshal(&apb03.SendMessageRequest{
		Request: &apb03.Message{MessageId: "m", Role: 1, Parts: []*apb03.Part{{Part: &apb03.Part_File{File: &apb03.FilePart{File: &apb03.FilePart_FileWithBytes{FileWithBytes: []byte("x")}}}},
			{Part: &apb03.Part_Data{}}, {}, {Part: &apb03.Part_File{}}}}, Configuration: &apb03.SendMessageConfiguration{PushNotification: &apb03.PushNotificationConfig{Authentication: &apb03.AuthenticationInfo{}}},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(true, uint8(0), full)
	f.Fuzz(func(t *testing.T, older bool, index uint8, body []byte) {
		g := 0
		if older {
			g = 1
		}
		m := &services[g].Methods[int(index)%len(services[g].Methods)]
		req := m.Request()
		if proto.Unmarshal(body, req) != nil {
			return
		}
		params, err := m.Params(req)
		if err != nil {
			if a2a.CodeOf(err) != a2a.CodeInvalidParams {
				t.Fatalf("%s: %v", m.Name, err)
			}
			return
		}
		if err := rawjson.Check(params, 10_000); err != nil {
			t.Fatalf("%s: %v\n%s", m.Name, err, params)
		}
		if _, err := codecs[g].Decode(m.Codec, params); err != nil && a2a.CodeOf(err) == a2a.CodeInternal {
			t.Fatalf("%s: %v\n%s", m.Name, err, params)
		}
	})
}

// BenchmarkItem: what an item costs once, for all streams that send it.
func BenchmarkItem(b *testing.B) {
	for name, item := range map[string]string{
		"status": `{"statusUpdate":{"taskId":"019a9d40-1234-7abc-8def-010203040506","contextId":"c","status":{"state":"TASK_STATE_WORKING","timestamp":"2026-11-20T10:00:00.007Z"}}}`,
		"34kB":   `{"artifactUpdate":{"taskId":"019a9d40-1234-7abc-8def-010203040506","contextId":"c","artifact":{"artifactId":"a","parts":[{"text":"` + strings.Repeat("x", 34_000) + `"}]}}}`,
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
