package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/metrics"
	"github.com/a2ad/a2ad/internal/rpc"
	"github.com/a2ad/a2ad/internal/tracing"
)

// observed is what the replica shows of itself.
type observed struct {
	metrics *metrics.Metrics  // nil without a listener for operators
	traces  *tracing.Provider // nil when they are off
	tracer  *tracing.Tracer   // nil when traces are off
}

// openObserved makes the metrics, and exports traces if the environment names a collector.
func openObserved(ctx context.Context, r *Replica) (*observed, error) {
	o := &observed{}
	if r.listeners.admin != nil {
		o.metrics = metrics.New(r.options.Build)
	}
	if !wantsTraces(config.ReadEnviron(r.options.Environ)) {
		return o, nil
	}
	var err error
	if o.traces, err = tracing.Open(ctx, r.options.Build.Version, r.name, r.log); err != nil {
		return o, fmt.Errorf("OTEL_EXPORTER_OTLP_ENDPOINT: %w", err)
	}
	o.tracer = o.traces.Tracer()
	return o, nil
}

func wantsTraces(env config.Environ) bool {
	named := env["OTEL_EXPORTER_OTLP_ENDPOINT"] != "" || env["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] != ""
	return named && env["OTEL_SDK_DISABLED"] != "true"
}

// statements traces statements, if traces are on.
func (o *observed) statements() pgx.QueryTracer {
	if o.traces == nil {
		return nil
	}
	return o.traces.Statements()
}

// watch counts what the server sees.
func (o *observed) watch() rpc.Watch {
	if o.metrics == nil {
		return rpc.Watch{}
	}
	return o.metrics.Watch()
}

// onLenient counts the uses of the lenient rules of 0.3.
func (o *observed) onLenient() func(rule string) {
	if o.metrics == nil {
		return nil
	}
	return o.metrics.Lenient
}

const flushTraces = 5 * time.Second

var errFlushTraces = errors.New("the collector of traces took too long")

// close exports the remaining traces.
func (o *observed) close(log *slog.Logger) {
	if o.traces == nil {
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), flushTraces, errFlushTraces)
	defer cancel()
	if err := o.traces.Shutdown(ctx); err != nil {
		log.Warn("traces", "err", err)
	}
}

// showMetrics has the metrics show what the parts count. stopSignal ends when the server must stop.
func (r *Replica) showMetrics(stopSignal context.Context) {
	checks := r.checks(stopSignal)
	r.observed.metrics.Attach(metrics.Sources{
		Store: r.database.store, Engine: r.api.engine, Follower: r.database.follower, Pool: r.work.pool,
		Slots: r.cfg.Workers, Workers: r.work.remote, Publisher: r.database.publisher, Listener: r.database.listener,
		Deliverer: r.delivery.deliverer, Budget: r.budget, Logger: r.log,
		Agents: r.agents.names,
		Ready:  func(ctx context.Context) bool { return r.ready(ctx, checks) },
	})
}
