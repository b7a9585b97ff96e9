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

// This file serves gRPC calls, either on the port of the API or on a separate port (decision 49).
// On a shared port, the content type distinguishes calls from other requests. The HTTP server owns
// the connections in both cases, so its limits, certificates and shutdown apply to calls too.

// Share makes Serve answer calls to b too: over TLS if the client chooses HTTP/2, and without TLS
// if the client speaks HTTP/2 from the start. Call it before Serve. b must not be served elsewhere.
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

// Sizes of the receive buffers of one HTTP/2 connection. The memory budget does not count them, so
// they are small. A connection itself takes a third of that.
const (
	connBuffer   = 256 << 10
	streamBuffer = 128 << 10
)

// handler answers calls.
func (b *GRPC) handler() http.Handler { return b.s.guarded(http.HandlerFunc(b.serveCall)) }

// Serve answers calls on l until ctx is done. Then it accepts no new connections, lets the calls in
// flight finish for up to grace, and returns. Streams end by themselves when Drain does.
func (b *GRPC) Serve(ctx context.Context, l net.Listener, grace time.Duration) error {
	calls := b.handler()
	only := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isCall(r) {
			calls.ServeHTTP(w, r)
		} else {
			writePlain(w, http.StatusUnsupportedMediaType, "this port is for gRPC only")
		}
	})
	return b.s.serve(ctx, l, grace, endpoint{only, b, maxCallStreams, &b.accepting})
}

// enableHTTP2 makes a server accept HTTP/2, with a limit on the streams of one connection.
func (s *Server) enableHTTP2(srv *http.Server, streams int) {
	srv.Protocols = new(http.Protocols)
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetHTTP2(true)
	srv.Protocols.SetUnencryptedHTTP2(s.cfg.TLS == nil)
	srv.HTTP2 = &http.HTTP2Config{
		MaxConcurrentStreams: streams, MaxReceiveBufferPerConnection: connBuffer,
		MaxReceiveBufferPerStream: streamBuffer,
		// Like the pings of event streams, these find connections whose client vanished.
		SendPingTimeout: s.cfg.SSEPing, PingTimeout: s.cfg.SSEWriteTimeout,
		// a client that does not read its connection cannot be told that a stream was reset
		WriteByteTimeout: s.cfg.WriteTimeout,
	}
}

// Requests and calls in flight on one HTTP/2 connection.
const (
	maxSharedStreams = 250
	// on a port for gRPC only, where a proxy may send the calls of many clients over one connection
	maxCallStreams = 1000
)

// isCall reports whether a request is a gRPC call.
func isCall(r *http.Request) bool {
	const kind = "application/grpc"
	rest, ok := strings.CutPrefix(r.Header.Get("Content-Type"), kind)
	return ok && r.ProtoMajor == 2 && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// serveCall answers a call that arrived as a request of the HTTP server.
func (b *GRPC) serveCall(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	if err := rc.SetWriteDeadline(time.Time{}); err != nil { // the deadline is for an answer, and a stream lasts longer
		b.s.writePlainError(w, http.StatusInternalServerError)
		return
	}
	wire := callWire{
		in: newCallBody(r, b.s.cfg.MaxBody, func() {
			rc.SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // otherwise the read timeout ends the read
		}),
		out: &callWriter{ResponseWriter: w, rc: rc, limit: b.s.cfg.SSEWriteTimeout},
	}
	if !b.ours(r.URL.Path) { // health and reflection, which need no credentials, and unknown paths
		lease := b.s.cfg.Budget.Open(budget.Owner{})
		defer lease.Release()
		defer wire.in.finish() //nolint:errcheck // the refusal has ended the call already
		wire.in.several, wire.in.most = true, max(b.s.cfg.MaxBody, budget.Small)
		wire.in.pay(lease)
	}
	r = r.WithContext(context.WithValue(r.Context(), wireKey{}, wire))
	r.Body = wire.in
	b.server.ServeHTTP(wire.out, r)
}

// ours reports whether a path names a method of A2A.
func (b *GRPC) ours(path string) bool {
	service, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return slices.Contains(b.services, service)
}

// end waits for the calls in flight, and then ends all others. The HTTP server accepts no new ones
// meanwhile, and closes closed when no connection is left.
func (b *GRPC) end(end context.Context, closed <-chan struct{}) {
	b.health.Shutdown()
	b.waitForCalls(end, closed)
	b.server.Stop()
}

// waitForCalls waits until the calls in flight have finished, closed is closed or end ends. Calls
// of other services, such as a health watch, never end by themselves, so they only get a moment.
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
