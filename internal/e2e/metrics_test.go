package e2e_test

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	apb1 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/seal"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

var update = flag.Bool("update", false, "rewrite the table of metrics, and the page of metrics for promcheck")

// series is one line of a scrape.
type series struct {
	name   string
	labels map[string]string
	value  float64
}

// exposition is the content of a scrape.
type exposition struct {
	help, kind map[string]string // by metric
	series     []series
	text       string // as scraped
}

var (
	sampleLine = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$`)
	labelPair  = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"`)
)

// scrape reads the metrics of a replica as Prometheus does.
func (r *replica) scrape() *exposition {
	r.t.Helper()
	status, text := r.health("/metrics")
	if status != http.StatusOK {
		r.t.Fatalf("GET /metrics: %d %s", status, text)
	}
	e := &exposition{help: map[string]string{}, kind: map[string]string{}, text: text}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		words := strings.SplitN(line, " ", 4)
		switch {
		case strings.HasPrefix(line, "# HELP "):
			e.help[words[2]] = words[3]
			continue
		case strings.HasPrefix(line, "# TYPE "):
			e.kind[words[2]] = words[3]
			continue
		}
		m := sampleLine.FindStringSubmatch(line)
		if m == nil {
			r.t.Fatalf("not a line of metrics: %s", line)
		}
		s := series{name: m[1], labels: map[string]string{}}
		for _, l := range labelPair.FindAllStringSubmatch(m[2], -1) {
			s.labels[l[1]] = l[2]
		}
		var err error
		if s.value, err = strconv.ParseFloat(m[3], 64); err != nil {
			r.t.Fatalf("%s: %v", line, err)
		}
		e.series = append(e.series, s)
	}
	return e
}

// sum adds the series of a metric that have these labels.
func (e *exposition) sum(name string, labels ...string) (total float64) {
next:
	for _, s := range e.series {
		if s.name != name {
			continue
		}
		for i := 0; i < len(labels); i += 2 {
			if s.labels[labels[i]] != labels[i+1] {
				continue next
			}
		}
		total += s.value
	}
	return total
}

// metric returns the metric of a series: a histogram has three kinds of series.
func (e *exposition) metric(series string) string {
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(series, suffix); ok && e.kind[base] == "histogram" {
			return base
		}
	}
	return series
}

// busy causes at least one of every event that is only counted when it happens.
func (c *cluster) busy(a *replica) {
	c.t.Helper()
	sink := newHookSink(c.t, nil)
	c.sendHooked(a, `{"url":"`+sink.URL+`/x"}`, `{"op":"chunk","id":"b","n":1}`)
	c.rpc(a, "echo", "tasks/get", `{"id":"none"}`)
	events := c.client(a, "script").Stream(bounded(c.t),
		client.SendParams{Message: play(`{"op":"chunk","id":"a","n":3}`)}, client.StreamOptions{})
	if got := follow(c.t, events, nil); len(got) < 3 {
		c.t.Errorf("the stream has %d events", len(got))
	}
	c.awaitDelivered()
}

const metricsStart, metricsEnd = "<!-- metrics -->\n", "<!-- metrics end -->\n"

// docs/reference/metrics.md lists exactly the metrics that a server exposes.
func TestMetricsMatchTheDocumentation(t *testing.T) {
	t.Parallel()
	p := newPair(t, nil)
	p.exec(p.first, `SELECT pg_create_physical_replication_slot('unused', true)`)
	c := clusterOn(t, &storetest.DB{URL: p.url})
	c.agent("far", remoteAgent("far"))
	a := c.start("a", append(hooking(seal.Generate("k1")), "A2AD_ADMIN_LISTEN=127.0.0.1:0")...)
	c.busy(a)
	c.busyWithSteps(a)
	e := a.scrape()
	labels := map[string]map[string]bool{}
	for _, s := range e.series {
		name := e.metric(s.name)
		if labels[name] == nil {
			labels[name] = map[string]bool{}
		}
		for l := range s.labels {
			if l != "le" {
				labels[name][l] = true
			}
		}
	}
	var table strings.Builder
	table.WriteString("| metric | type | labels | what it says |\n|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if !strings.HasPrefix(name, "a2ad_") {
			continue
		}
		var has []string
		for _, l := range slices.Sorted(maps.Keys(labels[name])) {
			has = append(has, "`"+l+"`")
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", name, e.kind[name], strings.Join(has, " "), e.help[name])
	}
	path := filepath.Join("..", "..", "docs", "reference", "metrics.md")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(data), metricsStart)
	have, after, ended := strings.Cut(rest, metricsEnd)
	if !found || !ended {
		t.Fatalf("%s lacks the line %s or %s", path, strings.TrimSpace(metricsStart), strings.TrimSpace(metricsEnd))
	}
	if *update {
		if err := os.WriteFile(path, []byte(before+metricsStart+table.String()+metricsEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join("..", "promcheck", "testdata", "metrics.txt"), []byte(e.text),
			0o644); err != nil {
			t.Fatal(err)
		}
	} else if diff := cmp.Diff(table.String(), have); diff != "" {
		t.Errorf("the table of %s differs from the server's metrics (-server +table); -update rewrites it:\n%s", path,
			diff)
	}
	checkShipped(t, e)
}

var (
	ofOurs = regexp.MustCompile(`\b(a2ad|go|process)_[a-z0-9_]+\b`)
	alert  = regexp.MustCompile(`(?m)^ +- alert: (\w+)$`)
)

// checkShipped checks that each metric in the dashboard and the alerts exists.
func checkShipped(t *testing.T, e *exposition) {
	t.Helper()
	shown := map[string]bool{}
	for _, s := range e.series {
		shown[s.name] = true
	}
	for _, file := range []string{"grafana/a2ad.json", "prometheus/alerts.yaml"} {
		data, err := os.ReadFile(filepath.Join("..", "..", "deploy", file))
		if err != nil {
			t.Fatal(err)
		}
		names := ofOurs.FindAllString(string(data), -1)
		if len(names) < 10 {
			t.Errorf("deploy/%s names %d metrics", file, len(names))
		}
		for _, name := range names {
			if !shown[name] {
				t.Errorf("deploy/%s: no server exposes %s", file, name)
			}
		}
	}
}

// Each alert links to a section of the runbook that says what to do.
func TestAlertsLinkToRunbooks(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("..", "..", "deploy", "prometheus", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	book, err := os.ReadFile(filepath.Join("..", "..", "docs", "how-to", "runbook.md"))
	if err != nil {
		t.Fatal(err)
	}
	names := alert.FindAllStringSubmatch(string(data), -1)
	if len(names) < 6 {
		t.Fatalf("there are %d alerts", len(names))
	}
	for _, m := range names {
		if !strings.Contains(string(data), "docs/how-to/runbook.md#"+strings.ToLower(m[1])+"\n") {
			t.Errorf("%s has no runbook_url that ends in #%s", m[1], strings.ToLower(m[1]))
		}
		_, section, found := strings.Cut(string(book), "\n### "+m[1]+"\n")
		section, _, _ = strings.Cut(section, "\n### ")
		if !found {
			t.Errorf("docs/how-to/runbook.md has no section %s", m[1])
		} else if what, do, said := strings.Cut(section, "\nDo: "); !said || !strings.Contains(do, " ") ||
			!strings.Contains(what, "\n```") && !strings.Contains(what, "\nLook: `") {
			t.Errorf("the section %s of docs/how-to/runbook.md does not say what to type, or what to do", m[1])
		}
	}
}

// The metrics count what clients and agents do.
func TestMetricsCountWhatHappens(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a", append(hooking(seal.Generate("k1")), "A2AD_ADMIN_LISTEN=127.0.0.1:0")...)
	c.busy(a)
	c.rpc(a, "echo", "tasks/list", `{"context_id":"x"}`)         // accepted by rule L-01, with L-24
	c.rpc(a, "echo", "message/send", `{"message":"no"}`)         // refused
	c.post(a, "/", "{", "Authorization", "Bearer x")             // before its method is known
	c.do(a, http.MethodGet, "/tasks", nil, "A2A-Version", "1.0") // over HTTP+JSON
	c.do(a, http.MethodGet, "/nowhere", nil)
	e := a.scrape()
	for _, want := range []struct {
		name   string
		labels []string
		value  float64
	}{
		{"a2ad_ready", nil, 1},
		{"a2ad_listener_up", nil, 1},
		{"a2ad_tasks", []string{"state", "completed"}, 2},
		{"a2ad_task_transitions_total", []string{"state", "submitted"}, 2},
		{"a2ad_task_transitions_total", []string{"state", "working"}, 2},
		{"a2ad_task_transitions_total", []string{"state", "completed"}, 2},
		{"a2ad_attempts_total", []string{"worker", "local", "outcome", "finished"}, 2},
		{"a2ad_claims_total", []string{"worker", "local"}, 2},
		{"a2ad_submit_group_size_sum", nil, 2},
		{"a2ad_queue_tasks", []string{"agent", "script"}, 0},
		{"a2ad_push_backlog", nil, 0},
		{"a2ad_push_attempts_total", []string{"class", "timeout"}, 0},
		{"a2ad_http_requests_total", []string{"route", "/agents/{agent}", "method", "GetTask", "version", "0.3", "code",
			"200"}, 1},
		{"a2ad_http_requests_total", []string{"route", "/", "method", "none", "version", "none"}, 1},
		{"a2ad_http_requests_total", []string{"route", "/tasks", "method", "ListTasks", "version", "1.0", "code",
			"200"}, 1},
		{"a2ad_http_requests_total", []string{"route", "other", "method", "none", "code", "404"}, 1},
		{"a2ad_request_errors_total", []string{"method", "GetTask", "version", "0.3", "reason", "TASK_NOT_FOUND"}, 1},
		{"a2ad_request_errors_total", []string{"method", "SendMessage", "version", "0.3", "reason", "INVALID_PARAMS"},
			1},
		{"a2ad_lenient_uses_total", []string{"rule", "L-24"}, 1},
		{"a2ad_run_slots", nil, 1000},
	} {
		if got := e.sum(want.name, want.labels...); got != want.value {
			t.Errorf("%s%v = %v, want %v", want.name, want.labels, got, want.value)
		}
	}
	if got := e.sum("a2ad_push_attempts_total", "class", "delivered"); got < 1 {
		t.Errorf("%v webhooks were delivered, want at least 1", got)
	}
}

// The outage of an agent that is not served, because it was removed, is not exposed.
func TestMetricsShowUnreachableAgents(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a", "A2AD_ADMIN_LISTEN=127.0.0.1:0")
	if _, err := c.db.Exec(t.Context(), `INSERT INTO a2a.agent_outages (agent, reason, replica, probe_at)
		VALUES ('echo', 'refused', 'b', now()), ('removed', 'refused', 'b', now())`); err != nil {
		t.Fatal(err)
	}
	e := a.scrape()
	for agent, want := range map[string]float64{"echo": 1, "script": 0, "removed": 0, "other": 0} {
		if got := e.sum("a2ad_agent_unreachable", "agent", agent); got != want {
			t.Errorf("a2ad_agent_unreachable of %s is %v, want %v", agent, got, want)
		}
	}
}

// allowed are the values that each label may have, whatever clients and agents do.
var allowed = map[string]*regexp.Regexp{
	"agent": regexp.MustCompile(`^(other|` + strings.ReplaceAll(strings.Join(slices.Sorted(maps.Keys(agentFiles)), "|"),
		".yaml", "") + `)$`),
	"state": regexp.MustCompile(
		`^(submitted|working|input-required|auth-required|completed|failed|canceled|rejected)$`),
	"route":   regexp.MustCompile(`^(other|grpc|/|/agents/\{agent\}|(/v1)?/[a-zA-Z/{}:*.0-9-]+)$`),
	"code":    regexp.MustCompile(`^([1-5][0-9][0-9]|[A-Z][a-zA-Z]+)$`),
	"method":  regexp.MustCompile(`^(other|none|[A-Z][a-zA-Z]+)$`),
	"version": regexp.MustCompile(`^(0\.3|1\.0|none|other)$`),
	"reason":  regexp.MustCompile(`^([A-Z_]+|evicted|full|owner|too_large)$`),
	"worker":  regexp.MustCompile(`^(local|remote)$`),
	"outcome": regexp.MustCompile(`^(finished|failed|retry|released|canceled|lost|unreachable|parked|waiting|` +
		`started|queued|skipped|missed)$`),
	"fate": regexp.MustCompile(`^(retry|fail|input-required|park)$`),
	"rule": regexp.MustCompile(`^(L-[0-9][0-9]|T-02|other)$`), "class": regexp.MustCompile(`^[a-z_]+$`),
	"pool":   regexp.MustCompile(`^(api|worker|claim|renew)$`),
	"kind":   regexp.MustCompile(`^(all|own|unreadable|input|cached_input|output|reasoning)$`),
	"sweep":  regexp.MustCompile(`^(tasks|logs|attempts|audit_log|schedule_ticks|usage_days|jobs)$`),
	"result": regexp.MustCompile(`^(sent|failed|collapsed|ok|retry)$`), "table": regexp.MustCompile(`^[a-z_]+$`),
	"by": regexp.MustCompile(`^(time|message|signal|tasks|deadline|cancel)$`),
	"le": regexp.MustCompile(`^([0-9.]+|\+Inf)$`),
}

// Unknown methods, paths, versions and agents create no series.
func TestUnknownNamesCreateNoSeries(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a", "A2AD_ADMIN_LISTEN=127.0.0.1:0", "A2AD_GRPC_LISTEN=127.0.0.1:0", "A2AD_LENIENT_VERSION=on")
	conn, err := grpc.NewClient(a.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	flood := func(n int) {
		for i := range n {
			word := fmt.Sprintf("word%d", i)
			for _, method := range []string{"/" + word + "/" + word, "/lf.a2a.v1.A2AService/" + word,
				"/lf.a2a.v1.A2AService/GetTask"} {
				ctx := metadata.AppendToOutgoingContext(bounded(t), "a2a-version", word)
				if err := conn.Invoke(ctx, method, &apb1.GetTaskRequest{Id: word, Tenant: word},
					&apb1.Task{}); err == nil {
					t.Errorf("gRPC has %s", method)
				}
			}
			c.rpc(a, "echo", word, `{}`)
			c.rpc(a, word, "message/send", `{}`)
			c.rpc(a, "echo", "tasks/get", `{"id":"`+word+`"}`, "A2A-Version", "1."+word)
			for _, method := range []string{http.MethodGet, http.MethodPost, "X" + strings.ToUpper(word)} {
				for _, path := range []string{"/" + word, "/v1/tasks/" + word, "/tasks/" + word + ":" + word,
					"/" + word + "/tasks", "/agents/" + word + "/v1/card",
					"/worker/v1/runs/" + word + "/" + word + "/events", "/worker/v1/" + word} {
					c.do(a, method, path, io.NopCloser(strings.NewReader("{}")), "A2A-Version", word)
				}
			}
		}
	}
	count := func() (n int) {
		for _, s := range a.scrape().series {
			if strings.HasPrefix(s.name, "a2ad_") {
				n++
			}
			for l, v := range s.labels {
				if pattern := allowed[l]; strings.HasPrefix(s.name, "a2ad_") && s.name != "a2ad_build_info" &&
					(pattern == nil || !pattern.MatchString(v)) {
					t.Errorf("%s has the unexpected label %s=%q", s.name, l, v)
				}
				if strings.Contains(strings.ToLower(v), "word") {
					t.Errorf("%s has the label %s=%q", s.name, l, v)
				}
			}
		}
		return n
	}
	flood(1)
	before := count()
	flood(40)
	if after := count(); after != before || after > 3000 {
		t.Errorf("there are %d series, and %d after clients asked for everything", before, after)
	}
}
