// Package rpc is the HTTP and gRPC server for A2A clients. It reads requests, signs callers in,
// lets a codec decode the operation and the engine carry it out, and writes the answer or a stream.
//
// It knows bindings, not tasks. Handlers are plain http.Handlers, and one file knows the router.
package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/budget"
	"github.com/a2ad/a2ad/internal/engine"
	"github.com/a2ad/a2ad/internal/throttle"
	"github.com/a2ad/a2ad/internal/tracing"
	"github.com/a2ad/a2ad/internal/wire"
)

// Config configures a Server. Zero durations and sizes take the defaults of
// docs/reference/configuration.md.
type Config struct {
	Engine        *engine.Engine
	Authenticator auth.Authenticator
	Sessions      *auth.Sessions // ends requests whose credential expires or is revoked; nil: nothing does
	V03           wire.Codec
	V1            wire.Codec   // nil: the server speaks 0.3 only
	CardSigner    CardSigner   // nil: cards are not signed
	TLS           *tls.Config  // of the listeners; nil: no TLS
	Open          bool         // callers need no credentials: see guarded
	Origins       []string     // web pages of these origins may use the server: scheme://host[:port]
	Shared        bool         // owners of a tenant see each other's tasks
	Agents        []*a2a.Agent // exactly one has Default set
	PublicURL     string       // base of the URLs in cards, without a trailing slash
	GRPCAddress   string       // host:port or URL of gRPC for cards; empty: cards do not mention gRPC
	Workers       http.Handler // serves /worker/v1; nil: nothing does
	Operators     http.Handler // serves /admin/v1; nil: nothing does
	Console       http.Handler // serves /console; nil: nothing does

	// Refused is called after each failed sign-in. It may be nil.
	Refused func(remoteAddr string, err *auth.Error)
	// JWKS returns the public keys with which receivers of webhooks verify signatures and tokens.
	// nil: the server has no keys.
	JWKS func() []byte

	Limits         throttle.Limits
	TrustedProxies []netip.Prefix // their X-Forwarded-For is believed

	LenientVersion bool   // methods of 1.0 need no A2A-Version
	PureCard       bool   // clients that name no version get the card of the newest version only
	ErrorProfile   string // table of error codes: Profile101 (also if empty) or Profile100

	MaxBody      int64
	MaxHeader    int
	MaxDepth     int
	BlockingWait time.Duration // longest blocking send of the engine; an answer may take that much longer

	ReadHeaderTimeout time.Duration
	ReadTimeout       time.Duration // to receive a body
	WriteTimeout      time.Duration // to send an answer that is no stream
	IdleTimeout       time.Duration
	SSEPing           time.Duration
	SSEWriteTimeout   time.Duration
	SSERetry          time.Duration // how long clients wait to reconnect after the server has ended their stream

	// Drain ends when the server is about to stop. Streams then end with a hint to reconnect.
	Drain  context.Context //nolint:containedctx // a signal for context.AfterFunc, which needs no goroutine per stream
	Logger *slog.Logger
	Watch  Watch           // for metrics
	Tracer *tracing.Tracer // nil: no traces
	Budget *budget.Budget  // of memory; nil: no limit
}

func (c *Config) setDefaults() {
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{
		{&c.ReadHeaderTimeout, 5 * time.Second},
		{&c.ReadTimeout, 15 * time.Second},
		{&c.WriteTimeout, 30 * time.Second},
		{&c.IdleTimeout, 120 * time.Second},
		{&c.SSEPing, 15 * time.Second},
		{&c.SSEWriteTimeout, 10 * time.Second},
		{&c.SSERetry, 500 * time.Millisecond},
	} {
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	if c.MaxBody == 0 {
		c.MaxBody = 4 << 20
	}
	if c.MaxHeader == 0 {
		c.MaxHeader = 32 << 10
	}
	if c.MaxDepth == 0 {
		c.MaxDepth = 64
	}
	if c.Drain == nil {
		c.Drain = context.Background()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// Server answers A2A clients. Use New.
type Server struct {
	cfg         Config
	generations []*generation // the oldest first: requests that name no version use it
	directory   atomic.Pointer[directory]
	handler     http.Handler
	throttle    *throttle.Throttle
	accepting   atomic.Bool
	shared      *GRPC // answers gRPC calls on the same port; nil: nothing does
}

// directory is the set of served agents. It is replaced as a whole and never changed, so a request
// sees the agents of one moment.
type directory struct {
	agents map[string]*served
	root   *served // the default agent, which answers at /
}

// served is one agent, with what is computed from it once.
type served struct {
	agent      *a2a.Agent
	extensions []a2a.Extension
	cards      cards
	extended   cards // empty if signed-in callers see the public card
	removed    bool  // its tasks can be read and canceled, and nothing else
}

// New returns a Server that does not listen yet.
func New(cfg Config) (*Server, error) {
	cfg.setDefaults()
	s := &Server{cfg: cfg, throttle: throttle.New(cfg.Limits, cfg.TrustedProxies)}
	for _, codec := range []wire.Codec{cfg.V03, cfg.V1} {
		if codec != nil {
			s.generations = append(s.generations, &generation{Codec: codec})
		}
	}
	if err := s.SetAgents(cfg.Agents); err != nil {
		return nil, err
	}
	s.handler = s.routes()
	return s, nil
}

// SetAgents replaces the agents from the next request on. One of them has Default set. Requests in
// flight continue with the agents that they started with.
// A removed agent has no card and accepts no messages. Its tasks can still be read, followed and
// canceled at its own path until this process ends, because clients have no other address to ask.
// SetAgents is not safe for concurrent use.
func (s *Server) SetAgents(list []*a2a.Agent) error {
	next := &directory{agents: make(map[string]*served, len(list))}
	for _, a := range list {
		sv := &served{agent: a}
		next.agents[a.Name] = sv
		if a.Default {
			next.root = sv
		}
	}
	if next.root == nil {
		return errors.New("no default agent")
	}
	for name, sv := range next.agents {
		if err := s.renderCards(sv, sv == next.root); err != nil {
			return fmt.Errorf("card of agent %s: %w", name, err)
		}
	}
	if now := s.directory.Load(); now != nil {
		for name, sv := range now.agents {
			if again := next.agents[name]; again != nil {
				again.cards.keep(sv.cards)
			} else {
				next.agents[name] = &served{agent: sv.agent, extensions: sv.extensions, removed: true}
			}
		}
	}
	s.directory.Store(next)
	return nil
}

// agent returns the agent of that name, or nil.
func (s *Server) agent(name string) *served { return s.directory.Load().agents[name] }

// root returns the default agent, which answers at /.
func (s *Server) root() *served { return s.directory.Load().root }

// Handler returns the whole API as one handler.
func (s *Server) Handler() http.Handler { return s.handler }

// Accepting reports whether Serve is running.
func (s *Server) Accepting() bool { return s.accepting.Load() }

var errShutdownTimeout = errors.New("requests took too long to end")

// Serve answers requests on l until ctx is done. Then it accepts no new connections, lets the
// requests in flight finish for up to grace, and returns. Streams end by themselves when Drain
// does.
func (s *Server) Serve(ctx context.Context, l net.Listener, grace time.Duration) error {
	return s.serve(ctx, l, grace, endpoint{s.handler, s.shared, maxSharedStreams, &s.accepting})
}

// endpoint is what one listener serves.
type endpoint struct {
	handler   http.Handler
	calls     *GRPC // answers gRPC calls; nil: the listener takes none
	streams   int   // requests at once on one HTTP/2 connection
	accepting *atomic.Bool
}

// serve is Serve for any endpoint.
func (s *Server) serve(ctx context.Context, l net.Listener, grace time.Duration, e endpoint) error {
	var idle idleConns
	if s.cfg.TLS != nil {
		l = tls.NewListener(l, s.cfg.TLS)
	}
	srv := &http.Server{
		Handler:           e.handler,
		ReadHeaderTimeout: s.cfg.ReadHeaderTimeout,
		ReadTimeout:       s.cfg.ReadTimeout,
		WriteTimeout:      max(s.cfg.WriteTimeout, s.cfg.BlockingWait+s.cfg.WriteTimeout),
		IdleTimeout:       s.cfg.IdleTimeout,
		MaxHeaderBytes:    s.cfg.MaxHeader,
		ErrorLog:          slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug),
		ConnState:         idle.track,
		BaseContext:       func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	if e.calls != nil {
		s.enableHTTP2(srv, e.streams)
	}
	failed := make(chan error, 1)
	go func() {
		defer close(failed)
		failed <- srv.Serve(l)
	}()
	e.accepting.Store(true)
	defer e.accepting.Store(false)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	l.Close()
	for range failed { // Serve has returned, so all accepted connections are known
	}
	end, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), grace, errShutdownTimeout)
	defer cancel()
	idle.wait(min(idleTimeout, grace/2))
	var ending sync.WaitGroup
	defer ending.Wait()
	closed := make(chan struct{}) // closed when no connection is left
	defer close(closed)
	if e.calls != nil {
		ending.Go(func() { e.calls.end(end, closed) })
	}
	if err := srv.Shutdown(end); err != nil {
		srv.Close()
		s.cfg.Logger.WarnContext(ctx, "connections were closed at shutdown before their answers",
			"err", context.Cause(end))
	}
	return nil
}
