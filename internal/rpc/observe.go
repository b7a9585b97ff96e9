package rpc

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/budget"
	"github.com/a2ad/a2ad/internal/tracing"
)

// record holds what the one log line of a request says. Handlers fill it in.
type record struct {
	id        string
	method    string
	route     string // the path with placeholders; empty: an unknown path
	version   string
	task      string
	principal *auth.Principal
	agent     string // agent of the tasks that the request is about
	context   string // of the task
	err       error
	gone      bool // the client disconnected before the end
	failed    bool // err was sent to the client
	events    int
	opened    time.Time       // when the stream began, if the answer is one
	trace     a2a.Traceparent // position in a trace of what the request causes
	span      *tracing.Span
	mem       *budget.Lease // memory that the request holds
}

type recordKey struct{}

func recordOf(ctx context.Context) *record {
	if r, ok := ctx.Value(recordKey{}).(*record); ok {
		return r
	}
	return &record{}
}

// observed gives each request an id and one log line, and recovers from panics.
func (s *Server) observed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		rec := &record{id: newRequestID()}
		sw := &statusWriter{ResponseWriter: w}
		h := w.Header()
		h.Set("X-Request-Id", rec.id)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		if r.TLS != nil {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		defer func() {
			if v := recover(); v != nil {
				if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
					panic(v)
				}
				rec.err, rec.failed = fmt.Errorf("panic: %v", v), true
				s.cfg.Logger.ErrorContext(r.Context(), "handler panicked", "request_id", rec.id, "panic", fmt.Sprint(v),
					"stack", string(debug.Stack()))
				if sw.status == 0 {
					s.writePlainError(sw, http.StatusInternalServerError)
				}
			}
			s.logRequest(r, rec, sw.status, time.Since(start))
			s.answered(rec, cmp.Or(sw.status, http.StatusOK), "", start)
		}()
		ctx := s.begin(r.Context(), rec, r.Header)
		next.ServeHTTP(sw, r.WithContext(context.WithValue(ctx, recordKey{}, rec)))
	})
}

func newRequestID() string {
	var b [8]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// frequent has the routes of which a run of a remote worker sends many requests. Only those that fail are logged at
// the usual level.
var frequent = map[string]bool{
	routeWorkerRun + "/events": true, routeWorkerRun + "/heartbeat": true,
}

func (s *Server) logRequest(r *http.Request, rec *record, status int, took time.Duration) {
	level := slog.LevelInfo
	switch {
	case status >= 500:
		level = slog.LevelError
	case status == http.StatusOK && frequent[rec.route]:
		level = slog.LevelDebug
	}
	if !s.cfg.Logger.Enabled(r.Context(), level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("request_id", rec.id), slog.String("http_method", r.Method), slog.String("path", clip(r.URL.Path)),
		slog.Int("status", status), slog.Float64("ms", float64(took.Microseconds())/1000),
	}
	s.cfg.Logger.LogAttrs(r.Context(), level, "request", append(attrs, rec.attrs()...)...)
}

// attrs returns what is known of a request over any binding.
func (rec *record) attrs() (attrs []slog.Attr) {
	if rec.route != "" {
		attrs = append(attrs, slog.String("route", rec.route))
	}
	if rec.method != "" {
		attrs = append(attrs, slog.String("method", clip(rec.method)))
	}
	if rec.version != "" {
		attrs = append(attrs, slog.String("version", rec.version))
	}
	if rec.task != "" {
		attrs = append(attrs, slog.String("task_id", clip(rec.task)))
	}
	if id := rec.trace.TraceID(); id != "" {
		attrs = append(attrs, slog.String("trace_id", id))
	}
	if rec.principal != nil {
		attrs = append(attrs, slog.Any("principal", *rec.principal))
	}
	if rec.events > 0 {
		attrs = append(attrs, slog.Int("events", rec.events))
	}
	if rec.err != nil {
		attrs = append(attrs, slog.String("err", clipTo(1024, a2a.Explain(rec.err))))
	}
	var refused *auth.Error
	if errors.As(rec.err, &refused) {
		attrs = append(attrs, slog.Any("refused", refused)) // the reason, which the client does not learn
	}
	return attrs
}

// clip bounds how much text a client can put into the log.
func clip(s string) string { return clipTo(256, s) }

func clipTo(n int, s string) string {
	if len(s) > n {
		return s[:n] + "…"
	}
	return s
}

// statusWriter remembers the status of a response.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader remembers the status and passes it on.
func (w *statusWriter) WriteHeader(code int) {
	if w.status == 0 {
		w.status = code
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
