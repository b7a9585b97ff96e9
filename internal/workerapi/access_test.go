package workerapi_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/workerapi"
)

func TestBadRequestDoesNotAffectTheRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := f.claimed()
	for _, tt := range []struct{ path, body, reason string }{
		{"/claim", `{`, "PARSE_ERROR"},
		{"/claim", `{"worker":"w","worker":"v","agents":["words"]}`, "PARSE_ERROR"},
		{"/claim", `[]`, "INVALID_REQUEST"},
		{"/claim", ``, "INVALID_REQUEST"},
		{"/claim", `{"agents":["words"]}`, "INVALID_REQUEST"},
		{"/claim", `{"worker":"w"}`, "INVALID_REQUEST"},
		{"/claim", `{"worker":"w","agents":[]}`, "INVALID_REQUEST"},
		{"/claim", `{"worker":"w","agents":"words"}`, "INVALID_REQUEST"},
		{"/claim", `{"worker":"w w","agents":["words"]}`, "INVALID_REQUEST"},
		{"/claim", `{"worker":"w","agents":[7]}`, "INVALID_REQUEST"},
		{"/claim", `{"worker":"w","agents":["words"],"max":0}`, "INVALID_REQUEST"},
		{"/claim", `{"worker":"w","agents":["words"],"max":101}`, "INVALID_REQUEST"},
		{"/claim", `{"worker":"w","agents":["words"],"max":1.5}`, "INVALID_REQUEST"},
		{"/claim", `{"worker":"w","agents":["words"],"waitSeconds":61}`, "INVALID_REQUEST"},
		{"/claim", `{"worker":"w","agents":["words"],"wait":1}`, "INVALID_REQUEST"},
		{r.path + "events", `{"events":[` + working + `]`, "PARSE_ERROR"},
		{r.path + "events", `{}`, "INVALID_REQUEST"},
		{r.path + "events", `{"events":{}}`, "INVALID_REQUEST"},
		{r.path + "events", `{"events":[],"batchId":""}`, "INVALID_REQUEST"},
		{r.path + "events", `{"events":[],"batchID":"b"}`, "INVALID_REQUEST"},
		{r.path + "events", events(slices.Repeat([]string{"{}"}, 1001)...), "INVALID_REQUEST"},
		{r.path + "heartbeat", `{"x":1}`, "INVALID_REQUEST"},
		{r.path + "heartbeat", `3`, "INVALID_REQUEST"},
		{r.path + "finish", `{}`, "INVALID_REQUEST"},
		{r.path + "finish", `{"outcome":"success"}`, "INVALID_REQUEST"},
		{r.path + "finish", `{"outcome":"done","retryAfterSeconds":1}`, "INVALID_REQUEST"},
		{r.path + "finish", `{"outcome":"retry","retryAfterSeconds":-1}`, "INVALID_REQUEST"},
		{r.path + "finish", `{"outcome":"fail","error":{}}`, "INVALID_REQUEST"},
	} {
		if got := f.post(tt.path, tt.body); got.status != 400 || got.reason() != tt.reason {
			t.Errorf("%s %.80s: %d %s, want 400 %s", tt.path, tt.body, got.status, got.body, tt.reason)
		}
	}
	want(t, f.post(r.path+"events", events(completed)), 200, "")
	if n := f.logLength(f.id(r)); n != 3 {
		t.Errorf("the log has %d events, want 3", n)
	}
}

func TestRunsOfOthersLookUnknown(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.submit("other", "ann")
	r := f.claim("other", 1)[0]
	bodies := map[string]bool{}
	for _, tt := range []struct{ key, path string }{
		{"words", r.path}, // the key is not for this agent
		{"all", fmt.Sprintf("/runs/%s/%d/", r.TaskID, r.Epoch+1)}, {"all", fmt.Sprintf("/runs/%s/%d/", r.TaskID, -1)},
		{"all", "/runs/" + r.TaskID + "/9223372036854775808/"}, {"all", "/runs/" + r.TaskID + "/x/"},
		{"all", "/runs/" + r.TaskID + "/1.0/"},
		{"all", "/runs/00000000-0000-7000-8000-000000000000/1/"}, {"all", "/runs/nonsense/1/"}, {"all", "/runs/%00/1/"},
	} {
		for call, body := range map[string]string{"events": events(working), "heartbeat": "",
			"finish": `{"outcome":"done"}`} {
			got := f.ask(f.at, tt.key, "POST", tt.path+call, body)
			want(t, got, 409, "LEASE_LOST")
			bodies[got.body] = true
		}
	}
	if len(bodies) != 1 {
		t.Errorf("the answers differ: %v", bodies)
	}
	if n := f.logLength(f.id(r)); n != 2 {
		t.Errorf("the log has %d events, want 2", n)
	}
	want(t, f.post(r.path+"heartbeat", ""), 200, "")
}

func TestKeyLimitedToAgents(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	mine, theirs := f.submit("words", "ann"), f.submit("other", "bob")
	for _, agents := range []string{`["other"]`, `["words","other"]`, `["no-such-agent"]`} {
		want(t, f.ask(f.at, "words", "POST", "/claim", `{"worker":"w","agents":`+agents+`}`), 403, "FORBIDDEN")
	}
	r := runsOf(t, f.ask(f.at, "words", "POST", "/claim", `{"worker":"w","agents":["words"],"max":9}`))
	if len(r) != 1 || r[0].TaskID != mine.String() {
		t.Errorf("claimed %+v, want %s", r, mine)
	}
	want(t, f.ask(f.at, "words", "POST", r[0].path+"finish", `{"outcome":"done"}`), 200, "")
	f.wantState(mine, a2a.StateCompleted)
	f.wantState(theirs, a2a.StateSubmitted)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *workerapi.Config) { c.MaxWaiting = 1 })
	const claim = `{"worker":"w","agents":["words"]}`
	for _, key := range []string{"", "nobody"} {
		got := f.ask(f.at, key, "POST", "/claim", claim)
		want(t, got, 401, "UNAUTHENTICATED")
		if got.header.Get("WWW-Authenticate") == "" {
			t.Error("the answer has no challenge")
		}
	}
	want(t, f.ask(f.at, "client", "POST", "/claim", `{`), 403, "FORBIDDEN")
	want(t, f.ask(f.at, "broken", "POST", "/claim", claim), 500, "INTERNAL")
	want(t, f.post("/claim", `{"worker":"w","agents":["no-such-agent"]}`), 404, "NOT_FOUND")
	want(t, f.post("/claims", claim), 404, "NOT_FOUND")
	want(t, f.ask(f.at, "all", "GET", "/claim", ""), 404, "NOT_FOUND")
	want(t, f.post("/claim", `{"worker":"`+strings.Repeat("w", 1<<20)+`","agents":["words"]}`), 413,
		"REQUEST_TOO_LARGE")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.at+"/worker/v1/claim",
		strings.NewReader(claim))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer all")
	got, err := f.send(req)
	if err != nil {
		t.Fatal(err)
	}
	want(t, got, 415, "CONTENT_TYPE_NOT_SUPPORTED")

	waits := make(chan reply, 1)
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		r, _ := f.tryAsk(ctx, f.at, "all", "POST", "/claim", `{"worker":"w","agents":["words"],"waitSeconds":60}`)
		waits <- r
	}()
	f.waitPolled()
	got = f.post("/claim", claim)
	want(t, got, 429, "RATE_LIMITED")
	if got.header.Get("Retry-After") == "" {
		t.Error("the answer has no Retry-After")
	}
	leave()
	<-waits
	f.Close()
	got = f.post("/runs/00000000-0000-7000-8000-000000000000/1/heartbeat", "")
	want(t, got, 503, "UNAVAILABLE")
}
