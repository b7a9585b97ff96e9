package rpc

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"github.com/a2ad/a2ad/internal/wire"
	"github.com/a2ad/a2ad/internal/wire/transcode"
)

const foreignCallTime = time.Second // for calls of other services, such as health, when the server stops

// GRPC is the gRPC binding of a Server. Use NewGRPC.
type GRPC struct {
	s         *Server
	server    *grpc.Server
	health    *health.Server
	calls     *inFlight
	accepting atomic.Bool
	services  []string // full names of the A2A services
}

// NewGRPC returns the gRPC binding of s, with one service for each codec. The codecs must write
// ProtoJSON. It does not listen yet.
func (s *Server) NewGRPC(codecs ...wire.Codec) *GRPC {
	b := &GRPC{s: s, health: health.NewServer(), calls: newInFlight()}
	b.server = grpc.NewServer(
		grpc.ForceServerCodecV2(grpcCodec{encoding.GetCodecV2("proto")}),
		grpc.MaxRecvMsgSize(int(s.cfg.MaxBody)),
		grpc.WaitForHandlers(true),
	)
	for _, service := range []*transcode.Service{transcode.V03(), transcode.V1()} {
		for _, c := range codecs {
			if c.Version() == service.Version {
				b.register(service, &generation{Codec: c, pack: service.Pack})
			}
		}
	}
	grpc_health_v1.RegisterHealthServer(b.server, b.health)
	reflection.Register(b.server)
	return b
}

// register adds the service of one generation. All methods are handled alike, so the generated
// handlers are not needed.
func (b *GRPC) register(service *transcode.Service, gen *generation) {
	desc := grpc.ServiceDesc{ServiceName: service.Name, HandlerType: (*any)(nil), Metadata: service.File}
	for i := range service.Methods {
		m := &service.Methods[i]
		// Methods with a single answer are registered as streams too, which is the same on the
		// wire. For any other kind gRPC would read the request, without our memory limit, before
		// the handler knows the caller.
		desc.Streams = append(desc.Streams, grpc.StreamDesc{
			StreamName: m.Name, ServerStreams: m.Stream,
			Handler: func(_ any, stream grpc.ServerStream) error {
				f := &grpcFront{b: b, m: m, stream: stream}
				b.observe(stream.Context(), f, gen, stream.RecvMsg)
				return f.err
			},
		})
	}
	b.server.RegisterService(&desc, b)
	b.services = append(b.services, service.Name)
	b.health.SetServingStatus(service.Name, grpc_health_v1.HealthCheckResponse_SERVING)
}

// observe runs one call. It gives the call an id and one log line, and recovers from a panic.
func (b *GRPC) observe(ctx context.Context, f *grpcFront, gen *generation, read func(any) error) {
	defer b.calls.enter()()
	start := time.Now()
	rec := &record{id: newRequestID(), route: routeGRPC, method: f.m.Name, version: gen.Version()}
	header := headerOf(ctx)
	ctx = b.s.begin(ctx, rec, header)
	defer func() {
		if v := recover(); v != nil {
			rec.err, rec.failed = fmt.Errorf("panic: %v", v), true
			b.s.cfg.Logger.ErrorContext(ctx, "handler panicked", "request_id", rec.id, "panic", fmt.Sprint(v),
				"stack", string(debug.Stack()))
			f.err = status.Error(codes.Internal, "Internal error")
		}
		b.s.logCall(ctx, rec, status.Code(f.err), time.Since(start))
		b.s.answered(rec, 0, status.Code(f.err).String(), start)
	}()
	f.serve(ctx, rec, gen, header, read)
}

// logCall writes the one log line of a call.
func (s *Server) logCall(ctx context.Context, rec *record, code codes.Code, took time.Duration) {
	level := slog.LevelInfo
	if code == codes.Internal || code == codes.Unknown {
		level = slog.LevelError
	}
	if !s.cfg.Logger.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{slog.String("request_id", rec.id), slog.String("grpc_status", code.String()),
		slog.Float64("ms", float64(took.Microseconds())/1000)}
	s.cfg.Logger.LogAttrs(ctx, level, "call", append(attrs, rec.attrs()...)...)
}

// Accepting reports whether Serve is running.
func (b *GRPC) Accepting() bool { return b.accepting.Load() }

// inFlight counts calls.
type inFlight struct {
	mu    sync.Mutex
	n     int           // guarded by mu
	empty chan struct{} // guarded by mu; closed while n is 0
}

func newInFlight() *inFlight {
	f := &inFlight{empty: make(chan struct{})}
	close(f.empty)
	return f
}

func (f *inFlight) enter() (leave func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n++; f.n == 1 {
		f.empty = make(chan struct{})
	}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.n--; f.n == 0 {
			close(f.empty)
		}
	}
}

// idle returns a channel that is closed once no calls are in flight.
func (f *inFlight) idle() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.empty
}
