package rpc_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write what the server answers into testdata/transcripts")

// TestTranscripts plays the files of testdata/transcripts against a server. They are txtar files
// with prose, then requests with their answers, and serve as documentation. A request is
//
//	-- request --
//	POST /
//	Header: value
//
//	body
//
// The next section, "-- response --", has the status, the type and the body: JSON indented, streams
// unchanged. A section "-- stream --" is a request whose stream stays open while the next requests
// are made; its "-- streamed --" is at the end. Values that differ between runs have names: $task,
// $context, $message, $token and $event, with a number from the second one on.
func TestTranscripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/transcripts/*/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimPrefix(strings.TrimSuffix(file, ".txtar"), "testdata/transcripts/"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			p := player{t: t, site: newSite(t), names: map[string]string{}}
			got := p.play(parseTxtar(string(text)))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(text), got); diff != "" {
				t.Errorf("%s (-want +got); go test -update rewrites it:\n%s", file, diff)
			}
		})
	}
}

// section is one file of a txtar archive. The first one, without a name, is the comment.
type section struct{ name, text string }

func parseTxtar(text string) []section {
	list := []section{{}}
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(line, "-- "); ok && strings.HasSuffix(name, " --\n") {
			list = append(list, section{name: strings.TrimSuffix(name, " --\n")})
			continue
		}
		list[len(list)-1].text += line
	}
	return list
}

// player makes the requests of one transcript.
type player struct {
	t     *testing.T
	site  *site
	names map[string]string // of values that differ between runs
	kinds map[string]int    // how many names of each kind there are
	open  *openStream
}

type openStream struct {
	read *bufio.Reader
	head string // up to the first event
}

func (p *player) play(sections []section) string {
	p.kinds = map[string]int{}
	var out strings.Builder
	out.WriteString(sections[0].text)
	for _, s := range sections[1:] {
		switch s.name {
		case "request":
			resp := p.request(s.text)
			fmt.Fprintf(&out, "-- request --\n%s-- response --\n%s", s.text, p.name(p.answer(resp)))
			resp.Body.Close()
		case "stream":
			fmt.Fprintf(&out, "-- stream --\n%s", s.text)
			resp := p.request(s.text)
			defer resp.Body.Close()
			p.begin(resp)
		}
	}
	if p.open != nil {
		rest, err := io.ReadAll(p.open.read)
		if err != nil {
			p.t.Fatal(err)
		}
		fmt.Fprintf(&out, "-- streamed --\n%s", p.name(p.open.head+string(rest)))
	}
	return out.String()
}

var placeholder = regexp.MustCompile(`\$(task|context|message|token|event)\d*`)

func (p *player) request(text string) *http.Response {
	p.t.Helper()
	head, body, _ := strings.Cut(text, "\n\n")
	lines := strings.Split(strings.TrimSpace(head), "\n")
	method, path, _ := strings.Cut(lines[0], " ")
	values := map[string]string{}
	for value, name := range p.names {
		values[name] = value
	}
	fill := func(s string) string {
		return placeholder.ReplaceAllStringFunc(s, func(name string) string {
			if v, ok := values[name]; ok {
				return v
			}
			p.t.Fatalf("no value has the name %s yet", name)
			return ""
		})
	}
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.site.URL+fill(path), strings.NewReader(fill(body)))
	if err != nil {
		p.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, line := range lines[1:] {
		k, v, _ := strings.Cut(line, ": ")
		req.Header.Set(k, fill(v))
	}
	resp, err := p.site.Client().Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp
}

// head is the part of an answer before its body, as a transcript shows it.
func head(resp *http.Response) string {
	h := fmt.Sprintf("%s\nContent-Type: %s\n", resp.Status, resp.Header.Get("Content-Type"))
	for _, name := range []string{"A2A-Extensions", "X-A2A-Extensions", "ETag", "Vary", "Cache-Control",
		"WWW-Authenticate"} {
		if v := resp.Header.Get(name); v != "" && (name != "Cache-Control" || resp.Request.Method == http.MethodGet) {
			h += name + ": " + v + "\n"
		}
	}
	return h + "\n"
}

func (p *player) answer(resp *http.Response) string {
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	text := string(body)
	var b bytes.Buffer
	if strings.HasSuffix(resp.Header.Get("Content-Type"), "json") && json.Indent(&b, body, "", "  ") == nil {
		text = b.String() + "\n"
	}
	return head(resp) + text
}

// begin opens a stream and waits for its first event, so that the stream contains everything after
// it.
func (p *player) begin(resp *http.Response) {
	p.open = &openStream{read: bufio.NewReader(resp.Body), head: head(resp)}
	for {
		line, err := p.open.read.ReadString('\n')
		if err != nil {
			p.t.Fatalf("the stream ended before its first event: %v\n%s", err, p.open.head)
		}
		p.open.head += line
		if line == "\n" && strings.Contains(p.open.head, "\ndata:") {
			p.name(p.open.head)
			return
		}
	}
}

var (
	uuidIn = regexp.MustCompile(
		`"(\w+)": ?"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})((?:-\d+-\d+)?)"`)
	tokenIn  = regexp.MustCompile(`"nextPageToken": ?"([\w-]{20,})"`)
	eventIn  = regexp.MustCompile(`(?m)^id: (\d+)-([0-9a-f]{8})$`)
	timeIn   = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`)
	anyUUID  = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	requests = regexp.MustCompile(`"requestId": ?"[^"]+"`)
)

// name replaces values that differ between runs by their names in the transcript.
func (p *player) name(text string) string {
	for _, m := range uuidIn.FindAllStringSubmatch(text, -1) {
		kind := map[string]string{"contextId": "$context", "messageId": "$message", "id": "$task",
			"taskId": "$task"}[m[1]]
		if kind != "" && m[3] == "" {
			p.call(m[2], kind)
		}
	}
	for _, m := range tokenIn.FindAllStringSubmatch(text, -1) {
		p.call(m[1], "$token")
	}
	for _, m := range eventIn.FindAllStringSubmatch(text, -1) {
		p.names[m[1]+"-"+m[2]] = "$event" + m[1]
	}
	for value, name := range p.names {
		text = strings.ReplaceAll(text, value, name)
	}
	text = timeIn.ReplaceAllString(text, "2026-01-01T00:00:00.000Z")
	if left := anyUUID.FindString(text); left != "" {
		p.t.Errorf("%s has no name in\n%s", left, text)
	}
	return requests.ReplaceAllString(text, `"requestId": "…"`)
}

func (p *player) call(value, kind string) {
	if p.names[value] != "" {
		return
	}
	p.kinds[kind]++
	if p.names[value] = kind; p.kinds[kind] > 1 {
		p.names[value] = fmt.Sprint(kind, p.kinds[kind])
	}
}
