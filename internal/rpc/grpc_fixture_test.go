package rpc_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/a2ad/a2ad/internal/engine"
	"github.com/a2ad/a2ad/internal/rpc"
	"github.com/a2ad/a2ad/internal/wire"
	"github.com/a2ad/a2ad/internal/wire/v03"
	v1 "github.com/a2ad/a2ad/internal/wire/v1"
)

// openGRPC is newSiteWith with a listener for gRPC. stop ends the listener, and returns when it has
// ended.
func openGRPC(t *testing.T, change func(*rpc.Config),
	options ...grpc.DialOption) (s *site, conn *grpc.ClientConn, stop func()) {
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
func serveGRPCWithin(t *testing.T, s *site, limits wire.Limits,
	options ...grpc.DialOption) (conn *grpc.ClientConn, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() {
		calls := s.rpc.NewGRPC(v03.Proto{Codec: v03.Codec{Lenient: true, Limits: limits}, Parts: true},
			v1.Codec{Limits: limits})
		if onSharedPort(t) {
			s.rpc.Share(calls)
			ended <- s.rpc.Serve(ctx, l, 5*time.Minute)
		} else {
			ended <- calls.Serve(ctx, l, 5*time.Minute)
		}
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	conn, err = grpc.NewClient(l.Addr().String(),
		append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
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

// reply is the metadata of an answer.
type reply struct{ header, trailer metadata.MD }

// challenges returns the WWW-Authenticate values. net/http cannot send them in a trailer.
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
	end    *status.Status // set after the last item
}

func (c caller) follow(ctx context.Context, name, params string, pairs ...string) *messages {
	c.t.Helper()
	path, req, resp := c.method(name)
	c.params(req, params)
	stream, err := c.conn.NewStream(metadata.AppendToOutgoingContext(ctx, pairs...),
		&grpc.StreamDesc{ServerStreams: true}, path)
	if err == nil {
		err = errors.Join(stream.SendMsg(req), stream.CloseSend())
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return &messages{caller: c, stream: stream, resp: func() proto.Message {
		return resp.ProtoReflect().New().Interface()
	}}
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

// grpcDialect is how a version expresses the requests of the tests over gRPC.
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
			return `{"message":{"messageId":"m","role":"ROLE_USER","taskId":"` + task +
				`","parts":[{"data":{"data":{"script":[` + ops + `]}}}]},"configuration":{"blocking":` +
				map[bool]string{true: "true", false: "false"}[wait] + `}}`
		},
		ref: func(task string) string { return `{"name":"tasks/` + task + `"}` },
		push: func(task string) string {
			return `{"parent":"tasks/` + task + `","configId":"p","config":{"pushNotificationConfig":` +
				`{"url":"https://u","authentication":{"schemes":["Bearer"],"credentials":"s"}}}}`
		},
		pushRef:  func(task string) string { return `{"name":"tasks/` + task + `/pushNotificationConfigs/p"}` },
		listPush: "ListTaskPushNotificationConfig", pushes: "parent",
	},
	{
		service: service1, subscribe: "SubscribeToTask", canceled: "TASK_STATE_CANCELED",
		send: func(task, ops string, wait bool) string {
			return `{"message":{"messageId":"m","role":"ROLE_USER","taskId":"` + task +
				`","parts":[{"data":{"script":[` + ops + `]}}]},"configuration":{"returnImmediately":` +
				map[bool]string{true: "false", false: "true"}[wait] + `}}`
		},
		ref: func(task string) string { return `{"id":"` + task + `"}` },
		push: func(task string) string {
			return `{"taskId":"` + task +
				`","id":"p","url":"https://u","authentication":{"scheme":"Bearer","credentials":"s"}}`
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

// eventOf returns the id in the mark of an item.
func eventOf(t *testing.T, item map[string]any) string {
	t.Helper()
	for _, payload := range item {
		return object(t, object(t, object(t, payload)["metadata"])[resumeURI])["eventId"].(string)
	}
	return ""
}

// eventually polls, for conditions that nothing announces.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	tick, limit := time.NewTicker(5*time.Millisecond), time.NewTimer(5*time.Minute)
	defer tick.Stop()
	defer limit.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatal("timed out waiting until " + what)
		}
	}
}
