package a2a

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/sse"
	"github.com/a2ad/a2ad/internal/wire/answer"
)

var (
	errSlow   = errors.New("no answer in time")
	errSilent = errors.New("silent for too long")
)

// newHTTP returns a client that follows no redirects, because only the card says where the agent is.
func newHTTP(c *Config) *http.Client {
	dialer := &net.Dialer{Timeout: c.Connect, KeepAlive: 15 * time.Second}
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSClientConfig: c.TLS,
			ForceAttemptHTTP2: true, TLSHandshakeTimeout: c.Connect, ResponseHeaderTimeout: c.Answer,
			MaxIdleConnsPerHost: 100, IdleConnTimeout: 90 * time.Second,
			DisableCompression: true, MaxResponseHeaderBytes: 64 << 10,
		},
	}
}

// lostError is a connection that could not be made, or that broke before the answer was complete.
type lostError struct {
	err  error
	sent bool // the request may have arrived
}

// Error does not show the cause, which has addresses and is only for the log.
func (e *lostError) Error() string {
	if e.sent {
		return "the connection to the upstream agent broke"
	}
	return "the upstream agent cannot be reached"
}

func (e *lostError) Unwrap() error { return e.err }

// lost makes a lostError.
func lost(ctx context.Context, what string, sent bool, err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return &lostError{fmt.Errorf("%s: %w", what, err), sent}
}

// refusal is an HTTP error that is not a JSON-RPC response.
type refusal struct {
	status int
	after  time.Duration
	text   string
}

func (e *refusal) Error() string {
	if e.status >= 300 && e.status < 400 {
		return fmt.Sprintf("the upstream answers with HTTP status %d, and redirects are not followed", e.status)
	}
	if e.text != "" {
		return fmt.Sprintf("the upstream answers with HTTP status %d: %s", e.status, e.text)
	}
	return fmt.Sprintf("the upstream answers with HTTP status %d", e.status)
}

// temporary reports whether the same request may be accepted later.
func (e *refusal) temporary() bool {
	return e.status >= 500 || e.status == http.StatusTooManyRequests ||
		e.status == http.StatusRequestTimeout || e.status == http.StatusTooEarly
}

// notAccepted reports whether the status says that the upstream did not accept the request.
func (e *refusal) notAccepted() bool {
	return e.status < 500 || e.status == http.StatusServiceUnavailable || e.status == http.StatusNotImplemented
}

const (
	maxRefusal = 16 << 10
	maxDelay   = 5 * time.Minute // of a Retry-After
)

func refusalOf(resp *http.Response, body []byte) *refusal {
	e := &refusal{status: resp.StatusCode}
	if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n > 0 {
		e.after = min(time.Duration(n)*time.Second, maxDelay)
	}
	text := ""
	switch t, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); {
	case t == "text/plain":
		text = string(body)
	case rawjson.Check(body, answer.MaxDepth) == nil:
		text = reasonOf(rawjson.Trim(body))
	}
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	e.text = strings.ToValidUTF8(line[:min(len(line), 200)], "")
	return e
}

// reasonOf returns the text of an error in JSON, in one of the usual forms.
func reasonOf(body []byte) string {
	for _, key := range []string{"detail", "message", "error", "title"} {
		v := rawjson.Get(body, key)
		if text, ok := rawjson.String(v); ok {
			return text
		}
		if text, ok := rawjson.String(rawjson.Get(v, "message")); ok {
			return text
		}
	}
	return ""
}

// traceKey is the key of the run's a2a.Traceparent in the context of its requests.
type traceKey struct{}

// request sends one JSON-RPC request. The id is the same in all requests, because each has a connection of its own
// until its answer ends.
func (e *Executor) request(
	ctx context.Context, at *endpoint, method string, params []byte, key, accept string,
) (*http.Response, error) {
	var connected atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	body := rawjson.AppendString([]byte(`{"jsonrpc":"2.0","id":1,"method":`), method)
	body = append(append(append(body, `,"params":`...), params...), '}')
	req, err := http.NewRequestWithContext(traced, http.MethodPost, at.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.GetBody = nil // so that net/http does not repeat the request
	req.Header = e.header(at.version)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", accept)
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	if trace, _ := ctx.Value(traceKey{}).(a2a.Traceparent); trace != "" {
		req.Header.Set("Traceparent", string(trace))
	}
	resp, err := e.http.Do(req)
	if err != nil {
		return nil, lost(ctx, method, connected.Load(), err)
	}
	return resp, nil
}

// call sends one request that has one answer. Its errors are *answer.Error, *refusal, *lostError and InvalidResponse.
func (e *Executor) call(ctx context.Context, at *endpoint, method string, params []byte, key string) ([]byte, error) {
	resp, err := e.request(ctx, at, method, params, key, "application/json")
	if err != nil {
		return nil, err
	}
	defer closeBody(resp)
	return e.single(ctx, resp, method)
}

// single reads an answer that is not a stream, with any Content-Type: some SDKs answer with text/plain. Some send
// errors of JSON-RPC with other statuses than 200.
func (e *Executor) single(ctx context.Context, resp *http.Response, method string) ([]byte, error) {
	limit := e.c.MaxBytes
	if resp.StatusCode != http.StatusOK {
		limit = min(limit, maxRefusal)
	}
	body, err := e.readAll(resp.Body, limit)
	switch {
	case errors.Is(err, errTooLarge) && resp.StatusCode == http.StatusOK:
		return nil, executor.InvalidResponse("the upstream's answer to %s is larger than %d bytes", method, limit)
	case err != nil && !errors.Is(err, errTooLarge):
		return nil, lost(ctx, method, true, err)
	}
	result, err := answer.Response(body, 1)
	var said *answer.Error
	switch {
	case errors.As(err, &said) && said.Code != 0 && said.Code != resp.StatusCode: // not an error of HTTP, in JSON
		return nil, said
	case resp.StatusCode != http.StatusOK:
		return nil, refusalOf(resp, body)
	case err != nil:
		return nil, executor.InvalidResponse("the upstream's answer to %s, of type %.80q: %w",
			method, resp.Header.Get("Content-Type"), err)
	}
	return result, nil
}

var errTooLarge = errors.New("too large")

func (e *Executor) readAll(r io.Reader, limit int) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if err == nil && len(body) > limit {
		return body[:limit], errTooLarge
	}
	return body, err
}

// closeBody reads a small rest of the body, so that the connection can be reused.
func closeBody(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, maxRefusal)
	_ = resp.Body.Close()
}

// stream is an answer with several items.
type stream struct {
	e      *Executor
	ctx    context.Context //nolint:containedctx // the context of the request, which ends with the stream
	cancel context.CancelCauseFunc
	method string
	resp   *http.Response
	begun  bool
	events *sse.Reader // nil: there is one item, in only
	only   []byte
	done   bool
}

// open sends one request whose answer is a stream. The caller closes the stream.
func (e *Executor) open(
	ctx context.Context, at *endpoint, method string, params []byte, key string,
) (*stream, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	resp, err := e.request(ctx, at, method, params, key, "text/event-stream") //nolint:bodyclose // close does
	if err != nil {
		cancel(nil)
		return nil, err
	}
	s := &stream{e: e, ctx: ctx, cancel: cancel, method: method, resp: resp}
	if resp.StatusCode != http.StatusOK {
		s.begun = true
		if s.only, err = e.single(ctx, resp, method); err != nil {
			s.close()
			return nil, err
		}
	}
	return s, nil
}

// begin finds out what the answer is. Its type does not tell: some servers send streams without one, and some send an
// error in JSON as a stream.
func (s *stream) begin() (err error) {
	s.begun = true
	kind, _, _ := mime.ParseMediaType(s.resp.Header.Get("Content-Type"))
	body := bufio.NewReader(&watched{r: s.resp.Body, limit: s.e.c.Silence, cancel: s.cancel})
	begin, err := firstByte(body)
	if err != nil && !errors.Is(err, io.EOF) {
		return lost(s.ctx, s.method, true, err)
	}
	if begin == '{' || kind != "text/event-stream" && !beginsEvent(body) {
		answer := *s.resp
		answer.Body = struct {
			io.Reader
			io.Closer
		}{body, s.resp.Body}
		s.only, err = s.e.single(s.ctx, &answer, s.method)
		return err
	}
	s.events = sse.NewReader(body, sse.ReaderOptions{MaxLine: s.e.c.MaxBytes, MaxEvent: s.e.c.MaxBytes})
	return nil
}

// firstByte skips white space, and returns the byte after it without reading it.
func firstByte(r *bufio.Reader) (byte, error) {
	for {
		c, err := r.ReadByte()
		if err != nil {
			return 0, err
		}
		if c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			return c, r.UnreadByte()
		}
	}
}

// beginsEvent reports whether the next bytes are those of a server-sent event.
func beginsEvent(r *bufio.Reader) bool {
	for _, field := range []string{":", "id:", "data:", "event:", "retry:"} {
		if begin, _ := r.Peek(len(field)); string(begin) == field {
			return true
		}
	}
	return false
}

// watched cancels a request if a read of its answer takes too long.
type watched struct {
	r      io.Reader
	limit  time.Duration
	cancel context.CancelCauseFunc
}

func (w *watched) Read(p []byte) (int, error) {
	t := time.AfterFunc(w.limit, func() { w.cancel(errSilent) })
	defer t.Stop()
	return w.r.Read(p)
}

// next returns the next item. At the end of the stream, for any reason, the error is a *lostError.
func (s *stream) next() (answer.Item, error) {
	data, err := s.result()
	if err != nil {
		return answer.Item{}, err
	}
	item, err := answer.Decode(data)
	if err != nil {
		return answer.Item{}, executor.InvalidResponse("the upstream's %s: %w", s.method, err)
	}
	return item, nil
}

// result returns the result of the next JSON-RPC response.
func (s *stream) result() ([]byte, error) {
	if !s.begun {
		if err := s.begin(); err != nil {
			return nil, err
		}
	}
	if s.events == nil {
		if s.done {
			return nil, &lostError{io.EOF, true}
		}
		s.done = true
		return s.only, nil
	}
	for {
		ev, err := s.events.Next()
		if errors.Is(err, sse.ErrTooLarge) {
			return nil, executor.InvalidResponse("an event of the upstream is larger than %d bytes", s.e.c.MaxBytes)
		}
		if err != nil {
			return nil, lost(s.ctx, s.method, true, err)
		}
		if sse.Blank(ev.Data) {
			continue
		}
		data, err := answer.Response(ev.Data, 1)
		var said *answer.Error
		if errors.As(err, &said) {
			return nil, said
		}
		if err != nil {
			return nil, executor.InvalidResponse("an event of the upstream: %w", err)
		}
		return data, nil
	}
}

func (s *stream) close() {
	s.cancel(nil)
	_ = s.resp.Body.Close()
}
