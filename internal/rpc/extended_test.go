package rpc_test

import (
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/rpc"
)

// schemed is byHeader with schemes to declare.
type schemed struct{ byHeader }

func (schemed) Schemes() []a2a.SecurityScheme {
	return []a2a.SecurityScheme{{Name: "apiKey", Kind: a2a.SecurityAPIKey, Header: "X-API-Key"}}
}

func (schemed) Challenges() []string { return []string{`Test realm="t"`} }

// TestExtendedCard: signed-in callers get it over every binding, in the requested version, and
// caches must not store it. Other callers get 401. The public card announces the extended one.
func TestExtendedCard(t *testing.T) {
	t.Parallel()
	s, conn, _ := openGRPC(t, func(c *rpc.Config) {
		c.Authenticator = auth.Chain{schemed{}}
		extended := a2a.Card{Name: "for members", Version: "1.0.0", Skills: []a2a.Skill{
			{ID: "public"}, {ID: "secret", Security: []a2a.Requirement{{{Name: "apiKey", Scopes: []string{"x"}}}}},
		}}
		c.Agents[0].Card = a2a.Card{Name: "public", Version: "1.0.0", Skills: []a2a.Skill{{ID: "public"}}}
		c.Agents[0].Extended = &extended
		c.Agents = append(c.Agents, &a2a.Agent{Name: "plain", Card: a2a.Card{Name: "plain"}})
	})
	public := send(t, s.Server, http.MethodGet, cardPath, "", nil)
	if !strings.Contains(public.body, `"supportsAuthenticatedExtendedCard":true`) ||
		!strings.Contains(public.body, `"extendedAgentCard":true`) || strings.Contains(public.body, "secret") {
		t.Errorf("the public card: %s", public.body)
	}
	plain := send(t, s.Server, http.MethodGet, "/agents/plain"+cardPath, "", nil)
	if !strings.Contains(plain.body, `"supportsAuthenticatedExtendedCard":false`) {
		t.Errorf("the card of an agent without an extended card: %s", plain.body)
	}
	rpcBody := func(method string) string { return `{"jsonrpc":"2.0","id":1,"method":"` + method + `"}` }
	for name, tc := range map[string]struct {
		method, path, body string
		modern             bool
	}{
		"0.3 JSON-RPC": {http.MethodPost, "/", rpcBody("agent/getAuthenticatedExtendedCard"), false},
		"1.0 JSON-RPC": {http.MethodPost, "/", rpcBody("GetExtendedAgentCard"), true},
		"0.3 REST":     {http.MethodGet, "/v1/card", "", false},
		"1.0 REST":     {http.MethodGet, "/extendedAgentCard", "", true},
		"1.0 tenant":   {http.MethodGet, "/script/extendedAgentCard", "", true},
	} {
		header := http.Header{"Content-Type": {"application/json"}}
		if tc.modern {
			header.Set("A2A-Version", "1.0")
		}
		if got := send(t, s.Server, tc.method, tc.path, tc.body, header); got.status != http.StatusUnauthorized ||
			got.header.Get("WWW-Authenticate") != `Test realm="t"` {
			t.Errorf("%s without credentials: %d %v", name, got.status, got.header)
		}
		header.Set("X-Who", "acme/ann")
		got := send(t, s.Server, tc.method, tc.path, tc.body, header)
		card := []byte(got.body)
		if tc.method == http.MethodPost {
			card = rawjson.Get(card, "result")
		}
		name03 := rawjson.Get(card, "protocolVersion") != nil
		if got.status != http.StatusOK || string(rawjson.Get(card, "name")) != `"for members"` || name03 == tc.modern ||
			!strings.Contains(string(card), `"secret"`) {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
		if got.header.Get("Cache-Control") != "private, no-store" || got.header.Get("Etag") != "" {
			t.Errorf("%s: %v", name, got.header)
		}
		if tc.path != "/" {
			continue
		}
		if got := send(t, s.Server, tc.method, "/agents/plain", tc.body, header); !strings.Contains(got.body,
			`"code":`+map[bool]string{false: "-32007", true: "-32004"}[tc.modern]) {
			t.Errorf("%s of an agent without an extended card: %s", name, got.body)
		}
	}
	for service, method := range map[string]string{service1: "GetExtendedAgentCard", service03: "GetAgentCard"} {
		c := caller{t, conn, service}
		if _, _, st := c.try(method, `{}`); st.Code() != codes.Unauthenticated {
			t.Errorf("%s without credentials: %v", service, st)
		}
		card, _, st := c.try(method, `{}`, "x-who", "acme/ann")
		if st.Code() != codes.OK || card["name"] != "for members" || len(card["skills"].([]any)) != 2 {
			t.Errorf("%s: %v %v", service, st, card)
		}
	}
}

func TestCardThatAsksForAnUnknownSchemeIsRefused(t *testing.T) {
	t.Parallel()
	a := &a2a.Agent{Name: "a", Default: true,
		Card: a2a.Card{Skills: []a2a.Skill{{ID: "s", Security: []a2a.Requirement{{{Name: "oidc"}}}}}}}
	_, err := rpc.New(rpc.Config{Authenticator: schemed{}, Agents: []*a2a.Agent{a}})
	const want = `card of agent a: skill s asks for the security scheme "oidc", and this server has apiKey`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestCredentialsAreCheckedBeforeTheBody: without credentials the answer is the same whatever the
// body is.
func TestCredentialsAreCheckedBeforeTheBody(t *testing.T) {
	t.Parallel()
	s, conn, _ := openGRPC(t, func(c *rpc.Config) { c.Authenticator = auth.Chain{schemed{}} })
	for _, tc := range []struct{ method, path string }{
		{http.MethodPost, "/"}, {http.MethodPost, "/agents/script"}, {http.MethodPost, "/message:send"},
		{http.MethodPost, "/v1/message:stream"},
		{http.MethodGet, "/tasks/x?historyLength=no"}, {http.MethodGet, "/v1/tasks/x"},
		{http.MethodPost, "/tasks/x:cancel"}, {http.MethodGet, "/v1/tasks"},
		{http.MethodPost, "/v1/tasks/x/pushNotificationConfigs"},
		{http.MethodDelete, "/tasks/x/pushNotificationConfigs/y"}, {http.MethodGet, "/v1/tasks/x:subscribe"},
	} {
		got := send(t, s.Server, tc.method, tc.path, "{not JSON",
			http.Header{"Content-Type": {"text/html"}, "A2a-Version": {"99.0"}})
		if got.status != http.StatusUnauthorized || got.header.Get("WWW-Authenticate") != `Test realm="t"` {
			t.Errorf("%s %s: %d %s", tc.method, tc.path, got.status, got.body)
		}
	}
	for service, method := range map[string]string{service1: "GetTask", service03: "GetTask"} {
		_, beside, st := caller{t, conn, service}.try(method, `{}`)
		challenge := append(beside.header.Get("www-authenticate"), beside.trailer.Get("www-authenticate")...)
		if st.Code() != codes.Unauthenticated || len(challenge) != 1 {
			t.Errorf("%s: %v %v", service, st, beside)
		}
	}
}
