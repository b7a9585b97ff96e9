package dockertest_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// observability starts Prometheus as the documents say. It must reach all that its file names, and load every alert. No
// image can stand in for that of Grafana; package promcheck runs the queries of its dashboard.
func observability(s *stack) {
	s.compose("--profile", "observability", "up", "--detach", "--wait", "prometheus")
	defer s.compose("--profile", "observability", "rm", "--stop", "--force", "prometheus")
	var found struct {
		ActiveTargets []struct{ ScrapeURL, Health, LastError string }
	}
	s.until("three targets are up", func() bool {
		s.prometheus("targets?state=active", &found)
		up := 0
		for _, target := range found.ActiveTargets {
			if target.Health == "up" {
				up++
			}
		}
		return up == 3 && up == len(found.ActiveTargets)
	})
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "prometheus", "alerts.yaml"))
	if err != nil {
		s.t.Fatal(err)
	}
	var rules struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	s.until("all rules were evaluated", func() bool {
		s.prometheus("rules?type=alert", &rules)
		for _, g := range rules.Groups {
			for _, r := range g.Rules {
				if r.Health == "unknown" {
					return false
				}
			}
		}
		return len(rules.Groups) > 0
	})
	n := 0
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if n++; r.Health != "ok" {
				s.t.Errorf("alert %s is %s: %s", r.Name, r.Health, r.LastError)
			}
		}
	}
	if want := strings.Count(string(text), "alert: "); n != want {
		s.t.Errorf("Prometheus has %d alerts, the file has %d", n, want)
	}
}

// prometheus reads an answer of Prometheus's API.
func (s *stack) prometheus(path string, into any) {
	s.t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	resp, err := c.Get("http://127.0.0.1:9091/api/v1/" + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer := struct {
		Status string
		Data   any
	}{Data: into}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.Status != "success" {
		s.t.Fatalf("GET %s: %s, status %q, %v", path, resp.Status, answer.Status, err)
	}
}
