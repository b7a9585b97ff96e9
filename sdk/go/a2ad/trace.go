package a2ad

import (
	"context"
	"time"
)

// Trace records a piece of an agent's work in a tracing system. It returns the context for that work, and a function
// that is called when it ends. Set it in [Options]. With OpenTelemetry:
//
//	func trace(ctx context.Context, s a2ad.Span) (context.Context, func(a2ad.SpanEnd)) {
//		if s.Kind == a2ad.SpanRun { // the client's trace goes on
//			ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": s.Traceparent})
//		}
//		ctx, span := otel.Tracer("agents").Start(ctx, s.Name)
//		return ctx, func(e a2ad.SpanEnd) {
//			if e.Err != nil {
//				span.SetStatus(codes.Error, e.Err.Error())
//			}
//			span.End()
//		}
//	}
//
// Without a tracing system, pass [Task.Traceparent] on to the services that the agent calls.
type Trace func(ctx context.Context, s Span) (context.Context, func(SpanEnd))

// Kinds of spans.
const (
	SpanRun  = "run"  // one attempt at a task
	SpanStep = "step" // one call of a step's function; what is recorded has no span
)

// Span says which work begins.
type Span struct {
	Kind        string // SpanRun or SpanStep
	Name        string // of the agent or the step
	Agent       string
	TaskID      string
	Attempt     int    // at the task, or at the step
	Key         string // of the step
	Traceparent string // W3C trace context of the client's request; empty without one
}

// SpanEnd says how it ended.
type SpanEnd struct {
	// Err is the error of the step, or of the run. A run that waits, or whose task was canceled, has none.
	Err   error
	Usage []Usage // that the step has reported
}

// startSpan begins a span, if the worker has a Trace.
func (s *session) startSpan(ctx context.Context, span Span) (context.Context, func(SpanEnd)) {
	if s.trace == nil {
		return ctx, func(SpanEnd) {}
	}
	span.Agent, span.TaskID, span.Traceparent = s.run.Agent, s.run.TaskID, s.run.Traceparent
	return s.trace(ctx, span)
}

// clock is the clock of a worker; tests have another one.
type clock interface {
	Now() time.Time
	Sleep(ctx context.Context, d time.Duration) error
}

type realClock struct{}

func (realClock) Now() time.Time                                   { return time.Now() }
func (realClock) Sleep(ctx context.Context, d time.Duration) error { return sleep(ctx, d) }

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
