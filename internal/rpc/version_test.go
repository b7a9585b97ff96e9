package rpc_test

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/rpc"
	"github.com/a2ad/a2ad/internal/wire/v03"
	v1 "github.com/a2ad/a2ad/internal/wire/v1"
)

// newBare starts a server without an engine, for requests that need none.
func newBare(t *testing.T, change func(*rpc.Config)) *httptest.Server {
	t.Helper()
	cfg := rpc.Config{
		Authenticator: auth.Anonymous{}, V03: v03.Codec{}, V1: v1.Codec{}, PublicURL: "http://h",
		Agents: []*a2a.Agent{{Name: "a", Default: true}, {Name: "b"}},
	}
	if change != nil {
		change(&cfg)
	}
	s, err := rpc.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s.Handler())
	t.Cleanup(server.Close)
	return server
}

// answer is the answer to a request.
type answer struct {
	status int
	header http.Header
	body   string
}

// send makes one request.
func send(t *testing.T, server *httptest.Server, method, path, body string, header http.Header) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if method == http.MethodPost || body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	maps.Copy(req.Header, header) // the header as the test spells it
	resp, err := server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(all)}
}

// The methods that a server without an engine carries out, and the error codes that show it.
const (
	oldMethod = "agent/getAuthenticatedExtendedCard" // -32007
	newMethod = "GetExtendedAgentCard"               // -32004
)

// TestVersion checks the section Versions in docs/reference/protocol.md. If the method or the
// version is of 1.0, an error has the form of 1.0, with a list of details.
func TestVersion(t *testing.T) {
	t.Parallel()
	version := func(v ...string) http.Header { return http.Header{"A2a-Version": v} }
	for _, tc := range []struct {
		method string
		header http.Header
		query  string
		code   int64
		form   rawjson.Kind // of error.data
	}{
		{oldMethod, nil, "", -32007, rawjson.KindObject},
		{oldMethod, version(""), "", -32007, rawjson.KindObject},
		{oldMethod, version("0.3"), "", -32007, rawjson.KindObject},
		{oldMethod, version(" 0.3.0 "), "", -32007, rawjson.KindObject},
		{oldMethod, version("0.3.12", "0.3"), "", -32007, rawjson.KindObject},
		{newMethod, version("1.0"), "", -32004, rawjson.KindArray},
		{newMethod, version("1.0.1"), "", -32004, rawjson.KindArray},
		{newMethod, http.Header{"a2a-version": {"1.0"}}, "", -32004, rawjson.KindArray},
		{newMethod, nil, "?A2A-Version=1.0", -32004, rawjson.KindArray},
		{newMethod, version("", "1.0"), "?A2A-Version=1.0.3&x=y", -32004, rawjson.KindArray},
		{oldMethod, nil, "?A2A-Version=0.3", -32007, rawjson.KindObject},
		{oldMethod, nil, "?A2A-Version=", -32007, rawjson.KindObject},
		{oldMethod, nil, "?%zz", -32007, rawjson.KindObject},

		{newMethod, nil, "", -32009, rawjson.KindArray},
		{newMethod, version(""), "", -32009, rawjson.KindArray},
		{newMethod, version("0.3"), "", -32009, rawjson.KindObject},
		{oldMethod, version("1.0"), "", -32009, rawjson.KindArray},
		{oldMethod, nil, "?A2A-Version=1.0", -32009, rawjson.KindArray},
		{newMethod, version("0.3"), "?A2A-Version=1.0", -32009, rawjson.KindObject},
		{newMethod, version("1.0", "0.3"), "", -32009, rawjson.KindObject},
		{newMethod, version("1.0, 0.3"), "", -32009, rawjson.KindObject},

		{"NoSuchMethod", version("1.0"), "", -32601, rawjson.KindArray},
		{"NoSuchMethod", nil, "", -32601, rawjson.KindObject},
		{"no/such", version("1.0"), "", -32601, rawjson.KindArray},
		{"tasks/list", nil, "", -32601, rawjson.KindObject}, // not lenient here
	} {
		server := newBare(t, nil)
		got := send(t, server, http.MethodPost, "/"+tc.query,
			`{"jsonrpc":"2.0","id":7,"method":"`+tc.method+`"}`, tc.header)
		wantError(t, tc.method+" "+tc.query, got.body, "7", tc.code, tc.form)
	}
	for _, v := range []string{"99.0", "0.5", "1.1", "2", "1", "1.0.", "1.0.x", "1.0.-1", "1.00", "v1.0", "0.3.0.1",
		"0.2", "garbage"} {
		for _, method := range []string{oldMethod, newMethod, "no/such"} {
			got := send(t, newBare(t, nil), http.MethodPost, "/",
				`{"jsonrpc":"2.0","id":7,"method":"`+method+`"}`, version(v))
			wantError(t, method+" with "+v, got.body, "7", -32009, rawjson.KindObject)
		}
	}
}

func wantError(t *testing.T, what, got, id string, code int64, form rawjson.Kind) {
	t.Helper()
	if err := rawjson.Check([]byte(got), 16); err != nil {
		t.Fatalf("%s: %v in %s", what, err, got)
	}
	failure := rawjson.Get([]byte(got), "error")
	n, _ := rawjson.Int(rawjson.Get(failure, "code"))
	if n != code || rawjson.KindOf(rawjson.Get(failure, "data")) != form ||
		string(rawjson.Get([]byte(got), "id")) != id {
		t.Errorf("%s: got %s, want code %d", what, got, code)
	}
}

func TestVersionHint(t *testing.T) {
	t.Parallel()
	const want = `{"jsonrpc":"2.0","id":1,"error":{"code":-32009,"message":` +
		`"a request without A2A-Version uses version 0.3, which has no GetTask: send A2A-Version: 1.0",` +
		`"data":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo",` +
		`"reason":"VERSION_NOT_SUPPORTED","domain":"a2a-protocol.org"}]}}`
	got := send(t, newBare(t, nil), http.MethodPost, "/",
		`{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"x"}}`, nil)
	if got.body != want {
		t.Errorf("got %s\nwant %s", got.body, want)
	}
}

func TestLenientVersion(t *testing.T) {
	t.Parallel()
	server := newBare(t, func(c *rpc.Config) { c.LenientVersion = true })
	for _, header := range []http.Header{nil, {"A2a-Version": {""}}} {
		got := send(t, server, http.MethodPost, "/", `{"jsonrpc":"2.0","id":1,"method":"`+newMethod+`"}`, header)
		wantError(t, "without a version", got.body, "1", -32004, rawjson.KindArray)
	}
	got := send(t, server, http.MethodPost, "/", `{"jsonrpc":"2.0","id":1,"method":"`+newMethod+`"}`,
		http.Header{"A2a-Version": {"0.3"}})
	wantError(t, "with the other version", got.body, "1", -32009, rawjson.KindObject)
	got = send(t, server, http.MethodPost, "/", `{"jsonrpc":"2.0","id":1,"method":"`+oldMethod+`"}`, nil)
	wantError(t, "the old method", got.body, "1", -32007, rawjson.KindObject)
}

// TestOldGenerationAlone: without a codec for 1.0, its methods are unknown.
func TestOldGenerationAlone(t *testing.T) {
	t.Parallel()
	server := newBare(t, func(c *rpc.Config) { c.V1 = nil })
	got := send(t, server, http.MethodPost, "/", `{"jsonrpc":"2.0","id":1,"method":"`+newMethod+`"}`, nil)
	wantError(t, "the new method", got.body, "1", -32601, rawjson.KindObject)
	got = send(t, server, http.MethodPost, "/", `{"jsonrpc":"2.0","id":1,"method":"`+oldMethod+`"}`,
		http.Header{"A2a-Version": {"1.0"}})
	wantError(t, "the new version", got.body, "1", -32009, rawjson.KindObject)
}

// TestErrorsBeforeTheMethodIsKnown: they have the form of the version that the header names.
func TestErrorsBeforeTheMethodIsKnown(t *testing.T) {
	t.Parallel()
	server := newBare(t, nil)
	for v, form := range map[string]rawjson.Kind{"": rawjson.KindObject, "0.3": rawjson.KindObject,
		"1.0": rawjson.KindArray, "99.0": rawjson.KindObject} {
		header := http.Header{"A2a-Version": {v}}
		got := send(t, server, http.MethodPost, "/", `{`, header)
		wantError(t, "no JSON", got.body, "null", -32700, form)
		got = send(t, server, http.MethodPost, "/", `[]`, header)
		wantError(t, "a batch", got.body, "null", -32600, form)
	}
}

// TestTenant: the path names the agent, or else the tenant of 1.0 does.
func TestTenant(t *testing.T) {
	t.Parallel()
	server := newBare(t, func(c *rpc.Config) {
		c.Agents[1].Card.Extensions = []a2a.Extension{{URI: "urn:b", Required: true}} // distinguishes b from a
	})
	for _, tc := range []struct {
		path, method, tenant string
		code                 int64
	}{
		{"/", newMethod, ``, -32004}, {"/", newMethod, `""`, -32004}, {"/", newMethod, `"a"`, -32004},
		{"/", newMethod, `"b"`, -32008},
		{"/", newMethod, `"c"`, -32602}, {"/", newMethod, `7`, -32602}, {"/agents/a", newMethod, `"b"`, -32004},
		{"/agents/b/", newMethod, `"a"`, -32008},
		{"/agents/a", newMethod, `"c"`, -32004}, {"/", oldMethod, `"c"`, -32007},
	} {
		header, form := http.Header{"A2a-Version": {"1.0"}}, rawjson.KindArray
		if tc.method == oldMethod {
			header, form = nil, rawjson.KindObject
		}
		params := `{}`
		if tc.tenant != "" {
			params = `{"tenant":` + tc.tenant + `}`
		}
		got := send(t, server, http.MethodPost, tc.path,
			`{"jsonrpc":"2.0","id":1,"method":"`+tc.method+`","params":`+params+`}`, header)
		wantError(t, tc.path+" "+params, got.body, "1", tc.code, form)
	}
}

// TestExtensions: both headers work in both versions, and the answer uses the same header.
func TestExtensions(t *testing.T) {
	t.Parallel()
	const mine, unknown = "urn:mine", "urn:unknown"
	server := newBare(t, func(c *rpc.Config) {
		c.Agents[0].Card.Extensions = []a2a.Extension{{URI: mine}}
		c.Agents[1].Card.Extensions = []a2a.Extension{{URI: mine, Required: true}}
	})
	for _, tc := range []struct {
		path   string
		header http.Header
		want   map[string]string
		code   int64
	}{
		{"/", nil, nil, -32004},
		{"/", http.Header{"A2a-Extensions": {unknown}}, nil, -32004},
		{"/", http.Header{"A2a-Extensions": {unknown + ", " + rpc.ResumeExtension + ",," + mine}},
			map[string]string{"A2A-Extensions": mine + ", " + rpc.ResumeExtension}, -32004},
		{"/", http.Header{"A2a-Extensions": {unknown, mine}}, map[string]string{"A2A-Extensions": mine}, -32004},
		{"/", http.Header{"X-A2a-Extensions": {rpc.ResumeExtension}},
			map[string]string{"X-A2A-Extensions": rpc.ResumeExtension}, -32004},
		{"/", http.Header{"X-A2a-Extensions": {mine}, "A2a-Extensions": {rpc.ResumeExtension}},
			map[string]string{"X-A2A-Extensions": mine, "A2A-Extensions": rpc.ResumeExtension}, -32004},
		{"/agents/b", nil, nil, -32008},
		{"/agents/b", http.Header{"A2a-Extensions": {mine + "/v2"}}, nil, -32008},
		{"/agents/b", http.Header{"X-A2a-Extensions": {mine}}, map[string]string{"X-A2A-Extensions": mine}, -32004},
		// Far more names than any client sends.
		{"/agents/b", http.Header{"A2a-Extensions": {strings.Repeat("x,", 1000) + mine}}, nil, -32008},
	} {
		for v, method := range map[string]string{"1.0": newMethod, "": oldMethod} {
			header, code, form := http.Header{"A2a-Version": {v}}, tc.code, rawjson.KindArray
			if method == oldMethod {
				code, form = map[int64]int64{-32004: -32007, -32008: -32600}[tc.code], rawjson.KindObject
			}
			for name, values := range tc.header {
				header[name] = values
			}
			got := send(t, server, http.MethodPost, tc.path, `{"jsonrpc":"2.0","id":1,"method":"`+method+`"}`, header)
			wantError(t, tc.path+" "+method, got.body, "1", code, form)
			for _, name := range []string{"A2A-Extensions", "X-A2A-Extensions"} {
				if named := got.header.Get(name); named != tc.want[name] {
					t.Errorf("%s %v: %s: got %q, want %q", tc.path, tc.header, name, named, tc.want[name])
				}
			}
		}
	}
}

// TestEveryMethodNeedsCredentials: without credentials, or with too few scopes, no JSON-RPC method
// is carried out, and its params are not read. The HTTP status is 401 or 403.
func TestEveryMethodNeedsCredentials(t *testing.T) {
	t.Parallel()
	keys := newBare(t, func(c *rpc.Config) { c.Authenticator = refusing(t) })
	none := newBare(t, func(c *rpc.Config) { c.Authenticator, c.V03 = noScopes{}, v03.Codec{Lenient: true} })
	const (
		message = `{"message":{"kind":"message","messageId":"m","role":"%s","parts":[{"kind":"text","text":"x"}]}}`
		read    = "tasks:read"
		write   = "tasks:write"
		push    = "push:write"
	)
	for i, d := range dialects {
		body := strings.Replace(message, "%s", d.role, 1)
		for method, want := range map[string]struct{ params, scope string }{
			d.send: {body, write}, d.stream: {body, write}, d.cancel: {`{"id":"x"}`, write},
			d.get: {`{"id":"x"}`, read}, d.subscribe: {`{"id":"x"}`, read}, d.list: {`{}`, read},
			d.pushSet:    {d.pushConfig("x", `"url":"https://h"`, "Bearer"), push},
			d.pushDelete: {d.pushParams("x", "y"), push},
			d.pushGet:    {d.pushParams("x", "y"), read}, d.pushList: {d.pushParams("x", ""), read},
			[]string{oldMethod, newMethod}[i]: {`{}`, read},
		} {
			header := http.Header{"A2a-Version": {d.version}}
			got := send(t, keys, http.MethodPost, "/",
				`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":[]}`, header)
			if got.status != http.StatusUnauthorized || !strings.Contains(got.body, "UNAUTHENTICATED") ||
				!strings.Contains(got.header.Get("WWW-Authenticate"), "Bearer") {
				t.Errorf("%s without credentials: %d %v %s", method, got.status, got.header, got.body)
			}
			got = send(t, none, http.MethodPost, "/",
				`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+want.params+`}`, header)
			if got.status != http.StatusForbidden || !strings.Contains(got.body, "FORBIDDEN") ||
				!strings.Contains(got.header.Get("WWW-Authenticate"), `scope="`+want.scope+`"`) {
				t.Errorf("%s without scopes: %d %v %s", method, got.status, got.header, got.body)
			}
		}
	}
}
