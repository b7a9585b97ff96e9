package rpc_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/sse"
)

func (op *operation) header() http.Header {
	h := http.Header{}
	if op.lastID != "" {
		h.Set("Last-Event-ID", op.lastID)
	}
	if op.key != "" {
		h.Set("Idempotency-Key", op.key)
	}
	if op.apiKey != "" {
		h.Set("X-API-Key", op.apiKey)
	}
	if op.extension != "" {
		h.Set("A2A-Extensions", op.extension)
	}
	return h
}

// httpFeed is a stream over HTTP.
type httpFeed struct {
	words
	reader *sse.Reader
	name   string // the operation
	member string // contains the result; empty: the result is bare
}

func newFeed(t *testing.T, resp *http.Response, w words, name, member string) feed {
	t.Helper()
	if kind := resp.Header.Get("Content-Type"); kind != "text/event-stream" {
		body, _ := io.ReadAll(resp.Body)
		t.Fatalf("%s %s", kind, body)
	}
	return &httpFeed{w, sse.NewReader(resp.Body, sse.ReaderOptions{}), name, member}
}

func (f *httpFeed) next(t *testing.T) (map[string]any, string) {
	t.Helper()
	ev, err := f.reader.Next()
	if errors.Is(err, io.EOF) {
		return nil, ""
	}
	if err != nil {
		t.Fatal(err)
	}
	f.valid(t, f.name, f.member != "", ev.Data)
	result := ev.Data
	if f.member != "" {
		result = rawjson.Get(ev.Data, f.member)
	}
	return f.item(t, bytes.Clone(result)), ev.ID
}

// overRPC speaks JSON-RPC.
type overRPC struct {
	*site
	dialect
}

func (s overRPC) modern() bool { return s.version == "1.0" }

func (s overRPC) words() words {
	if s.modern() {
		return wordsV1
	}
	return wordsSchema
}

func (s overRPC) request(op *operation) (method, params string) {
	task, config := string(rawjson.AppendString(nil, op.task)), op.config
	switch op.name {
	case "SendMessage":
		return s.send, s.words().message(op)
	case "SendStreamingMessage":
		return s.stream, s.words().message(op)
	case "GetTask":
		if op.history != "" {
			return s.get, `{"id":` + task + `,"historyLength":` + op.history + `}`
		}
		return s.get, `{"id":` + task + `}`
	case "ListTasks":
		return s.list, `{"contextId":"` + op.context + `","pageSize":` + op.size + `,"pageToken":"` + op.token +
			`","includeArtifacts":true}`
	case "CancelTask":
		return s.cancel, `{"id":` + task + `}`
	case "SubscribeToTask":
		return s.subscribe, `{"id":` + task + `}`
	case "CreateTaskPushNotificationConfig":
		return s.pushSet, s.pushConfig(op.task, `"url":"https://h/x","id":"`+config+`"`, "Bearer")
	case "GetTaskPushNotificationConfig":
		return s.pushGet, s.pushParams(op.task, config)
	case "ListTaskPushNotificationConfigs":
		return s.pushList, s.pushParams(op.task, "")
	}
	return s.pushDelete, s.pushParams(op.task, config)
}

func (s overRPC) do(t *testing.T, op *operation) (any, string) {
	t.Helper()
	method, params := s.request(op)
	resp := client{s.site, t, s.dialect}.post(method, params, op.header())
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	s.words().valid(t, op.name, true, body)
	if failure := rawjson.Get(body, "error"); failure != nil {
		data := rawjson.Get(failure, "data")
		for first := range rawjson.Elements(data) {
			data = first
			break
		}
		word, _ := rawjson.String(rawjson.Get(data, "reason"))
		return nil, word
	}
	return s.words().answer(t, op.name, rawjson.Get(body, "result")), ""
}

func (s overRPC) follow(t *testing.T, op *operation) feed {
	t.Helper()
	method, params := s.request(op)
	resp := client{s.site, t, s.dialect}.post(method, params, op.header())
	t.Cleanup(func() { resp.Body.Close() })
	return newFeed(t, resp, s.words(), op.name, "result")
}

// overREST speaks HTTP+JSON.
type overREST struct {
	*site
	prefix string
	words  words
}

func (s overREST) modern() bool { return s.words == wordsV1 }

func (s overREST) request(op *operation) (method, path, body string) {
	task := "/tasks/" + url.PathEscape(op.task)
	pushes := task + "/pushNotificationConfigs"
	switch op.name {
	case "SendMessage":
		return "POST", "/message:send", s.words.message(op)
	case "SendStreamingMessage":
		return "POST", "/message:stream", s.words.message(op)
	case "GetTask":
		if op.history != "" {
			return "GET", task + "?history_length=" + op.history, ""
		}
		return "GET", task, ""
	case "ListTasks":
		q := url.Values{"contextId": {op.context}, "pageSize": {op.size}, "pageToken": {op.token},
			"includeArtifacts": {"true"}}
		return "GET", "/tasks?" + q.Encode(), ""
	case "CancelTask":
		return "POST", task + ":cancel", ""
	case "SubscribeToTask":
		if op.lastID != "" {
			return "GET", task + ":subscribe", ""
		}
		return "POST", task + ":subscribe", ""
	case "CreateTaskPushNotificationConfig":
		config := `{"url":"https://h/x","id":"` + op.config + `","authentication":{"schemes":["Bearer"]}}`
		return "POST", pushes, [...]string{
			`{"url":"https://h/x","id":"` + op.config + `","authentication":{"scheme":"Bearer"}}`,
			`{"taskId":` + string(rawjson.AppendString(nil, op.task)) + `,"pushNotificationConfig":` + config + `}`,
			`{"config":{"pushNotificationConfig":` + config + `}}`,
		}[s.words]
	case "GetTaskPushNotificationConfig":
		return "GET", pushes + "/" + url.PathEscape(op.config), ""
	case "ListTaskPushNotificationConfigs":
		return "GET", pushes, ""
	}
	return "DELETE", pushes + "/" + url.PathEscape(op.config), ""
}

// dialect returns the words of the answer. In 0.3 only a client that sends the schema's words gets
// them.
func (s overREST) dialect(body string) words {
	if s.words == wordsSchema && body == "" {
		return wordsProto
	}
	return s.words
}

func (s overREST) send(t *testing.T, op *operation) (*http.Response, words) {
	t.Helper()
	method, path, body := s.request(op)
	req, err := http.NewRequestWithContext(t.Context(), method,
		s.URL+"/agents/script"+s.prefix+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = op.header()
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if s.modern() {
		req.Header.Set("A2A-Version", "1.0")
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp, s.dialect(body)
}

func (s overREST) do(t *testing.T, op *operation) (any, string) {
	t.Helper()
	resp, w := s.send(t, op)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, reason(string(body))
	}
	w.valid(t, op.name, false, body)
	return w.answer(t, op.name, body), ""
}

func (s overREST) follow(t *testing.T, op *operation) feed {
	t.Helper()
	resp, w := s.send(t, op)
	t.Cleanup(func() { resp.Body.Close() })
	return newFeed(t, resp, w, op.name, "")
}
