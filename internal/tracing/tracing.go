// Package tracing makes OpenTelemetry spans of what the server does: a request, its submission, the
// run of an agent, the work of its executor, a webhook. attributes.go has all names of attributes.
//
// A nil Tracer makes nil Spans, which do nothing and cost nothing. Spans contain ids, states and
// words of a2ad, never text of clients or agents. The package does not know what tasks are about.
package tracing

import (
	"context"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/a2ad/a2ad/internal/a2a"
)

// Kind is the side of a call that a span describes.
type Kind = trace.SpanKind

// The kinds.
const (
	Internal = trace.SpanKindInternal
	Server   = trace.SpanKindServer
	Client   = trace.SpanKindClient
	Consumer = trace.SpanKindConsumer // of work that waited in the queue
)

// Tracer makes spans. Use Open. A nil Tracer makes none. It is safe for concurrent use.
type Tracer struct{ tracer trace.Tracer }

// Span is one step. The methods of a nil Span do nothing. If it is ended more than once the first
// time counts.
type Span struct{ span trace.Span }

// Start begins a span as a child of parent or, if that is empty, of the span in ctx, if any. Spans
// started with the returned context are its children.
func (t *Tracer) Start(ctx context.Context, name string, kind Kind, parent a2a.Traceparent,
	attrs ...Attribute) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	if parent != "" {
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": string(parent)})
	}
	ctx, s := t.tracer.Start(ctx, name, trace.WithSpanKind(kind), trace.WithAttributes(attrs...))
	return ctx, &Span{s}
}

// Name renames the span.
func (s *Span) Name(name string) {
	if s != nil {
		s.span.SetName(name)
	}
}

// Set adds attributes.
func (s *Span) Set(attrs ...Attribute) {
	if s != nil {
		s.span.SetAttributes(attrs...)
	}
}

// Fail marks the span as failed. The reason is a word of a2ad.
func (s *Span) Fail(reason string) {
	if s != nil {
		s.span.SetStatus(codes.Error, reason)
	}
}

// End ends the span.
func (s *Span) End() {
	if s != nil {
		s.span.End()
	}
}

// Traceparent identifies the span to the parents of child spans elsewhere. It is empty for a nil
// Span.
func (s *Span) Traceparent() a2a.Traceparent {
	if s == nil {
		return ""
	}
	c := s.span.SpanContext()
	if !c.IsValid() {
		return ""
	}
	return a2a.Traceparent("00-" + c.TraceID().String() + "-" + c.SpanID().String() + "-" + c.TraceFlags().String())
}
