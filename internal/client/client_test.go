package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
)

// oneAnswer serves one answer for ever and keeps the last request.
type oneAnswer struct {
	answer string
	got    *http.Request
	body   string
}

var idMember = regexp.MustCompile(`"id":(\d+),`)

func (s *oneAnswer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.got, s.body = r, string(body)
	w.Header().Set("Content-Type", "application/json")
	answer := s.answer
	if m := idMember.FindStringSubmatch(s.body); m != nil {
		answer = strings.ReplaceAll(answer, "$ID", m[1])
	}
	_, _ = io.WriteString(w, answer)
}

func serve(t *testing.T, answer string) (*client.Client, *oneAnswer) {
	t.Helper()
	h := &oneAnswer{answer: answer}
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return &client.Client{URL: srv.URL, HTTP: srv.Client(), APIKey: "k"}, h
}

const taskAnswer = `{"jsonrpc":"2.0","id":$ID,"result":{"kind":"task","id":"t1","contextId":"c1",
	"status":{"state":"completed","timestamp":"2026-01-01T00:00:00.000Z",
		"message":{"kind":"message","role":"agent","messageId":"m","parts":[{"kind":"text","text":"done"}]}},
	"artifacts":[{"artifactId":"a","name":"out","parts":[
		{"kind":"text","text":"x"},{"kind":"data","data":{"n": 1.0}},
		{"kind":"file","file":{"bytes":"aGk=","mimeType":"text/plain","name":"hi.txt"}},
		{"kind":"file","file":{"uri":"https://x"}}]}]}}`

func TestSendEncodesTheMessage(t *testing.T) {
	t.Parallel()
	c, h := serve(t, taskAnswer)
	two := 2
	res, err := c.Send(t.Context(), client.SendParams{
		Message: a2a.Message{
			ID: "m1", TaskID: "t1", ContextID: "c1", ReferenceTaskIDs: []string{"t0"}, Metadata: a2a.Raw(`{"a":1}`),
			Parts: []a2a.Part{
				{Kind: a2a.PartText, Text: "say \"hi\"\n"},
				{Kind: a2a.PartData, Data: a2a.Raw(`{"n": 1.0}`), Metadata: a2a.Raw(`{"x":[]}`)},
				{Kind: a2a.PartFile, Text: "aGk=", MediaType: "text/plain", Filename: "hi.txt"},
				{Kind: a2a.PartURL, Text: "https://x"},
			},
		},
		NoWait: true, HistoryLength: &two, AcceptedModes: []string{"text/plain"}, Metadata: a2a.Raw(`{"b":2}`),
		IdempotencyKey: "key",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{` +
		`"kind":"message","role":"user","messageId":"m1","parts":[` +
		`{"kind":"text","text":"say \"hi\"\n"},{"kind":"data","data":{"n": 1.0},"metadata":{"x":[]}},` +
		`{"kind":"file","file":{"bytes":"aGk=","mimeType":"text/plain","name":"hi.txt"}},` +
		`{"kind":"file","file":{"uri":"https://x"}}],` +
		`"taskId":"t1","contextId":"c1","referenceTaskIds":["t0"],"metadata":{"a":1}},` +
		`"configuration":{"blocking":false,"historyLength":2,"acceptedOutputModes":["text/plain"]},"metadata":{"b":2}}}`
	if diff := cmp.Diff(want, h.body); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	if got := h.got.Header; got.Get("Authorization") != "Bearer k" || got.Get("Idempotency-Key") != "key" ||
		got.Get("Content-Type") != "application/json" {
		t.Errorf("header: %v", got)
	}
	wantRes := client.Result{
		Kind: client.KindTask, TaskID: "t1", ContextID: "c1", State: a2a.StateCompleted,
		Timestamp: "2026-01-01T00:00:00.000Z",
		Parts:     []a2a.Part{{Kind: a2a.PartText, Text: "done"}},
		Artifacts: []client.Artifact{{ID: "a", Name: "out", Parts: []a2a.Part{
			{Kind: a2a.PartText, Text: "x"}, {Kind: a2a.PartData, Data: a2a.Raw(`{"n": 1.0}`)},
			{Kind: a2a.PartFile, Text: "aGk=", MediaType: "text/plain", Filename: "hi.txt"},
			{Kind: a2a.PartURL, Text: "https://x"},
		}}},
	}
	res.Raw = nil
	if diff := cmp.Diff(wantRes, res); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
}

func TestSendWithoutOptionsWaits(t *testing.T) {
	t.Parallel()
	c, h := serve(t, taskAnswer)
	message := a2a.Message{Parts: []a2a.Part{{Kind: a2a.PartText, Text: "x"}}}
	if _, err := c.Send(t.Context(), client.SendParams{Message: message}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(h.body, "configuration") || !strings.Contains(h.body, `"messageId":"msg-`) {
		t.Errorf("request: %s", h.body)
	}
}

func TestGetCancelList(t *testing.T) {
	t.Parallel()
	c, h := serve(t, taskAnswer)
	for _, tc := range []struct {
		do   func() (client.Result, error)
		want string
	}{
		{
			func() (client.Result, error) { return c.Get(t.Context(), "t1", -1) },
			`"method":"tasks/get","params":{"id":"t1"}}`,
		},
		{
			func() (client.Result, error) { return c.Get(t.Context(), "t1", 0) },
			`"method":"tasks/get","params":{"id":"t1","historyLength":0}}`,
		},
		{
			func() (client.Result, error) { return c.Cancel(t.Context(), "t1") },
			`"method":"tasks/cancel","params":{"id":"t1"}}`,
		},
	} {
		res, err := tc.do()
		if err != nil || res.TaskID != "t1" || !strings.HasSuffix(h.body, tc.want) {
			t.Errorf("%s: %+v, %v; sent %s", tc.want, res, err, h.body)
		}
	}

	c, h = serve(t, `{"jsonrpc":"2.0","id":$ID,"result":{
		"tasks":[{"kind":"task","id":"t1","contextId":"c1","status":{"state":"working"}}],
		"totalSize":7,"pageSize":1,"nextPageToken":"n"}}`)
	page, err := c.List(t.Context(), client.ListParams{
		ContextID: "c1", State: a2a.StateWorking, PageSize: 1, PageToken: "p",
	})
	if err != nil || len(page.Tasks) != 1 || page.Tasks[0].State != a2a.StateWorking || page.Total != 7 ||
		page.NextToken != "n" {
		t.Errorf("List = %+v, %v", page, err)
	}
	want := `"params":{"contextId":"c1","status":"working","pageToken":"p","pageSize":1,"includeArtifacts":false}}`
	if !strings.HasSuffix(h.body, want) {
		t.Errorf("List sent %s, want %s", h.body, want)
	}
}

func TestCard(t *testing.T) {
	t.Parallel()
	c, h := serve(t, `{"name":"words","description":"d","version":"1","protocolVersion":"0.3.0","url":"https://x",
		"capabilities":{"streaming":true}}`)
	card, err := c.Card(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	card.Raw = nil
	want := client.Card{
		Name: "words", Description: "d", Version: "1", Protocol: "0.3.0", URL: "https://x", Streaming: true,
		Interfaces: []client.Interface{{URL: "https://x", Binding: "JSONRPC", Version: "0.3.0"}},
	}
	if diff := cmp.Diff(want, card); diff != "" {
		t.Errorf("card (-want +got):\n%s", diff)
	}
	if h.got.URL.Path != "/.well-known/agent-card.json" {
		t.Errorf("path %s", h.got.URL.Path)
	}
}

func TestBadAnswers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, answer, want string }{
		{"not JSON", `{`, "not JSON"},
		{"no response", `{"jsonrpc":"2.0","id":$ID}`, "neither result nor error"},
		{"another id", `{"jsonrpc":"2.0","id":99,"result":{}}`, "another request"},
		{"no kind", `{"jsonrpc":"2.0","id":$ID,"result":{}}`, "kind"},
		{"unknown state", `{"jsonrpc":"2.0","id":$ID,"result":{"kind":"task","id":"t","status":{"state":"dreaming"}}}`,
			"dreaming"},
		{"too large", `{"jsonrpc":"2.0","id":$ID,"result":"` + strings.Repeat("x", 2000) + `"}`, "too large"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c, _ := serve(t, tc.answer)
			c.MaxBytes = 1000
			if _, err := c.Get(t.Context(), "t", -1); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("err = %v, want one with %q", err, tc.want)
			}
		})
	}
}

// TestNoServer checks that the error comes at once. Nothing was sent, so the outcome is known, and a stream that never
// began is not resumed.
func TestNoServer(t *testing.T) {
	t.Parallel()
	c := &client.Client{URL: "http://127.0.0.1:1", HTTP: &http.Client{Transport: &http.Transport{}}}
	if _, err := c.Send(t.Context(), client.SendParams{}); err == nil || errors.Is(err, client.ErrUnknown) {
		t.Errorf("Send: %v", err)
	}
	for _, err := range c.Resubscribe(t.Context(), "t", client.StreamOptions{}) {
		if err == nil || errors.Is(err, client.ErrUnknown) {
			t.Errorf("Resubscribe: %v", err)
		}
	}
}

func TestSendCutIsUnknown(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	}))
	defer srv.Close()
	c := &client.Client{URL: srv.URL, HTTP: srv.Client()}
	if _, err := c.Send(t.Context(), client.SendParams{}); !errors.Is(err, client.ErrUnknown) {
		t.Errorf("err = %v, want ErrUnknown", err)
	}
}

// TestLeavingAStreamClosesIt checks that the connection is closed when the caller stops reading, and when its context
// ends.
func TestLeavingAStreamClosesIt(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"jsonrpc":"2.0","id":1,"result":`+
			`{"kind":"task","id":"t1","status":{"state":"working"}}}`+"\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		gone <- struct{}{}
	}))
	defer srv.Close()

	c := &client.Client{URL: srv.URL, HTTP: srv.Client()}
	for _, err := range c.Resubscribe(t.Context(), "t1", client.StreamOptions{}) {
		if err != nil {
			t.Error(err)
		}
		break
	}
	<-gone

	c = &client.Client{URL: srv.URL, HTTP: srv.Client()}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for _, err := range c.Resubscribe(ctx, "t1", client.StreamOptions{}) {
		cancel()
		last = err
	}
	<-gone
	if !errors.Is(last, context.Canceled) {
		t.Errorf("err = %v, want that of the context", last)
	}
}

const taskAnswer10 = `{"jsonrpc":"2.0","id":$ID,"result":{"task":{"id":"t1","contextId":"c1",
	"status":{"state":"TASK_STATE_COMPLETED","timestamp":"2026-01-01T00:00:00.000Z",
		"message":{"role":"ROLE_AGENT","messageId":"m","parts":[{"text":"done"}]}},
	"artifacts":[{"artifactId":"a","name":"out","parts":[
		{"text":"x"},{"data":{"n": 1.0}},
		{"raw":"aGk=","mediaType":"text/plain","filename":"hi.txt"},{"url":"https://x"}]}]}}}`

func TestSendSpeaksBothVersions(t *testing.T) {
	t.Parallel()
	old, _ := serve(t, taskAnswer)
	want, err := old.Send(t.Context(), client.SendParams{})
	if err != nil {
		t.Fatal(err)
	}
	c, h := serve(t, taskAnswer10)
	c.Version = client.V10
	res, err := c.Send(t.Context(), client.SendParams{
		Message: a2a.Message{ID: "m1", TaskID: "t1", Parts: []a2a.Part{
			{Kind: a2a.PartText, Text: "hi"},
			{Kind: a2a.PartData, Data: a2a.Raw(`{"n": 1.0}`), Metadata: a2a.Raw(`{"x":[]}`)},
			{Kind: a2a.PartFile, Text: "aGk=", MediaType: "text/plain", Filename: "hi.txt"},
			{Kind: a2a.PartURL, Text: "https://x"},
		}}, NoWait: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	request := `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{` +
		`"role":"ROLE_USER","messageId":"m1","parts":[` +
		`{"text":"hi"},{"data":{"n": 1.0},"metadata":{"x":[]}},` +
		`{"raw":"aGk=","mediaType":"text/plain","filename":"hi.txt"},{"url":"https://x"}],` +
		`"taskId":"t1"},"configuration":{"returnImmediately":true}}}`
	if diff := cmp.Diff(request, h.body); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	if got := h.got.Header.Get("A2A-Version"); got != "1.0" {
		t.Errorf("A2A-Version: %q", got)
	}
	want.Raw, res.Raw = nil, nil
	if diff := cmp.Diff(want, res); diff != "" {
		t.Errorf("the results of both versions differ (-0.3 +1.0):\n%s", diff)
	}
}

func TestNegotiateGoesByTheCard(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		card    string
		version client.Version
		path    string // of the URL afterwards
	}{
		"both, the older first": {
			`{"supportedInterfaces":[{"url":"$/v0","protocolBinding":"JSONRPC","protocolVersion":"0.3"},
				{"url":"$/v1","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}`,
			client.V10, "/v1",
		},
		"a patch number": {
			`{"supportedInterfaces":[{"url":"$/v1","protocolBinding":"JSONRPC","protocolVersion":"1.0.1"}]}`,
			client.V10, "/v1",
		},
		"0.3 alone": {
			`{"url":"$/a2a","preferredTransport":"JSONRPC","protocolVersion":"0.3.0"}`,
			client.V03, "/a2a",
		},
		"0.3 as an additional interface": {
			`{"url":"$/rest","preferredTransport":"HTTP+JSON","protocolVersion":"0.3.0",
				"additionalInterfaces":[{"url":"$/rpc","transport":"JSONRPC"}]}`,
			client.V03, "/rpc",
		},
		"a union card": {
			`{"url":"$/","protocolVersion":"0.3.0",
				"supportedInterfaces":[{"url":"$/","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}`,
			client.V10, "/",
		},
		"a later version": {
			`{"supportedInterfaces":[{"url":"$/v2","protocolBinding":"JSONRPC","protocolVersion":"2.0"},
				{"url":"$/v1","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}`,
			client.V10, "/v1",
		},
		"another server": {
			`{"supportedInterfaces":[
				{"url":"https://elsewhere.example/","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}`,
			client.V10, "",
		},
		"other bindings": {
			`{"supportedInterfaces":[{"url":"$/g","protocolBinding":"GRPC","protocolVersion":"1.0"}]}`,
			client.V03, "",
		},
		"no card": {"", client.V03, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var base string
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if tc.card == "" || r.URL.Path != "/agents/x/.well-known/agent-card.json" {
					w.WriteHeader(http.StatusNotFound)
					return
				}
				_, _ = io.WriteString(w, strings.ReplaceAll(tc.card, "$", base))
			}))
			defer srv.Close()
			base = srv.URL
			c := &client.Client{URL: srv.URL + "/agents/x", HTTP: srv.Client()}
			if err := c.Negotiate(t.Context()); err != nil {
				t.Fatal(err)
			}
			want := srv.URL + tc.path
			if tc.path == "" {
				want = srv.URL + "/agents/x"
			}
			if c.Version != tc.version || c.URL != want {
				t.Errorf("version %d at %s, want %d at %s", c.Version, c.URL, tc.version, want)
			}
		})
	}
}
