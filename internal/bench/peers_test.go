package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMostHeldFindsTheLimit(t *testing.T) {
	t.Parallel()
	for most := range 130 {
		asked := 0
		got, err := mostHeld(25, 90, 1000, func(n int) (bool, error) {
			asked++
			if n < 1 || n > 90 {
				t.Errorf("most %d: asked for %d", most, n)
			}
			return n <= most, nil
		})
		if err != nil || got != min(most, 90) || asked > 16 {
			t.Errorf("most %d: got %d in %d tries, %v", most, got, asked, err)
		}
	}
}

func TestMostHeldStopsWhenItIsPreciseEnough(t *testing.T) {
	t.Parallel()
	var asked []int
	got, err := mostHeld(25, 1000, 4, func(n int) (bool, error) {
		asked = append(asked, n)
		return n <= 333, nil
	})
	if diff := cmp.Diff([]int{25, 50, 100, 200, 400, 300}, asked); diff != "" || got != 300 || err != nil {
		t.Errorf("got %d, %v; asked (-want +got):\n%s", got, err, diff)
	}
}

func TestMostHeldReturnsErrors(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, at := range []int{25, 50, 100, 75} {
		if _, err := mostHeld(25, 1000, 100, func(n int) (bool, error) {
			if n == at {
				return false, broken
			}
			return n <= 80, nil
		}); !errors.Is(err, broken) {
			t.Errorf("at %d: %v", at, err)
		}
	}
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(i))
	}
	for _, tt := range []struct {
		sorted []time.Duration
		q      float64
		want   time.Duration
	}{
		{nil, 0.5, 0}, {hundred[7:8], 0.99, 7}, {hundred, 0.5, 50}, {hundred, 0.99, 99}, {hundred, 1, 99},
		{hundred, 0, 0},
	} {
		if got := quantile(tt.sorted, tt.q); got != tt.want {
			t.Errorf("quantile %v of %d values: %d, want %d", tt.q, len(tt.sorted), got, tt.want)
		}
	}
}

// A stream of each server, as it was seen.
func TestTokensOfStreams(t *testing.T) {
	t.Parallel()
	const task = `{"result":{"task":{"id":"t","history":[{"parts":[{"text":"tokens 3 50"}]}]}}}`
	update := func(text string) string {
		return `data: {"result":{"artifactUpdate":{"artifact":{"parts":[{"text":"` + text + `"}]},"append":true}}}` +
			"\n\n"
	}
	const end = `data: {"result":{"statusUpdate":{"status":{"state":"TASK_STATE_COMPLETED"}}}}` + "\n\n"
	one, two, three := "1795704222597589:000", "1795704222616804:001", "1795704222637039:002"
	for _, tt := range []struct {
		name, stream string
		want         []string
		ended, fails bool
	}{
		{"one by one", "id: 1\ndata: " + task + "\n\n" + update(one) + "id: x\n" + update(two) + update(three) + end,
			[]string{one, two, three}, true, false},
		{"several in a text", update(one+two) + ": keep-alive\n\n" + update(three) + end,
			[]string{one, two, three}, true, false},
		{"no end", update(one), []string{one}, false, false},
		{"another text", update("hello"), nil, false, true},
		{"a long line", "data: " + strings.Repeat("x", 5000), nil, false, true},
	} {
		var got []string
		ended, err := eachToken(strings.NewReader(tt.stream), func(token []byte) error {
			got = append(got, string(token))
			return nil
		})
		if diff := cmp.Diff(tt.want, got); diff != "" || ended != tt.ended || (err != nil) != tt.fails {
			t.Errorf("%s: ended %t, %v; tokens (-want +got):\n%s", tt.name, ended, err, diff)
		}
	}
	reported, number, err := parseToken([]byte(two))
	if err != nil || number != 1 || reported.UnixMicro() != 1795704222616804 {
		t.Errorf("parseToken = %v, %d, %v", reported, number, err)
	}
	for _, bad := range []string{"17957042226168040001", "x795704222616804:001", "1795704222616804:0x1"} {
		if _, _, err := parseToken([]byte(bad)); err == nil {
			t.Errorf("the token %q is accepted", bad)
		}
	}
}

// A token is late against the pace from the request on, and not against the token before it.
func TestLatenessCountsFromTheRequest(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := func(millis ...int) (s tokenStream) {
		s.start = start
		for _, m := range millis {
			s.arrived = append(s.arrived, start.Add(time.Duration(m)*time.Millisecond))
			s.report = append(s.report, time.Duration(m)*time.Microsecond)
		}
		s.whole = time.Duration(millis[len(millis)-1]) * time.Millisecond
		return s
	}
	r := roundOf([]tokenStream{at(30, 45, 61), at(20, 40, 1060)})
	ms := time.Millisecond
	if diff := cmp.Diff([]time.Duration{0, 0, ms, 5 * ms, 10 * ms, 1000 * ms}, r.lateness); diff != "" {
		t.Errorf("lateness (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]time.Duration{20 * time.Microsecond, 30 * time.Microsecond}, r.first); diff != "" {
		t.Errorf("first tokens (-want +got):\n%s", diff)
	}
	if len(r.report) != 6 || r.slowest != 1.06 {
		t.Errorf("%d reports, slowest %v", len(r.report), r.slowest)
	}
}

func comparedReport() *report {
	r := &report{Machine: machine{Date: "2026-01-02", Cores: 2, Speed: 1, Plain: 421}}
	figures := func(experiment string, all ...figure) {
		r.begin(experiment)
		for _, f := range all {
			r.add(f)
		}
	}
	figures("peers", figure{Name: "sends", Unit: "×", Value: 1.5, Target: atLeast(1), Aim: atLeast(2)},
		figure{Name: "no aim", Value: 7})
	figures("drain", figure{Name: "drain", Unit: "/s", Value: 3, Target: atLeast(2)})
	figures("ready", figure{Name: "ready", Unit: "ms", Value: 90, Target: atMost(150)})
	sends := byServer{Name: "blocking sends, 32 callers", Unit: "/s", More: true}
	tokens := byServer{Name: "20 streams of 50 tokens/s" + tokenCPU, Unit: "ms"}
	cpus := byServer{Name: "blocking sends, 32 callers" + sendCPU, Unit: "ms"}
	cpus.add("a2ad", 0.5)
	cpus.add(goPeer, 1.5)
	for i, server := range []string{"a2ad", jsPeer, goPeer} {
		sends.add(server, float64(1000-400*i))
		tokens.add(server, 0.2*float64(i+1))
	}
	held := byServer{Name: "most", Unit: "streams", Values: []serverValue{{"a2ad", 200}, {jsPeer, 50}, {goPeer, 20}}}
	r.Comparisons = []byServer{sends, cpus, tokens, held}
	return r
}

func TestChartShowsEachServerToScale(t *testing.T) {
	t.Parallel()
	type element struct {
		XMLName  xml.Name
		Class    string    `xml:"class,attr"`
		Width    float64   `xml:"width,attr"`
		Text     string    `xml:",chardata"`
		Children []element `xml:",any"`
	}
	r := comparedReport()
	r.Comparisons[0].Name += " <&>"
	svg := r.chart()
	var root element
	if err := xml.Unmarshal(svg, &root); err != nil {
		t.Fatal(err)
	}
	bars := map[string][]float64{}
	var texts []string
	for _, e := range root.Children {
		switch e.XMLName.Local {
		case "rect":
			bars[e.Class] = append(bars[e.Class], e.Width)
		case "text", "desc":
			texts = append(texts, e.Text)
		}
	}
	delete(bars, "page")
	want := map[string][]float64{"a2ad": {220, 220, 73.3}, jsPeer: {132, 55, 146.7}, goPeer: {44, 22, 220}}
	if diff := cmp.Diff(want, bars); diff != "" {
		t.Errorf("widths of the bars (-want +got):\n%s", diff)
	}
	all := strings.Join(texts, "\n")
	for _, want := range []string{
		"32 callers <&>", "20 streams of 50 tokens/s\n", "a2ad 1000, a2a-js 600, a2a-go 200", "0.4",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no text %q in\n%s", want, all)
		}
	}
	if s := strings.Replace(string(svg), `xmlns="http://www.w3.org/2000/svg"`, "", 1); strings.Contains(s, "http") ||
		!strings.Contains(s, "prefers-color-scheme: dark") {
		t.Error("the chart needs another host, or has one theme")
	}
}

// What a run did not measure stays in the document.
func TestRewriteReplacesWhatWasMeasured(t *testing.T) {
	t.Parallel()
	page := "# Page\n"
	for _, s := range []section{summarySection, serversSection, aimsSection, detailSection, figuresSection} {
		page += "\nabove " + s.name + "\n" + s.begin() + "\nold " + s.name + "\n" + s.end() + "\n"
	}
	for _, tt := range []struct {
		name      string
		report    *report
		all       bool
		old       []string // sections that stay
		want, not []string
		chart     bool
	}{
		{"peers", comparedReport(), false, []string{"figures"}, []string{
			"| blocking sends, 32 callers | 1000 /s | 600 /s | 200 /s |",
			"| blocking sends, 32 callers: CPU per send | 0.5 ms | – | 1.5 ms |",
			"- a blocking send, 32 callers: 0.5 ms (a2a-go 1.5 ms)", "| sends | 1.5 × | ≥ 2 | no |",
			"| peers | sends | 1.5 × |  | ≥ 1 | PASS | ", "aim ≥ 2: not reached |",
			"| ready | 90.0 ms | ≤ 150 | yes |", "| peers | no aim | 7 |",
		}, []string{"| drain |", "| no aim | 7 | "}, true},
		{"everything", comparedReport(), true, nil, []string{
			figuresSection.begin() + "\n\nTaken on 2026-01-02", "|---|\n| drain | drain | 3 /s |",
		}, nil, true},
		{"no official server", &report{}, true, []string{"summary", "servers", "aims", "comparison"}, nil, nil, false},
	} {
		path := filepath.Join(t.TempDir(), "page.md")
		if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := tt.report.rewrite(path, tt.all); err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var old []string
		for _, s := range []section{summarySection, serversSection, aimsSection, detailSection, figuresSection} {
			if strings.Contains(string(text), "old "+s.name) {
				old = append(old, s.name)
			}
			tt.want = append(tt.want, "above "+s.name+"\n"+s.begin(), s.end()+"\n")
		}
		if diff := cmp.Diff(tt.old, old); diff != "" {
			t.Errorf("%s: sections that stayed (-want +got):\n%s", tt.name, diff)
		}
		for _, want := range tt.want {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s: no %q in\n%s", tt.name, want, text)
			}
		}
		for _, not := range tt.not {
			if strings.Contains(string(text), "\n"+not) {
				t.Errorf("%s: there is %q in\n%s", tt.name, not, text)
			}
		}
		if _, err := os.Stat(strings.TrimSuffix(path, ".md") + ".svg"); (err == nil) != tt.chart {
			t.Errorf("%s: the chart: %v", tt.name, err)
		}
	}
}

// A server that is left out is named in the report.
func TestMissingServersAreNamed(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := (&bench{}).jsSide(t.Context())
	if err == nil || !strings.Contains(err.Error(), "it needs node") {
		t.Errorf("without node: %v", err)
	}
	r := comparedReport()
	r.leaveOut(jsPeer, err)
	for i := range r.Comparisons {
		r.Comparisons[i].Values = slices.DeleteFunc(r.Comparisons[i].Values,
			func(v serverValue) bool { return v.Server == jsPeer })
	}
	var summary, tail strings.Builder
	r.servers(&summary)
	r.tail(&tail)
	for _, text := range []string{summary.String(), tail.String()} {
		if !strings.Contains(text, "a2a-js was not measured: it needs node") {
			t.Errorf("no word of a2a-js in\n%s", text)
		}
	}
	if want := "| blocking sends, 32 callers | 1000 /s | – | 200 /s |"; !strings.Contains(summary.String(), want) {
		t.Errorf("no %q in\n%s", want, summary.String())
	}
	if strings.Contains(string(r.chart()), `<rect class="a2a-js"`) {
		t.Error("the chart has a bar of a2a-js")
	}
}

func TestRewriteNeedsTheMarksOfTheDocument(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(path, []byte(summarySection.begin()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := comparedReport().rewrite(path, false); err == nil {
		t.Error("a document without the end of a section was rewritten")
	}
	if err := measureOnly(t, options{run: "^send$", write: path, format: "text"}); !errors.Is(err, errPartial) {
		t.Errorf("a run without the official servers: %v, want %v", err, errPartial)
	}
}

func measureOnly(t *testing.T, o options) error {
	t.Helper()
	o.limit = time.Minute
	_, err := measure(t.Context(), o, io.Discard)
	return err
}

// The page and the figures name the versions that are measured.
func TestVersionsOfTheOfficialServers(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("..", "interop")
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("github.com/a2aproject/a2a-go/v2 v%s\n", peerVersions[goPeer])
	if !strings.Contains(string(text), want) {
		t.Errorf("go.mod lacks %q", want)
	}
	text, err = os.ReadFile(filepath.Join(dir, "peerbench", "jsserver", "package.json"))
	if err != nil {
		t.Fatal(err)
	}
	var pack struct{ Dependencies map[string]string }
	if err := json.Unmarshal(text, &pack); err != nil || pack.Dependencies["@a2a-js/sdk"] != peerVersions[jsPeer] {
		t.Errorf("package.json has %v, %v; want %s", pack.Dependencies, err, peerVersions[jsPeer])
	}
}
