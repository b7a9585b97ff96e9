package a2ad_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/sdk/go/a2ad"
)

// server answers the requests of a worker, in the bubble of a test: its time is fake.
type server struct {
	t           *testing.T
	began       time.Time
	runs        chan map[string]any
	lease       float64
	header      http.Header // of the answers
	unreachable bool        // requests wait for a connection
	// answer replaces the answer to a request, unless it returns 0. It may wait.
	answer func(r request) (status int, body string)

	mu       sync.Mutex
	requests []request // guarded by mu
}

type request struct {
	at   time.Duration
	path string
	body string
	ctx  context.Context //nolint:containedctx // of the request
	n    int             // of the requests with this path, from 1
}

func newServer(t *testing.T) *server {
	return &server{t: t, header: http.Header{}, began: time.Now(), runs: make(chan map[string]any, 100), lease: 30}
}

// add puts a run into the queue.
func (s *server) add(task string, more map[string]any) {
	run := map[string]any{
		"taskId": task, "agent": "x", "epoch": 1, "attempt": 1, "leaseSeconds": s.lease,
		"messages": []any{map[string]any{
			"messageId": "m", "role": "ROLE_USER", "parts": []any{map[string]any{"text": task}},
		}},
	}
	for k, v := range more {
		run[k] = v
	}
	s.runs <- run
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil && !s.unreachable {
		trace.WroteRequest(httptrace.WroteRequestInfo{})
	}
	path := strings.TrimPrefix(r.URL.RequestURI(), "/worker/v1/")
	req := request{at: time.Since(s.began), path: path, body: string(body), ctx: r.Context()}
	s.mu.Lock()
	for _, old := range s.requests {
		if old.path == req.path {
			req.n++
		}
	}
	req.n++
	s.requests = append(s.requests, req)
	s.mu.Unlock()
	if s.answer != nil {
		switch status, text := s.answer(req); status {
		case 0:
		case -1:
			return nil, errors.New("connection refused")
		default:
			return s.respond(status, text), nil
		}
	}
	if req.path != "claim" {
		return s.respond(200, `{"cancelRequested": false}`), nil
	}
	select {
	case run := <-s.runs:
		data, err := json.Marshal(map[string]any{"runs": []any{run}})
		return s.respond(200, string(data)), err
	case <-time.After(30 * time.Second):
		return s.respond(200, `{"runs": []}`), nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

func (s *server) respond(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: s.header, Body: io.NopCloser(bytes.NewBufferString(body))}
}

// sent returns the requests with a path that contains a text.
func (s *server) sent(path string) []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	var some []request
	for _, r := range s.requests {
		if strings.Contains(r.path, path) {
			some = append(some, r)
		}
	}
	return some
}

// work runs a worker until the returned function is called.
func (s *server) work(o a2ad.Options, fn a2ad.AgentFunc, options ...a2ad.AgentOption) (w *a2ad.Worker, stop func()) {
	w = s.worker(o)
	w.Agent("x", fn, options...)
	return w, s.serve(w)
}

// handle is work for a function for messages.
func (s *server) handle(fn a2ad.AgentFunc) (w *a2ad.Worker, stop func()) {
	w = s.worker(a2ad.Options{})
	w.Handler("x", fn)
	return w, s.serve(w)
}

func (s *server) worker(o a2ad.Options) *a2ad.Worker {
	o.URL = "http://server"
	if o.Client == nil {
		o.Client = &http.Client{}
	}
	o.Client.Transport = s
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return a2ad.NewWorker(o)
}

func (s *server) serve(w *a2ad.Worker) (stop func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error)
	go func() { done <- w.Serve(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Errorf("Serve = %v", err)
		}
	}
}
