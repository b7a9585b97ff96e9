package rpc_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/engine"
	"github.com/a2ad/a2ad/internal/rpc"
)

const sendEcho = `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":` +
	`{"messageId":"m1","role":"user","kind":"message","parts":[{"kind":"text","text":"x"}]}}}`

// Web pages may use the server only if their origin is configured.
func TestPagesOfOtherOriginsAreKeptOut(t *testing.T) {
	t.Parallel()
	const app = "https://app.example.org"
	s := newSiteWith(t, func(_ *engine.Config, c *rpc.Config) { c.Origins = []string{app} })
	for _, tt := range []struct {
		name, method, path string
		header             map[string]string
		status             int
		allowed            string
	}{
		{"a program", "POST", "/", nil, 200, ""},
		{"a page of an allowed origin", "POST", "/",
			map[string]string{"Origin": app, "Sec-Fetch-Site": "cross-site"}, 200, app},
		{"another page", "POST", "/", map[string]string{"Origin": "https://evil.example",
			"Sec-Fetch-Site": "cross-site"}, 403, ""},
		{"another page in an old browser", "POST", "/", map[string]string{"Origin": "https://evil.example"}, 403, ""},
		{"a page that hides its origin", "POST", "/", map[string]string{"Origin": "null"}, 403, ""},
		{"a name that only begins like it", "POST", "/", map[string]string{"Origin": app + ".evil.example"}, 403, ""},
		{"a form of another page", "POST", "/v1/tasks/01234567-89ab-7def-8123-456789abcdef:cancel",
			map[string]string{"Origin": "https://evil.example", "Content-Type": "application/x-www-form-urlencoded"},
			403, ""},
		{"the server's own origin", "POST", "/",
			map[string]string{"Sec-Fetch-Site": "same-origin", "Origin": "self"}, 200, ""},
		{"a link of another page", "GET", "/.well-known/agent-card.json",
			map[string]string{"Sec-Fetch-Site": "cross-site"}, 200, ""},
		{"a card for a page", "GET", "/.well-known/agent-card.json", map[string]string{"Origin": app}, 200, app},
		{"a preflight", "OPTIONS", "/", map[string]string{"Origin": app, "Access-Control-Request-Method": "POST",
			"Access-Control-Request-Headers": "authorization,content-type"}, 204, app},
		// The answer permits nothing.
		{"a preflight of another page", "OPTIONS", "/",
			map[string]string{"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}, 204, ""},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tt.method, s.URL+tt.path, strings.NewReader(sendEcho))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		for k, v := range tt.header {
			if v == "self" {
				v = s.URL
			}
			req.Header.Set(k, v)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		h := res.Header
		if res.StatusCode != tt.status || h.Get("Access-Control-Allow-Origin") != tt.allowed ||
			h.Get("Access-Control-Allow-Credentials") != "" || h.Get("Vary") == "" {
			t.Errorf("%s: got %d, %v, want %d", tt.name, res.StatusCode, h, tt.status)
		}
		if vary := h.Values("Vary"); strings.HasSuffix(tt.path, ".json") && !slices.Contains(vary, "Origin") {
			t.Errorf("%s: a cache gives the answer for one origin to others: Vary is %q", tt.name, vary)
		}
		if tt.allowed != "" && tt.method != "OPTIONS" &&
			!strings.Contains(h.Get("Access-Control-Expose-Headers"), "A2A-Version") {
			t.Errorf("%s: pages cannot read %v", tt.name, h)
		}
		if tt.status == 204 && tt.allowed != "" &&
			(!strings.Contains(h.Get("Access-Control-Allow-Headers"), "Authorization") ||
				!strings.Contains(h.Get("Access-Control-Allow-Methods"), "DELETE")) {
			t.Errorf("%s: pages cannot send %v", tt.name, h)
		}
	}
}

// An attacker can point a name at 127.0.0.1. Then the server and the attacker's page have the same
// origin.
func TestServerWithoutCredentialsRefusesOtherHostNames(t *testing.T) {
	t.Parallel()
	ask := func(s *site, host, header string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, strings.NewReader(sendEcho))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		req.Header.Set("Content-Type", "application/json")
		if header != "" {
			req.Header.Set(header, map[string]string{"Origin": "http://" + host,
				"User-Agent": "Mozilla/5.0 (X11)"}[header])
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	open := newSiteWith(t, func(_ *engine.Config, c *rpc.Config) {
		c.Open, c.PublicURL = true, "https://agents.example.org/a2a"
	})
	for host, want := range map[string]int{
		"localhost:8080": 200, "LOCALHOST": 200, "127.0.0.1:1": 200, "127.9.9.9": 200, "[::1]:8080": 200,
		"[::ffff:127.0.0.1]": 200, "localhost.": 200,
		"agents.example.org": 200, "agents.example.org:443": 200,
		"evil.example:8080": 403, "localhost.evil.example": 403, "10.0.0.1": 403, "0.0.0.0:8080": 403,
		"example.org": 403,
	} {
		for _, header := range []string{"Origin", "Accept-Language", "User-Agent"} {
			if got := ask(open, host, header); got != want {
				t.Errorf("%s, with the header %s: got %d, want %d", host, header, got, want)
			}
		}
	}
	if got := ask(open, "evil.example", ""); got != 200 {
		t.Errorf("a program that is no browser: got %d", got)
	}
	if got := ask(newSite(t), "evil.example", "Origin"); got != 200 {
		t.Errorf("a server that requires credentials: got %d", got)
	}
}
