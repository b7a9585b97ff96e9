// Package rpc is the HTTP server: it reads requests, signs callers in, has a codec decode
// the operation and the engine carry it out, and writes the answer, one at once or many as
// a stream. It knows bindings, not tasks. Handlers are plain http.Handlers; one file knows
// the router.
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

// Config sets a Server up. Zero durations and sizes take the defaults of docs/configuration.md.
type Config struct {
	Engine        *engine.Engine
	Authenticator auth.Authenticator
	Sessions      *auth.Sessions // ends what is under way with a credential that is no longer good; nil: nothing does
	V03           wire.Codec
	V1            wire.Codec                               // nil: 0.3 alone is spoken
	CardSigner    CardSigner                               // signs cards of versions that say how; nil: none are signed
	TLS           *tls.Config                              // of the listeners; nil: they have none
	Refused       func(remoteAddr string, err *auth.Error) // told of sign-ins that failed; may be nil
	Open          bool                                     // there are no credentials: see guarded
	Origins       []string                                 // of pages that may use the server: scheme://host[:port]
	Shared        bool                                     // the owners of a tenant see each other's tasks
	Agents        []*a2a.Agent                             // one of them has Default set
	PublicURL     string                                   // base of the URLs in cards, without a slash at the end
	GRPCAddress   string                                   // host:port or URL where cards say that gRPC is; empty: nowhere
	JWKS          func() []byte                            // the keys that receivers of webhooks verify us by; nil: none
	Workers       http.Handler                             // answers below /worker/v1; nil: nothing does

	Limits         throttle.Limits
	TrustedProxies []netip.Prefix // whose X-Forwarded-For is believed

	LenientVersion bool   // a method of 1.0 needs no A2A-Version
	PureCard       bool   // the card for clients that name no version is that of the newest alone
	ErrorProfile   string // the table that errors are answered by: Profile101, also if empty, or Profile100

	MaxBody      int64
	MaxHeader    int
	MaxDepth     int
	BlockingWait time.Duration // of the engine: the answer's deadline lies behind it

	ReadHeaderTimeout time.Duration
	ReadTimeout       time.Duration // of a body
	WriteTimeout      time.Duration // to send an answer that is no stream
	IdleTimeout       time.Duration
	SSEPing           time.Duration
	SSEWriteTimeout   time.Duration
	SSERetry          time.Duration // what a stream that the server ends tells its client to wait

	// Drain ends when the server is about to stop: streams then say goodbye. It is a signal,
	// not the context of any work.
	Drain  context.Context
	Logger *slog.Logger
	Watch  Watch           // for metrics
	Tracer *tracing.Tracer // nil: there are no traces
	Budget *budget.Budget  // of memory; nil: it is not bounded
}

func (c *Config) setDefaults() {
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{
		{&c.ReadHeaderTimeout, 5 * time.Second}, {&c.ReadTimeout, 15 * time.Second}, {&c.WriteTimeout, 30 * time.Second},
		{&c.IdleTimeout, 120 * time.Second}, {&c.SSEPing, 15 * time.Second}, {&c.SSEWriteTimeout, 10 * time.Second},
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
	generations []*generation // the oldest first: it is what a request without a version is of
	directory   atomic.Pointer[directory]
	handler     http.Handler
	throttle    *throttle.Throttle
	accepting   atomic.Bool
	shared      *GRPC // answers calls on the same port; nil: nothing does
}

// directory is who is served. It is replaced as a whole and never changed, so that a request
// deals with the agents of one moment.
type directory struct {
	agents map[string]*served
	root   *served // answers at /
}

// served is one agent with what is made of it once.
type served struct {
	agent      *a2a.Agent
	extensions []a2a.Extension
	cards      cards
	extended   cards // empty if signed-in callers see the same
	removed    bool  // its tasks can be read and canceled, and that is all
}

// New returns a Server that listens nowhere yet.
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

// SetAgents has the server answer for these agents from the next request on; one of them has Default
// set. What is under way goes on with the agents it began with. An agent that is no longer there has no
// card and takes no messages, but its tasks can be read, followed and canceled at its own path, until
// this process ends: their clients have no other place to ask. It is not for concurrent use.
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

// root returns the agent that answers at /.
func (s *Server) root() *served { return s.directory.Load().root }

// Handler returns the whole API as one handler.
func (s *Server) Handler() http.Handler { return s.handler }

// Accepting reports whether Serve runs.
func (s *Server) Accepting() bool { return s.accepting.Load() }

var errShutdownTimeout = errors.New("requests took too long to end")

// Serve answers on l until ctx is done. Then it takes no new connections, lets the requests
// in flight be answered, for up to grace, and returns. Streams end by themselves when Drain does.
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
	for range failed { // Serve has returned: every connection that was accepted is known
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
		s.cfg.Logger.WarnContext(ctx, "connections were cut off at shutdown", "err", context.Cause(end))
	}
	return nil
}
