package http_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	nethttp "net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/executor/http"
	"github.com/a2ad/a2ad/internal/leaktest"
	"github.com/a2ad/a2ad/internal/rawjson"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const (
	working   = `{"statusUpdate":{"status":{"state":"TASK_STATE_WORKING"}}}`
	completed = `{"statusUpdate":{"status":{"state":"TASK_STATE_COMPLETED"}}}`
	chunk     = `{"artifactUpdate":{"artifact":{"artifactId":"a","parts":[{"text":"hi"}]},"append":true}}`
)

func status(s a2a.State) a2a.Event { return &a2a.StatusUpdate{Status: a2a.Status{State: s}} }

var hi a2a.Event = &a2a.ArtifactUpdate{Append: true,
	Artifact: a2a.Artifact{ID: "a", Parts: []a2a.Part{{Kind: a2a.PartText, Text: "hi"}}}}

func run() executor.Run {
	said := a2a.Message{ID: "m", Role: a2a.RoleUser, Parts: []a2a.Part{{Kind: a2a.PartText, Text: "hello"}}}
	return executor.Run{
		Task: a2a.Task{ID: a2a.ID{1}, ContextID: "c", History: []a2a.Message{said},
			Status: a2a.Status{State: a2a.StateWorking}}, Messages: []a2a.Message{said},
		Agent: "agent", Epoch: 7, Attempt: 2, Checkpoint: a2a.Raw(`{"n":1}`),
	}
}

// agent is the web server of an agent. It ends with the test.
func agent(t *testing.T, h nethttp.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL
}

// answering returns an agent that gives every request the same answer.
func answering(t *testing.T, kind, body string) string {
	t.Helper()
	return agent(t, func(w nethttp.ResponseWriter, _ *nethttp.Request) {
		w.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(w, body)
	})
}

// raw is an agent that writes bytes after each request and closes the connection.
func raw(t *testing.T, answer string, reset bool) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			req, err := nethttp.ReadRequest(bufio.NewReader(c))
			if err == nil {
				_, _ = io.Copy(io.Discard, req.Body)
			}
			_, _ = io.WriteString(c, answer)
			if reset {
				_ = c.(*net.TCPConn).SetLinger(0)
			}
			c.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return "http://" + l.Addr().String()
}

func collect(t *testing.T, ctx context.Context, c http.Config, r executor.Run) (events []a2a.Event, last error) {
	t.Helper()
	e, err := http.New(c)
	if err != nil {
		t.Fatal(err)
	}
	for ev, err := range e.Execute(ctx, r) {
		if err != nil {
			return events, err
		}
		events = append(events, ev)
	}
	return events, nil
}

func TestRequestIsTheRunWithItsLength(t *testing.T) {
	t.Parallel()
	var head nethttp.Header
	var length int64
	var encoding []string
	var body []byte
	url := agent(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
		head, length, encoding = r.Header, r.ContentLength, r.TransferEncoding
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, completed)
	})
	c := http.Config{URL: url, Header: nethttp.Header{"Authorization": {"Bearer secret"}, "X-Own": {"1"},
		"User-Agent": {"mine"}}}
	r := run()
	r.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	if _, err := collect(t, t.Context(), c, r); err != nil {
		t.Fatal(err)
	}
	if length != int64(len(body)) || len(encoding) > 0 {
		t.Errorf("Content-Length %d of %d bytes, Transfer-Encoding %q", length, len(body), encoding)
	}
	for k, want := range map[string]string{
		"Content-Type": "application/json", "Authorization": "Bearer secret", "X-Own": "1", "User-Agent": "mine",
		"Idempotency-Key": "01000000-0000-0000-0000-000000000000:7", "A2ad-Epoch": "7", "A2ad-Attempt": "2",
		"Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"Accept":      "application/x-ndjson, text/event-stream;q=0.9, application/json;q=0.8",
	} {
		if got := head.Get(k); got != want {
			t.Errorf("%s: %q, want %q", k, got, want)
		}
	}
	if err := rawjson.Check(body, 64); err != nil {
		t.Fatal(err)
	}
	for k, want := range map[string]string{"taskId": `"01000000-0000-0000-0000-000000000000"`, "agent": `"agent"`,
		"epoch": "7", "checkpoint": `{"n":1}`} {
		if got := string(rawjson.Get(body, k)); got != want {
			t.Errorf("%s: %s, want %s", k, got, want)
		}
	}
}

func TestFormsOfAnswers(t *testing.T) {
	t.Parallel()
	want := []a2a.Event{status(a2a.StateWorking), &a2a.Checkpoint{Body: a2a.Raw(`{"n":1}`)}, hi,
		status(a2a.StateCompleted)}
	const cp = `{"checkpoint":{"n":1}}`
	for _, tc := range []struct{ kind, body string }{
		{"application/x-ndjson", working + "\n" + cp + "\r\n\n  " + chunk + "\n" + completed},
		{"application/jsonl; charset=utf-8",
			working + "\n" + cp + "\n" + chunk + "\n" + completed + "\n" + working + "\n"},
		{"text/event-stream", ": hello\n\ndata: " + working + "\n\ndata:" + cp + "\n\nevent: x\nid: 1\ndata: " +
			strings.Replace(chunk, ",", ",\ndata: ", 1) + "\n\ndata: " + completed + "\n\n"},
		{"Text/Event-Stream;charset=utf-8",
			"data: " + working + "\r\n\r\ndata: " + cp + "\r\n\r\ndata: " + chunk + "\r\n\r\ndata: " + completed +
				"\r\n\r\ndata: junk\r\n\r\n"},
		{"application/json", "\n[" + working + ", " + cp + "," + chunk + "\n," + completed + "]\n"},
	} {
		got, err := collect(t, t.Context(), http.Config{URL: answering(t, tc.kind, tc.body)}, run())
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: error %v (-want +got):\n%s", tc.kind, err, diff)
		}
	}
	got, err := collect(t, t.Context(), http.Config{URL: answering(t, "application/json", completed)}, run())
	if diff := cmp.Diff(want[3:], got); diff != "" || err != nil {
		t.Errorf("one event: error %v (-want +got):\n%s", err, diff)
	}
}

// An agent that breaks the rules fails the task. After an agent was killed, the run is retried.
func TestEndWithoutAStatus(t *testing.T) {
	t.Parallel()
	const head = "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n"
	chunked := func(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }
	const old = "HTTP/1.0 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n"
	const json = "Content-Type: application/json\r\n"
	for _, tc := range []struct {
		name, answer string
		reset        bool
		events       int
		want         string
		again        bool
	}{
		{"all chunks", head + "Transfer-Encoding: chunked\r\n\r\n" + chunked(working+"\n") + "0\r\n\r\n", false, 1,
			"the answer ended after event 1 without a status that ends the turn", false},
		{"no last chunk", head + "Transfer-Encoding: chunked\r\n\r\n" + chunked(working+"\n"), false, 1,
			"the agent's connection was cut before the end of its answer", true},
		{"inside a chunk", head + "Transfer-Encoding: chunked\r\n\r\nff\r\n" + working + "\n" + working[:20], false, 1,
			"the agent's connection was cut before the end of its answer", true},
		{"reset", head + "Transfer-Encoding: chunked\r\n\r\n", true, 0,
			"the agent's connection was cut before the end of its answer", true},
		{"whole length", head + "Content-Length: " + fmt.Sprint(len(chunk)) + "\r\n\r\n" + chunk, false, 1,
			"the answer ended after event 1 without a status that ends the turn", false},
		{"short of its length", head + "Content-Length: 1000\r\n\r\n" + chunk + "\n" + completed[:30], false, 1,
			"the agent's connection was cut before the end of its answer", true},
		{"nothing", head + "Content-Length: 0\r\n\r\n", false, 0,
			"the answer ended after event 0 without a status that ends the turn", false},
		{"HTTP/1.0 between lines", old + chunk + "\n", false, 1,
			"the agent's connection was cut before the end of its answer", true},
		{"HTTP/1.0 inside a line", old + chunk + "\n" + completed[:30], false, 1,
			"the agent's connection was cut before the end of its answer", true},
		{"HTTP/1.0, a bad line", old + "junk\n" + completed, false, 0,
			"event 1 of the answer: unexpected character at byte 0", false},
		{"a document", "HTTP/1.1 200 OK\r\n" + json + "Content-Length: 2\r\n\r\n[]", false, 0,
			"the answer ended after event 0 without a status that ends the turn", false},
		{"a document that is none", "HTTP/1.1 200 OK\r\n" + json + "Content-Length: 2\r\n\r\n[1", false, 0,
			"the answer: expected a comma or the end at byte 2", false},
		{"a document, cut", "HTTP/1.0 200 OK\r\n" + json + "\r\n[" + working, false, 0,
			"the agent's connection was cut before the end of its answer", true},
		{"a document without length", "HTTP/1.0 200 OK\r\n" + json + "\r\n[" + working + "]", false, 1,
			"the answer ended after event 1 without a status that ends the turn", false},
		{"no answer", "", false, 0, "the agent closed the connection before it answered", true},
		{"no HTTP", "hello\r\n", false, 0, "the agent closed the connection before it answered", true},
	} {
		events, err := collect(t, t.Context(), http.Config{URL: raw(t, tc.answer, tc.reset)}, run())
		if err == nil || err.Error() != tc.want || executor.IsPermanent(err) == tc.again || len(events) != tc.events {
			t.Errorf("%s: %d events, error %v (permanent %t), want %d, %s", tc.name, len(events), err,
				executor.IsPermanent(err), tc.events, tc.want)
		}
		if !tc.again && a2a.CodeOf(err) != a2a.CodeInvalidAgentResponse {
			t.Errorf("%s: code %v, want that of an invalid agent response", tc.name, a2a.CodeOf(err))
		}
	}
	// A document in HTTP/1.0 that ends the turn is complete, and so is a last line without its end.
	for _, answer := range []string{"HTTP/1.0 200 OK\r\n" + json + "\r\n" + completed, old + completed} {
		if events, err := collect(t, t.Context(), http.Config{URL: raw(t, answer, false)}, run()); err != nil ||
			len(events) != 1 {
			t.Errorf("%q: %d events, error %v", answer, len(events), err)
		}
	}
}

func TestStatusCodes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		code             int
		header, text     string
		permanent        bool
		least, most      time.Duration
		kind, wantedText string
	}{
		{400, "", "no such\r\ntool", true, 0, 0, "text/plain; charset=utf-8",
			"the agent answered 400 Bad Request: no such tool"},
		{404, "", "<html>", true, 0, 0, "text/html", "the agent answered 404 Not Found"},
		{401, "5", "", true, 0, 0, "", "the agent answered 401 Unauthorized"},
		{408, "", "", false, 0, 0, "", "the agent answered 408 Request Timeout"},
		{425, "", "", false, 0, 0, "", "the agent answered 425 Too Early"},
		{429, "7", "", false, 7 * time.Second, 7 * time.Second, "", "the agent answered 429 Too Many Requests"},
		{429, "soon", "", false, 0, 0, "", "the agent answered 429 Too Many Requests"},
		{503, "999999999", "", false, time.Hour, time.Hour, "", "the agent answered 503 Service Unavailable"},
		{503, time.Now().Add(30 * time.Minute).UTC().Format(nethttp.TimeFormat), "", false, 25 * time.Minute,
			30 * time.Minute, "", "the agent answered 503 Service Unavailable"},
		{503, "-1", "", false, 0, 0, "", "the agent answered 503 Service Unavailable"},
		{500, "7", "boom", false, 0, 0, "text/plain", "the agent answered 500 Internal Server Error: boom"},
		{307, "", "", true, 0, 0, "", "the agent answered 307 Temporary Redirect: redirects are not followed"},
		{204, "", "", true, 0, 0, "",
			`the answer has the Content-Type ""; it must be application/x-ndjson, text/event-stream or ` +
				`application/json`},
	} {
		url := agent(t, func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			w.Header().Set("Content-Type", tc.kind)
			w.Header().Set("Retry-After", tc.header)
			w.Header().Set("Location", "http://127.0.0.1:1/")
			w.WriteHeader(tc.code)
			_, _ = io.WriteString(w, tc.text)
		})
		_, err := collect(t, t.Context(), http.Config{URL: url}, run())
		if err == nil || err.Error() != tc.wantedText || executor.IsPermanent(err) != tc.permanent {
			t.Errorf("%d: error %v (permanent %t), want %s", tc.code, err, executor.IsPermanent(err), tc.wantedText)
		}
		if d := executor.RetryDelay(err); d < tc.least || d > tc.most {
			t.Errorf("%d, Retry-After %s: wait %s, want %s to %s", tc.code, tc.header, d, tc.least, tc.most)
		}
	}
}

func TestUnreachableAgents(t *testing.T) {
	t.Parallel()
	secure := httptest.NewTLSServer(nil)
	t.Cleanup(secure.Close)
	for _, tc := range []struct{ url, want string }{
		{closedPort, "the agent refuses connections"},
		{"http://a2ad-agent.invalid/", "the agent's host name cannot be resolved"},
		{secure.URL, "no connection to the agent can be made"},
	} {
		_, err := collect(t, t.Context(), http.Config{URL: tc.url}, run())
		if err == nil || err.Error() != tc.want || executor.IsPermanent(err) {
			t.Errorf("%s: error %v (permanent %t), want %s", tc.url, err, executor.IsPermanent(err), tc.want)
		}
	}
}

// An agent continues without end after an invalid event: earlier events are emitted, the invalid one is not, and the
// connection is closed.
func TestBadEventEndsTheRun(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ kind, body, want string }{
		{"application/x-ndjson", chunk + "\n" + `{"artifactUpdate":{"artifact":{"artifactId":"a"}}}` + "\n",
			"event 2 of the answer: artifactUpdate.artifact.parts must have at least one part"},
		{"text/event-stream", "data: " + chunk + "\n\ndata: {\"thing\":1}\n\n",
			"event 2 of the answer: thing is unknown; an event is a statusUpdate, artifactUpdate, message, " +
				"checkpoint, step, wait, call or usage"},
		{"application/x-ndjson", chunk + "\n" + `{"checkpoint":"` + strings.Repeat("x", 5000) + `"}` + "\n",
			"event 2 of the answer is longer than 4096 bytes"},
		{"text/event-stream", "data: " + chunk + "\n\ndata: \"" + strings.Repeat("x", 5000) + "\"\n\n",
			"event 2 of the answer is longer than 4096 bytes"},
		{"application/x-ndjson", chunk + "\n" + strings.Repeat("\n", 20_000), "the answer is longer than 16384 bytes"},
		{"text/event-stream", "data: " + chunk + "\n\n" + strings.Repeat(": x\n", 5000),
			"the answer is longer than 16384 bytes"},
	} {
		closed, told := make(chan struct{}), make(chan string, 2)
		url := agent(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
			b, _ := io.ReadAll(r.Body)
			if r.URL.Path == "/cancel" {
				told <- string(b)
				return
			}
			w.Header().Set("Content-Type", tc.kind)
			_, _ = io.WriteString(w, tc.body)
			w.(nethttp.Flusher).Flush()
			<-r.Context().Done()
			close(closed)
		})
		events, err := collect(t, t.Context(),
			http.Config{URL: url, CancelURL: url + "/cancel", MaxEvent: 4096, MaxOutput: 16384}, run())
		if err == nil || err.Error() != tc.want || !executor.IsPermanent(err) ||
			a2a.CodeOf(err) != a2a.CodeInvalidAgentResponse {
			t.Errorf("error %v, want %s", err, tc.want)
		}
		if diff := cmp.Diff([]a2a.Event{hi}, events); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.want, diff)
		}
		<-closed
		const note = `{"taskId":"01000000-0000-0000-0000-000000000000","contextId":"c","agent":"agent","epoch":7,` +
			`"attempt":2,"reason":"invalid"}`
		if got := <-told; got != note || len(told) > 0 {
			t.Errorf("the cancel URL got %s, want %s, once", got, note)
		}
	}
}

// Servers keep a stream open, or mark its end, with events that say nothing.
func TestBlankEventsAreSkipped(t *testing.T) {
	t.Parallel()
	url := agent(t, func(w nethttp.ResponseWriter, _ *nethttp.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data:\n\ndata: {}\n\ndata: "+chunk+"\n\ndata: "+completed+"\n\ndata: [DONE]\n\n")
	})
	events, err := collect(t, t.Context(), http.Config{URL: url}, run())
	if err != nil || len(events) != 2 {
		t.Errorf("got %d events and the error %v, want 2 and none", len(events), err)
	}
}

func TestCompressionIsRefused(t *testing.T) {
	t.Parallel()
	url := agent(t, func(w nethttp.ResponseWriter, _ *nethttp.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		w.Header().Set("Content-Encoding", "gzip")
	})
	_, err := collect(t, t.Context(), http.Config{URL: url}, run())
	if err == nil || err.Error() != `the answer has the Content-Encoding "gzip", which was not requested` {
		t.Error(err)
	}
}
