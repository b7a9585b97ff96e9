package rpc_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/rpc"
)

// noScopes signs in every caller, and gives them no scopes.
type noScopes struct{ auth.Anonymous }

func (noScopes) Authenticate(*http.Request) (auth.Principal, error) {
	return auth.Principal{Tenant: "t", Owner: "o", Kind: auth.KindUser}, nil
}

func TestRESTAccess(t *testing.T) {
	t.Parallel()
	keys := newBare(t, func(c *rpc.Config) { c.Authenticator = refusing(t) })
	none := newBare(t, func(c *rpc.Config) { c.Authenticator = noScopes{} })
	for path, scope := range map[string]string{
		"POST /message:send":                           "tasks:write",
		"POST /message:stream":                         "tasks:write",
		"GET /tasks":                                   "tasks:read",
		"GET /tasks/x":                                 "tasks:read",
		"POST /tasks/x:cancel":                         "tasks:write",
		"GET /tasks/x:subscribe":                       "tasks:read",
		"POST /tasks/x/pushNotificationConfigs":        "push:write",
		"GET /tasks/x/pushNotificationConfigs":         "tasks:read",
		"DELETE /tasks/x/pushNotificationConfigs/y":    "push:write",
		"GET /extendedAgentCard":                       "tasks:read",
		"POST /v1/message:send":                        "tasks:write",
		"GET /v1/tasks":                                "tasks:read",
		"GET /v1/card":                                 "tasks:read",
		"DELETE /v1/tasks/x/pushNotificationConfigs/y": "push:write",
	} {
		method, path, _ := strings.Cut(path, " ")
		body := ""
		switch {
		case strings.Contains(path, "message:"):
			body = `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}}`
		case method == "POST" && strings.HasSuffix(path, "Configs"):
			body = `{"url":"https://h"}`
		}
		got := askREST(t, keys, method, path, body, nil)
		wantFault(t, method+" "+path, got, 401, "UNAUTHENTICATED")
		if !strings.Contains(got.header.Get("WWW-Authenticate"), "Bearer") {
			t.Errorf("%s: %v", path, got.header)
		}
		got = askREST(t, none, method, path, body, nil)
		wantFault(t, method+" "+path, got, 403, "FORBIDDEN")
		if !strings.Contains(got.header.Get("WWW-Authenticate"), `scope="`+scope+`"`) {
			t.Errorf("%s: %v", path, got.header)
		}
	}
	// The server does not read the body of an unauthenticated request.
	wantFault(t, "bad body", askREST(t, keys, "POST", "/message:send", `{`, nil), 401, "UNAUTHENTICATED")
}

func TestRESTExtensionsAndTenant(t *testing.T) {
	t.Parallel()
	server := newBare(t, func(c *rpc.Config) {
		c.Agents[1].Card.Extensions = []a2a.Extension{{URI: "urn:b", Required: true}} // distinguishes b from a
	})
	for path, want := range map[string]string{
		"/extendedAgentCard":                   "UNSUPPORTED_OPERATION",
		"/b/extendedAgentCard":                 "EXTENSION_SUPPORT_REQUIRED",
		"/agents/b/extendedAgentCard":          "EXTENSION_SUPPORT_REQUIRED",
		"/extendedAgentCard?tenant=b":          "EXTENSION_SUPPORT_REQUIRED",
		"/a/extendedAgentCard?tenant=b":        "UNSUPPORTED_OPERATION",
		"/agents/a/extendedAgentCard?tenant=b": "UNSUPPORTED_OPERATION",
		"/extendedAgentCard?tenant=":           "UNSUPPORTED_OPERATION",
		"/extendedAgentCard?tenant=c":          "INVALID_PARAMS",
		"/extendedAgentCard?tenant=a&tenant=b": "INVALID_PARAMS",
		"/extendedAgentCard?tenant=%FF":        "INVALID_PARAMS",
		"/extendedAgentCard?%zz":               "INVALID_PARAMS",
		"/v1/card?tenant=b":                    "EXTENDED_AGENT_CARD_NOT_CONFIGURED",
		"/agents/b/v1/card":                    "EXTENSION_SUPPORT_REQUIRED",
	} {
		if got := askREST(t, server, "GET", path, "", nil); reason(got.body) != want {
			t.Errorf("%s: %s, want %s", path, got.body, want)
		}
	}
	for _, name := range []string{"A2A-Extensions", "X-A2A-Extensions"} {
		header := http.Header{}
		header.Set(name, "urn:b, urn:other")
		got := askREST(t, server, "GET", "/agents/b/extendedAgentCard", "", header)
		if reason(got.body) != "UNSUPPORTED_OPERATION" || got.header.Get(name) != "urn:b" {
			t.Errorf("%s: %v %s", name, got.header, got.body)
		}
	}
}
