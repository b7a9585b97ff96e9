package promcheck

import (
	"bytes"
	"log/slog"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"go.yaml.in/yaml/v3"
)

// cases is a file of promtool test rules, reduced to the fields that the file uses.
type cases struct {
	RuleFiles []string       `yaml:"rule_files"`
	Interval  model.Duration `yaml:"evaluation_interval"`
	Tests     []alertCase    `yaml:"tests"`
}

type alertCase struct {
	Name     string         `yaml:"name"`
	Interval model.Duration `yaml:"interval"`
	Series   []struct {
		Series string `yaml:"series"`
		Values string `yaml:"values"`
	} `yaml:"input_series"`
	Alerts []alertWant `yaml:"alert_rule_test"`
	// An expression checks that nothing fires at all: promtool ignores alerts that a case does not name.
	Exprs []struct {
		Expr    string         `yaml:"expr"`
		At      model.Duration `yaml:"eval_time"`
		Samples []struct{}     `yaml:"exp_samples"`
	} `yaml:"promql_expr_test"`
}

type alertWant struct {
	At     model.Duration `yaml:"eval_time"`
	Alert  string         `yaml:"alertname"`
	Firing []struct {
		Labels      map[string]string `yaml:"exp_labels"`
		Annotations map[string]string `yaml:"exp_annotations"`
	} `yaml:"exp_alerts"`
}

const nothingFires = `ALERTS{alertstate="firing"}`

func shippedCases(t *testing.T) (file cases) {
	t.Helper()
	data, err := os.ReadFile(shipped("prometheus/alerts_test.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	strict := yaml.NewDecoder(bytes.NewReader(data))
	strict.KnownFields(true)
	if err := strict.Decode(&file); err != nil {
		t.Fatal(err)
	}
	if len(file.RuleFiles) != 1 || file.RuleFiles[0] != "alerts.yaml" || file.Interval == 0 {
		t.Fatalf("it is about the rules of %v, each %s", file.RuleFiles, file.Interval)
	}
	return file
}

// alerts are the rules below deploy. watched implements the features that they use.
func alerts(t *testing.T) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile(shipped("prometheus/alerts.yaml"), false, model.UTF8Validation, promQL,
		slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	var all []rulefmt.Rule
	for _, g := range groups.Groups {
		if g.QueryOffset != nil || len(g.Labels) > 0 || g.Limit > 0 {
			t.Errorf("the group %s has settings that are not evaluated here", g.Name)
		}
		for _, r := range g.Rules {
			if r.Record != "" || r.KeepFiringFor != 0 {
				t.Errorf("the rule %s%s is of a kind that is not evaluated here", r.Alert, r.Record)
			}
			all = append(all, r)
		}
	}
	return all
}

// The cases of deploy/prometheus/alerts_test.yaml run as in promtool test rules. In addition, no alert may fire in a
// case that does not expect it.
func TestAlertsFireWhenTheyShould(t *testing.T) {
	t.Parallel()
	file, rules := shippedCases(t), alerts(t)
	for _, c := range file.Tests {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			c.play(t, rules, time.Duration(file.Interval))
		})
	}
}

// play evaluates all rules over the series of a case, up to its last evaluation time.
func (c *alertCase) play(t *testing.T, rules []rulefmt.Rule, every time.Duration) {
	t.Helper()
	var m memory
	for _, s := range c.Series {
		metric, values, err := promQL.ParseSeriesDesc(s.Series + " " + s.Values)
		if err != nil {
			t.Fatalf("%s %s: %v", s.Series, s.Values, err)
		}
		m = append(m, scraped(metric, time.Duration(c.Interval), values))
	}
	var end time.Duration
	expected := map[string]bool{} // alerts that fire at some time
	wants := map[time.Duration][]alertWant{}
	for _, want := range c.Alerts {
		at := time.Duration(want.At)
		if at%every != 0 || !slices.ContainsFunc(rules, func(r rulefmt.Rule) bool { return r.Alert == want.Alert }) {
			t.Errorf("%s at %s is never evaluated", want.Alert, at)
		}
		wants[at], end = append(wants[at], want), max(end, at)
		expected[want.Alert] = expected[want.Alert] || len(want.Firing) > 0
	}
	for _, x := range c.Exprs {
		if x.Expr != nothingFires || len(x.Samples) > 0 {
			t.Errorf("%s is not evaluated here", x.Expr)
		}
		end = max(end, time.Duration(x.At))
	}
	if end == 0 {
		t.Fatal("the case asks for nothing")
	}
	engine := newEngine(t)
	for _, rule := range rules {
		w := watched{rule: rule}
		for at := time.Duration(0); at <= end; at += every {
			got := w.fires(t, engine, m, at)
			for _, want := range wants[at] {
				if want.Alert == rule.Alert {
					compare(t, want, got)
				}
			}
			if len(got) > 0 && !expected[rule.Alert] {
				t.Fatalf("%s fires after %s: %v", rule.Alert, at, got)
			}
		}
	}
}

func compare(t *testing.T, want alertWant, got []fired) {
	t.Helper()
	var all []fired
	for _, f := range want.Firing {
		of := maps.Clone(f.Labels)
		of[labels.AlertName] = want.Alert
		all = append(all, fired{of, f.Annotations})
	}
	byLabels := func(a, b fired) int { return labels.Compare(labels.FromMap(a.Labels), labels.FromMap(b.Labels)) }
	slices.SortFunc(all, byLabels)
	slices.SortFunc(got, byLabels)
	if diff := cmp.Diff(all, got); diff != "" {
		t.Errorf("%s after %s (-want +got):\n%s", want.Alert, want.At, diff)
	}
}

// Every alert has a case in which it fires, after a time at which it does not fire yet. There are also healthy cases.
func TestEveryAlertHasCases(t *testing.T) {
	t.Parallel()
	file := shippedCases(t)
	healthy := 0
	for _, c := range file.Tests {
		if len(c.Alerts) == 0 {
			healthy++
		}
	}
	if healthy < 5 {
		t.Errorf("there are %d cases of health", healthy)
	}
	for _, rule := range alerts(t) {
		found := false
		for _, c := range file.Tests {
			quiet := time.Duration(-1)
			for _, want := range c.Alerts {
				switch {
				case want.Alert != rule.Alert:
				case len(want.Firing) == 0 && quiet < 0:
					quiet = time.Duration(want.At)
				case len(want.Firing) > 0 && quiet >= 0:
					found = true
				}
			}
		}
		if !found {
			t.Errorf("%s has no case in deploy/prometheus/alerts_test.yaml in which it is quiet and then fires",
				rule.Alert)
		}
	}
}
