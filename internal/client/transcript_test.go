package client_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/backoff"
	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestTranscripts plays the files of testdata. Each has prose, what the client does, then its connections in order,
// then what the client's caller sees.
//
//	do stream [key=K] [after=ID]      or  do resubscribe [after=ID]; with v=1.0 of that version
//	> METHOD [Last-Event-ID]          the request that the server expects
//	< STATUS TYPE [Header: value]     its answer
//	| line                            of the body; R{…} is a JSON-RPC response with that result
//	! end, ! cut                      the body ends, or the connection breaks
//	= line                            what the caller sees
func TestTranscripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			tr := readTranscript(t, string(text))
			got := tr.play(t)
			if diff := cmp.Diff(strings.Join(tr.want, "\n"), strings.Join(got, "\n")); diff != "" {
				t.Errorf("the caller saw (-want +got):\n%s", diff)
			}
		})
	}
}

type transcript struct {
	do    []string
	conns []conn
	want  []string
}

type conn struct {
	method, lastEventID string
	status              int
	header              http.Header
	body                []string
	cut                 bool
}

func readTranscript(t *testing.T, text string) *transcript {
	t.Helper()
	tr := &transcript{}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		mark, rest, _ := strings.Cut(line, " ")
		last := len(tr.conns) - 1
		switch mark {
		case "do":
			tr.do = strings.Fields(rest)
		case ">":
			method, id, _ := strings.Cut(rest, " ")
			tr.conns = append(tr.conns, conn{method: method, lastEventID: id, header: http.Header{}})
		case "<":
			status, rest, _ := strings.Cut(rest, " ")
			tr.conns[last].status, _ = strconv.Atoi(status)
			contentType, header, _ := strings.Cut(rest, " ")
			tr.conns[last].header.Set("Content-Type", contentType)
			if k, v, ok := strings.Cut(header, ": "); ok {
				tr.conns[last].header.Set(k, v)
			}
		case "|":
			tr.conns[last].body = append(tr.conns[last].body, rest)
		case "!":
			tr.conns[last].cut = rest == "cut"
		case "=":
			tr.want = append(tr.want, rest)
		}
	}
	if tr.do == nil || len(tr.conns) == 0 || len(tr.want) == 0 {
		t.Fatalf("incomplete transcript: %+v", tr)
	}
	return tr
}

var resultMacro = regexp.MustCompile(`^(.*)R(\{.*\})$`)

// ServeHTTP answers the next request as written.
func (tr *transcript) serve(t *testing.T, next <-chan conn) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var cn conn
		select {
		case cn = <-next:
		default:
			t.Errorf("unexpected request")
			w.WriteHeader(http.StatusTeapot)
			return
		}
		var req struct {
			ID     int64
			Method string
		}
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &req)
		}
		if err != nil {
			t.Errorf("request: %v", err)
		}
		if strings.Contains(cn.method, "/") != (r.Header.Get("A2A-Version") == "") {
			t.Errorf("%s with A2A-Version %q", cn.method, r.Header.Get("A2A-Version"))
		}
		if req.Method != cn.method || r.Header.Get("Last-Event-ID") != cn.lastEventID {
			t.Errorf("request %s %q, want %s %q", req.Method, r.Header.Get("Last-Event-ID"), cn.method, cn.lastEventID)
		}
		for k, v := range cn.header {
			w.Header()[k] = v
		}
		w.WriteHeader(cn.status)
		for _, line := range cn.body {
			if m := resultMacro.FindStringSubmatch(line); m != nil {
				line = fmt.Sprintf(`%s{"jsonrpc":"2.0","id":%d,"result":%s}`, m[1], req.ID, m[2])
			}
			line = strings.ReplaceAll(line, "$ID", strconv.FormatInt(req.ID, 10))
			fmt.Fprintln(w, line)
		}
		if cn.cut {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	})
}

// play runs the client against the transcript and returns what its caller sees.
func (tr *transcript) play(t *testing.T) []string {
	t.Helper()
	next := make(chan conn, len(tr.conns))
	for _, cn := range tr.conns {
		next <- cn
	}
	srv := httptest.NewServer(tr.serve(t, next))
	defer srv.Close()
	c := &client.Client{URL: srv.URL, HTTP: srv.Client(), Tries: 3,
		Retry: backoff.Policy{Base: time.Nanosecond, Max: time.Nanosecond}}
	var got []string
	c.SetPause(func(_ context.Context, d time.Duration) error {
		if d = d.Truncate(time.Millisecond); d > 0 {
			got = append(got, "wait "+d.String())
		}
		return nil
	})
	opts := client.StreamOptions{OnCut: func(_ error, _ time.Duration) { got = append(got, "cut") }}
	params := client.SendParams{Message: a2a.Message{Parts: []a2a.Part{{Kind: a2a.PartText, Text: "hello"}}}}
	for _, arg := range tr.do[1:] {
		switch k, v, _ := strings.Cut(arg, "="); k {
		case "key":
			params.IdempotencyKey = v
		case "v":
			c.Version = client.V10
		case "after":
			opts.LastEventID = v
		default:
			t.Fatalf("unknown %q", arg)
		}
	}
	stream := c.Stream(t.Context(), params, opts)
	if tr.do[0] == "resubscribe" {
		stream = c.Resubscribe(t.Context(), "t1", opts)
	}
	for ev, err := range stream {
		if err != nil {
			got = append(got, "error "+describeError(err))
			continue
		}
		got = append(got, describe(ev))
	}
	if len(next) > 0 {
		t.Errorf("%d expected connections did not come", len(next))
	}
	return got
}

func describe(ev client.Event) string {
	out := []string{string(ev.Kind)}
	if ev.Seq > 0 {
		out = append(out, strconv.FormatInt(ev.Seq, 10))
	}
	if ev.State != a2a.StateNone {
		out = append(out, ev.State.String())
	}
	if text := client.Text(ev.Parts); text != "" {
		out = append(out, strconv.Quote(text))
	}
	if ev.Kind == client.KindArtifact {
		out = append(out, ev.Artifact.ID, strconv.Quote(client.Text(ev.Artifact.Parts)))
	}
	for _, flag := range []struct {
		on   bool
		name string
	}{{ev.Append, "append"}, {ev.LastChunk, "last"}, {ev.Final, "final"}, {ev.Gap, "gap"}} {
		if flag.on {
			out = append(out, flag.name)
		}
	}
	return strings.Join(out, " ")
}

func describeError(err error) string {
	var e *client.Error
	switch {
	case errors.Is(err, client.ErrUnknown):
		return "unknown"
	case errors.As(err, &e):
		return fmt.Sprintf("%d %d %s: %s", e.Status, e.Code, e.Reason(), e)
	default:
		return err.Error()
	}
}

// TestLargeEventIsRefused checks that a hostile server cannot fill the client's memory.
func TestLargeEventIsRefused(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		out := bufio.NewWriter(w)
		_, _ = out.WriteString("data: ")
		_, err := out.Write(bytes.Repeat([]byte("x"), 1<<20))
		for err == nil {
			_, err = out.Write(bytes.Repeat([]byte("x"), 1<<20))
		}
	}))
	defer srv.Close()
	c := &client.Client{URL: srv.URL, HTTP: srv.Client(), MaxBytes: 64 << 10}
	for _, err := range c.Resubscribe(t.Context(), "t", client.StreamOptions{}) {
		if err == nil {
			t.Fatal("an endless line became an event")
		}
		return
	}
	t.Fatal("no error")
}
