package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	taskID  = "01938c1e-5b7a-7c3e-9d7a-1f2b3c4d5e6f"
	oldTask = "01938c1e-0000-7000-8000-000000000001"
)

// fakeAgent answers what the text of the message asks for, and keeps the last request.
type fakeAgent struct {
	*httptest.Server
	method, path, key, body string
}

func newFakeAgent(t *testing.T) *fakeAgent {
	t.Helper()
	f := &fakeAgent{}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

// sseAnswer writes events to one request.
type sseAnswer struct {
	w    http.ResponseWriter
	id   json.RawMessage
	last int64 // seq in Last-Event-ID
	seq  int64
}

func (s *sseAnswer) send(result string) {
	if s.seq++; s.seq <= s.last {
		return
	}
	fmt.Fprintf(s.w, "id: %d-aaaaaaaa\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n\n", s.seq, s.id, result)
	_ = http.NewResponseController(s.w).Flush()
}

func taskJSON(state, rest string) string {
	return `{"kind":"task","id":"` + taskID + `","contextId":"c1","status":{"state":"` + state + `"}` + rest + `}`
}

func (s *sseAnswer) status(state, text string, final bool) {
	msg := ""
	if text != "" {
		msg = fmt.Sprintf(`,"message":{"kind":"message","role":"agent","messageId":"m",`+
			`"parts":[{"kind":"text","text":%s}]}`, quote(text))
	}
	s.send(fmt.Sprintf(`{"kind":"status-update","taskId":%q,"contextId":"c1","status":{"state":%q%s},"final":%v}`,
		taskID, state, msg, final))
}

func (s *sseAnswer) chunk(id, text string, more, last bool) {
	s.send(fmt.Sprintf(`{"kind":"artifact-update","taskId":%q,"contextId":"c1","artifact":{"artifactId":%q,`+
		`"parts":[{"kind":"text","text":%s}]},"append":%v,"lastChunk":%v}`,
		taskID, id, quote(text), more, last))
}

func quote(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

func (f *fakeAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.path, f.key, f.body = r.URL.Path, r.Header.Get("Authorization"), string(body)
	var req struct {
		ID     json.RawMessage
		Method string
		Params struct {
			Message       struct{ Parts []struct{ Text string } }
			Configuration struct{ Blocking *bool }
		}
	}
	if err := json.Unmarshal(body, &req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f.method = req.Method
	text := ""
	if len(req.Params.Message.Parts) > 0 {
		text = req.Params.Message.Parts[0].Text
	}
	answer := func(result string) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, req.ID, result)
	}
	switch {
	case text == "locked":
		w.Header().Set("WWW-Authenticate", "Bearer")
		w.WriteHeader(http.StatusUnauthorized)
	case strings.Contains(f.body, "nowhere"):
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32001,"message":"task not found"}}`, req.ID)
	case text == "refused":
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"message.parts: too many"}}`, req.ID)
	case req.Method == "tasks/cancel":
		answer(taskJSON("canceled", ""))
	case req.Method == "message/send" && req.Params.Configuration.Blocking != nil:
		answer(taskJSON("submitted", ""))
	case req.Method == "message/send":
		answer(taskJSON("completed", `,"artifacts":[{"artifactId":"out","parts":[{"kind":"text","text":"hello"}]}]`))
	default:
		w.Header().Set("Content-Type", "text/event-stream")
		s := &sseAnswer{w: w, id: req.ID}
		_, _ = fmt.Sscanf(r.Header.Get("Last-Event-ID"), "%d-", &s.last)
		f.play(s, text, r)
	}
}

// play sends the events of the task that each text asks for. A resubscription plays "report".
func (f *fakeAgent) play(s *sseAnswer, text string, r *http.Request) {
	if text == "reply" {
		s.send(`{"kind":"message","role":"agent","messageId":"m","contextId":"c1",` +
			`"parts":[{"kind":"text","text":"hi"}]}`)
		return
	}
	if f.method == "tasks/resubscribe" && s.last == 0 {
		s.seq = 3
		s.send(taskJSON("working",
			`,"artifacts":[{"artifactId":"report","parts":[{"kind":"text","text":"The quick "}]}]`))
	} else {
		s.send(taskJSON("submitted",
			`,"artifacts":[{"artifactId":"earlier","parts":[{"kind":"text","text":"of an earlier turn"}]}]`))
		s.status("working", "", false)
		s.status("working", "reading\nthe \x1b[31msources", false)
		s.chunk("report", "The quick ", false, false)
	}
	switch text {
	case "ask":
		s.status("input-required", "Which one?", true)
	case "fail":
		s.status("failed", "it broke", true)
	case "hang":
		<-r.Context().Done()
	case "cut":
		panic(http.ErrAbortHandler)
	default:
		s.send(`{"kind":"status-update","taskId":"` + taskID + `","contextId":"c1",` +
			`"status":{"state":"working"},"final":false,` +
			`"metadata":{"a2ad/attempt":2,"a2ad/reason":"the worker was lost"}}`)
		s.chunk("report", "brown ", true, false)
		s.chunk("second", "one\ntwo\n", false, true)
		s.chunk("report", "fox\x1b[2J", true, true)
		s.chunk("second", "three", false, true)
		s.send(`{"kind":"artifact-update","taskId":"` + taskID + `","contextId":"c1",` +
			`"artifact":{"artifactId":"mixed","name":"a mix","parts":[` +
			`{"kind":"data","data":{"n": 1.0}},` +
			`{"kind":"file","file":{"bytes":"aGk=","name":"hi.txt","mimeType":"text/plain"}},` +
			`{"kind":"file","file":{"uri":"https://x/y"}}]}}`)
		s.status("completed", "", true)
	}
}

// TestSendScreens checks what a person sees at a terminal.
func TestSendScreens(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		args []string
	}{
		{"report", []string{"report"}},
		{"ask", []string{"ask", "--agent", "words", "--task", oldTask}},
		{"fail", []string{"fail"}},
		{"reply", []string{"reply"}},
		{"cut", []string{"cut"}},
		{"resume", []string{"--resume", taskID}},
		{"resume-after", []string{"--resume", taskID, "--last-event-id", "4-aaaaaaaa"}},
		{"no-stream", []string{"hello", "--no-stream"}},
		{"no-blocking", []string{"hello", "--blocking=false"}},
		{"cancel", []string{"--cancel", taskID}},
		{"nowhere", []string{"--resume", "nowhere"}}, {"refused", []string{"refused"}}, {"locked", []string{"locked"}},
		{"json", []string{"report", "-o", "json"}}, {"no-stream-json", []string{"hello", "--no-stream", "-o", "json"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			f := newFakeAgent(t)
			got := screenful(t, t.Context(), nil, []string{"A2AD_URL=" + f.URL},
				append([]string{"send"}, tc.args...)...)
			golden(t, "send-"+tc.name, strings.ReplaceAll(got, f.URL, "http://127.0.0.1:8080"))
		})
	}
}

// TestSendInAPipe checks that stdout has what the agent says, unchanged, and nothing else.
func TestSendInAPipe(t *testing.T) {
	t.Parallel()
	f := newFakeAgent(t)
	i := invocation{env: []string{"A2AD_URL=" + f.URL}}
	i.run(t, "send", "report")
	want := "The quick brown \none\ntwo\nfox\x1b[2J\nthree\n{\"n\": 1.0}\n"
	if i.code != exitOK || i.stdout != want {
		t.Errorf("exit code %d, stdout %q, want %q", i.code, i.stdout, want)
	}
	if strings.Contains(i.stderr, "\x1b") {
		t.Errorf("stderr has control characters: %q", i.stderr)
	}
	if i.run(t, "send", "--no-stream", "hello"); i.stdout != "hello\n" {
		t.Errorf("without a stream: %q", i.stdout)
	}
}

func TestSendColours(t *testing.T) {
	t.Parallel()
	f := newFakeAgent(t)
	got := screenful(t, t.Context(), func(app *App) { app.Color, app.ColorStderr = true, true },
		[]string{"A2AD_URL=" + f.URL}, "send", "fail")
	golden(t, "send-colours",
		strings.ReplaceAll(strings.ReplaceAll(got, f.URL, "http://127.0.0.1:8080"), "\x1b", "ESC"))
}

// interruptAt is a terminal that cancels when a text has been written, like a person who has seen it.
type interruptAt struct {
	seen   bytes.Buffer
	text   string
	cancel context.CancelFunc
}

func (w *interruptAt) Write(p []byte) (int, error) {
	n, err := w.seen.Write(p)
	if strings.Contains(w.seen.String(), w.text) {
		w.cancel()
	}
	return n, err
}

// TestSendInterrupted checks that Ctrl-C does not cancel the task, and that the command says how to follow it again.
func TestSendInterrupted(t *testing.T) {
	t.Parallel()
	f := newFakeAgent(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	screen := &interruptAt{text: "The quick", cancel: cancel}
	got := screenful(t, ctx, func(app *App) { app.Stdout, app.Stderr = screen, screen }, nil, "send", "hang",
		"--url", f.URL)
	got = strings.ReplaceAll(screen.seen.String()+got, f.URL, "http://server")
	golden(t, "send-interrupted", got)
	if f.method != "message/stream" {
		t.Errorf("the last request is %s: nothing must be sent at the end", f.method)
	}
}

// TestSendWithoutServer checks that the command fails at once, and says why and what to do.
func TestSendWithoutServer(t *testing.T) {
	t.Parallel()
	f := newFakeAgent(t)
	f.Close()
	i := invocation{env: []string{"A2AD_URL=" + f.URL}}
	for _, args := range [][]string{
		{"send", "x"},
		{"send", "--no-stream", "x"},
		{"send", "--resume", "x"},
		{"send", "--cancel", "x"},
	} {
		i.run(t, args...)
		if i.code != exitFailure || !strings.Contains(i.stderr, "no server at "+f.URL) ||
			!strings.Contains(i.stderr, "a2ad dev") {
			t.Errorf("%v: exit code %d, %s", args, i.code, i.stderr)
		}
	}
}

func TestSendToUnknownAgentNamesIt(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	i := invocation{env: []string{"A2AD_URL=" + srv.URL}}
	i.run(t, "send", "--agent", "word", "x")
	if i.code != exitFailure || !strings.Contains(i.stderr, `agent "word" not found at `+srv.URL+": ") {
		t.Errorf("exit code %d, %s", i.code, i.stderr)
	}
}

// TestSendMessage checks the message that the flags describe.
func TestSendMessage(t *testing.T) {
	t.Parallel()
	f := newFakeAgent(t)
	dir := t.TempDir()
	script, note := filepath.Join(dir, "script.json"), filepath.Join(dir, "note.txt")
	for path, text := range map[string]string{script: "{\"script\": [ ]}\n", note: "hi"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	i := invocation{env: []string{"A2AD_URL=" + f.URL + "/", "A2AD_API_KEY=secret"}, stdin: "from stdin\n"}
	i.run(t, "send", "-", "--agent", "words", "--task", "t0", "--context", "c0", "--data", `{"a": 1.0, "b": [","]}`,
		"--data", "@"+script, "--file", note, "--idempotency-key", "k", "--no-stream")
	if i.code != exitOK {
		t.Fatalf("exit code %d: %s", i.code, i.stderr)
	}
	if f.path != "/agents/words" || f.key != "Bearer secret" || f.method != "message/send" {
		t.Errorf("%s to %s with %q", f.method, f.path, f.key)
	}
	_, msg, _ := strings.Cut(f.body, `"parts":`)
	want := `[{"kind":"text","text":"from stdin\n"},` +
		`{"kind":"data","data":{"a": 1.0, "b": [","]}},` +
		`{"kind":"data","data":{"script": [ ]}},` +
		`{"kind":"file","file":{"bytes":"aGk=","mimeType":"text/plain; charset=utf-8","name":"note.txt"}}],` +
		`"taskId":"t0","contextId":"c0"}}}`
	if diff := cmp.Diff(want, msg); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
}
