package promcheck

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/template"
	"github.com/prometheus/prometheus/util/annotations"
)

// memory is a storage of fixed series. Prometheus' test storage and rule manager would bring half a gigabyte of
// modules, with clients of clouds and alert managers.
type memory []promql.Series

// Querier returns a querier for all series, whatever the time: the engine ignores future samples.
func (m memory) Querier(int64, int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints,
		matchers ...*labels.Matcher) storage.SeriesSet {
		found := &found{at: -1}
	next:
		for _, s := range m {
			for _, matcher := range matchers {
				if !matcher.Matches(s.Metric.Get(matcher.Name)) {
					continue next
				}
			}
			found.series = append(found.series, s)
		}
		return found
	}}, nil
}

// found is the result of a selector.
type found struct {
	series []promql.Series
	at     int
}

// Next advances to the next series.
func (f *found) Next() bool { f.at++; return f.at < len(f.series) }

// At returns the series.
func (f *found) At() storage.Series { return promql.NewStorageSeries(f.series[f.at]) }

// Err returns nil.
func (*found) Err() error { return nil }

// Warnings returns none.
func (*found) Warnings() annotations.Annotations { return nil }

// scraped returns a series with these values, one for each interval. An omitted value is no sample.
func scraped(metric labels.Labels, interval time.Duration, values []parser.SequenceValue) promql.Series {
	s := promql.Series{Metric: metric}
	for i, v := range values {
		if !v.Omitted {
			s.Floats = append(s.Floats, promql.FPoint{T: (time.Duration(i) * interval).Milliseconds(), F: v.Value})
		}
	}
	return s
}

// newEngine returns an engine with Prometheus' defaults. It limits what a query may read.
func newEngine(t *testing.T) *promql.Engine {
	t.Helper()
	e := promql.NewEngine(promql.EngineOpts{MaxSamples: 100_000, Timeout: time.Minute, EnableAtModifier: true,
		EnableNegativeOffset: true, Parser: promQL})
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// ask evaluates an expression at a time after the start.
func ask(t *testing.T, e *promql.Engine, m memory, expr string, at time.Duration) promql.Vector {
	t.Helper()
	q, err := e.NewInstantQuery(t.Context(), m, nil, expr, time.UnixMilli(at.Milliseconds()))
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	defer q.Close()
	result := q.Exec(t.Context())
	vector, err := result.Vector()
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	if len(result.Warnings) > 0 {
		t.Errorf("%s: %v", expr, result.Warnings)
	}
	return slices.Clone(vector)
}

// fired is an alert as it is sent.
type fired struct{ Labels, Annotations map[string]string }

// watched evaluates a rule repeatedly, as Prometheus does.
type watched struct {
	rule  rulefmt.Rule
	since map[string]time.Duration // by labels: since when the alert has been active
}

// fires evaluates the rule and returns the alerts that have been active for its whole "for" time.
func (w *watched) fires(t *testing.T, e *promql.Engine, m memory, at time.Duration) (firing []fired) {
	t.Helper()
	active := map[string]time.Duration{}
	for _, sample := range ask(t, e, m, w.rule.Expr, at) {
		expand := func(texts map[string]string) map[string]string {
			all := make(map[string]string, len(texts))
			for name, text := range texts {
				all[name] = expanded(t, e, m, w.rule.Alert, text, sample, at)
			}
			return all
		}
		of := sample.Metric.Map()
		delete(of, model.MetricNameLabel)
		maps.Copy(of, expand(w.rule.Labels))
		of[labels.AlertName] = w.rule.Alert
		key := labels.FromMap(of).String()
		if _, twice := active[key]; twice {
			t.Fatalf("%s has two alerts with the labels %s", w.rule.Alert, key)
		}
		since, was := w.since[key]
		if !was {
			since = at
		}
		if active[key] = since; at-since >= time.Duration(w.rule.For) {
			firing = append(firing, fired{of, expand(w.rule.Annotations)})
		}
	}
	w.since = active
	return firing
}

// expanded fills in a template of a rule.
func expanded(t *testing.T, e *promql.Engine, m memory, name, text string, sample promql.Sample,
	at time.Duration) string {
	t.Helper()
	data := template.AlertTemplateData(sample.Metric.Map(), nil, "", sample)
	query := func(_ context.Context, expr string, _ time.Time) (promql.Vector, error) {
		return ask(t, e, m, expr, at), nil
	}
	defs := "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}{{$externalURL := .ExternalURL}}{{$value " +
		":= .Value}}"
	result, err := template.NewTemplateExpander(t.Context(), defs+text, "__alert_"+name, data,
		model.Time(at.Milliseconds()), query, nil, nil).Expand()
	if err != nil || strings.Contains(result, "<no value>") {
		t.Errorf("%s: %s: %s %v", name, text, result, err)
	}
	return result
}
