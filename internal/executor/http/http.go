// Package http runs an agent that is a web server: the run is POSTed to its URL, and the
// answer is what it reports.
//
// # Request
//
// The body is the run object of package vocab with a Content-Length; the headers Idempotency-Key
// ("<task>:<epoch>"), A2ad-Epoch and A2ad-Attempt tell runs apart without a look into it. Each run
// has an HTTP/1.1 connection of its own: nothing is ever sent twice by itself, and whoever closes
// the connection ends that run alone. No proxy of the environment is used and no redirect is
// followed.
//
// # Answer
//
// Events of package vocab, by Content-Type: one per line (application/x-ndjson), one per SSE event
// (text/event-stream; comments are signs of life), or one JSON document with one event or an array
// of them (application/json).
//
// # Ends
//
// A status that ends the turn ends the run; what follows is read and thrown away for Linger. An
// answer that ends without one is InvalidAgentResponse if the end was certain. It is tried again if
// the connection was cut, which in an answer without Content-Length and chunks (HTTP/1.0) looks like
// an end. Refused connections, timeouts, 408, 425, 429 and 5xx are tried again, after Retry-After if
// there is one; other answers fail the task for good.
//
// A run that is over before its answer (cancel, deadline, a fault in the answer) closes the
// connection, and then, if there is a CancelURL, POSTs once to that.
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

// Config says whom to ask. URL is required, everything else has a default.
type Config struct {
	URL       string         // http or https, without user info
	CancelURL string         // told of runs that are over before their answer; default: none
	Header    nethttp.Header // of every request
	TLS       *tls.Config    // default: as the system does

	ConnectTimeout   time.Duration // name, connection and TLS together; default 10 s
	FirstByteTimeout time.Duration // from the end of the request to the head of the answer; default: none
	IdleTimeout      time.Duration // between two bytes of the answer; default: none
	CancelTimeout    time.Duration // for CancelURL; default 2 s
	Linger           time.Duration // for the rest of an answer whose turn is over; default 1 s

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
	for name, values := range c.Header {
		if !httpguts.ValidHeaderFieldName(name) || slices.ContainsFunc(values, func(v string) bool { return !httpguts.ValidHeaderFieldValue(v) }) {
			return nil, fmt.Errorf("http: %q is not a header", name) // its value may be a secret
		}
	}
	c.ConnectTimeout, c.CancelTimeout, c.Linger = cmp.Or(c.ConnectTimeout, 10*time.Second), cmp.Or(c.CancelTimeout, 2*time.Second), cmp.Or(c.Linger, time.Second)
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
		return errors.New("http: credentials do not belong into the URL: use a header")
	}
	return nil
}

var errTurnOver = errors.New("a status ended the turn")

// Execute makes the request and yields what is answered. It returns when the connection is
// closed, and CancelURL is told if it has to be.
func (e *Executor) Execute(ctx context.Context, run executor.Run) iter.Seq2[a2a.Event, error] {
	return executor.Emit(ctx, func(emit func(a2a.Event) error) error { return e.run(ctx, &run, emit) })
}

// run makes one request and says how it ended.
func (e *Executor) run(ctx context.Context, run *executor.Run, emit func(a2a.Event) error) error {
	// Behind the last event ctx may end at any time and means nothing to the agent.
	request, abort := context.WithCancelCause(context.WithoutCancel(ctx))
	defer abort(nil)
	detach := context.AfterFunc(ctx, func() { abort(context.Cause(ctx)) })
	defer detach()
	x := &exchange{
		e: e, run: run, ctx: request, abort: abort, emit: emit, last: func() { detach() },
		log: e.c.Log.With("task_id", run.Task.ID.String(), "agent", run.Agent, "epoch", run.Epoch),
	}
	err := x.do()
	if errors.Is(err, errTurnOver) {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	abort(err) // the agent is told by the closed connection first
	if x.open && e.c.CancelURL != "" {
		x.cancel(ctx, err)
	}
	return err
}

// invalid is the error of a run whose agent does not keep to the rules.
func invalid(format string, args ...any) error {
	return executor.Permanent(a2a.Errorf(a2a.CodeInvalidAgentResponse, format, args...))
}
