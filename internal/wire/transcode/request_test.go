package transcode

import (
	"encoding/json"
	"errors"
	"testing"

	old "github.com/a2aproject/a2a-go/a2a"
	apb03 "github.com/a2aproject/a2a-go/a2apb"
	"github.com/a2aproject/a2a-go/a2apb/pbconv"
	apb1 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire"
)

// A request of the Go client of 0.3 means the same over JSON and over gRPC.
func TestRequestsOfTheOfficialClientOf03(t *testing.T) {
	t.Parallel()
	s := V03()
	s03 := func(name string) *Method { return method(t, s, name) }
	yes := true
	five := 5
	push := old.PushConfig{ID: "p", URL: "https://u", Token: "t",
		Auth: &old.PushAuthInfo{Schemes: []string{"Bearer", "Basic"}, Credentials: "c"}}
	for _, c := range []struct {
		rpc  string
		json any
	}{
		{"SendStreamingMessage", &old.MessageSendParams{
			Message: old.NewMessageForTask(old.MessageRoleUser, old.TaskInfo{TaskID: "t", ContextID: "c"},
				old.TextPart{Text: "", Metadata: map[string]any{"k": 1.5}},
				old.DataPart{Data: map[string]any{"k": []any{nil, "x"}}},
				old.FilePart{File: old.FileURI{FileMeta: old.FileMeta{MimeType: "a/b", Name: "n"}, URI: "https://u"}}),
			Metadata: map[string]any{"a": true},
			Config: &old.MessageSendConfig{Blocking: &yes, HistoryLength: &five, AcceptedOutputModes: []string{"a/b"},
				PushConfig: &push},
		}},
		{"GetTask", &old.TaskQueryParams{ID: "t", HistoryLength: &five}},
		{"CancelTask", &old.TaskIDParams{ID: "t"}},
		{"TaskSubscription", &old.TaskIDParams{ID: "t"}},
		{"CreateTaskPushNotificationConfig", &old.TaskPushConfig{TaskID: "t", Config: push}},
		{"CreateTaskPushNotificationConfig",
			&old.TaskPushConfig{TaskID: "t",
				Config: old.PushConfig{URL: "https://u", Auth: &old.PushAuthInfo{Schemes: []string{}}}}},
		{"SendMessage", &old.MessageSendParams{
			Message: old.NewMessage(old.MessageRoleUser, old.TextPart{Text: ""}, old.DataPart{Data: map[string]any{}},
				old.FilePart{File: old.FileBytes{}}),
			Config: &old.MessageSendConfig{Blocking: &yes, AcceptedOutputModes: []string{},
				PushConfig: &old.PushConfig{URL: "u", Auth: &old.PushAuthInfo{Schemes: []string{}}}},
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

// The definitions of 0.3 cannot distinguish these values from absent ones (T-07, T-08).
func TestDefaultsOf03(t *testing.T) {
	t.Parallel()
	s := V03()
	msg := &apb03.Message{MessageId: "m", Role: apb03.Role_ROLE_USER,
		Parts: []*apb03.Part{{Part: &apb03.Part_Text{Text: "x"}}}}
	send := method(t, s, "SendMessage")
	if op := decode[*a2a.SendMessage](t, codec03, send, &apb03.SendMessageRequest{Request: msg}); !op.Blocking ||
		op.HistoryLength != nil {
		t.Errorf("without a configuration: %+v", op)
	}
	op := decode[*a2a.SendMessage](t, codec03, send,
		&apb03.SendMessageRequest{Request: msg, Configuration: &apb03.SendMessageConfiguration{}})
	if op.Blocking || op.HistoryLength != nil {
		t.Errorf("with an empty configuration: %+v", op)
	}
	if op := decode[*a2a.GetTask](t, codec03, method(t, s, "GetTask"),
		&apb03.GetTaskRequest{Name: "tasks/x"}); op.HistoryLength != nil || op.ID != "x" {
		t.Errorf("get: %+v", op)
	}
	list := decode[*a2a.ListTasks](t, codec03, method(t, s, "ListTasks"), &apb03.ListTasksRequest{
		Status: apb03.TaskState_TASK_STATE_CANCELLED, ContextId: "c", PageSize: 3, PageToken: "p", HistoryLength: 1,
		IncludeArtifacts: true, LastUpdatedTime: &timestamppb.Timestamp{Seconds: 10},
	})
	if list.State != a2a.StateCanceled || list.ContextID != "c" || list.PageSize != 3 || list.PageToken != "p" ||
		*list.HistoryLength != 1 || !list.IncludeArtifacts || list.UpdatedAfter.Unix() != 10 {
		t.Errorf("list: %+v", list)
	}
	set := decode[*a2a.SetPushConfig](t, codec03, method(t, s, "CreateTaskPushNotificationConfig"),
		&apb03.CreateTaskPushNotificationConfigRequest{
			Parent: "tasks/x", ConfigId: "c",
			Config: &apb03.TaskPushNotificationConfig{
				PushNotificationConfig: &apb03.PushNotificationConfig{Url: "https://u"},
			},
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
		{V03(), "GetTaskPushNotificationConfig",
			&apb03.GetTaskPushNotificationConfigRequest{Name: "x/pushNotificationConfigs/c"}},
		{V03(), "DeleteTaskPushNotificationConfig",
			&apb03.DeleteTaskPushNotificationConfigRequest{Name: "tasks/x/pushNotificationConfigs/c/d"}},
		{V03(), "ListTaskPushNotificationConfig", &apb03.ListTaskPushNotificationConfigRequest{Parent: "x"}},
		{V03(), "CreateTaskPushNotificationConfig",
			&apb03.CreateTaskPushNotificationConfigRequest{Parent: "tasks/x", ConfigId: "c",
				Config: &apb03.TaskPushNotificationConfig{
					PushNotificationConfig: &apb03.PushNotificationConfig{Id: "d"},
				}}},
		{V03(), "ListTasks", &apb03.ListTasksRequest{LastUpdatedTime: &timestamppb.Timestamp{Seconds: 1 << 60}}},
		{V1(), "ListTasks", &apb1.ListTasksRequest{StatusTimestampAfter: &timestamppb.Timestamp{Seconds: 1 << 60}}},
		{V1(), "SendMessage",
			&apb1.SendMessageRequest{Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"x": {}}}}},
		{V03(), "SendMessage",
			&apb03.SendMessageRequest{Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"x": {}}}}},
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

// Equal requests must give equal params, because an idempotency key is compared with its params.
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

func TestPageSizeZeroOf1MeansTheDefault(t *testing.T) {
	t.Parallel()
	m := method(t, V1(), "ListTasks")
	for _, size := range []*int32{nil, proto.Int32(0)} {
		if op := decode[*a2a.ListTasks](t, codec1, m,
			&apb1.ListTasksRequest{PageSize: size, HistoryLength: proto.Int32(0)}); op.PageSize != 0 ||
			*op.HistoryLength != 0 {
			t.Errorf("%v: %+v", size, op)
		}
	}
}

// FuzzRequests checks that every valid request becomes params that pass rawjson.Check, and that the codec reads
// them or refuses them with an error for the client.
func FuzzRequests(f *testing.F) {
	services := []*Service{V1(), V03()}
	codecs := []wire.Codec{codec1, codec03}
	for g, s := range services {
		for i := range s.Methods {
			f.Add(g == 1, uint8(i), []byte{10, 3, 'a', '/', 'b'})
		}
	}
	file := apb03.FilePart{File: &apb03.FilePart_FileWithBytes{FileWithBytes: []byte("x")}}
	full, err := proto.Marshal(&apb03.SendMessageRequest{
		Request: &apb03.Message{MessageId: "m", Role: 1,
			Parts: []*apb03.Part{{Part: &apb03.Part_File{File: &file}},
				{Part: &apb03.Part_Data{}}, {}, {Part: &apb03.Part_File{}}}},
		Configuration: &apb03.SendMessageConfiguration{
			PushNotification: &apb03.PushNotificationConfig{Authentication: &apb03.AuthenticationInfo{}},
		},
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
