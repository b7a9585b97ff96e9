package rpc

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/tracing"
)

// Watch is told what happens, for metrics. Functions that are nil are not; the others are
// called by many at once and must not block.
type Watch struct {
	// Request is told of each request and call when it has been answered.
	Request func(Request)
	// Sent is told that a stream has sent an event so long after its commit, by the clocks of
	// the database and of this process. Those from before the stream began do not count.
	Sent func(behind time.Duration)
	// SlowReader is told that a stream was cut off because its client read too slowly.
	SlowReader func()
	// Lenient is told that the rule T-02 was needed.
	Lenient func(rule string)
}

// Request is one request or call of a client. None of its words is the client's: what is not
// known is "other".
type Request struct {
	Route   string        // the path without what is in it, or "grpc"
	Method  string        // of A2A, by its name in 1.0; "none" if it was not a request of A2A, or was refused before
	Version string        // of A2A; "none" likewise
	Code    string        // HTTP status, 499 if the client had gone, or the name of the gRPC status
	Reason  string        // of an error of A2A, or CLIENT_GONE; empty if there was none
	Took    time.Duration // up to the answer, or to the beginning of a stream
}

// Routes beside those of HTTP+JSON, which are in rest_path.go.
const (
	routeRPC    = "/"
	routeNamed  = "/agents/{agent}"
	routeGRPC   = "grpc"
	routeWorker = "/worker/v1/*"
	clientGone  = "499" // as proxies have it: nobody was there to be answered
	other       = "other"
	none        = "none"
)

// methodNames has the names of operations in both generations, and what they are called in 1.0.
var methodNames = inBoth(map[string]string{
	"message/send": "SendMessage", "message/stream": "SendStreamingMessage", "tasks/get": "GetTask", "tasks/list": "ListTasks",
	"tasks/cancel": "CancelTask", "tasks/resubscribe": "SubscribeToTask",
	"tasks/pushNotificationConfig/set": "CreateTaskPushNotificationConfig", "tasks/pushNotificationConfig/get": "GetTaskPushNotificationConfig",
	"tasks/pushNotificationConfig/list": "ListTaskPushNotificationConfigs", "tasks/pushNotificationConfig/delete": "DeleteTaskPushNotificationConfig",
	"agent/getAuthenticatedExtendedCard": "GetExtendedAgentCard",
	// gRPC's of 0.3, where they differ from 1.0
	"TaskSubscription": "SubscribeToTask", "ListTaskPushNotificationConfig": "ListTaskPushNotificationConfigs", "GetAgentCard": "GetExtendedAgentCard",
})

// inBoth adds the names of 1.0, which are their own.
func inBoth(names map[string]string) map[string]string {
	all := maps.Clone(names)
	for _, name := range names {
		all[name] = name
	}
	return all
}

// label returns what metrics and traces call the operation of a request.
func (rec *record) label() string {
	if rec.method == "" {
		return none
	}
	if name, ok := methodNames[rec.method]; ok {
		return name
	}
	return other
}

// begin starts the span of a request, if there are any, and notes the trace that it is part of.
func (s *Server) begin(ctx context.Context, rec *record, h http.Header) context.Context {
	rec.trace = traceparent(h)
	if s.cfg.Tracer == nil {
		return ctx
	}
	ctx, rec.span = s.cfg.Tracer.Start(ctx, "request", tracing.Server, rec.trace)
	rec.trace = rec.span.Traceparent()
	return ctx
}

// streaming ends what is measured of a request whose answer is a stream: that may last for hours.
func (rec *record) streaming() {
	rec.opened = time.Now()
	if rec.span != nil {
		rec.span.Set(rec.about()...)
		rec.span.Name(rec.label())
		rec.span.End()
	}
}

// about returns what a span says of a request.
func (rec *record) about() []tracing.Attribute {
	attrs := []tracing.Attribute{tracing.Method(rec.label()), tracing.Binding(rec.binding())}
	if rec.route != "" {
		attrs = append(attrs, tracing.Route(rec.route))
	}
	if rec.version != "" {
		attrs = append(attrs, tracing.Version(rec.version))
	}
	if rec.task != "" {
		attrs = append(attrs, tracing.Task(clip(rec.task)))
	}
	if rec.context != "" {
		attrs = append(attrs, tracing.Context(clip(rec.context)))
	}
	if rec.agent != "" {
		attrs = append(attrs, tracing.Agent(rec.agent))
	}
	return attrs
}

func (rec *record) binding() string {
	switch rec.route {
	case routeGRPC:
		return "GRPC"
	case routeRPC, routeNamed:
		return "JSONRPC"
	}
	return "HTTP+JSON"
}

// answered tells metrics and traces of an answer over HTTP, or of a gRPC call if status is 0:
// then code is the name of its own.
func (s *Server) answered(rec *record, status int, code string, start time.Time) {
	failed := status >= 500 && !rec.gone || code == "Internal" || code == "Unknown"
	if rec.span != nil {
		if rec.opened.IsZero() {
			rec.span.Name(rec.label())
			rec.span.Set(rec.about()...)
		}
		if status != 0 {
			rec.span.Set(tracing.Status(status))
		} else {
			rec.span.Set(tracing.RPCStatus(code))
		}
		if reason := rec.reason(); reason == a2a.CodeInternal.Reason() || failed {
			rec.span.Fail(reason)
		}
		rec.span.End()
	}
	if s.cfg.Watch.Request == nil {
		return
	}
	r := Request{Route: rec.route, Method: rec.label(), Version: rec.version, Reason: rec.reason()}
	if r.Route == "" {
		r.Route = other
	}
	if r.Version == "" {
		r.Version = none
	}
	switch {
	case rec.gone && status != 0:
		r.Code = clientGone
	case status != 0:
		r.Code = strconv.Itoa(status)
	default:
		r.Code = code
	}
	if end := rec.opened; end.IsZero() {
		r.Took = time.Since(start)
	} else {
		r.Took = end.Sub(start)
	}
	s.cfg.Watch.Request(r)
}

// reason is the word for the error that the client was told of, or "".
func (rec *record) reason() string {
	if rec.err == nil || !rec.failed {
		return ""
	}
	if rec.gone {
		return "CLIENT_GONE"
	}
	return a2a.CodeOf(rec.err).Reason()
}

// sent notes that a stream has sent an event.
func (c *call) sent(at, opened time.Time) {
	if c.s.cfg.Watch.Sent != nil && !at.Before(opened) {
		c.s.cfg.Watch.Sent(max(time.Since(at), 0))
	}
}

// cut notes why a stream ended early.
func (c *call) cut(err error) {
	if c.s.cfg.Watch.SlowReader != nil && (errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, errSlowReader)) {
		c.s.cfg.Watch.SlowReader()
	}
}
