package rpc_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/engine"
	"github.com/a2ad/a2ad/internal/rpc"
)

const hang = `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"data":{"script":[{"op":"hang"}]}}]}}`

// TestRESTTooManyStreams: the refusal is plain JSON, and says when to come back.
func TestRESTTooManyStreams(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		owner, all, status int
		reason             string
	}{{1, 9, 429, "RATE_LIMITED"}, {9, 1, 503, "UNAVAILABLE"}} {
		s := newSiteWith(t, func(c *engine.Config, _ *rpc.Config) {
			c.MaxStreamsPerOwner, c.MaxStreams = tc.owner, tc.all
		})
		overREST{s, "", wordsV1}.follow(t, &operation{name: "SendStreamingMessage", script: `{"op":"hang"}`}).next(t)
		for _, path := range []string{"/message:stream", "/v1/message:stream"} {
			body := hang
			if strings.HasPrefix(path, "/v1") {
				body = strings.Replace(hang, `{"data":{"script"`, `{"data":{"data":{"script"`, 1)
				body = strings.Replace(body, `]}}]`, `]}}}]`, 1)
			}
			got := askREST(t, s.Server, "POST", path, body, nil)
			wantFault(t, "POST "+path, got, tc.status, tc.reason)
			if got.header.Get("Retry-After") == "" {
				t.Errorf("%s: %v", path, got.header)
			}
		}
	}
}

// TestKeyIsGoodOverEveryBinding: the same params with the same key are the same request, with or
// without an envelope.
func TestKeyIsGoodOverEveryBinding(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	op := &operation{name: "SendMessage", key: "k", script: `{"op":"complete"}`}
	once, _ := overRPC{s, dialects[1]}.do(t, op)
	again, reason := overREST{s, "", wordsV1}.do(t, op)
	if diff := cmp.Diff(once, again); diff != "" || reason != "" {
		t.Errorf("over the other binding: %s\n%s", reason, diff)
	}
}

// TestRESTStreamHeaders: GET and POST streams have the headers that proxies need.
func TestRESTStreamHeaders(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	made, _ := overREST{s, "", wordsV1}.do(t, &operation{name: "SendMessage", script: `{"op":"input"}`})
	ended, _ := overREST{s, "", wordsV1}.do(t, &operation{name: "SendMessage", script: `{"op":"complete"}`})
	for _, method := range []string{"GET", "POST"} {
		// In 0.3 the stream of an ended task ends at once.
		got := askREST(t, s.Server, method, "/v1/tasks/"+id(object(t, ended))+":subscribe", "",
			http.Header{"Accept": {"text/event-stream"}})
		if got.status != 200 || got.header.Get("Content-Type") != "text/event-stream" ||
			got.header.Get("Cache-Control") != "no-store, no-transform" || got.header.Get("X-Accel-Buffering") != "no" {
			t.Errorf("%s: %d %v", method, got.status, got.header)
		}
		if !strings.HasPrefix(got.body, "id: ") || strings.Count(got.body, "\ndata: {\"") != 2 ||
			strings.Contains(got.body, "jsonrpc") {
			t.Errorf("%s: %s", method, got.body)
		}
		got = askREST(t, s.Server, method, "/tasks/"+id(object(t, ended))+":subscribe", "", nil)
		wantFault(t, "subscribe to a finished task", got, 400, "UNSUPPORTED_OPERATION")
	}
	got := askREST(t, s.Server, "GET", "/tasks/"+id(object(t, made)), "",
		http.Header{"Accept": {"application/a2a+json"}})
	if got.status != 200 || got.header.Get("Content-Type") != "application/a2a+json" ||
		got.header.Get("Cache-Control") != "no-store" {
		t.Errorf("get: %d %v", got.status, got.header)
	}
}

// TestStreamsEndWithAHintWhenTheServerDrains: over every binding, they tell the client when to come
// back, and contain no false last event.
func TestStreamsEndWithAHintWhenTheServerDrains(t *testing.T) {
	t.Parallel()
	drain, stop := context.WithCancel(t.Context())
	defer stop()
	s := newSiteWith(t, func(_ *engine.Config, c *rpc.Config) { c.Drain, c.SSERetry = drain, 1234*time.Millisecond })
	op := &operation{name: "SendStreamingMessage", script: `{"op":"chunk","id":"a","n":1},{"op":"hang"}`}
	rest, _ := overREST{s, "", wordsV1}.send(t, op)
	defer rest.Body.Close()
	method, params := overRPC{s, dialects[0]}.request(op)
	enveloped := client{s, t, dialects[0]}.post(method, params, nil)
	defer enveloped.Body.Close()
	var open []*bufio.Reader
	for _, resp := range []*http.Response{rest, enveloped} {
		buf := bufio.NewReader(resp.Body)
		if line, err := buf.ReadString('\n'); err != nil || !strings.HasPrefix(line, "id: 1-") {
			t.Fatalf("%v: %q", err, line)
		}
		open = append(open, buf)
	}
	stop()
	for _, buf := range open {
		tail, err := io.ReadAll(buf)
		if err != nil || !strings.HasSuffix(string(tail), "retry: 1234\n\n: draining\n\n") ||
			strings.Contains(string(tail), `"final":true`) {
			t.Errorf("%v\n%s", err, tail)
		}
	}
}

// TestRESTLogLine: the log line has the route and the method, and nothing of the body.
func TestRESTLogLine(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	handler := newBare(t, func(c *rpc.Config) { c.Logger = slog.New(slog.NewJSONHandler(&log, nil)) }).Config.Handler
	for _, tc := range []struct {
		method, path, body string
		want               map[string]any
	}{
		{"POST", "/agents/b/message:send", `{"message":{"secret":1}}`,
			map[string]any{"route": "/agents/{agent}/message:send", "method": "SendMessage", "version": "1.0",
				"status": 400.0}},
		{"POST", "/v1/tasks/x:cancel", `[]`, map[string]any{"route": "/v1/tasks/{id}:cancel", "method": "tasks/cancel",
			"version": "0.3", "status": 422.0}},
		{"GET", "/b/extendedAgentCard", ``, map[string]any{"route": "/{tenant}/extendedAgentCard",
			"method": "GetExtendedAgentCard", "version": "1.0", "status": 400.0}},
		{"PUT", "/tasks/x/pushNotificationConfigs/y", ``,
			map[string]any{"route": "/tasks/{id}/pushNotificationConfigs/{id}", "version": "1.0", "status": 405.0}},
	} {
		log.Reset()
		req := httptest.NewRequestWithContext(t.Context(), tc.method, tc.path, strings.NewReader(tc.body))
		req.Header.Set("Content-Type", "application/json")
		if !strings.HasPrefix(tc.path, "/v1") {
			req.Header.Set("A2A-Version", "1.0")
		}
		handler.ServeHTTP(httptest.NewRecorder(), req)
		var got map[string]any
		if err := json.Unmarshal(log.Bytes(), &got); err != nil {
			t.Fatalf("want one line: %v\n%s", err, log.Bytes())
		}
		if got["msg"] != "request" || got["http_method"] != tc.method || got["path"] != tc.path ||
			got["request_id"] == "" || strings.Contains(log.String(), "secret") {
			t.Errorf("%s %s: %s", tc.method, tc.path, log.Bytes())
		}
		for _, name := range []string{"route", "method", "version", "status"} {
			if got[name] != tc.want[name] {
				t.Errorf("%s %s: %s: got %v, want %v", tc.method, tc.path, name, got[name], tc.want[name])
			}
		}
	}
}
