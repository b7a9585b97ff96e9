package a2ad

import (
	"context"
	"sync"
	"time"
)

// Trace records a part of an agent's work in a tracing system. It returns the context for that work, and a function
// that is called when the work ends. Set it in [Options]. With OpenTelemetry:
//
//	func trace(ctx context.Context, s a2ad.Span) (context.Context, func(a2ad.SpanEnd)) {
//		if s.Kind == a2ad.SpanRun { // continue the trace of the client
//			ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": s.Traceparent})
//		}
//		ctx, span := otel.Tracer("a2ad").Start(ctx, s.Kind+" "+s.Name)
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

// The kinds of spans.
const (
	SpanRun  = "invoke_agent" // one attempt at a task
	SpanStep = "step"         // the work of a step, with its retries; a recorded step has no span
)

// Span describes the work that begins.
type Span struct {
	Kind        string // SpanRun or SpanStep
	Name        string // of the agent or the step
	Key         string // of the step
	Agent       string
	TaskID      string
	ContextID   string
	Attempt     int
	Epoch       int64
	Traceparent string // W3C trace context of the client's request, or empty
}

// SpanEnd says how the work ended.
type SpanEnd struct {
	Err     error   // of the step, or of the agent's function; nil if the task waits or was canceled
	Outcome string  // of an attempt, such as finished, waiting or retry
	Usage   []Usage // what Task.Usage has reported in this work
}

// spanUsage is the usage that is reported in the work of a span. The context of the work has it as a value.
type spanUsage struct {
	mu   sync.Mutex
	list []Usage // guarded by mu
}

type spanKey struct{}

func addSpanUsage(ctx context.Context, u Usage) {
	if s, _ := ctx.Value(spanKey{}).(*spanUsage); s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.list = append(s.list, u)
	}
}

// startSpan begins a span, if the worker has a Trace.
func (s *session) startSpan(ctx context.Context, span Span) (context.Context, func(SpanEnd)) {
	if s.trace == nil {
		return ctx, func(SpanEnd) {}
	}
	run := s.run
	span.Agent, span.TaskID, span.ContextID = run.Agent, run.TaskID, run.ContextID
	span.Attempt, span.Epoch, span.Traceparent = run.Attempt, run.Epoch, run.Traceparent
	ctx, end := s.trace(ctx, span)
	usage := &spanUsage{}
	return context.WithValue(ctx, spanKey{}, usage), func(e SpanEnd) {
		if stopOf(e.Err) != nil {
			e.Err = nil
		}
		usage.mu.Lock()
		e.Usage = usage.list
		usage.mu.Unlock()
		end(e)
	}
}

// clock is the time of a session. Tests have a faster one.
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
