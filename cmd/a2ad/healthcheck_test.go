package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHealthcheck(t *testing.T) {
	t.Parallel()
	ready := true
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" || !ready {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintln(w, "draining")
		}
	}))
	i := invocation{env: []string{"A2AD_ADMIN_LISTEN=" + strings.TrimPrefix(srv.URL, "http://")}}
	if i.run(t, "healthcheck"); i.code != exitOK || i.stdout != "ready\n" {
		t.Errorf("ready: exit code %d, %q, %q", i.code, i.stdout, i.stderr)
	}
	ready = false
	if i.run(t, "healthcheck"); i.code != exitFailure ||
		i.stderr != "a2ad: not ready: 503 Service Unavailable draining\n" {
		t.Errorf("not ready: exit code %d, %q", i.code, i.stderr)
	}
	srv.Close()
	if i.run(t, "healthcheck"); i.code != exitFailure || !strings.Contains(i.stderr, "no answer from") {
		t.Errorf("gone: exit code %d, %q", i.code, i.stderr)
	}
	i.env = []string{"A2AD_ADMIN_LISTEN=off"}
	if i.run(t, "healthcheck"); i.code != exitFailure {
		t.Errorf("off: exit code %d", i.code)
	}
}
