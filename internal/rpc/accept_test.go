package rpc_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/rpc"
	"github.com/a2ad/a2ad/internal/wire/v03"
)

// An error before the first event has the media type that the client accepts.
func TestEarlyErrorHasTheAcceptedMediaType(t *testing.T) {
	t.Parallel()
	s, err := rpc.New(rpc.Config{Authenticator: auth.Anonymous{}, V03: v03.Codec{},
		Agents: []*a2a.Agent{{Name: "a", Default: true}}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s.Handler())
	defer server.Close()
	const body = `{"jsonrpc":"2.0","id":"x","error":{"code":-32602,"message":"message: is required",` +
		`"data":{"reason":"INVALID_PARAMS","field":"message"}}}`
	for accept, stream := range map[string]bool{
		"": false, "*/*": false, "application/json": false, "application/json, text/event-stream": false,
		"text/event-stream": true, "Text/Event-Stream;q=0.9": true, "*/*, text/event-stream": true,
	} {
		want, wantType := body, "application/json"
		if stream {
			want, wantType = "data: "+body+"\n\n", "text/event-stream"
		}
		kind, got := post(t, server, accept)
		if kind != wantType || got != want {
			t.Errorf("Accept %q: got %s\n%s\nwant %s\n%s", accept, kind, got, wantType, want)
		}
	}
}

func post(t *testing.T, server *httptest.Server, accept string) (contentType, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, server.URL, strings.NewReader(
		`{"jsonrpc":"2.0","id":"x","method":"message/stream","params":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	resp, err := server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v", resp.Status, err)
	}
	return resp.Header.Get("Content-Type"), string(all)
}
