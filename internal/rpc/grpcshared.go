package rpc

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

// This file is gRPC on the port of the API, where a call is told from other requests by its content type (decision 49).
// The HTTP server owns the connections there, so its limits, certificates and shutdown hold for calls too. What gRPC's own
// server does beyond that and net/http does not, is done here: it bounds what one call may send, and each write.

// Share has Serve answer calls to b too: over TLS where the client chooses HTTP/2, and without TLS to clients that speak
// HTTP/2 from the start. It must come before Serve, and b must not be served elsewhere.
func (s *Server) Share(b *GRPC) {
	s.shared, b.shared = b, true
	own, calls := s.handler, s.guarded(http.HandlerFunc(b.serveShared))
	s.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isCall(r) {
			calls.ServeHTTP(w, r)
		} else {
			own.ServeHTTP(w, r)
		}
	})
}

// speakHTTP2 has a server take calls.
func (s *Server) speakHTTP2(srv *http.Server) {
	srv.Protocols = new(http.Protocols)
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetHTTP2(true)
	srv.Protocols.SetUnencryptedHTTP2(s.cfg.TLS == nil)
	// What pings are for event streams: a connection whose client is gone without a word is found out and ended.
	srv.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: maxSharedStreams, SendPingTimeout: s.cfg.SSEPing, PingTimeout: s.cfg.SSEWriteTimeout}
}

// maxSharedStreams is how many requests and calls may be in flight on one connection over HTTP/2. Each may hold a request
// of A2AD_MAX_BODY.
const maxSharedStreams = 250

// isCall reports whether a request is a call of gRPC.
func isCall(r *http.Request) bool {
	const kind = "application/grpc"
	rest, ok := strings.CutPrefix(r.Header.Get("Content-Type"), kind)
	return ok && r.ProtoMajor == 2 && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// serveShared answers a call that came as a request of the HTTP server.
func (b *GRPC) serveShared(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	if err := rc.SetWriteDeadline(time.Time{}); err != nil { // that of an answer, which a stream outlives
		b.s.writePlainError(w, http.StatusInternalServerError)
		return
	}
	r.Body = &callBody{ReadCloser: r.Body, left: b.s.cfg.MaxBody + messagePrefix}
	b.server.ServeHTTP(&callWriter{ResponseWriter: w, rc: rc, limit: b.s.cfg.SSEWriteTimeout}, r)
}

// messagePrefix is what stands before each message: whether it is compressed, and its length.
const messagePrefix = 5

var errCallTooLarge = errors.New("the call brings more than one request may hold")

// callBody is what a client sends in a call. gRPC reads ahead of what a handler takes and keeps all of it, so that without
// a bound a client could fill the memory of the server. No method takes more than one message but those of reflection, which
// are small.
type callBody struct {
	io.ReadCloser
	left int64
}

func (c *callBody) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if int64(n) > c.left { // what fits is passed on: it says how large the message is
		n, err = int(c.left), errCallTooLarge
	}
	c.left -= int64(n)
	return n, err
}

// callWriter ends a call whose client does not read, be it one answer or a stream: a write that is stuck keeps the
// goroutine of the call, and what it writes.
type callWriter struct {
	http.ResponseWriter
	rc    *http.ResponseController
	limit time.Duration
	armed bool
}

func (w *callWriter) Write(p []byte) (int, error) {
	if !w.armed {
		w.armed = w.rc.SetWriteDeadline(time.Now().Add(w.limit)) == nil
	}
	return w.ResponseWriter.Write(p)
}

// Flush sends what was written.
func (w *callWriter) Flush() {
	if w.rc.Flush() == nil && w.armed {
		w.armed = w.rc.SetWriteDeadline(time.Time{}) != nil
	}
}

// endShared lets the calls in flight be answered, and ends those that are not of ours. The HTTP server takes no new ones
// meanwhile, and closes idle when it has no connection any more.
func (b *GRPC) endShared(end context.Context, idle <-chan struct{}) {
	b.health.Shutdown()
	b.settle(end, idle)
	b.server.Stop()
	b.senders.Wait()
}

// settle waits until the calls in flight have ended, or until stopped or the end. Calls that are not of ours, such as those
// who watch the health, end by themselves never, and have a moment.
func (b *GRPC) settle(end context.Context, stopped <-chan struct{}) {
	select {
	case <-stopped:
	case <-end.Done():
	case <-b.calls.idle():
		foreign := time.NewTimer(foreignCallTime)
		defer foreign.Stop()
		select {
		case <-stopped:
		case <-end.Done():
		case <-foreign.C:
		}
	}
}
