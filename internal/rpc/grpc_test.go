package rpc_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/engine"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/rpc"
	"github.com/a2ad/a2ad/internal/wire"
	"github.com/a2ad/a2ad/internal/wire/v03"
	v1 "github.com/a2ad/a2ad/internal/wire/v1"
)

const (
	service03 = "a2a.v1.A2AService"
	service1  = "lf.a2a.v1.A2AService"
	resumeURI = "https://a2ad.dev/extensions/resume/v1"
)

// openGRPC is newSiteWith with a listener for gRPC. stop ends it and returns when it has ended.
func openGRPC(t *testing.T, change func(*rpc.Config), options ...grpc.DialOption) (s *site, conn *grpc.ClientConn, stop func()) {
	t.Helper()
	s = newSiteWith(t, func(_ *engine.Config, c *rpc.Config) { change(c) })
	conn, stop = serveGRPC(t, s, options...)
	return s, conn, stop
}

// serveGRPC opens the gRPC binding of a site.
func serveGRPC(t *testing.T, s *site, options ...grpc.DialOption) (conn *grpc.ClientConn, stop func()) {
	t.Helper()
	return serveGRPCWithin(t, s, wire.Limits{}, options...)
}

// serveGRPCWithin is serveGRPC with the limits of the codecs.
func serveGRPCWithin(t *testing.T, s *site, limits wire.Limits, options ...grpc.DialOption) (conn *grpc.ClientConn, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() {
		calls := s.rpc.NewGRPC(v03.Proto{Codec: v03.Codec{Lenient: true, Limits: limits}, Parts: true}, v1.Codec{Limits: limits})
		if onSharedPort(t) {
			s.rpc.Share(calls)
			ended <- s.rpc.Serve(ctx, l, 20*time.Second)
		} else {
			ended <- calls.Serve(ctx, l, 20*time.Second)
		}
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	conn, err = grpc.NewClient(l.Addr().String(), append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); stop() })
	return conn, stop
}

// caller speaks one version over gRPC, in ProtoJSON.
type caller struct {
	t       *testing.T
	conn    *grpc.ClientConn
	service string
}

// method returns the path of a method and empty messages for it.
func (c caller) method(name string) (path string, req, resp proto.Message) {
	c.t.Helper()
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(c.service + "." + name))
	if err != nil {
		c.t.Fatal(err)
	}
	m := d.(protoreflect.MethodDescriptor)
	return "/" + c.service + "/" + name, c.message(m.Input()), c.message(m.Output())
}

func (c caller) message(d protoreflect.MessageDescriptor) proto.Message {
	c.t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		c.t.Fatal(err)
	}
	return kind.New().Interface()
}

func (c caller) params(req proto.Message, params string) {
	c.t.Helper()
	if err := protojson.Unmarshal([]byte(params), req); err != nil {
		c.t.Fatalf("%v: %s", err, params)
	}
}

// reply is what comes back beside an answer.
type reply struct{ header, trailer metadata.MD }

// challenges returns how to sign in. net/http sends them in no trailer.
func (r reply) challenges(t *testing.T) []string {
	t.Helper()
	return r.header["www-authenticate"]
}

// try calls a method with pairs of metadata.
func (c caller) try(name, params string, pairs ...string) (map[string]any, reply, *status.Status) {
	c.t.Helper()
	path, req, resp := c.method(name)
	c.params(req, params)
	var r reply
	ctx := metadata.AppendToOutgoingContext(c.t.Context(), pairs...)
	err := c.conn.Invoke(ctx, path, req, resp, grpc.Header(&r.header), grpc.Trailer(&r.trailer))
	return c.json(resp), r, status.Convert(err)
}

// call is try for calls that must succeed.
func (c caller) call(name, params string, pairs ...string) map[string]any {
	c.t.Helper()
	got, _, st := c.try(name, params, pairs...)
	if st.Code() != codes.OK {
		c.t.Fatalf("%s %s: %v", name, params, st)
	}
	return got
}

func (c caller) json(m proto.Message) map[string]any {
	c.t.Helper()
	text, err := protojson.Marshal(m)
	if err != nil {
		c.t.Fatal(err)
	}
	return object(c.t, parse(c.t, text))
}

// messages is an open stream.
type messages struct {
	caller
	stream grpc.ClientStream
	resp   func() proto.Message
	end    *status.Status // behind the last one
}

func (c caller) follow(ctx context.Context, name, params string, pairs ...string) *messages {
	c.t.Helper()
	path, req, resp := c.method(name)
	c.params(req, params)
	stream, err := c.conn.NewStream(metadata.AppendToOutgoingContext(ctx, pairs...), &grpc.StreamDesc{ServerStreams: true}, path)
	if err == nil {
		err = errors.Join(stream.SendMsg(req), stream.CloseSend())
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return &messages{caller: c, stream: stream, resp: func() proto.Message { return resp.ProtoReflect().New().Interface() }}
}

// next returns the next item, or nil at the end.
func (m *messages) next() map[string]any {
	m.t.Helper()
	resp := m.resp()
	err := m.stream.RecvMsg(resp)
	if err == nil {
		return m.json(resp)
	}
	if m.end = status.New(codes.OK, ""); !errors.Is(err, io.EOF) {
		m.end = status.Convert(err)
	}
	return nil
}

func (m *messages) all() (items []map[string]any) {
	m.t.Helper()
	for item := m.next(); item != nil; item = m.next() {
		items = append(items, item)
	}
	return items
}

// grpcDialect is how a version says over gRPC what the tests want to say.
type grpcDialect struct {
	service, subscribe, canceled string
	send                         func(task, ops string, wait bool) string
	ref                          func(task string) string
	push                         func(task string) string
	pushRef                      func(task string) string
	listPush, pushes             string
}

var grpcDialects = []grpcDialect{
	{
		service: service03, subscribe: "TaskSubscription", canceled: "TASK_STATE_CANCELLED",
		send: func(task, ops string, wait bool) string {
			return `{"message":{"messageId":"m","role":"ROLE_USER","taskId":"` + task + `","parts":[{"data":{"data":{"script":[` + ops + `]}}}]},"configuration":{"blocking":` + map[bool]string{true: "true", false: "false"}[wait] + `}}`
		},
		ref: func(task string) string { return `{"name":"tasks/` + task + `"}` },
		push: func(task string) string {
			return `{"parent":"tasks/` + task + `","configId":"p","config":{"pushNotificationConfig":{"url":"https://u","authentication":{"schemes":["Bearer"],"credentials":"s"}}}}`
		},
		pushRef:  func(task string) string { return `{"name":"tasks/` + task + `/pushNotificationConfigs/p"}` },
		listPush: "ListTaskPushNotificationConfig", pushes: "parent",
	},
	{
		service: service1, subscribe: "SubscribeToTask", canceled: "TASK_STATE_CANCELED",
		send: func(task, ops string, wait bool) string {
			return `{"message":{"messageId":"m","role":"ROLE_USER","taskId":"` + task + `","parts":[{"data":{"script":[` + ops + `]}}]},"configuration":{"returnImmediately":` + map[bool]string{true: "false", false: "true"}[wait] + `}}`
		},
		ref: func(task string) string { return `{"id":"` + task + `"}` },
		push: func(task string) string {
			return `{"taskId":"` + task + `","id":"p","url":"https://u","authentication":{"scheme":"Bearer","credentials":"s"}}`
		},
		pushRef:  func(task string) string { return `{"taskId":"` + task + `","id":"p"}` },
		listPush: "ListTaskPushNotificationConfigs", pushes: "taskId",
	},
}

// eachGRPC runs a scenario in both versions on one server.
func eachGRPC(t *testing.T, scenario func(t *testing.T, c caller, d grpcDialect)) {
	t.Helper()
	t.Parallel()
	_, conn, _ := openGRPC(t, func(*rpc.Config) {})
	for _, d := range grpcDialects {
		t.Run(d.service, func(t *testing.T) { scenario(t, caller{t, conn, d.service}, d) })
	}
}

func state(t *testing.T, task map[string]any) any {
	t.Helper()
	return object(t, task["status"])["state"]
}

func TestGRPCMethods(t *testing.T) {
	eachGRPC(t, func(t *testing.T, c caller, d grpcDialect) {
		done := object(t, c.call("SendMessage", d.send("", `{"op":"artifact","id":"a","text":"x"},{"op":"complete","text":"done"}`, true))["task"])
		if state(t, done) != completed {
			t.Fatalf("sent: %v", done)
		}
		equal(t, "the task as it is read", done, c.call("GetTask", d.ref(id(done))))
		asks := object(t, c.call("SendMessage", d.send("", `{"op":"input"}`, true))["task"])
		if state(t, asks) != inputRequired {
			t.Fatalf("sent: %v", asks)
		}
		set := c.call("CreateTaskPushNotificationConfig", d.push(id(asks)))
		if strings.Contains(strings.Join(slices.Collect(strings.Lines(dump(set))), ""), "credentials") {
			t.Errorf("a secret comes back: %v", set)
		}
		equal(t, "the webhook as it is read", set, c.call("GetTaskPushNotificationConfig", d.pushRef(id(asks))))
		parent := strings.NewReplacer(`"name"`, `"`+d.pushes+`"`, `"id"`, `"`+d.pushes+`"`).Replace(d.ref(id(asks)))
		equal(t, "the webhooks", map[string]any{"configs": []any{set}}, c.call(d.listPush, parent))
		equal(t, "a deleted webhook", map[string]any{}, c.call("DeleteTaskPushNotificationConfig", d.pushRef(id(asks))))
		equal(t, "no webhooks", map[string]any{}, c.call(d.listPush, parent))

		follower := c.follow(t.Context(), d.subscribe, d.ref(id(asks)))
		equal(t, "the first item of a subscription", map[string]any{"task": asks}, follower.next())
		items := c.follow(t.Context(), "SendStreamingMessage", d.send(id(asks), `{"op":"chunk","id":"a","n":2},{"op":"input"}`, true)).all()
		if len(items) != 5 || items[0]["task"] == nil || items[2]["artifactUpdate"] == nil || stateOf(items[4]) != inputRequired {
			t.Errorf("the turn: %v", items)
		}
		if final := object(t, items[4]["statusUpdate"])["final"]; (final == true) != (d.service == service03) {
			t.Errorf("the last event: %v", items[4])
		}
		if gone := c.call("CancelTask", d.ref(id(asks))); state(t, gone) != d.canceled {
			t.Errorf("canceled: %v", gone)
		}
		items = follower.all()
		if len(items) == 0 || stateOf(items[len(items)-1]) != d.canceled || follower.end.Code() != codes.OK {
			t.Errorf("the subscription: %v, %v", items, follower.end)
		}

		list := c.call("ListTasks", `{"pageSize":1}`)
		if tasks := list["tasks"].([]any); len(tasks) != 1 || parseInt(t, list["totalSize"]) < 2 || list["nextPageToken"] == "" {
			t.Errorf("listed: %v", list)
		}
		if list := c.call("ListTasks", `{"status":"`+d.canceled+`","contextId":"`+asks["contextId"].(string)+`"}`)["tasks"]; len(list.([]any)) != 1 {
			t.Errorf("canceled tasks: %v", list)
		}
	})
}

func dump(v any) string {
	switch v := v.(type) {
	case map[string]any:
		var b strings.Builder
		for k, member := range v {
			b.WriteString(k + " " + dump(member))
		}
		return b.String()
	case []any:
		var b strings.Builder
		for _, e := range v {
			b.WriteString(dump(e))
		}
		return b.String()
	case string:
		return v + "\n"
	}
	return ""
}

// wantStatus checks code and reason.
func wantStatus(t *testing.T, what string, st *status.Status, code codes.Code, reason string) {
	t.Helper()
	got := ""
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetDomain() == "a2a-protocol.org" {
			got = info.GetReason()
		}
	}
	if st.Code() != code || got != reason {
		t.Errorf("%s: %v with the reason %q, want %v with %q", what, st, got, code, reason)
	}
}

func TestGRPCErrors(t *testing.T) {
	eachGRPC(t, func(t *testing.T, c caller, d grpcDialect) {
		old := d.service == service03
		done := object(t, c.call("SendMessage", d.send("", `{"op":"complete"}`, true))["task"])
		extendedCard, unsupported, finished := "GetExtendedAgentCard", codes.FailedPrecondition, codes.FailedPrecondition
		cardReason := "UNSUPPORTED_OPERATION"
		if old {
			extendedCard, finished, cardReason = "GetAgentCard", codes.InvalidArgument, "EXTENDED_AGENT_CARD_NOT_CONFIGURED"
		}
		unknown := "01890000-0000-7000-8000-000000000000"
		for _, e := range []struct {
			name, params string
			code         codes.Code
			reason       string
		}{
			{"GetTask", d.ref(unknown), codes.NotFound, "TASK_NOT_FOUND"},
			{"GetTask", d.ref("nonsense"), codes.NotFound, "TASK_NOT_FOUND"},
			{"GetTask", `{}`, codes.InvalidArgument, "INVALID_PARAMS"},
			{"CancelTask", d.ref(unknown), codes.NotFound, "TASK_NOT_FOUND"},
			{"CancelTask", d.ref(id(done)), codes.FailedPrecondition, "TASK_NOT_CANCELABLE"},
			{"SendMessage", d.send(unknown, `{"op":"complete"}`, true), codes.NotFound, "TASK_NOT_FOUND"},
			{"SendMessage", d.send(id(done), `{"op":"complete"}`, true), finished, "UNSUPPORTED_OPERATION"},
			{"SendMessage", `{}`, codes.InvalidArgument, "INVALID_PARAMS"},
			{"SendMessage", `{"message":{"messageId":"m","role":"ROLE_USER"}}`, codes.InvalidArgument, "INVALID_PARAMS"},
			{"SendMessage", `{"message":{"messageId":"m","parts":[{"text":"x"}]}}`, codes.InvalidArgument, "INVALID_PARAMS"},
			{"CreateTaskPushNotificationConfig", d.push(unknown), codes.NotFound, "TASK_NOT_FOUND"},
			{"GetTaskPushNotificationConfig", d.pushRef(id(done)), codes.NotFound, "TASK_NOT_FOUND"},
			{"DeleteTaskPushNotificationConfig", d.pushRef(unknown), codes.NotFound, "TASK_NOT_FOUND"},
			{"ListTasks", `{"pageSize":101}`, codes.InvalidArgument, "INVALID_PARAMS"},
			{"ListTasks", `{"pageToken":"x"}`, codes.InvalidArgument, "INVALID_PARAMS"},
			{extendedCard, `{}`, unsupported, cardReason},
		} {
			_, r, st := c.try(e.name, e.params)
			wantStatus(t, e.name+" "+e.params, st, e.code, e.reason)
			if len(r.trailer["x-request-id"]) != 1 {
				t.Errorf("%s: no request id: %v", e.name, r.trailer)
			}
		}
		s := c.follow(t.Context(), d.subscribe, d.ref(unknown))
		if items := s.all(); len(items) != 0 {
			t.Errorf("a stream of an unknown task: %v", items)
		}
		wantStatus(t, "a stream of an unknown task", s.end, codes.NotFound, "TASK_NOT_FOUND")
		s = c.follow(t.Context(), d.subscribe, d.ref(id(done)))
		items := s.all()
		if old {
			if len(items) != 2 || s.end.Code() != codes.OK {
				t.Errorf("a stream of a finished task: %v, %v", items, s.end)
			}
		} else {
			wantStatus(t, "a stream of a finished task", s.end, codes.FailedPrecondition, "UNSUPPORTED_OPERATION")
		}
	})
}

func TestGRPCBlamesTheField(t *testing.T) {
	t.Parallel()
	_, conn, _ := openGRPC(t, func(*rpc.Config) {})
	_, _, st := caller{t, conn, service1}.try("SendMessage", `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"mediaType":"x"}]}}`)
	for _, d := range st.Details() {
		if bad, ok := d.(*errdetails.BadRequest); ok && bad.GetFieldViolations()[0].GetField() == "message.parts[0]" {
			return
		}
	}
	t.Errorf("%v", st.Proto())
}

// TestGRPCVersions: the service says which version a call is of, and metadata may not say another one.
func TestGRPCVersions(t *testing.T) {
	t.Parallel()
	_, conn, _ := openGRPC(t, func(*rpc.Config) {})
	for _, v := range []struct {
		service, version string
		fine             bool
	}{
		{service1, "1.0", true}, {service1, "1.0.1", true}, {service1, "", true}, {service1, "0.3", false}, {service1, "1.1", false}, {service1, "x", false},
		{service03, "0.3", true}, {service03, "0.3.0", true}, {service03, "1.0", false}, {service03, "9.9", false},
	} {
		_, _, st := caller{t, conn, v.service}.try("ListTasks", `{}`, "a2a-version", v.version)
		if v.fine && st.Code() != codes.OK {
			t.Errorf("%s with %q: %v", v.service, v.version, st)
		} else if !v.fine {
			wantStatus(t, v.service+" with "+v.version, st, codes.FailedPrecondition, "VERSION_NOT_SUPPORTED")
		}
	}
}

func TestGRPCErrorProfile(t *testing.T) {
	t.Parallel()
	_, conn, _ := openGRPC(t, func(c *rpc.Config) { c.ErrorProfile = rpc.Profile100 })
	c := caller{t, conn, service1}
	_, _, st := c.try("ListTasks", `{}`, "a2a-version", "99.0")
	wantStatus(t, "another version", st, codes.Unimplemented, "VERSION_NOT_SUPPORTED")
	_, _, st = c.try("GetExtendedAgentCard", `{}`)
	wantStatus(t, "no extended card", st, codes.Unimplemented, "UNSUPPORTED_OPERATION")
}

// TestGRPCResume: an item says by which id it can be resumed behind, to those who activated the extension, and a stream goes on
// behind it.
func TestGRPCResume(t *testing.T) {
	eachGRPC(t, func(t *testing.T, c caller, d grpcDialect) {
		s := c.follow(t.Context(), "SendStreamingMessage", d.send("", `{"op":"status","text":"on it"},{"op":"chunk","id":"a","n":3},{"op":"complete"}`, true), "a2a-extensions", resumeURI)
		all := s.all()
		header, err := s.stream.Header()
		if err != nil || !slices.Equal(header["a2a-extensions"], []string{resumeURI}) {
			t.Errorf("activated: %v, %v", header, err)
		}
		var ids []string
		for _, item := range all {
			for _, payload := range item {
				ids = append(ids, object(t, object(t, object(t, payload)["metadata"])[resumeURI])["eventId"].(string))
			}
		}
		if last := s.stream.Trailer()["last-event-id"]; !slices.Equal(last, ids[len(ids)-1:]) {
			t.Errorf("the trailer has %v of %v", last, ids)
		}
		task := d.ref(id(object(t, all[0]["task"])))
		for r := range len(ids) - 1 {
			again := c.follow(t.Context(), d.subscribe, task, "last-event-id", ids[r], "a2a-extensions", resumeURI).all()
			if d.service == service1 {
				if first := object(t, again[0]["task"]); len(again) != len(all)-r || object(t, object(t, first["metadata"])[resumeURI])["eventId"] != ids[r] {
					t.Fatalf("behind %s: %v", ids[r], again)
				}
				again = again[1:]
			}
			equal(t, "items behind "+ids[r], all[r+1:], again)
		}
		gap := c.follow(t.Context(), d.subscribe, task, "last-event-id", "3-00000000", "a2a-extensions", resumeURI).all()
		mark := object(t, object(t, object(t, gap[0]["task"])["metadata"])[resumeURI])
		if mark["gap"] != true || mark["eventId"] != ids[len(ids)-1] {
			t.Errorf("behind an event of another log: %v", gap[0])
		}
		for _, item := range c.follow(t.Context(), d.subscribe, task, "last-event-id", ids[0]).all() {
			if strings.Contains(dump(item), resumeURI) {
				t.Errorf("a mark for those who know nothing of it: %v", item)
			}
		}
	})
}

func TestGRPCIdempotency(t *testing.T) {
	eachGRPC(t, func(t *testing.T, c caller, d grpcDialect) {
		first := c.call("SendMessage", d.send("", `{"op":"complete"}`, true), "idempotency-key", d.service)
		equal(t, "a repeated send", first, c.call("SendMessage", d.send("", `{"op":"complete"}`, true), "idempotency-key", d.service))
		_, _, st := c.try("SendMessage", d.send("", `{"op":"fail"}`, true), "idempotency-key", d.service)
		wantStatus(t, "another message with the key", st, codes.InvalidArgument, "INVALID_PARAMS")
	})
}

// TestGRPCDrain: streams end with a word that they may be taken up again, calls are answered, and nothing is left.
func TestGRPCDrain(t *testing.T) {
	t.Parallel()
	drain, start := context.WithCancel(context.Background())
	_, conn, stop := openGRPC(t, func(c *rpc.Config) { c.Drain = drain })
	var streams []*messages
	for _, d := range grpcDialects {
		c := caller{t, conn, d.service}
		s := c.follow(t.Context(), "SendStreamingMessage", d.send("", `{"op":"chunk","id":"a","n":1},{"op":"hang"}`, true))
		for s.next()["artifactUpdate"] == nil {
			continue
		}
		streams = append(streams, s)
	}
	watch, err := grpc_health_v1.NewHealthClient(conn).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service1})
	if err != nil {
		t.Fatal(err)
	}
	if s, err := watch.Recv(); err != nil || s.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", s, err)
	}
	start()
	stop()
	for _, s := range streams {
		if rest := s.all(); len(rest) != 0 {
			t.Errorf("behind the drain: %v", rest)
		}
		wantStatus(t, s.service, s.end, codes.Unavailable, "UNAVAILABLE")
		if last := s.stream.Trailer()["last-event-id"]; len(last) != 1 || !strings.HasPrefix(last[0], "3-") {
			t.Errorf("last event %v", last)
		}
	}
	if s, err := watch.Recv(); err == nil && s.GetStatus() != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("health: %v", s)
	}
}

func TestGRPCHealthAndReflection(t *testing.T) {
	t.Parallel()
	_, conn, _ := openGRPC(t, func(*rpc.Config) {})
	for _, service := range []string{"", service03, service1} {
		s, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service})
		if err != nil || s.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("%q: %v, %v", service, s, err)
		}
	}
	info, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, ask := range []*grpc_reflection_v1.ServerReflectionRequest{
		{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}},
		{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: service1}},
		{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: service03}},
	} {
		if err := info.Send(ask); err != nil {
			t.Fatal(err)
		}
		got, err := info.Recv()
		if err != nil || got.GetErrorResponse() != nil {
			t.Fatalf("%v: %v, %v", ask, got, err)
		}
		if list := got.GetListServicesResponse(); list != nil && (!strings.Contains(list.String(), service03) || !strings.Contains(list.String(), `"`+service1)) {
			t.Errorf("services %v", list)
		}
	}
	if err := info.CloseSend(); err != nil {
		t.Error(err)
	}
}

func TestGRPCLimits(t *testing.T) {
	t.Parallel()
	_, conn, _ := openGRPC(t, func(c *rpc.Config) { c.MaxBody, c.MaxDepth = 4096, 16 })
	c := caller{t, conn, service1}
	text := func(n int) string {
		return `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"` + strings.Repeat("x", n) + `"}]}}`
	}
	if _, _, st := c.try("ListTasks", `{}`, "x-large", strings.Repeat("x", 64<<10)); st.Code() == codes.OK { // the client knows the size from the server
		t.Error("a large header is taken")
	}
	if _, _, st := c.try("ListTasks", `{}`); st.Code() != codes.OK {
		t.Errorf("the next call: %v", st)
	}
	if _, _, st := c.try("SendMessage", text(5000)); st.Code() != codes.ResourceExhausted {
		t.Errorf("a large message: %v", st)
	}
	s := c.follow(t.Context(), "SendStreamingMessage", text(5000))
	s.all()
	if s.end.Code() != codes.ResourceExhausted {
		t.Errorf("a large message that opens a stream: %v", s.end)
	}
	_, _, st := c.try("SendMessage", `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"data":`+strings.Repeat("[", 20)+strings.Repeat("]", 20)+`}]}}`)
	wantStatus(t, "deep data", st, codes.InvalidArgument, "INVALID_PARAMS")
}

// TestGRPCMalformed: what is no message is the caller's fault, and so is a text that is not UTF-8.
func TestGRPCMalformed(t *testing.T) {
	t.Parallel()
	_, conn, _ := openGRPC(t, func(*rpc.Config) {})
	path, _, resp := caller{t, conn, service03}.method("GetTask")
	err := conn.Invoke(t.Context(), path, wrapperspb.Bytes([]byte{0xff}), resp) // in place of the name
	wantStatus(t, "a name that is no text", status.Convert(err), codes.InvalidArgument, "PARSE_ERROR")
}

// TestGRPCStopsBeforeItBegins: the signal to stop may come first.
func TestGRPCStopsBeforeItBegins(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for range 20 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.rpc.NewGRPC(v1.Codec{}).Serve(ctx, l, time.Second); err != nil {
			t.Error(err)
		}
	}
}

// keyring knows callers by the text of their key.
type keyring struct{ auth.Anonymous }

func (keyring) Authenticate(r *http.Request) (auth.Principal, error) {
	name := r.Header.Get("X-API-Key")
	if name == "" {
		name = strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	}
	if name == "" {
		return auth.Principal{}, auth.ErrNoCredential
	}
	scopes := auth.Scopes()
	if name == "reader" {
		scopes = []auth.Scope{auth.ScopeTasksRead}
	}
	return auth.Principal{Tenant: "default", Owner: name, Kind: auth.KindUser, Scopes: scopes}, nil
}

func (keyring) Challenges() []string { return []string{`Bearer realm="a2ad"`} }

// TestGRPCCallers: nobody is served without credentials, and a foreign task is an unknown one.
func TestGRPCCallers(t *testing.T) {
	t.Parallel()
	_, conn, _ := openGRPC(t, func(c *rpc.Config) { c.Authenticator = auth.Chain{keyring{}} })
	for _, d := range grpcDialects {
		c := caller{t, conn, d.service}
		for _, name := range []string{
			"SendMessage", "GetTask", "ListTasks", "CancelTask", "CreateTaskPushNotificationConfig", "GetTaskPushNotificationConfig", d.listPush, "DeleteTaskPushNotificationConfig",
		} {
			_, r, st := c.try(name, `{}`)
			wantStatus(t, name+" without credentials", st, codes.Unauthenticated, "UNAUTHENTICATED")
			if got := r.challenges(t); !slices.Equal(got, []string{`Bearer realm="a2ad"`}) {
				t.Errorf("%s: challenges %v of %v", name, got, r.trailer)
			}
		}
		for _, name := range []string{"SendStreamingMessage", d.subscribe} {
			s := c.follow(t.Context(), name, `{}`)
			s.all()
			wantStatus(t, name+" without credentials", s.end, codes.Unauthenticated, "UNAUTHENTICATED")
		}
		made := object(t, c.call("SendMessage", d.send("", `{"op":"input"}`, true), "x-api-key", "alice")["task"])
		for _, pairs := range [][]string{{"authorization", "Bearer alice"}, {"x-api-key", "alice"}} {
			equal(t, "the task for its owner", made, c.call("GetTask", d.ref(id(made)), pairs...))
		}
		for name, params := range map[string]string{
			"GetTask": d.ref(id(made)), "CancelTask": d.ref(id(made)), "SendMessage": d.send(id(made), `{"op":"complete"}`, true),
			"CreateTaskPushNotificationConfig": d.push(id(made)), "GetTaskPushNotificationConfig": d.pushRef(id(made)), "DeleteTaskPushNotificationConfig": d.pushRef(id(made)),
		} {
			_, _, st := c.try(name, params, "x-api-key", "bob")
			wantStatus(t, name+" of a foreign task", st, codes.NotFound, "TASK_NOT_FOUND")
		}
		s := c.follow(t.Context(), d.subscribe, d.ref(id(made)), "x-api-key", "bob")
		s.all()
		wantStatus(t, "a stream of a foreign task", s.end, codes.NotFound, "TASK_NOT_FOUND")
		if list := c.call("ListTasks", `{}`, "x-api-key", "bob"); list["tasks"] != nil {
			t.Errorf("bob's tasks: %v", list)
		}
		_, r, st := c.try("SendMessage", d.send("", `{"op":"complete"}`, true), "x-api-key", "reader")
		wantStatus(t, "a send without the scope", st, codes.PermissionDenied, "FORBIDDEN")
		if len(r.challenges(t)) != 1 {
			t.Errorf("challenges %v", r.trailer)
		}
	}
}

// TestGRPCTenants: requests of 1.0 name an agent by the tenant that its card has.
func TestGRPCTenants(t *testing.T) {
	t.Parallel()
	s, conn, _ := openGRPC(t, func(c *rpc.Config) {
		c.GRPCAddress = "grpc.example:443"
		c.Agents = append(c.Agents, &a2a.Agent{Name: "other"})
	})
	c := caller{t, conn, service1}
	made := object(t, c.call("SendMessage", strings.Replace(grpcDialects[1].send("", "", false), `{`, `{"tenant":"other",`, 1))["task"])
	c.call("GetTask", `{"tenant":"other","id":"`+id(made)+`"}`)
	_, _, st := c.try("GetTask", `{"id":"`+id(made)+`"}`)
	wantStatus(t, "the task of another agent", st, codes.NotFound, "TASK_NOT_FOUND")
	_, _, st = c.try("GetTask", `{"tenant":"nobody","id":"`+id(made)+`"}`)
	wantStatus(t, "an unknown agent", st, codes.InvalidArgument, "INVALID_PARAMS")

	at := func(path string) (found []string) {
		resp, err := s.Client().Get(s.URL + path + "/.well-known/agent-card.json")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		card, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		for i := range rawjson.Elements(rawjson.Get(card, "supportedInterfaces")) {
			if string(rawjson.Get(i, "protocolBinding")) == `"GRPC"` {
				found = append(found, string(rawjson.Get(i, "url"))+string(rawjson.Get(i, "protocolVersion"))+string(rawjson.Get(i, "tenant")))
			}
		}
		for i := range rawjson.Elements(rawjson.Get(card, "additionalInterfaces")) {
			if string(rawjson.Get(i, "transport")) == `"GRPC"` {
				found = append(found, "0.3: "+string(rawjson.Get(i, "url")))
			}
		}
		return found
	}
	equal(t, "the card of the default agent", []string{`"grpc.example:443""1.0"`, `"grpc.example:443""0.3"`, `0.3: "grpc.example:443"`}, at(""))
	equal(t, "the card of another agent", []string{`"grpc.example:443""1.0""other"`}, at("/agents/other"))
	plain := newSite(t)
	s = plain
	equal(t, "the card without gRPC", []string(nil), at(""))
}

// TestGRPCSlowReader: who reads nothing is cut off, and can go on after the last item that it has read.
func TestGRPCSlowReader(t *testing.T) {
	t.Parallel()
	site, conn, _ := openGRPC(t, func(c *rpc.Config) { c.SSEWriteTimeout = 200 * time.Millisecond }, grpc.WithInitialWindowSize(64<<10))
	for _, d := range grpcDialects {
		c := caller{t, conn, d.service}
		s := c.follow(t.Context(), "SendStreamingMessage", d.send("", `{"op":"chunk","id":"a","n":200,"bytes":20000},{"op":"complete"}`, true), "a2a-extensions", resumeURI)
		first := s.next()
		made := object(t, first["task"])
		eventually(t, "the stream is cut off", func() bool { return site.engine.Streams() == 0 })
		items := append([]map[string]any{first}, s.all()...)
		if s.end.Code() != codes.Internal || len(items) >= 203 { // a status would have to wait for what the client does not read
			t.Errorf("%d items, %v", len(items), s.end)
		}
		for n := 0; s.end.Code() == codes.Internal && n < 200; n++ { // more than once, on a machine that is busy
			s = c.follow(t.Context(), d.subscribe, d.ref(id(made)), "last-event-id", eventOf(t, items[len(items)-1]), "a2a-extensions", resumeURI)
			next := s.all()
			if d.service == service1 && len(next) > 0 {
				next = next[1:] // the Task as of that event
			}
			items = append(items, next...)
		}
		if len(items) != 203 || s.end.Code() != codes.OK {
			t.Errorf("%d items, %v", len(items), s.end)
		}
	}
}

// eventOf returns the id that an item of a stream is marked with.
func eventOf(t *testing.T, item map[string]any) string {
	t.Helper()
	for _, payload := range item {
		return object(t, object(t, object(t, payload)["metadata"])[resumeURI])["eventId"].(string)
	}
	return ""
}

// eventually waits for what the test has no other way to learn of.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	tick, limit := time.NewTicker(5*time.Millisecond), time.NewTimer(time.Minute)
	defer tick.Stop()
	defer limit.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatal("never: " + what)
		}
	}
}

// TestGRPCClientGone: the end of a client ends its stream and nothing else.
func TestGRPCClientGone(t *testing.T) {
	t.Parallel()
	site, conn, _ := openGRPC(t, func(*rpc.Config) {})
	ctx, leave := context.WithCancel(t.Context())
	c, d := caller{t, conn, service1}, grpcDialects[1]
	s := c.follow(ctx, "SendStreamingMessage", d.send("", `{"op":"chunk","id":"a","n":1},{"op":"hang"}`, true))
	made := object(t, s.next()["task"])
	leave()
	eventually(t, "the stream ends", func() bool { return site.engine.Streams() == 0 })
	if state(t, c.call("GetTask", d.ref(id(made)))) == d.canceled {
		t.Error("the task is canceled")
	}
}
