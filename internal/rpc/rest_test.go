package rpc_test

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/rpc"
	"github.com/a2ad/a2ad/internal/wire/v03"
	v1 "github.com/a2ad/a2ad/internal/wire/v1"
)

// askREST makes one HTTP+JSON request. Values in header replace those that it sets.
func askREST(t *testing.T, server *httptest.Server, method, path, body string, header http.Header) answer {
	t.Helper()
	all := http.Header{}
	if body == "" {
		all["Content-Type"] = nil // no body, so no type
	}
	if !strings.Contains(path, "/v1/") {
		all.Set("A2A-Version", "1.0")
	}
	maps.Copy(all, header)
	return send(t, server, method, path, body, all)
}

// reason returns the reason of an error, in either version's form.
func reason(body string) string {
	details := rawjson.Get(rawjson.Get([]byte(body), "error"), "details")
	for d := range rawjson.Elements(details) {
		if word, ok := rawjson.String(rawjson.Get(d, "reason")); ok {
			return word
		}
	}
	return ""
}

// wantFault fails unless an answer is an error with the status and reason, in its version's form.
func wantFault(t *testing.T, what string, got answer, status int, word string) {
	t.Helper()
	if got.status != status || reason(got.body) != word {
		t.Errorf("%s: got %d %s, want %d %s", what, got.status, got.body, status, word)
		return
	}
	if err := rawjson.Check([]byte(got.body), 16); err != nil {
		t.Errorf("%s: %v in %s", what, err, got.body)
	}
	failure := rawjson.Get([]byte(got.body), "error")
	if n, _ := rawjson.Int(rawjson.Get(failure, "code")); int(n) != status {
		t.Errorf("%s: %s", what, got.body)
	}
	if old := strings.Contains(what, "/v1/"); old != (rawjson.Get([]byte(got.body), "code") != nil) {
		t.Errorf("%s: the error has the form of the other version: %s", what, got.body)
	}
	if got.header.Get("Cache-Control") != "no-store" ||
		got.header.Get("Content-Length") != strconv.Itoa(len(got.body)) {
		t.Errorf("%s: header %v", what, got.header)
	}
}

const noTask = "01890a5d-ac96-774b-bcce-b302099a8057" // an id that no task has

// TestRESTRoutes: each route of each version exists under every prefix of an agent, and accepts
// only its own methods.
func TestRESTRoutes(t *testing.T) {
	t.Parallel()
	s := newSite(t).Server
	const unknown = "TASK_NOT_FOUND"
	for _, base := range []string{"", "/", "/agents/script", "/script"} {
		for _, tc := range []struct {
			path, methods, body string
			status              int // in 1.0
			reason              string
		}{
			{"/message:send", "POST", `{}`, 400, "INVALID_PARAMS"},
			{"/message:stream", "POST", `{}`, 400, "INVALID_PARAMS"},
			{"/tasks/" + noTask, "GET", ``, 404, unknown},
			{"/tasks/" + noTask + ":cancel", "POST", ``, 404, unknown},
			{"/tasks/" + noTask + ":cancel", "POST", `{"metadata":{}}`, 404, unknown},
			{"/tasks/" + noTask + ":subscribe", "GET, POST", ``, 404, unknown},
			{"/tasks/" + noTask + "/pushNotificationConfigs", "GET, POST", `{"url":"https://h"}`, 404, unknown},
			{"/tasks/" + noTask + "/pushNotificationConfigs/x", "GET, DELETE", ``, 404, unknown},
			{"/extendedAgentCard", "GET", ``, 400, "UNSUPPORTED_OPERATION"},
			{"/tasks", "GET", ``, 200, ""},

			// Ids may be escaped or not.
			{"/tasks/a:b", "GET", ``, 404, unknown},
			{"/tasks/%3Acancel", "GET", ``, 404, unknown},
			{"/tasks/a%2Fb%3Acancel:cancel", "POST", ``, 404, unknown},
			{"/tasks/%FF", "GET", ``, 404, unknown},
			{"/tasks/%00", "GET", ``, 400, "INVALID_PARAMS"},
			{"/tasks/" + strings.Repeat("x", 257), "GET", ``, 400, "INVALID_PARAMS"},
			{"/tasks/:cancel", "GET", ``, 404, unknown},
			{"/tasks/a/pushNotificationConfigs/%2F", "GET, DELETE", ``, 404, unknown},
		} {
			for _, old := range []bool{false, true} {
				path, status, word := base+tc.path, tc.status, tc.reason
				if old {
					if base == "/script" {
						continue // 0.3 has no tenants
					}
					path = base + "/v1" + tc.path
					switch {
					case tc.path == "/extendedAgentCard":
						path, status, word = base+"/v1/card", 404, "EXTENDED_AGENT_CARD_NOT_CONFIGURED"
					case word == "INVALID_PARAMS":
						status = 422
					}
				}
				for _, slash := range []string{"", "/"} {
					restRoute(t, s, path+slash, tc.methods, tc.body, status, word)
				}
			}
		}
	}
}

func restRoute(t *testing.T, s *httptest.Server, path, methods, body string, status int, word string) {
	t.Helper()
	for _, method := range []string{"GET", "POST", "DELETE", "PUT", "PATCH", "OPTIONS"} {
		what := method + " " + path
		sent := ""
		if method == "POST" {
			sent = body
		}
		got := askREST(t, s, method, path, sent, nil)
		switch {
		case !strings.Contains(methods, method):
			wantFault(t, what, got, http.StatusMethodNotAllowed, "METHOD_NOT_FOUND")
			if got.header.Get("Allow") != methods {
				t.Errorf("%s: Allow %q, want %q", what, got.header.Get("Allow"), methods)
			}
		case status == 200:
			if got.status != 200 || got.header.Get("Content-Type") != "application/json" {
				t.Errorf("%s: %d %s", what, got.status, got.body)
			}
		default:
			wantFault(t, what, got, status, word)
		}
	}
}

func TestRESTUnknownPaths(t *testing.T) {
	t.Parallel()
	server := newBare(t, nil)
	for _, path := range []string{
		"/message", "/message:sendXYZ", "/message:", "/messageXsend", "/Message:send", "/tasks/x/y",
		"/tasks//pushNotificationConfigs", "/tasks/x/pushNotificationConfigs/y/z",
		"/tasks/x:cancel/pushNotificationConfigs/y/z", "/v1", "/v1/", "/v1/extendedAgentCard", "/card", "/v1/v1/tasks",
		"/v2/tasks", "/nobody/tasks", "/agents/nobody/tasks",
		"/agents/a/b/tasks", "/a/v1/tasks", "/agents/nobody/v1/tasks", "/agents/tasks", "/a/b/tasks", "/..%2Ftasks",
		"/a", "/%2Ftasks", "/worker/tasks",
	} {
		for _, method := range []string{"GET", "POST", "DELETE"} {
			got := askREST(t, server, method, path, "", nil)
			if strings.HasPrefix(path, "/agents/tasks") && method == "POST" {
				continue // JSON-RPC of an agent
			}
			if got.status != http.StatusNotFound && got.status != http.StatusMethodNotAllowed ||
				!strings.Contains(got.body, `"error"`) {
				t.Errorf("%s %s: %d %s", method, path, got.status, got.body)
			}
		}
	}
}

// TestRESTVersion: the path determines the version, and a header must not contradict it.
func TestRESTVersion(t *testing.T) {
	t.Parallel()
	server := newBare(t, nil)
	lenient := newBare(t, func(c *rpc.Config) { c.LenientVersion = true })
	const wrong = "VERSION_NOT_SUPPORTED"
	for _, tc := range []struct {
		path, version string
		want, lenient string // expected reasons
	}{
		{"/extendedAgentCard", "1.0", "UNSUPPORTED_OPERATION", ""},
		{"/extendedAgentCard", "1.0.3", "UNSUPPORTED_OPERATION", ""},
		{"/extendedAgentCard?A2A-Version=1.0", "", "UNSUPPORTED_OPERATION", ""},
		{"/extendedAgentCard", "", wrong, "UNSUPPORTED_OPERATION"}, {"/extendedAgentCard", "0.3", wrong, ""},
		{"/extendedAgentCard", "1.1", wrong, ""},
		{"/v1/card", "", "EXTENDED_AGENT_CARD_NOT_CONFIGURED", ""},
		{"/v1/card", "0.3.0", "EXTENDED_AGENT_CARD_NOT_CONFIGURED", ""},
		{"/v1/card", "1.0", wrong, ""}, {"/v1/card", "99", wrong, ""}, {"/v1/card?A2A-Version=1.0", "", wrong, ""},
	} {
		header := http.Header{"A2a-Version": {tc.version}}
		if got := reason(askREST(t, server, "GET", tc.path, "", header).body); got != tc.want {
			t.Errorf("%s with %q: %s, want %s", tc.path, tc.version, got, tc.want)
		}
		want := tc.want
		if tc.lenient != "" {
			want = tc.lenient
		}
		if got := reason(askREST(t, lenient, "GET", tc.path, "", header).body); got != want {
			t.Errorf("lenient, %s with %q: %s, want %s", tc.path, tc.version, got, want)
		}
	}
	alone := newBare(t, func(c *rpc.Config) { c.V1 = nil })
	if got := askREST(t, alone, "GET", "/extendedAgentCard", "", nil); got.status != http.StatusNotFound {
		t.Errorf("1.0 on a server without it: got %d %s", got.status, got.body)
	}
	wantFault(t, "GET /v1/card", askREST(t, alone, "GET", "/v1/card", "", nil), 404,
		"EXTENDED_AGENT_CARD_NOT_CONFIGURED")
}

func TestRESTErrorBodies(t *testing.T) {
	t.Parallel()
	const failure = `"status":"INVALID_ARGUMENT","message":"message: is required","details":[` +
		`{"@type":"type.googleapis.com/google.rpc.ErrorInfo",` +
		`"reason":"INVALID_PARAMS","domain":"a2a-protocol.org"},` +
		`{"@type":"type.googleapis.com/google.rpc.BadRequest",` +
		`"fieldViolations":[{"field":"message","description":"message: is required"}]}]}}`
	server := newBare(t, nil)
	for path, want := range map[string]string{
		"/message:send": `{"error":{"code":400,` + failure,
		"/v1/message:send": `{"code":-32602,"message":"message: is required",` +
			`"data":{"reason":"INVALID_PARAMS","field":"message"},"type":"InvalidParamsError",` +
			`"error":{"code":422,` + failure,
	} {
		if diff := cmp.Diff(want, askREST(t, server, "POST", path, `{}`, nil).body); diff != "" {
			t.Errorf("%s: -want +got\n%s", path, diff)
		}
	}
	// An error before a stream is a plain error, whatever media type the client prefers.
	for _, accept := range []string{"", "text/event-stream", "*/*"} {
		got := askREST(t, server, "POST", "/message:stream", `{}`, http.Header{"Accept": {accept}})
		wantFault(t, "stream", got, 400, "INVALID_PARAMS")
		if got.header.Get("Content-Type") != "application/json" {
			t.Errorf("an error before a stream: got the headers %v", got.header)
		}
	}
}

func TestRESTBodies(t *testing.T) {
	t.Parallel()
	server := newBare(t, func(c *rpc.Config) { c.MaxBody, c.MaxDepth = 200, 8 })
	for _, tc := range []struct {
		body   string
		status int
		reason string
	}{
		{``, 400, "PARSE_ERROR"}, {` `, 400, "PARSE_ERROR"}, {`{`, 400, "PARSE_ERROR"},
		{"\ufeff{}", 400, "PARSE_ERROR"}, {"{\"a\":\"\xff\"}", 400, "PARSE_ERROR"},
		{strings.Repeat("[", 9) + strings.Repeat("]", 9), 400, "PARSE_ERROR"}, {`{} {}`, 400, "PARSE_ERROR"},
		{`{"message":{},"message":{}}`, 400, "INVALID_REQUEST"}, {`{"message":{"a":1,"a":2}}`, 400, "INVALID_REQUEST"},
		{`[]`, 400, "INVALID_PARAMS"}, {`null`, 400, "INVALID_PARAMS"}, {`7`, 400, "INVALID_PARAMS"},
		{`{"message":7}`, 400, "INVALID_PARAMS"},
		{` {"message":{"messageId":"m","role":"ROLE_USER"}} `, 400, "INVALID_PARAMS"},
		{`{"message":"` + strings.Repeat("x", 200) + `"}`, 413, "REQUEST_TOO_LARGE"},
	} {
		for _, path := range []string{"/message:send", "/message:stream", "/v1/message:send", "/agents/b/message:send",
			"/v1/message:stream"} {
			status := tc.status
			if strings.Contains(path, "/v1/") && tc.reason == "INVALID_PARAMS" {
				status = 422
			}
			got := askREST(t, server, "POST", path, tc.body,
				http.Header{"Content-Type": {"application/json; charset=utf-8"}})
			wantFault(t, "POST "+path+" "+tc.body, got, status, tc.reason)
		}
	}
	// An optional body may be absent, and is checked if present.
	for _, path := range []string{"/tasks/x:cancel", "/v1/tasks/x:cancel", "/tasks/x:subscribe"} {
		for body, word := range map[string]string{`{`: "PARSE_ERROR", `[]`: "INVALID_PARAMS", `"x"`: "INVALID_PARAMS",
			`{"id":"y","id":"z"}`: "INVALID_REQUEST"} {
			if got := askREST(t, server, "POST", path, body, nil); reason(got.body) != word {
				t.Errorf("%s %s: %s", path, body, got.body)
			}
		}
	}
}

func TestRESTMediaTypes(t *testing.T) {
	t.Parallel()
	server := newBare(t, nil)
	const plain, own = "application/json", "application/a2a+json"
	for _, tc := range []struct {
		sent, accept, want string
		status             int
	}{
		{plain, "", plain, 400}, {own, "", own, 400}, {own, "*/*", own, 400}, {own, plain, plain, 400},
		{plain, own, own, 400}, {plain, own + ";q=0.9, " + plain, plain, 400},
		{plain, "application/*", plain, 400}, {plain, own + ";q=0, */*", plain, 400},
		{"Application/JSON", "", plain, 400}, {plain, ";;", plain, 400},
		{plain, "text/html, *;q=.2, */*;q=.2", plain, 400},
		{plain, "text/html", plain, 406}, {own, "text/html, image/*", plain, 406}, {plain, plain + ";q=0", plain, 406},
		{"text/plain", "", plain, 415}, {"", "", plain, 415}, {"application/xml", own, own, 415},
		{"multipart/form-data", "", plain, 415},
	} {
		header := http.Header{"Content-Type": {tc.sent}}
		if tc.accept != "" {
			header["Accept"] = []string{tc.accept}
		}
		what := "sent " + tc.sent + ", accepted " + tc.accept
		got := askREST(t, server, "POST", "/message:send", `{}`, header)
		word := "INVALID_PARAMS"
		if tc.status != 400 {
			word = "CONTENT_TYPE_NOT_SUPPORTED"
		}
		wantFault(t, what, got, tc.status, word)
		if kind := got.header.Get("Content-Type"); kind != tc.want {
			t.Errorf("%s: %s, want %s", what, kind, tc.want)
		}
	}
	got := askREST(t, server, "POST", "/message:send", `{}`, http.Header{"Content-Encoding": {"gzip"}})
	wantFault(t, "gzip", got, 415, "CONTENT_TYPE_NOT_SUPPORTED")
}

func refusing(t *testing.T) auth.Authenticator {
	t.Helper()
	keys, err := auth.NewKeys(auth.KeysConfig{Lookup: func(context.Context, string) (auth.StoredKey, error) {
		return auth.StoredKey{}, auth.ErrUnknownKey
	}})
	if err != nil {
		t.Fatal(err)
	}
	return auth.Chain{keys}
}

// TestRESTOldErrorTable: A2AD_ERROR_PROFILE=1.0.0 changes three statuses of 1.0.
func TestRESTOldErrorTable(t *testing.T) {
	t.Parallel()
	for _, code := range a2a.ErrorCodes() {
		now, then := v1.Codec{}.Status(code), v1.Codec{OldErrors: true}.Status(code)
		want := map[a2a.ErrorCode]int{a2a.CodeTaskNotCancelable: 409, a2a.CodeContentTypeNotSupported: 415,
			a2a.CodeInvalidAgentResponse: 502}[code]
		if want == 0 {
			want = now
		}
		if then != want || now < 400 || now > 599 {
			t.Errorf("%s: %d, and %d by the table of 1.0.0", code.Reason(), now, then)
		}
		if old := (v03.Codec{}).Status(code); old < 400 || old > 599 {
			t.Errorf("%s: %d in 0.3", code.Reason(), old)
		}
	}
}
