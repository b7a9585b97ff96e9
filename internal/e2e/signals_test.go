package e2e_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// moved says how a series, or the sum of those with these labels, must change.
type moved struct {
	series string
	labels []string
	by     float64  // 0: any increase
	to     *float64 // nil: an increase
}

// rose wants an increase, grew an increase by a number, and became a new value.
func rose(series string, labels ...string) moved { return moved{series: series, labels: labels} }

func grew(by float64, series string, labels ...string) moved {
	return moved{series: series, labels: labels, by: by}
}

func became(v float64, series string, labels ...string) moved {
	return moved{series: series, labels: labels, to: &v}
}

func (m *moved) holds(was, is float64) bool {
	switch {
	case m.to != nil:
		return is == *m.to && was != is
	case m.by != 0:
		return is == was+m.by
	}
	return is > was
}

// unseen stands for the scrape of a replica that was not scraped before.
var unseen = &exposition{kind: map[string]string{}}

// stage is a cluster for one scene, and the metrics that were seen to move.
type stage struct {
	*cluster
	seen *sync.Map
}

// shows waits until all these metrics have moved since a scrape. It polls, because only a scrape shows a metric.
func (s *stage) shows(before *exposition, r *replica, all ...moved) {
	s.t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		after := r.scrape()
		var still []string
		for _, m := range all {
			was, is := before.sum(m.series, m.labels...), after.sum(m.series, m.labels...)
			if m.holds(was, is) {
				s.seen.Store(after.metric(m.series), true)
			} else {
				still = append(still, fmt.Sprintf("%s%v was %v and is %v", m.series, m.labels, was, is))
			}
		}
		if len(still) == 0 {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("the metrics of %s differ from what happened:\n%s", r.name, strings.Join(still, "\n"))
		}
		<-tick.C
	}
}

// The scenes move every metric of docs/reference/metrics.md.
func TestEveryMetricMoves(t *testing.T) {
	t.Parallel()
	var seen sync.Map
	played := t.Run("scenes", func(t *testing.T) {
		for name, play := range scenes {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				play(&stage{newCluster(t), &seen})
			})
		}
	})
	if !played || regexp.MustCompile(`EveryMetricMoves\$?/`).MatchString(flagRun()) {
		return // not all scenes ran
	}
	for _, name := range documentedMetrics(t) {
		if _, ok := seen.Load(name); !ok {
			t.Errorf("no scene moves %s", name)
		}
	}
}

// documentedMetrics returns the metrics in docs/reference/metrics.md.
func documentedMetrics(t *testing.T) (names []string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), metricsStart)
	table, _, _ := strings.Cut(rest, metricsEnd)
	for _, m := range regexp.MustCompile("(?m)^\\| `(a2ad_[a-z0-9_]+)`").FindAllStringSubmatch(table, -1) {
		names = append(names, m[1])
	}
	if len(names) < 40 || !slices.IsSorted(names) {
		t.Fatalf("the table of docs/reference/metrics.md has %d metrics", len(names))
	}
	return names
}

// flagRun returns the pattern of -run, or an empty string.
func flagRun() string {
	if f := flag.Lookup("test.run"); f != nil {
		return f.Value.String()
	}
	return ""
}
