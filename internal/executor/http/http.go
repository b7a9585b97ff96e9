// Package http runs an agent that is a web server: it POSTs the run to the agent's URL, and the answer has the events.
//
// # Request
//
// The body is the run object of package vocab, with a Content-Length. The headers Idempotency-Key ("<task>:<epoch>"),
// A2ad-Epoch and A2ad-Attempt identify the run without reading the body. Each run has an HTTP/1.1 connection of its
// own. So no request is repeated automatically, and closing the connection ends only that run. Proxies of the
// environment are not used, and redirects are not followed.
//
// # Answer
//
// Events of package vocab, by Content-Type: one per line (application/x-ndjson), one per SSE event (text/event-stream;
// comments show that the agent is alive), or one JSON document with one event or an array of them (application/json).
//
// # Ends
//
// A status that ends the turn ends the run; the rest of the answer is read and discarded for Linger. An answer that
// ends without such a status is InvalidAgentResponse if it is certainly complete. The run is retried if the
// connection was cut. In an answer without Content-Length and chunks (HTTP/1.0) a cut looks like an end. After
// refused connections, timeouts, 408, 425, 429 and 5xx the run is retried, after Retry-After if there is one. Other
// answers fail the task.
//
// A run that ends before its answer (cancel, deadline, a fault in the answer) closes the connection. Then, if there
// is a CancelURL, it sends one POST to that.
package http

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	nethttp "net/http"
	"net/url"
	"slices"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
)

// Config says which agent to call. URL is required, everything else has a default.
type Config struct {
	URL       string         // http or https, without user info
	CancelURL string         // gets a POST for each run that ends before its answer; default: none
	Header    nethttp.Header // of every request
	TLS       *tls.Config    // default: the system's

	ConnectTimeout   time.Duration // name, connection and TLS together; default 10 s
	FirstByteTimeout time.Duration // from the end of the request to the head of the answer; default: none
	IdleTimeout      time.Duration // between two bytes of the answer; default: none
	CancelTimeout    time.Duration // for CancelURL; default 2 s
	Linger           time.Duration // for the rest of an answer whose turn has ended; default 1 s

	MaxEvent  int // bytes of an event; default 1 MiB
	MaxOutput int // bytes of an answer; default 64 MiB

	UserAgent string       // default "a2ad"
	Log       *slog.Logger // default: none
}

// Executor makes one request per run.
type Executor struct {
	c         Config
	transport *nethttp.Transport
}

// New returns an Executor. It starts nothing.
func New(c Config) (*Executor, error) {
	for _, u := range []string{c.URL, cmp.Or(c.CancelURL, c.URL)} {
		if err := checkURL(u); err != nil {
			return nil, err
		}
	}
	invalidValue := func(v string) bool { return !httpguts.ValidHeaderFieldValue(v) }
	for name, values := range c.Header {
		if !httpguts.ValidHeaderFieldName(name) || slices.ContainsFunc(values, invalidValue) {
			return nil, fmt.Errorf("http: %q is not a header", name) // its value may be a secret
		}
	}
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, 10*time.Second)
	c.CancelTimeout, c.Linger = cmp.Or(c.CancelTimeout, 2*time.Second), cmp.Or(c.Linger, time.Second)
	c.MaxEvent, c.MaxOutput = cmp.Or(c.MaxEvent, 1<<20), cmp.Or(c.MaxOutput, 64<<20)
	c.UserAgent = cmp.Or(c.UserAgent, "a2ad")
	if c.TLS == nil {
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	var protocols nethttp.Protocols
	protocols.SetHTTP1(true)
	return &Executor{c: c, transport: &nethttp.Transport{
		Proxy:                  nil,
		Protocols:              &protocols,
		TLSClientConfig:        c.TLS,
		ResponseHeaderTimeout:  c.FirstByteTimeout,
		MaxResponseHeaderBytes: 64 << 10,
		DisableKeepAlives:      true,
		DisableCompression:     true,
	}}, nil
}

func checkURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return errors.New("http: the URL must start with http:// or https://")
	case u.User != nil:
		return errors.New("http: the URL must not contain credentials: use a header")
	}
	return nil
}

var errTurnEnded = errors.New("a status ended the turn")

// Execute makes the request and yields the events of the answer. It returns when the connection is closed and the
// POST to CancelURL, if one is needed, has ended.
func (e *Executor) Execute(ctx context.Context, run executor.Run) iter.Seq2[a2a.Event, error] {
	return executor.Emit(ctx, func(emit func(a2a.Event) error) error { return e.run(ctx, &run, emit) })
}

// run makes one request and returns how it ended.
func (e *Executor) run(ctx context.Context, run *executor.Run, emit func(a2a.Event) error) error {
	// After the last event ctx may end at any time, and that must not stop the agent.
	request, abort := context.WithCancelCause(context.WithoutCancel(ctx))
	defer abort(nil)
	detach := context.AfterFunc(ctx, func() { abort(context.Cause(ctx)) })
	defer detach()
	x := &exchange{
		e: e, run: run, abort: abort, emit: emit, last: func() { detach() },
		log: e.c.Log.With("task_id", run.Task.ID.String(), "agent", run.Agent, "epoch", run.Epoch),
	}
	err := x.do(request)
	if errors.Is(err, errTurnEnded) {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	abort(err) // closes the connection before the POST to CancelURL
	if x.open && e.c.CancelURL != "" {
		x.cancel(ctx, err)
	}
	return err
}
