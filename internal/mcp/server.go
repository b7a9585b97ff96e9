// Package mcp serves the agents of an a2ad server as MCP tools: over stdio to one client, or over streamable HTTP to
// many. It is a client of the server and keeps nothing: tasks are stored there, so a call that is cut off loses none.
//
// Over HTTP each request to the server carries the credentials of the MCP client that caused it, and no others. The
// package must not know the store or the engine.
package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/a2ad/a2ad/internal/client"
)

const (
	// RefreshInterval is how often Refresh should be called: a2ad lets clients keep cards for as long.
	RefreshInterval = 5 * time.Minute
	// MaxWait is the longest time that a call may wait for a task.
	MaxWait = time.Hour

	// requestTimeout bounds each request that the server answers at once.
	requestTimeout = time.Minute
)

// Config says which agents to serve, and how to reach them.
type Config struct {
	URL     string        // of the a2ad server
	Agents  []string      // their names on that server; at least one
	APIKey  string        // of the one client over stdio; must be empty over HTTP
	Wait    time.Duration // how long a call waits for its task, unless it says otherwise
	Version string        // of a2ad, for clients
	HTTP    *http.Client  // without a timeout
	Logger  *slog.Logger
}

// Server serves MCP clients. Its methods are safe for concurrent use.
type Server struct {
	cfg  Config
	mcp  *sdk.Server
	stop context.CancelFunc // ends the calls in progress

	requests requests // over HTTP
	sessions sessions // over HTTP

	mu     sync.RWMutex
	agents map[string]*agent // by name; guarded by mu
}

// Open reads the cards of the agents. It returns an error if one cannot be read. Calls of tools end with the context,
// and when the server is closed.
func Open(ctx context.Context, cfg Config) (*Server, error) {
	serving, stop := context.WithCancel(ctx)
	s := &Server{cfg: cfg, agents: map[string]*agent{}, stop: stop}
	s.requests.open = map[string]*openRequest{}
	s.sessions = sessions{
		most: MaxSessions, mostOfKey: MaxSessionsOfKey, live: s.liveSessions,
		users: map[string]string{}, starting: map[string]int{},
	}
	s.mcp = sdk.NewServer(&sdk.Implementation{Name: "a2ad", Title: "a2ad", Version: cfg.Version}, &sdk.ServerOptions{
		Instructions: instructions, Logger: cfg.Logger,
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{ListChanged: true}},
	})
	s.mcp.AddReceivingMiddleware(s.endCalls(serving))
	if err := errors.Join(s.Refresh(ctx), s.addTaskTools()); err != nil {
		stop()
		return nil, err
	}
	return s, nil
}

// endCalls ends a call when its HTTP request ends, or the server stops. The SDK waits for calls otherwise, and a call
// may wait for an hour.
func (s *Server) endCalls(serving context.Context) sdk.Middleware {
	return func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(serving, cancel)()
			if method == "tools/call" {
				s.requests.bind(req, cancel)
			}
			return next(ctx, method, req)
		}
	}
}

// Close ends the calls in progress, and the sessions of clients. The tasks continue.
func (s *Server) Close() {
	s.stop()
	for session := range s.mcp.Sessions() {
		_ = session.Close() // the client may have disconnected
	}
}

const instructions = "The tools send_to_NAME start durable tasks of agents. A task continues on its server " +
	"even if this connection ends. A call that returns before its task has ended names the task: use follow_task " +
	"to wait for it, get_task to look at it, answer_task to answer its question, and cancel_task to end it. " +
	"list_tasks finds tasks whose ids were lost."

// Refresh reads the cards again and replaces the tools of agents whose cards have changed. Agents whose cards cannot be
// read keep their tools, and are named in the error.
func (s *Server) Refresh(ctx context.Context) error {
	var faults []error
	for _, name := range s.cfg.Agents {
		if err := s.refresh(ctx, name); err != nil {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

func (s *Server) refresh(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	c := &client.Client{URL: s.cfg.URL + "/agents/" + url.PathEscape(name), HTTP: s.cfg.HTTP}
	card, err := c.Card(ctx)
	if err != nil {
		return s.explainCard(name, err)
	}
	c.Use(card)
	next, err := newAgent(name, c, card, s.cfg.Wait)
	if err != nil {
		return fmt.Errorf("agent %q: %w", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.agents[name]; old != nil && string(old.card) == string(card.Raw) {
		return nil
	}
	s.agents[name] = next
	s.mcp.AddTool(next.tool, func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return s.send(ctx, req, name, next.arguments)
	})
	return nil
}

func (s *Server) explainCard(name string, err error) error {
	var refused *client.Error
	if errors.As(err, &refused) && refused.Status == http.StatusNotFound {
		return fmt.Errorf("agent %q not found at %s; the name is the one in the agent file of the server",
			name, s.cfg.URL)
	}
	return fmt.Errorf("read the card of agent %q: %w", name, err)
}

// agent returns an agent that this server serves.
func (s *Server) agent(name string) *agent {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.agents[name]
}

// needKeys reports whether an agent accepts only callers with credentials.
func (s *Server) needKeys() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, a := range s.agents {
		if a.signIn {
			return true
		}
	}
	return false
}

// ServeStdio serves one client until in ends or the context does. Only MCP messages go to out.
func (s *Server) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	defer s.Close()
	c := &stdio{in: in, out: out, end: s.stop}
	err := s.mcp.Run(ctx, &sdk.IOTransport{Reader: c, Writer: c})
	if ctx.Err() != nil || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// stdio is the connection to a client over stdin and stdout. When nothing more can be read, the client has
// disconnected: calls end, and what they would still write is dropped, as some clients take it for an error.
type stdio struct {
	in    io.Reader
	out   io.Writer
	end   func()
	ended atomic.Bool
}

func (c *stdio) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	if err != nil {
		c.ended.Store(true)
		c.end()
	}
	return n, err
}

func (c *stdio) Write(p []byte) (int, error) {
	if c.ended.Load() {
		return len(p), nil
	}
	return c.out.Write(p)
}

// Close leaves stdin and stdout to the process.
func (*stdio) Close() error { return nil }

// clientFor returns a client of an agent that signs in as the caller of a request.
func (s *Server) clientFor(a *agent, req *sdk.CallToolRequest) *client.Client {
	key := s.cfg.APIKey
	if req.Extra != nil && req.Extra.Header != nil { // over HTTP, the caller's own and no other
		key = bearer(req.Extra.Header)
	}
	return &client.Client{URL: a.url, Version: a.version, APIKey: key, HTTP: s.cfg.HTTP}
}

// bearer returns the bearer token of a request, or "".
func bearer(h http.Header) string {
	scheme, token, _ := strings.Cut(h.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
