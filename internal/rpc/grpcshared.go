package rpc

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/budget"
)

// This file is how calls are served: on the port of the API, where a call is told from other requests by its content
// type, or on one of their own (decision 49). The HTTP server owns the connections either way, so its limits, certificates
// and shutdown hold for calls too.

// Share has Serve answer calls to b too: over TLS where the client chooses HTTP/2, and without TLS to clients that speak
// HTTP/2 from the start. It must come before Serve, and b must not be served elsewhere.
func (s *Server) Share(b *GRPC) {
	s.shared = b
	own, calls := s.handler, b.handler()
	s.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isCall(r) {
			calls.ServeHTTP(w, r)
		} else {
			own.ServeHTTP(w, r)
		}
	})
}

// The buffers of one connection over HTTP/2 for what has come and was not read yet. Nobody pays for them, so they are small: a
// connection itself takes a third of that.
const (
	connBuffer   = 256 << 10
	streamBuffer = 128 << 10
)

// handler answers calls.
func (b *GRPC) handler() http.Handler { return b.s.guarded(http.HandlerFunc(b.serveCall)) }

// Serve answers on l, where there is nothing but calls, until ctx is done. Then it takes no new ones, lets those in flight
// be answered, for up to grace, and returns. Streams end by themselves when Drain does.
func (b *GRPC) Serve(ctx context.Context, l net.Listener, grace time.Duration) error {
	calls := b.handler()
	only := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isCall(r) {
			calls.ServeHTTP(w, r)
		} else {
			writePlain(w, http.StatusUnsupportedMediaType, "this is the port of gRPC")
		}
	})
	return b.s.serve(ctx, l, grace, endpoint{only, b, maxCallStreams, &b.accepting})
}

// enableHTTP2 has a server take calls, at most so many at once on a connection.
func (s *Server) enableHTTP2(srv *http.Server, streams int) {
	srv.Protocols = new(http.Protocols)
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetHTTP2(true)
	srv.Protocols.SetUnencryptedHTTP2(s.cfg.TLS == nil)
	srv.HTTP2 = &http.HTTP2Config{
		MaxConcurrentStreams: streams, MaxReceiveBufferPerConnection: connBuffer, MaxReceiveBufferPerStream: streamBuffer,
		// What pings are for event streams: a connection whose client is gone without a word is found out and ended.
		SendPingTimeout: s.cfg.SSEPing, PingTimeout: s.cfg.SSEWriteTimeout,
		WriteByteTimeout: s.cfg.WriteTimeout, // a client that does not read its connection can be told of no stream that was reset
	}
}

// Requests and calls that may be in flight on one connection over HTTP/2.
const (
	maxSharedStreams = 250
	maxCallStreams   = 1000 // on a port of gRPC's own: a proxy may bring the calls of many clients on one connection
)

// isCall reports whether a request is a call of gRPC.
func isCall(r *http.Request) bool {
	const kind = "application/grpc"
	rest, ok := strings.CutPrefix(r.Header.Get("Content-Type"), kind)
	return ok && r.ProtoMajor == 2 && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// serveCall answers a call that came as a request of the HTTP server.
func (b *GRPC) serveCall(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	if err := rc.SetWriteDeadline(time.Time{}); err != nil { // that of an answer, which a stream outlives
		b.s.writePlainError(w, http.StatusInternalServerError)
		return
	}
	wire := callWire{
		in: newCallBody(r, b.s.cfg.MaxBody, func() {
			rc.SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // then the read timeout ends it
		}),
		out: &callWriter{ResponseWriter: w, rc: rc, limit: b.s.cfg.SSEWriteTimeout},
	}
	if !b.ours(r.URL.Path) { // health and reflection, which need no credentials, and what there is not
		lease := b.s.cfg.Budget.Open(budget.Owner{})
		defer lease.Release()
		defer wire.in.finish() //nolint:errcheck // its refusal ended the call
		wire.in.several, wire.in.most = true, max(b.s.cfg.MaxBody, budget.Small)
		wire.in.pay(lease)
	}
	r = r.WithContext(context.WithValue(r.Context(), wireKey{}, wire))
	r.Body = wire.in
	b.server.ServeHTTP(wire.out, r)
}

// ours reports whether a path is that of a method of A2A.
func (b *GRPC) ours(path string) bool {
	service, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return slices.Contains(b.services, service)
}

// end lets the calls in flight be answered, and ends those that are not of ours. The HTTP server takes no new ones
// meanwhile, and closes idle when it has no connection any more.
func (b *GRPC) end(end context.Context, closed <-chan struct{}) {
	b.health.Shutdown()
	b.waitForCalls(end, closed)
	b.server.Stop()
}

// settle waits until the calls in flight have ended, or until stopped or the end. Calls that are not of ours, such as those
// who watch the health, end by themselves never, and have a moment.
func (b *GRPC) waitForCalls(end context.Context, closed <-chan struct{}) {
	select {
	case <-closed:
	case <-end.Done():
	case <-b.calls.idle():
		foreign := time.NewTimer(foreignCallTime)
		defer foreign.Stop()
		select {
		case <-closed:
		case <-end.Done():
		case <-foreign.C:
		}
	}
}
