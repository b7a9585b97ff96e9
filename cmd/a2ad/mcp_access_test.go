package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
)

func TestMCPCallersAreIsolated(t *testing.T) {
	t.Parallel()
	w := newMCPWorld(t)
	url := w.serveHTTP()
	for _, version := range []string{"2025-06-18", "2026-07-28"} {
		alice := dial(t, overHTTP(url, w.alice), version, false)
		mine := alice.call("send_to_script", "data", script(op{"op": "input", "text": "Go?"}))
		for name, bob := range map[string]*peer{
			"http":  dial(t, overHTTP(url, w.bob), version, false),
			"stdio": dial(t, w.stdio(w.bob), version, false),
		} {
			for _, tool := range []string{"get_task", "follow_task", "cancel_task", "answer_task"} {
				pairs := []any{"agent", "script", "taskId", mine.TaskID}
				if tool == "answer_task" {
					pairs = append(pairs, "message", "mine now")
				}
				got := bob.call(tool, pairs...)
				if !got.isError || !strings.Contains(got.text, "not found") || got.TaskID != "" {
					t.Errorf("%s, %s of another caller's task: %+v", name, tool, got)
				}
			}
			if got := bob.call("list_tasks", "agent", "script"); len(got.Tasks) != 0 {
				t.Errorf("%s: another caller's list is %+v", name, got)
			}
		}
		if got := alice.call("get_task", "agent", "script", "taskId", mine.TaskID); got.State != "input-required" {
			t.Errorf("%+v", got)
		}
	}
	mallory := dial(t, overHTTP(url, "a2ad_live_wrong"), "2026-07-28", false)
	got := mallory.call("list_tasks", "agent", "script")
	if !got.isError || !strings.Contains(got.text, "not signed in") {
		t.Errorf("with a wrong key: %+v", got)
	}
}

// post sends a request as no client of ours would. It returns the status, and the id of a new session.
func post(t *testing.T, url, body string, header http.Header, host string) (status int, session string) {
	t.Helper()
	resp, err := http.DefaultTransport.RoundTrip(newRequest(t.Context(), t, http.MethodPost, url, body, header, host))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode, resp.Header.Get("Mcp-Session-Id")
}

func newRequest(
	ctx context.Context, t *testing.T, method, url, body string, header http.Header, host string,
) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header.Clone()
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Host = host
	return req
}

// A client may end its session, or break its connections, without a word about the call that is in progress. The call
// ends, and the task continues.
func TestMCPSessionEndsWithACallInProgress(t *testing.T) {
	t.Parallel()
	w := newMCPWorld(t)
	url := w.serveHTTP()
	for name, broken := range map[string]bool{"ended": false, "broken": true} {
		g := newGate(t)
		data, err := json.Marshal(script(g.op))
		if err != nil {
			t.Fatal(err)
		}
		header := http.Header{"Authorization": {"Bearer " + w.alice}}
		_, session := post(t, url, initialize, header, "")
		header.Set("Mcp-Session-Id", session)
		post(t, url, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, header, "")
		call := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"send_to_script","arguments":` +
			`{"waitSeconds":3600,"data":` + string(data) + `}}}`
		ctx, cut := context.WithCancel(t.Context())
		defer cut()
		calling := make(chan struct{})
		go func() {
			defer close(calling)
			resp, err := http.DefaultTransport.RoundTrip(newRequest(ctx, t, http.MethodPost, url, call, header, ""))
			if err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}()
		g.waitReached(t)
		if broken {
			cut()
			<-calling
		}
		// The agent waits at the gate for 30 seconds at most. Its task must not be what ends the call.
		ending, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		resp, err := http.DefaultTransport.RoundTrip(newRequest(ending, t, http.MethodDelete, url, "", header, ""))
		if err != nil {
			t.Fatalf("%s: the session does not end: %v", name, err)
		}
		if resp.Body.Close(); resp.StatusCode != http.StatusNoContent {
			t.Errorf("%s: status %d", name, resp.StatusCode)
		}
		<-calling
		list := dial(t, w.stdio(w.alice), "", false).call("list_tasks", "agent", "script", "state", "working")
		if len(list.Tasks) != 1 {
			t.Errorf("%s: the working tasks are %+v", name, list.Tasks)
		}
		g.open()
		dial(t, w.stdio(w.alice), "", false).inState("completed", "follow_task", "agent", "script",
			"taskId", list.Tasks[0].TaskID)
	}
}

const (
	initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",` +
		`"capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	listTools = `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
)

func TestMCPRefusesRequestsOfOthers(t *testing.T) {
	t.Parallel()
	w := newMCPWorld(t)
	url := w.serveHTTP("--host", "agents.example")
	key := func(k string, more ...string) http.Header {
		h := http.Header{"Authorization": {"Bearer " + k}}
		for i := 0; i < len(more); i += 2 {
			h.Set(more[i], more[i+1])
		}
		return h
	}
	for _, tt := range []struct {
		name   string
		header http.Header
		host   string
		want   int
	}{
		{"of its own", key(w.alice), "", 200},
		{"by its name", key(w.alice, "Origin", "https://agents.example"), "agents.example:443", 200},
		{"from a page of this machine", key(w.alice, "Origin", "http://localhost:6274"), "localhost:1", 200},
		{"without a key", http.Header{}, "", 401},
		{"with a wrong key", key("a2ad_live_wrong"), "", 401},
		{"by a name that resolves to it", key(w.alice), "evil.example", 403},
		{"by such a name, from its page", key(w.alice, "Origin", "http://evil.example"), "evil.example", 403},
		{"from another page", key(w.alice, "Origin", "https://evil.example"), "", 403},
		{"from a file", key(w.alice, "Origin", "null"), "", 403},
	} {
		if got, _ := post(t, url, initialize, tt.header, tt.host); got != tt.want {
			t.Errorf("a request %s: status %d, want %d", tt.name, got, tt.want)
		}
	}

	_, session := post(t, url, initialize, key(w.alice), "")
	if session == "" {
		t.Fatal("there is no session")
	}
	if got, _ := post(t, url, listTools, key(w.alice, "Mcp-Session-Id", session), ""); got != 200 {
		t.Errorf("the caller's own session: status %d", got)
	}
	if got, _ := post(t, url, listTools, key(w.bob, "Mcp-Session-Id", session), ""); got != 403 {
		t.Errorf("a session of another caller: status %d, want 403", got)
	}
}

func TestMCPDoesNotStartWithWhatItCannotServe(t *testing.T) {
	t.Parallel()
	w := newMCPWorld(t)
	for _, tt := range []struct {
		code int
		want string
		args []string
		env  []string
	}{
		{exitUsage, "--agent", nil, nil},
		{exitUsage, "is a name, not a path", []string{"--agent", "a/b"}, nil},
		{exitUsage, "is given twice", []string{"--agent", "a", "--agent", "a"}, nil},
		{exitUsage, "--host goes with --listen", []string{"--agent", "echo", "--host", "x"}, nil},
		{exitUsage, "is not on loopback", []string{"--agent", "echo", "--listen", "0.0.0.0:0"}, nil},
		{exitUsage, "--wait must be", []string{"--agent", "echo", "--wait", "2h"}, nil},
		{exitUsage, "all callers would use it", []string{"--agent", "echo", "--listen", "127.0.0.1:0"},
			[]string{"A2AD_API_KEY=k"}},
		{exitFailure, `agent "flaky" not found at ` + w.url, []string{"--agent", "flaky"}, nil},
		{exitFailure, "read the card", []string{"--agent", "echo", "--url", "http://127.0.0.1:1"}, nil},
	} {
		i := &invocation{env: append([]string{"A2AD_URL=" + w.url}, tt.env...)}
		i.run(t, append([]string{"mcp"}, tt.args...)...)
		if i.code != tt.code || !strings.Contains(i.stderr, tt.want) || i.stdout != "" {
			t.Errorf("%v: exit code %d, %s, want %d, %s", tt.args, i.code, i.stderr, tt.code, tt.want)
		}
	}
}

// A request that does not arrive ends, and a call that takes longer than a request may take to arrive does not.
func TestMCPRequestsMustArriveInTime(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan error, 2), make(chan struct{})
	handler := func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		entered <- err
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		<-leave
		fmt.Fprintf(w, "context: %v", context.Cause(r.Context()))
	}
	s := httptest.NewUnstartedServer(nil)
	s.Config = newMCPServer(t.Context(), http.HandlerFunc(handler), 200*time.Millisecond)
	s.Start()
	t.Cleanup(s.Close) // after the connections are closed, as it waits for their requests
	send := func(body string) net.Conn {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n%s", body)
		return conn
	}
	long := send("whole")
	if err := <-entered; err != nil {
		t.Fatal(err)
	}
	send("slow")
	select {
	case err := <-entered:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a slow body: %v", err)
		}
	case <-time.After(patience):
		t.Error("a slow body has no deadline")
	}
	close(leave) // now the first request has taken longer than a body may
	resp, err := http.ReadResponse(bufio.NewReader(long), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "context: <nil>" {
		t.Errorf("a long answer: %s, %v", text, err)
	}
}
