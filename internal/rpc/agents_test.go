package rpc_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/rpc"
	"github.com/a2ad/a2ad/internal/wire/v03"
)

// limited signs in every caller with a key that is only for the agent b.
type limited struct{ auth.Anonymous }

func (l limited) Authenticate(r *http.Request) (auth.Principal, error) {
	p, err := l.Anonymous.Authenticate(r)
	p.Agents = []string{"b"}
	return p, err
}

func TestKeyForOtherAgentsIsRefused(t *testing.T) {
	t.Parallel()
	s, err := rpc.New(rpc.Config{Authenticator: limited{}, V03: v03.Codec{},
		Agents: []*a2a.Agent{{Name: "a", Default: true}, {Name: "b"}}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s.Handler())
	defer server.Close()
	for path, refused := range map[string]bool{"/": true, "/agents/a": true, "/agents/b": false} {
		// An allowed request fails later, because this server has no engine.
		resp, err := server.Client().Post(server.URL+path, "application/json",
			strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"x"}}`))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := resp.StatusCode == http.StatusForbidden; got != refused {
			t.Errorf("%s: status %d", path, resp.StatusCode)
		}
	}
}
