package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/metrics"
	"github.com/a2ad/a2ad/internal/rpc"
	"github.com/a2ad/a2ad/internal/tracing"
)

// openTraces begins to export traces, if the environment names where to.
func (r *replica) openTraces(ctx context.Context, app *App) error {
	env := config.ReadEnviron(app.Environ)
	if env["OTEL_EXPORTER_OTLP_ENDPOINT"] == "" && env["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] == "" || env["OTEL_SDK_DISABLED"] == "true" {
		return nil
	}
	var err error
	if r.traces, err = tracing.Open(ctx, readVersion().Version, r.name, r.logger); err != nil {
		return fmt.Errorf("OTEL_EXPORTER_OTLP_ENDPOINT: %w", err)
	}
	r.tracer = r.traces.Tracer()
	return nil
}

const flushTraces = 5 * time.Second

var errFlushTraces = errors.New("the collector of traces took too long")

// closeTraces exports what is left.
func (r *replica) closeTraces() {
	if r.traces == nil {
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), flushTraces, errFlushTraces)
	defer cancel()
	if err := r.traces.Shutdown(ctx); err != nil {
		r.logger.Warn("traces", "err", err)
	}
}

// openMetrics makes the metrics, which nobody could read without a listener for operators.
func (r *replica) openMetrics() {
	if r.admin == nil {
		return
	}
	v := readVersion()
	r.metrics = metrics.New(metrics.Build{Version: v.Version, Commit: v.Commit, Go: v.Go})
}

// watch tells the metrics what the server sees.
func (r *replica) watch() rpc.Watch {
	if r.metrics == nil {
		return rpc.Watch{}
	}
	return r.metrics.Watch()
}

// onLenient counts the uses of the lenient rules of 0.3.
func (r *replica) onLenient() func(rule string) {
	if r.metrics == nil {
		return nil
	}
	return r.metrics.Lenient
}

// showMetrics has the metrics show what the parts count. ctx is that of the server.
func (r *replica) showMetrics(ctx context.Context) {
	checks := r.checks(ctx)
	r.metrics.Attach(metrics.Sources{
		Store: r.store, Engine: r.engine, Follower: r.follower, Pool: r.pool, Slots: r.cfg.Workers, Workers: r.workers,
		Publisher: r.publisher, Listener: r.listener, Deliverer: r.deliverer, Budget: r.budget, Logger: r.logger,
		Agents: func() []string {
			var names []string
			for _, a := range *r.served.Load() {
				names = append(names, a.Name)
			}
			return names
		},
		Ready: func(ctx context.Context) bool {
			ctx, cancel := context.WithTimeout(ctx, r.cfg.ReadyTimeout)
			defer cancel()
			for _, c := range checks {
				if c.Test(ctx) != nil {
					return false
				}
			}
			return true
		},
	})
}
