package rpc_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/a2ad/a2ad/internal/rpc"
	v1 "github.com/a2ad/a2ad/internal/wire/v1"
)

// TestGRPCResume: with the extension, each item has the id after which the client can resume.
func TestGRPCResume(t *testing.T) {
	eachGRPC(t, func(t *testing.T, c caller, d grpcDialect) {
		s := c.follow(t.Context(), "SendStreamingMessage",
			d.send("", `{"op":"status","text":"on it"},{"op":"chunk","id":"a","n":3},{"op":"complete"}`, true),
			"a2a-extensions", resumeURI)
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
			again := c.follow(t.Context(), d.subscribe, task, "last-event-id", ids[r], "a2a-extensions",
				resumeURI).all()
			if d.service == service1 {
				first := object(t, again[0]["task"])
				if len(again) != len(all)-r || object(t, object(t, first["metadata"])[resumeURI])["eventId"] != ids[r] {
					t.Fatalf("after %s: got %v", ids[r], again)
				}
				again = again[1:]
			}
			equal(t, "items after "+ids[r], all[r+1:], again)
		}
		gap := c.follow(t.Context(), d.subscribe, task, "last-event-id", "3-00000000", "a2a-extensions",
			resumeURI).all()
		mark := object(t, object(t, object(t, gap[0]["task"])["metadata"])[resumeURI])
		if mark["gap"] != true || mark["eventId"] != ids[len(ids)-1] {
			t.Errorf("after an event of another log: got %v", gap[0])
		}
		for _, item := range c.follow(t.Context(), d.subscribe, task, "last-event-id", ids[0]).all() {
			if strings.Contains(dump(item), resumeURI) {
				t.Errorf("a mark without the extension: %v", item)
			}
		}
	})
}

// TestGRPCDrain: streams end with a status that tells the client to resume, and calls in flight are
// answered.
func TestGRPCDrain(t *testing.T) {
	t.Parallel()
	drain, start := context.WithCancel(context.Background())
	_, conn, stop := openGRPC(t, func(c *rpc.Config) { c.Drain = drain })
	var streams []*messages
	for _, d := range grpcDialects {
		c := caller{t, conn, d.service}
		s := c.follow(t.Context(), "SendStreamingMessage",
			d.send("", `{"op":"chunk","id":"a","n":1},{"op":"hang"}`, true))
		for s.next()["artifactUpdate"] == nil {
			continue
		}
		streams = append(streams, s)
	}
	watch, err := grpc_health_v1.NewHealthClient(conn).Watch(t.Context(),
		&grpc_health_v1.HealthCheckRequest{Service: service1})
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
			t.Errorf("after the drain: got %v", rest)
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
		s, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(),
			&grpc_health_v1.HealthCheckRequest{Service: service})
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
		{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_FileContainingSymbol{
			FileContainingSymbol: service1}},
		{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_FileContainingSymbol{
			FileContainingSymbol: service03}},
	} {
		if err := info.Send(ask); err != nil {
			t.Fatal(err)
		}
		got, err := info.Recv()
		if err != nil || got.GetErrorResponse() != nil {
			t.Fatalf("%v: %v, %v", ask, got, err)
		}
		list := got.GetListServicesResponse()
		if list != nil && (!strings.Contains(list.String(), service03) ||
			!strings.Contains(list.String(), `"`+service1)) {
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
	// The client knows the size from the server.
	if _, _, st := c.try("ListTasks", `{}`, "x-large", strings.Repeat("x", 64<<10)); st.Code() == codes.OK {
		t.Error("a large header was accepted")
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
	_, _, st := c.try("SendMessage", `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"data":`+
		strings.Repeat("[", 20)+strings.Repeat("]", 20)+`}]}}`)
	wantStatus(t, "deep data", st, codes.InvalidArgument, "INVALID_PARAMS")
}

// TestGRPCStopsIfCanceledBeforeServe: the signal to stop may come before Serve.
func TestGRPCStopsIfCanceledBeforeServe(t *testing.T) {
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

// TestGRPCSlowReader: the server ends the stream of a client that does not read. The client can
// resume after the last item that it received.
func TestGRPCSlowReader(t *testing.T) {
	t.Parallel()
	var cfg *rpc.Config
	site, conn, _ := openGRPC(t, func(c *rpc.Config) {
		c.SSEWriteTimeout = 2 * time.Second
		cfg = c
	}, grpc.WithInitialWindowSize(64<<10))
	patient := *cfg // another server, which does not cut off a client that a busy machine delays
	patient.SSEWriteTimeout = 5 * time.Minute
	s, err := rpc.New(patient)
	if err != nil {
		t.Fatal(err)
	}
	other := *site
	other.rpc = s
	again, _ := serveGRPC(t, &other, grpc.WithInitialWindowSize(64<<10))
	for _, d := range grpcDialects {
		c := caller{t, conn, d.service}
		s := c.follow(t.Context(), "SendStreamingMessage",
			d.send("", `{"op":"chunk","id":"a","n":200,"bytes":20000},{"op":"complete"}`, true),
			"a2a-extensions", resumeURI)
		first := s.next()
		made := object(t, first["task"])
		eventually(t, "the stream is cut off", func() bool { return site.engine.Streams() == 0 })
		items := append([]map[string]any{first}, s.all()...)
		// A status would have to wait until the client reads.
		if s.end.Code() != codes.Internal || len(items) >= 203 {
			t.Errorf("%d items, %v", len(items), s.end)
		}
		s = caller{t, again, d.service}.follow(t.Context(), d.subscribe, d.ref(id(made)),
			"last-event-id", eventOf(t, items[len(items)-1]), "a2a-extensions", resumeURI)
		next := s.all()
		if d.service == service1 && len(next) > 0 {
			next = next[1:] // the Task as of that event
		}
		items = append(items, next...)
		if len(items) != 203 || s.end.Code() != codes.OK {
			t.Errorf("%d items, %v", len(items), s.end)
		}
	}
}

// TestGRPCClientDisconnects: when a client disconnects only its own stream ends.
func TestGRPCClientDisconnects(t *testing.T) {
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
