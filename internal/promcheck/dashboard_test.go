package promcheck

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

// pages returns the series of two replicas with the metrics of testdata/metrics.txt, which internal/e2e scraped from
// a healthy server. They are scraped every minute; with grow, each scrape adds the same amounts.
func pages(t *testing.T, minutes int, grow bool) (m memory) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("testdata", "metrics.txt"))
	if err != nil {
		t.Fatal(err)
	}
	shows := func(series string, value float64) {
		for _, replica := range []string{"a:9090", "b:9090"} {
			metric, err := promQL.ParseMetric(series)
			if err != nil {
				t.Fatalf("%s: %v", series, err)
			}
			of := labels.NewBuilder(metric).Set("job", "a2ad").Set("instance", replica)
			if metric.Get("__name__") == "a2ad_build_info" {
				of.Set("commit", "0123456789ab") // a test binary has none
			}
			s := promql.Series{Metric: of.Labels()}
			for i := range minutes + 1 {
				v := value
				if grow {
					v += float64(i) * (value + 1)
				}
				s.Floats = append(s.Floats, promql.FPoint{T: (time.Duration(i) * time.Minute).Milliseconds(), F: v})
			}
			m = append(m, s)
		}
	}
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		line = strings.TrimSpace(line)
		end := strings.LastIndexByte(line, ' ')
		value, err := strconv.ParseFloat(line[end+1:], 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		shows(line[:end], value)
	}
	shows("up", 1)
	return m
}

// named returns the labels of each metric.
func named(m memory) map[string]map[string]bool {
	all := map[string]map[string]bool{}
	for _, s := range m {
		name := s.Metric.Get("__name__")
		if all[name] == nil {
			all[name] = map[string]bool{}
		}
		s.Metric.Range(func(l labels.Label) { all[name][l.Name] = true })
	}
	return all
}

// checkSelectors checks that each metric of an expression exists, with the labels that select it.
func checkSelectors(t *testing.T, shown map[string]map[string]bool, expr string) {
	t.Helper()
	parsed, err := promQL.ParseExpr(expr)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		if selector, ok := node.(*parser.VectorSelector); ok {
			for _, matcher := range selector.LabelMatchers {
				if !shown[selector.Name][matcher.Name] {
					t.Errorf("%s: no server shows a %s with the label %s", expr, selector.Name, matcher.Name)
				}
			}
		}
		return nil
	})
}

// testdata/metrics.txt has the metrics of docs/reference/metrics.md, which a test compares with a real server.
func TestMetricsPageIsCurrent(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	shown := named(pages(t, 0, false))
	rows := regexp.MustCompile("(?m)^\\| `(a2ad_\\w+)` \\| (\\w+) \\| (.*?) \\|").FindAllStringSubmatch(string(text),
		-1)
	if len(rows) < 40 {
		t.Fatalf("docs/reference/metrics.md has %d metrics", len(rows))
	}
	documented := map[string]bool{}
	for _, row := range rows {
		name := row[1]
		if row[2] == "histogram" {
			documented[name+"_sum"], documented[name+"_count"] = true, true
			name += "_bucket"
		}
		documented[name] = true
		for _, label := range strings.Fields(row[3]) {
			if label = strings.Trim(label, "`"); !shown[name][label] {
				t.Errorf("testdata/metrics.txt has no %s with the label %s: "+
					"TestMetricsMatch of internal/e2e with -update writes it anew", name, label)
			}
		}
	}
	for name := range shown {
		if strings.HasPrefix(name, "a2ad_") && !documented[name] {
			t.Errorf("testdata/metrics.txt has %s, which is not in docs/reference/metrics.md", name)
		}
	}
}

// No alert fires over a healthy server, or uses a metric that does not exist.
func TestNoAlertFiresForAHealthyServer(t *testing.T) {
	t.Parallel()
	const hour = 60
	m, engine := pages(t, hour, false), newEngine(t)
	shown := named(m)
	for _, rule := range alerts(t) {
		checkSelectors(t, shown, rule.Expr)
		w := watched{rule: rule}
		for minute := range hour + 1 {
			if got := w.fires(t, engine, m, time.Duration(minute)*time.Minute); len(got) > 0 {
				t.Fatalf("%s fires: %v", rule.Alert, got)
			}
		}
	}
}

var legendLabel = regexp.MustCompile(`\{\{(\w+)\}\}`)

// Each query of a panel finds data of a busy server, with the labels of its legend.
func TestDashboardQueriesFindData(t *testing.T) {
	t.Parallel()
	m, engine := pages(t, 10, true), newEngine(t)
	shown := named(m)
	for _, p := range dashboard(t) {
		if len(p.Targets) == 0 {
			t.Errorf("%s shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			checkSelectors(t, shown, target.Expr)
			found := ask(t, engine, m, target.Expr, 10*time.Minute)
			// A healthy server has had no status 5xx, so its page lacks these series.
			if len(found) == 0 && !strings.Contains(target.Expr, `code=~"5..`) {
				t.Errorf("%s: %s finds nothing", p.Title, target.Expr)
			}
			for _, sample := range found {
				for _, label := range legendLabel.FindAllStringSubmatch(target.LegendFormat, -1) {
					if !sample.Metric.Has(label[1]) {
						t.Errorf("%s: %s has no label %s, which its legend names", p.Title, target.Expr, label[1])
					}
				}
			}
		}
	}
}

type panel struct {
	Title   string
	Targets []struct{ Expr, LegendFormat string }
}

// dashboard returns its panels, with variables replaced in their queries.
func dashboard(t *testing.T) []panel {
	t.Helper()
	data, err := os.ReadFile(shipped("grafana/a2ad.json"))
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		UID    string
		Panels []panel
	}
	if err := json.Unmarshal(data, &board); err != nil {
		t.Fatal(err)
	}
	if board.UID != "a2ad" || len(board.Panels) < 10 {
		t.Fatalf("it has %d panels and the uid %q", len(board.Panels), board.UID)
	}
	variables := strings.NewReplacer("$__rate_interval", "5m", "$job", "a2ad")
	for _, p := range board.Panels {
		for i := range p.Targets {
			p.Targets[i].Expr = variables.Replace(p.Targets[i].Expr)
		}
	}
	return board.Panels
}
