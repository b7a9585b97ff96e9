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

// Watch has the hooks for metrics. A hook that is nil is not called. The others are called
// concurrently and must not block.
type Watch struct {
	// Request is called when a request or call has been answered.
	Request func(Request)
	// Sent is called when a stream has sent an event, with the time since its commit. The time
	// comes from the clocks of the database and of this process. Events from before the stream
	// began do not count.
	Sent func(behind time.Duration)
	// SlowReader is called when a stream was cut off because its client read too slowly.
	SlowReader func()
	// Lenient is called when rule T-02 was needed.
	Lenient func(rule string)
}

// Request is one request or call. It contains no text of the client: an unknown value is "other".
type Request struct {
	Route   string        // the path with placeholders, or "grpc"
	Method  string        // A2A method by its name in 1.0; "none" for other requests, and for those refused earlier
	Version string        // A2A version; "none" likewise
	Code    string        // HTTP status, 499 if the client disconnected, or the name of the gRPC status
	Reason  string        // of an A2A error, or CLIENT_GONE; empty without an error
	Took    time.Duration // until the answer, or the start of a stream
}

// Routes other than those of HTTP+JSON, which are in rest_path.go.
const (
	routeRPC    = "/"
	routeNamed  = "/agents/{agent}"
	routeGRPC   = "grpc"
	routeWorker = "/worker/v1/*"

	routeWorkerRun = "/worker/v1/runs/{task}/{epoch}"

	routeOperator = "/admin/v1/*"
	routeConsole  = "/console/*"

	clientGone = "499" // as proxies log it: the client disconnected before the answer
	other      = "other"
	none       = "none"
)

// methodNames maps the operation names of both generations to those of 1.0.
var methodNames = inBoth(map[string]string{
	"message/send": "SendMessage", "message/stream": "SendStreamingMessage", "tasks/get": "GetTask",
	"tasks/list":   "ListTasks",
	"tasks/cancel": "CancelTask", "tasks/resubscribe": "SubscribeToTask",
	"tasks/pushNotificationConfig/set":    "CreateTaskPushNotificationConfig",
	"tasks/pushNotificationConfig/get":    "GetTaskPushNotificationConfig",
	"tasks/pushNotificationConfig/list":   "ListTaskPushNotificationConfigs",
	"tasks/pushNotificationConfig/delete": "DeleteTaskPushNotificationConfig",
	"agent/getAuthenticatedExtendedCard":  "GetExtendedAgentCard",
	// Names of gRPC in 0.3 that differ from 1.0.
	"TaskSubscription": "SubscribeToTask", "ListTaskPushNotificationConfig": "ListTaskPushNotificationConfigs",
	"GetAgentCard": "GetExtendedAgentCard",
})

// inBoth adds the names of 1.0, which map to themselves.
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

// begin starts the span of a request, if there are traces, and records the trace it belongs to.
func (s *Server) begin(ctx context.Context, rec *record, h http.Header) context.Context {
	rec.trace = traceparent(h)
	if s.cfg.Tracer == nil {
		return ctx
	}
	ctx, rec.span = s.cfg.Tracer.Start(ctx, "request", tracing.Server, rec.trace)
	rec.trace = rec.span.Traceparent()
	return ctx
}

// streaming ends the measurement of a request whose answer is a stream, which may last for hours.
func (rec *record) streaming() {
	rec.opened = time.Now()
	if rec.span != nil {
		rec.span.Set(rec.about()...)
		rec.span.Name(rec.label())
		rec.span.End()
	}
}

// about returns the attributes of the span of a request.
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

// answered reports an answer to metrics and traces: over HTTP, or a gRPC call if status is 0. code
// is the name of the gRPC status.
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

// reason is the reason of the error that the client received, or "".
func (rec *record) reason() string {
	if rec.err == nil || !rec.failed {
		return ""
	}
	if rec.gone {
		return "CLIENT_GONE"
	}
	return a2a.CodeOf(rec.err).Reason()
}

// sent records that a stream has sent an event.
func (c *call) sent(at, opened time.Time) {
	if c.s.cfg.Watch.Sent != nil && !at.Before(opened) {
		c.s.cfg.Watch.Sent(max(time.Since(at), 0))
	}
}

// cut records why a stream ended early.
func (c *call) cut(err error) {
	if c.s.cfg.Watch.SlowReader != nil && (errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, errSlowReader)) {
		c.s.cfg.Watch.SlowReader()
	}
}
