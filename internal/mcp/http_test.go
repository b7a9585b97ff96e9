package mcp

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// a2adServer is an a2ad server whose one agent needs a key, as far as a new session asks it.
func a2adServer(t *testing.T, status *atomic.Int64) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := bearer(r.Header)
		switch {
		case r.Method == http.MethodGet:
			fmt.Fprint(w, `{"name":"X","securityRequirements":[{"schemes":{"key":{}}}]}`)
		case status.Load() != 0:
			w.WriteHeader(int(status.Load()))
		case !strings.HasPrefix(key, "good"):
			w.WriteHeader(http.StatusUnauthorized)
		default:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"Task not found"}}`)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// begin asks for a session with a key. It returns the status and the id of the session.
func begin(t *testing.T, h http.Handler, key string) (status int, session string) {
	t.Helper()
	body := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",` +
		`"capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	return do(t, h, http.MethodPost, key, "", body)
}

func do(t *testing.T, h http.Handler, method, key, inSession, body string) (status int, session string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "http://localhost"+Path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if inSession != "" {
		r.Header.Set(sessionHeader, inSession)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Header().Get(sessionHeader)
}

// A session costs memory until it ends, so only callers of the a2ad server get one, and not too many.
func TestSessionsAreBounded(t *testing.T) {
	t.Parallel()
	var down atomic.Int64
	server := a2adServer(t, &down)
	s, err := Open(t.Context(), Config{URL: server.URL, Agents: []string{"x"}, HTTP: server.Client()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.sessions.most, s.sessions.mostOfKey = 3, 2
	h, err := s.Handler(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := func(key string, status, sessions int) (session string) {
		t.Helper()
		got, session := begin(t, h, key)
		if got != status || (session != "") != (status == http.StatusOK) {
			t.Errorf("key %s: status %d, session %q, want %d", key, got, session, status)
		}
		if n := len(slices.Collect(s.mcp.Sessions())); n != sessions {
			t.Errorf("key %s: %d sessions, want %d", key, n, sessions)
		}
		return session
	}
	want("wrong", http.StatusUnauthorized, 0)
	down.Store(http.StatusInternalServerError)
	want("good", http.StatusServiceUnavailable, 0)
	down.Store(http.StatusForbidden) // the key is valid, but not for this
	ended := want("good", http.StatusOK, 1)
	down.Store(0)
	want("good", http.StatusOK, 2)
	want("good", http.StatusTooManyRequests, 2)
	want("good2", http.StatusOK, 3)
	want("good3", http.StatusServiceUnavailable, 3)
	const ping = `{"jsonrpc":"2.0","id":2,"method":"ping"}`
	if status, _ := do(t, h, http.MethodPost, "good", ended, ping); status != 200 {
		t.Errorf("a request in a session: status %d", status)
	}
	if status, _ := do(t, h, http.MethodDelete, "good", ended, ""); status != http.StatusNoContent {
		t.Fatalf("the end of a session: status %d", status)
	}
	want("good", http.StatusOK, 3)
}

// Requests that begin a session at the same time are counted before the SDK has made their sessions.
func TestSessionsAreCountedAsTheyBegin(t *testing.T) {
	t.Parallel()
	live := map[string]bool{}
	l := sessions{
		most: 2, mostOfKey: 2, live: func() map[string]bool { return live },
		users: map[string]string{}, starting: map[string]int{},
	}
	for range 2 {
		if err := l.begin(""); err != nil {
			t.Fatal(err)
		}
	}
	if l.begin("") == nil {
		t.Error("a third one began")
	}
	l.begun("", "")
	live["s"] = true
	l.begun("", "s")
	if err := l.begin("u"); err != nil {
		t.Errorf("after one has failed to begin: %v", err)
	}
	if l.begin("u") == nil {
		t.Error("a session that has begun is not counted")
	}
	delete(live, "s")
	if err := l.begin("u"); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
}
