package rpc_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRESTEmptyBodiesAreTheSame: if a request needs no body, then no body, null and {} mean the
// same. Official Go clients from 2.0.0 to 2.3.1 send null.
func TestRESTEmptyBodiesAreTheSame(t *testing.T) {
	t.Parallel()
	server := newBare(t, nil)
	for _, prefix := range []string{"", "/v1", "/a", "/agents/a", "/agents/a/v1"} {
		card := "/extendedAgentCard"
		if strings.HasSuffix(prefix, "/v1") {
			card = "/card"
		}
		for _, tc := range []struct {
			method, path string
		}{
			{"POST", "/tasks/%00:cancel"}, {"POST", "/tasks/%00:subscribe"}, {"GET", "/tasks/%00:subscribe"},
			{"GET", "/tasks/%00"}, {"GET", "/tasks/%00/pushNotificationConfigs"},
			{"GET", "/tasks/%00/pushNotificationConfigs/x"},
			{"DELETE", "/tasks/%00/pushNotificationConfigs/x"}, {"GET", "/tasks?pageSize=-1"}, {"GET", card},
			{"POST", "/tasks/%00:cancel?tenant=%00"}, {"POST", "/tasks/%00:subscribe?tenant=a&tenant=b"},
		} {
			what := tc.method + " " + prefix + tc.path
			want := bodyless(t, server, tc.method, prefix+tc.path, nil)
			if want == "" || strings.Contains(want, "is required") {
				t.Errorf("%s without a body: %s", what, want)
			}
			for _, body := range []string{"null", "{}", " null\n", "{ }"} {
				for _, reader := range []io.Reader{strings.NewReader(body), io.MultiReader(strings.NewReader(body))} {
					if diff := cmp.Diff(want, bodyless(t, server, tc.method, prefix+tc.path, reader)); diff != "" {
						t.Errorf("%s with the body %q: -without +with\n%s", what, body, diff)
					}
				}
			}
		}
	}
}

// bodyless returns the status and the answer, without the id of the request.
func bodyless(t *testing.T, server *httptest.Server, method, path string, body io.Reader) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Request-Id", "same")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if !strings.Contains(path, "/v1/") {
		req.Header.Set("A2A-Version", "1.0")
	}
	resp, err := server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Status + " " + string(all)
}
