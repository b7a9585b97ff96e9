// Package tracing makes the spans of what the server does, for OpenTelemetry: a request, its
// submission, the run of an agent, the work of its executor, a webhook. attributes.go has all
// names that they bear.
//
// A nil Tracer is one that is off: it makes nil Spans, which do nothing and cost nothing. Spans
// have ids, states and words that a2ad chose in them, never what clients or agents wrote. What
// the tasks are about is not known here.
package tracing

import (
	"context"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/a2ad/a2ad/internal/a2a"
)

// Kind says on which side of a call a span is.
type Kind = trace.SpanKind

// The kinds.
const (
	Internal = trace.SpanKindInternal
	Server   = trace.SpanKindServer
	Client   = trace.SpanKindClient
	Consumer = trace.SpanKindConsumer // of work that was waiting in the queue
)

// Tracer makes spans. Use Open; nil makes none. It is safe for concurrent use.
type Tracer struct{ tracer trace.Tracer }

// Span is one step. All methods of nil do nothing. It may be ended more than once: the first
// time counts.
type Span struct{ span trace.Span }

// Start begins a span below parent, or if that is empty below the one of ctx, if it has one.
// What is begun with the context it returns is below the new span.
func (t *Tracer) Start(ctx context.Context, name string, kind Kind, parent a2a.Traceparent, attrs ...Attribute) (context.Context, *Span) {
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

// Fail marks the span as one of a failure, for a reason that is a word of ours.
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

// Traceparent is what those are told whose spans are to be below this one. That of nil is empty.
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
