package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// The bench checks the same answers of all servers.
func TestAgentRepeatsOrWritesTokens(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(handler())
	defer srv.Close()
	for _, tt := range []struct{ method, text, want string }{
		{"SendMessage", "hello there", `(?s)"artifacts".*hello there.*"history".*hello there.*"TASK_STATE_COMPLETED"`},
		{
			"SendStreamingMessage", "tokens 2 1000",
			`(?s)\A[^:]*: [^\n]*\ndata: [^\n]*"task".*"artifactUpdate"[^\n]*"text":"\d{16}:000".*"append":true` +
				`[^\n]*"text":"\d{16}:001".*"TASK_STATE_COMPLETED"`,
		},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, strings.NewReader(
			`{"jsonrpc":"2.0","id":"1","method":"`+tt.method+`","params":{"message":{"messageId":"m",`+
				`"role":"ROLE_USER","parts":[{"text":"`+tt.text+`"}]}}}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("A2A-Version", "1.0")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !regexp.MustCompile(tt.want).Match(body) {
			t.Errorf("%s %q: %v\n%s", tt.method, tt.text, err, body)
		}
	}
}
