package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/a2ad/a2ad/internal/e2e/check"
)

// recorder is a transport that sends each request to the replica chosen for it, and logs the answers as they arrive
// on the wire.
type recorder struct {
	log  *check.Log
	next http.RoundTripper
	pick func(n int) *replica
	name string
	sent atomic.Int64
}

// exchange holds the fields of a request that the log needs.
type exchange struct {
	Method string
	Params struct {
		Message       json.RawMessage
		HistoryLength *int
		Configuration struct{ HistoryLength *int }
	}
}

func (rec *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	to := rec.pick(int(rec.sent.Add(1)) - 1)
	req = req.Clone(req.Context())
	req.URL.Scheme, req.URL.Host, _ = strings.Cut(to.base, "://")
	req.Host = req.URL.Host
	var ex exchange
	if req.GetBody != nil {
		if body, err := req.GetBody(); err == nil {
			_ = json.NewDecoder(body).Decode(&ex) // other requests are not logged
		}
	}
	resp, err := rec.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		resp.Body = &tee{ReadCloser: resp.Body, done: func(seen []byte, ended bool) {
			s := parseStream(seen)
			s.Reader, s.Replica, s.After, s.Ended = rec.name, to.name, req.Header.Get("Last-Event-ID"), ended
			s.Message = ex.Method == "message/stream"
			if s.Message && req.Header.Get("Idempotency-Key") == "" {
				s.After = "" // it has no meaning there
			}
			rec.log.AddStream(s)
		}}
		return resp, nil
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	var answer struct{ Result json.RawMessage }
	var kind struct{ Kind string }
	if json.Unmarshal(body, &answer) == nil && json.Unmarshal(answer.Result, &kind) == nil && kind.Kind == "task" {
		rec.log.AddAnswer(check.Answer{
			Replica: to.name, Task: answer.Result, Message: ex.Params.Message,
			Whole: ex.Params.HistoryLength == nil && ex.Params.Configuration.HistoryLength == nil,
		})
	}
	return resp, nil
}

// tee records what is read of a stream and passes it on once, at the end.
type tee struct {
	io.ReadCloser
	once sync.Once
	seen []byte
	done func(seen []byte, ended bool)
}

func (t *tee) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	t.seen = append(t.seen, p[:n]...)
	if err != nil {
		t.once.Do(func() { t.done(t.seen, errors.Is(err, io.EOF)) })
	}
	return n, err
}

func (t *tee) Close() error {
	t.once.Do(func() { t.done(t.seen, false) })
	return t.ReadCloser.Close()
}

// parseStream reads the complete blocks of an event stream. It accepts only a2ad's own format, so that anything else
// becomes an unreadable event.
func parseStream(text []byte) (s check.Stream) {
	blocks := strings.Split(string(text), "\n\n")
	for _, block := range blocks[:len(blocks)-1] {
		id, data, isEvent := strings.Cut(block, "\ndata: ")
		switch {
		case block == ": gap":
			s.Gap = len(s.Frames) == 0
		case strings.HasPrefix(block, ": "):
		// the credentials have expired
		case strings.HasPrefix(block, `data: {"jsonrpc":"2.0","id":`) &&
			strings.Contains(block, `,"error":{"code":-32041,`):
		case strings.HasPrefix(block, "retry: "):
			s.Retry = true
		case isEvent && strings.HasPrefix(id, "id: "):
			var envelope struct{ Result json.RawMessage }
			_ = json.Unmarshal([]byte(data), &envelope) // check reports an empty result as unreadable
			s.Frames = append(s.Frames, check.Frame{ID: strings.TrimPrefix(id, "id: "), Result: envelope.Result})
		default:
			s.Frames = append(s.Frames, check.Frame{Result: []byte(block)})
		}
	}
	return s
}
