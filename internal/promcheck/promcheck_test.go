package promcheck

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

var promQL = parser.NewParser(parser.Options{})

func shipped(file string) string { return filepath.Join("..", "..", "deploy", file) }

// TestPrometheusTakesTheAlerts checks what promtool check rules does.
func TestPrometheusTakesTheAlerts(t *testing.T) {
	t.Parallel()
	groups, errs := rulefmt.ParseFile(shipped("prometheus/alerts.yaml"), false, model.UTF8Validation, promQL, slog.New(slog.DiscardHandler))
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

// TestPrometheusReadsTheDashboard: each query of a panel is one.
func TestPrometheusReadsTheDashboard(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(shipped("grafana/a2ad.json"))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		UID, Title string
		Panels     []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(data, &dashboard); err != nil {
		t.Fatal(err)
	}
	if dashboard.UID != "a2ad" || len(dashboard.Panels) < 10 {
		t.Fatalf("it has %d panels and the uid %q", len(dashboard.Panels), dashboard.UID)
	}
	variables := strings.NewReplacer("$__rate_interval", "5m", "$job", "a2ad")
	for _, p := range dashboard.Panels {
		if len(p.Targets) == 0 {
			t.Errorf("%s shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			if _, err := promQL.ParseExpr(variables.Replace(target.Expr)); err != nil {
				t.Errorf("%s: %s: %v", p.Title, target.Expr, err)
			}
		}
	}
}
