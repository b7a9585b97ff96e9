package promcheck

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

var promQL = parser.NewParser(parser.Options{})

func shipped(file string) string { return filepath.Join("..", "..", "deploy", file) }

// The rules pass promtool check rules.
func TestPrometheusAcceptsTheAlerts(t *testing.T) {
	t.Parallel()
	groups, errs := rulefmt.ParseFile(shipped("prometheus/alerts.yaml"), false, model.UTF8Validation, promQL,
		slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if groups == nil || len(groups.Groups) != 1 || len(groups.Groups[0].Rules) < 6 {
		t.Fatalf("the file does not hold the alerts: %+v", groups)
	}
	for _, rule := range groups.Groups[0].Rules {
		if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" || rule.Labels["severity"] == "" {
			t.Errorf("%s lacks a summary, a description or a severity", rule.Alert)
		}
	}
}
