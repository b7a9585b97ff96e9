package http

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	nethttp "net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/executor/vocab"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// exchange is one request and its answer. It belongs to the goroutine of the run.
type exchange struct {
	e       *Executor
	run     *executor.Run
	abort   context.CancelCauseFunc
	emit    func(a2a.Event) error
	last    func() // called before the event that ends the turn
	log     *slog.Logger
	sent    atomic.Bool // there is a connection
	written atomic.Bool // the whole request was written to it
	open    bool        // the agent may be working on it
}

// Causes with which a request is aborted.
var (
	errConnect  = executor.Unreachable(errors.New("the agent cannot be reached in time"))
	errIdle     = errors.New("the agent sent nothing for too long")
	errLingered = errors.New("the answer continues after its last event")
)

// do makes the request and emits the events of its answer. It returns errTurnEnded when one ended the turn. abort must
// end ctx.
func (x *exchange) do(ctx context.Context) error {
	body := vocab.AppendRun(nil, vocab.RunOf(x.run))
	req, err := x.request(ctx, x.e.c.URL, body)
	if err != nil {
		return executor.Permanent(err)
	}
	req.Header.Set("Accept", "application/x-ndjson, text/event-stream;q=0.9, application/json;q=0.8")
	connecting := time.AfterFunc(x.e.c.ConnectTimeout, func() { x.abort(errConnect) })
	defer connecting.Stop()
	connected := func(httptrace.GotConnInfo) {
		connecting.Stop()
		x.sent.Store(true)
	}
	traced := httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn:      connected,
		WroteRequest: func(w httptrace.WroteRequestInfo) { x.written.Store(w.Err == nil) },
	})
	resp, err := x.e.transport.RoundTrip(req.WithContext(traced))
	x.open = x.sent.Load()
	if err != nil {
		return x.unanswered(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		x.open = false
		return x.refused(resp)
	}
	a := newAnswer(x, resp)
	err = a.read(ctx, resp.Header)
	if errors.Is(err, errTurnEnded) {
		t := time.AfterFunc(x.e.c.Linger, func() { x.abort(errLingered) })
		defer t.Stop()
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
	}
	return err
}

func (x *exchange) request(ctx context.Context, url string, body []byte) (*nethttp.Request, error) {
	req, err := nethttp.NewRequestWithContext(ctx, nethttp.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("the URL of the agent is invalid")
	}
	h, epoch := req.Header, strconv.FormatInt(x.run.Epoch, 10)
	h.Set("User-Agent", x.e.c.UserAgent)
	maps.Copy(h, x.e.c.Header)
	h.Set("Content-Type", "application/json")
	h.Set("Idempotency-Key", x.run.Task.ID.String()+":"+epoch)
	h.Set("A2ad-Epoch", epoch)
	h.Set("A2ad-Attempt", strconv.Itoa(x.run.Attempt))
	if x.run.Traceparent != "" {
		h.Set("Traceparent", string(x.run.Traceparent))
	}
	return req, nil
}

// unanswered returns the error of a request without an answer, in words for clients. The address of the agent is only
// for the log.
func (x *exchange) unanswered(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	x.log.Warn("agent does not answer", "err", err)
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.As(err, &dns):
		return executor.Unreachable(errors.New("the agent's host name cannot be resolved"))
	case errors.Is(err, syscall.ECONNREFUSED):
		return executor.Unreachable(errors.New("the agent refuses connections"))
	case !x.open:
		return executor.Unreachable(errors.New("no connection to the agent can be made"))
	case errors.As(err, &timeout) && timeout.Timeout():
		return executor.Unreachable(errors.New("the agent did not answer in time"))
	}
	x.open = false // the connection is closed
	err = errors.New("the agent closed the connection before it answered")
	if !x.written.Load() {
		return executor.Unreachable(err)
	}
	return err // it may have read the request, and the request may be why it died
}

// Limits of what is used from an answer that is an error.
const (
	maxErrorText  = 512
	maxRetryAfter = time.Hour
)

// refused is the error of an answer whose status is not 2xx.
func (x *exchange) refused(resp *nethttp.Response) error {
	err := fmt.Errorf("the agent answered %d %s", resp.StatusCode, nethttp.StatusText(resp.StatusCode))
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		return executor.Permanent(fmt.Errorf("%w: redirects are not followed", err))
	}
	if text := errorText(x, resp); text != "" {
		err = fmt.Errorf("%w: %s", err, text)
	}
	switch code := resp.StatusCode; {
	case code == nethttp.StatusBadGateway, code == nethttp.StatusServiceUnavailable,
		code == nethttp.StatusGatewayTimeout:
		return executor.Unreachable(executor.RetryAfter(err, retryAfter(resp.Header.Get("Retry-After"))))
	case code == nethttp.StatusTooManyRequests:
		return executor.RetryAfter(err, retryAfter(resp.Header.Get("Retry-After")))
	case code >= 500, code == nethttp.StatusRequestTimeout, code == nethttp.StatusTooEarly:
		return err
	}
	return executor.Permanent(err)
}

// errorText returns the beginning of an answer that is text.
func errorText(x *exchange, resp *nethttp.Response) string {
	kind := resp.Header.Get("Content-Type")
	if !strings.HasPrefix(kind, "text/plain") && !strings.HasPrefix(kind, "application/json") &&
		!strings.HasPrefix(kind, "application/problem+json") {
		return ""
	}
	t := time.AfterFunc(x.e.c.Linger, func() { x.abort(errLingered) })
	defer t.Stop()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorText))
	return strings.Join(strings.Fields(strings.ToValidUTF8(string(text), "\uFFFD")), " ")
}

// retryAfter reads seconds or a date. 0 means that the agent asked for no delay.
func retryAfter(s string) time.Duration {
	d := time.Duration(0)
	if n, err := strconv.ParseUint(s, 10, 32); err == nil {
		d = time.Duration(n) * time.Second
	} else if at, err := nethttp.ParseTime(s); err == nil {
		d = time.Until(at)
	}
	return min(max(d, 0), maxRetryAfter)
}

// cancel tells the agent, once, that a run has ended. ctx is the context of the run, which may be done.
func (x *exchange) cancel(ctx context.Context, reason error) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), x.e.c.CancelTimeout)
	defer stop()
	b := []byte(`{"taskId":`)
	b = rawjson.AppendString(b, x.run.Task.ID.String())
	b = rawjson.AppendString(append(b, `,"contextId":`...), x.run.Task.ContextID)
	b = rawjson.AppendString(append(b, `,"agent":`...), x.run.Agent)
	b = strconv.AppendInt(append(b, `,"epoch":`...), x.run.Epoch, 10)
	b = strconv.AppendInt(append(b, `,"attempt":`...), int64(x.run.Attempt), 10)
	b = rawjson.AppendString(append(b, `,"reason":`...), reasonName(reason))
	b = append(b, '}')
	req, err := x.request(ctx, x.e.c.CancelURL, b)
	if err == nil {
		var resp *nethttp.Response
		if resp, err = x.e.transport.RoundTrip(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode < 200 || resp.StatusCode > 299 {
				err = errors.New(resp.Status)
			}
		}
	}
	if err != nil {
		x.log.Warn("tell the agent about the end of a run", "err", err)
	}
}

// reasonName is the reason for the end of a run that the agent gets.
func reasonName(err error) string {
	for _, r := range []struct {
		err  error
		name string
	}{
		{executor.ErrCanceled, "canceled"}, {executor.ErrDeadline, "deadline"}, {executor.ErrShutdown, "shutdown"},
		{executor.ErrLeaseLost, "lease-lost"}, {executor.ErrIdle, "idle"}, {errIdle, "idle"},
	} {
		if errors.Is(err, r.err) {
			return r.name
		}
	}
	if a2a.CodeOf(err) == a2a.CodeInvalidAgentResponse {
		return "invalid"
	}
	return "stopped"
}
