// Package metrics exposes the counters of a server's parts to Prometheus, and is the only package
// that knows Prometheus. The parts have counters, or call the functions that they are given.
//
// Names and labels are a contract, which docs/reference/metrics.md lists and a test compares. No
// label is text of a client: an unknown value is "other", and there are no ids of tasks, owners or
// tenants.
package metrics

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/a2ad/a2ad/internal/rpc"
)

// Metrics holds the metrics of events, and exposes those of the sources too.
type Metrics struct {
	registry *prometheus.Registry

	requests *prometheus.CounterVec
	took     *prometheus.HistogramVec
	errors   *prometheus.CounterVec
	lag      prometheus.Histogram
	events   prometheus.Counter
	slow     prometheus.Counter
	lenient  *prometheus.CounterVec

	known sync.Map     // by seenKey: *seen, so that a request needs one lookup
	size  atomic.Int64 // entries of known
}

// Build identifies the program.
type Build struct{ Version, Commit, Go string }

// New returns metrics without sources.
func New(b Build) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	info := prometheus.NewGaugeVec(
		gauge("a2ad_build_info", "Always 1; its labels say which program this is."),
		[]string{"version", "commit", "go"})
	info.WithLabelValues(b.Version, b.Commit, b.Go).Set(1)

	m.requests = prometheus.NewCounterVec(counter("a2ad_http_requests_total",
		"Requests answered, over gRPC too, by route, operation of A2A, its version, "+
			"and HTTP status or name of the gRPC status."),
		[]string{"route", "method", "version", "code"})
	m.took = prometheus.NewHistogramVec(histogram("a2ad_http_request_duration_seconds",
		"Time to the answer of a request, or to the beginning of a stream. "+
			"That of a blocking send holds the work of the agent.",
		[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}),
		[]string{"route", "method", "version"})
	m.errors = prometheus.NewCounterVec(counter("a2ad_request_errors_total",
		"Requests answered with an error of A2A, by its reason. Over JSON-RPC their HTTP status is 200."),
		[]string{"method", "version", "reason"})
	m.lenient = prometheus.NewCounterVec(counter("a2ad_lenient_uses_total",
		"Requests read by a lenient rule (docs/reference/protocol.md): clients that are not strict."),
		[]string{"rule"})
	m.events = prometheus.NewCounter(counter("a2ad_sse_events_total",
		"Events sent to streams while these were open, over gRPC too."))
	m.lag = prometheus.NewHistogram(histogram("a2ad_sse_lag_seconds",
		"Time from the commit of an event to its being sent to a stream, "+
			"by the clocks of the database and of this process.",
		[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}))
	m.slow = prometheus.NewCounter(counter("a2ad_sse_slow_readers_total",
		"Streams cut off because their client read too slowly. It resumes."))
	m.registry.MustRegister(info, m.requests, m.took, m.errors, m.lenient, m.events, m.lag, m.slow)
	for _, rule := range lenientRules {
		m.lenient.WithLabelValues(rule)
	}
	return m
}

// lenientRules are the rules of docs/reference/protocol.md that a server may report.
var lenientRules = func() []string {
	rules := []string{"T-02"}
	for n := 1; n <= 24; n++ {
		rules = append(rules, fmt.Sprintf("L-%02d", n))
	}
	return rules
}()

func gauge(name, help string) prometheus.GaugeOpts {
	return prometheus.GaugeOpts{Name: name, Help: help}
}

func counter(name, help string) prometheus.CounterOpts {
	return prometheus.CounterOpts{Name: name, Help: help}
}

func histogram(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}
}

// Watch returns the hooks for requests and streams.
func (m *Metrics) Watch() rpc.Watch {
	return rpc.Watch{Request: m.request, Sent: m.sent, SlowReader: m.slow.Inc, Lenient: m.Lenient}
}

func (m *Metrics) sent(behind time.Duration) {
	m.events.Inc()
	m.lag.Observe(behind.Seconds())
}

// Lenient counts the use of a rule.
func (m *Metrics) Lenient(rule string) {
	if !slices.Contains(lenientRules, rule) {
		rule = "other"
	}
	m.lenient.WithLabelValues(rule).Inc()
}

type seenKey struct{ route, method, version, code string }

type seen struct {
	requests prometheus.Counter
	took     prometheus.Observer
}

// maxSeen limits the series of requests, in case a label is less bounded than intended. There are
// some hundred.
const maxSeen = 5000

func (m *Metrics) request(r rpc.Request) {
	key := seenKey{r.Route, r.Method, r.Version, r.Code}
	v, ok := m.known.Load(key)
	if !ok {
		if m.size.Add(1) > maxSeen {
			key = seenKey{"other", "other", "other", "other"}
		}
		v, _ = m.known.LoadOrStore(key, &seen{
			m.requests.WithLabelValues(key.route, key.method, key.version, key.code),
			m.took.WithLabelValues(key.route, key.method, key.version),
		})
	}
	s := v.(*seen)
	s.requests.Inc()
	s.took.Observe(r.Took.Seconds())
	if r.Reason != "" {
		m.errors.WithLabelValues(key.method, key.version, r.Reason).Inc()
	}
}

// Handler answers a scrape.
func (m *Metrics) Handler(logger *slog.Logger) http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog: scrapeLog{logger}, ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: 4,
	})
}

type scrapeLog struct{ *slog.Logger }

// Println logs what a scrape could not expose.
func (l scrapeLog) Println(v ...any) {
	l.WarnContext(context.Background(), "metrics", "err", fmt.Sprint(v...))
}
