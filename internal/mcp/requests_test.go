package mcp

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Callers without keys are one user, and requests of the versions without sessions have no session id. So a DELETE that
// names no session must not end their calls.
func TestDeleteEndsTheCallsOfItsSessionOnly(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, call, deleted string // sessions
		ends                bool
	}{
		{"no session", "", "", false},
		{"the session", "s1", "s1", true},
		{"another session", "s1", "s2", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			q := &requests{open: map[string]*openRequest{}}
			do := func(method, session string, handle http.HandlerFunc) {
				r := httptest.NewRequestWithContext(t.Context(), method, Path, http.NoBody)
				if session != "" {
					r.Header.Set("Mcp-Session-Id", session)
				}
				q.tracked(handle).ServeHTTP(httptest.NewRecorder(), r)
			}
			do(http.MethodPost, test.call, func(_ http.ResponseWriter, r *http.Request) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				q.bind(&sdk.CallToolRequest{Extra: &sdk.RequestExtra{Header: r.Header}}, cancel)
				do(http.MethodDelete, test.deleted, func(http.ResponseWriter, *http.Request) {})
				if ended := ctx.Err() != nil; ended != test.ends {
					t.Errorf("the call has ended: %t, want %t", ended, test.ends)
				}
			})
		})
	}
}
