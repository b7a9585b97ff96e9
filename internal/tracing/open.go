package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

const scope = "github.com/a2ad/a2ad"

// Provider exports spans until it is shut down.
type Provider struct {
	sdk *sdktrace.TracerProvider
}

// Open returns a Provider that exports by OTLP over HTTP, as the OTEL_… variables say, which the
// library reads itself. version and replica become part of the resource. A failed export is logged
// and lost, and nothing waits for it. Open sets the error handler of the process, so call it once.
func Open(ctx context.Context, version, replica string, logger *slog.Logger) (*Provider, error) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { logger.Warn("traces", "err", err) }))
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("export of traces: %w", err)
	}
	// The environment comes last, so that it takes precedence.
	about, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "a2ad"), attribute.String("service.version", version),
			attribute.String("service.instance.id", replica)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("resource of traces: %w", err)
	}
	return &Provider{sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))}, nil
}

// Tracer returns the Tracer of the provider.
func (p *Provider) Tracer() *Tracer { return &Tracer{p.sdk.Tracer(scope)} }

// Shutdown exports the remaining spans.
func (p *Provider) Shutdown(ctx context.Context) error { return p.sdk.Shutdown(ctx) }

// Statements returns a tracer of SQL statements that run within a span. Statements of endless
// loops, such as claims, run within none. A span contains the name of the statement and the code of
// an error, and so no stored data.
func (p *Provider) Statements() pgx.QueryTracer {
	return statements{otelpgx.NewTracer(
		otelpgx.WithTracerProvider(p.sdk), otelpgx.WithSpanNameFunc(statementName),
		otelpgx.WithDisableConnectionDetailsInAttributes(), otelpgx.WithDisableSQLStatementInAttributes(),
	)}
}

// statementName returns the name at the start of a sqlc query, else its first word.
func statementName(sql string) string {
	if name, ok := strings.CutPrefix(sql, "-- name: "); ok {
		sql = name
	}
	name, _, _ := strings.Cut(strings.TrimSpace(sql), " ")
	return name
}

// statements is no pgx.BatchTracer, because the statements of a transaction have spans of their own: see db.sent.
type statements struct{ t *otelpgx.Tracer }

// TraceQueryStart begins the span of a statement.
func (s statements) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return s.t.TraceQueryStart(ctx, conn, data)
}

// TraceQueryEnd ends it.
func (s statements) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryEndData) {
	data.Err = silent(data.Err)
	s.t.TraceQueryEnd(ctx, conn, data)
}

var errStatement = errors.New("statement failed")

// silent reduces an error to what cannot contain data.
func silent(err error) error {
	var pe *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &pe):
		return &pgconn.PgError{Severity: pe.Severity, Code: pe.Code}
	}
	return errStatement
}
