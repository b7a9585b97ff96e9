package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/mcp"
)

// MCPCmd is `a2ad mcp`.
type MCPCmd struct {
	Agent  []string      `required:"" sep:"none" placeholder:"NAME" help:"Agent to serve; repeat it for more."`
	Listen config.Listen `placeholder:"HOST:PORT" help:"Serve many clients over HTTP, in place of one over stdio."`
	Host   []string      `sep:"none" placeholder:"NAME" help:"@mcp_host"`
	Wait   time.Duration `default:"30s" help:"@mcp_wait"`

	config.ClientGroup
}

// Help is shown below the usage line.
func (*MCPCmd) Help() string {
	return `Without --listen it serves the MCP client that started it, over stdin and stdout, and signs in to the ` +
		`server with the key in A2AD_API_KEY, or in the file that A2AD_API_KEY_FILE names.

With --listen it serves MCP clients at http://HOST:PORT/mcp. Each of them sends a key of its own as a bearer token, ` +
		`which is passed on to the server.

Tasks continue on the server, whatever happens to the MCP connection.`
}

// Validate is called by the parser.
func (c *MCPCmd) Validate() error {
	seen := map[string]bool{}
	for _, name := range c.Agent {
		switch {
		case name == "" || strings.Contains(name, "/"):
			return errors.New("--agent is a name, not a path")
		case seen[name]:
			return fmt.Errorf("--agent %s is given twice", name)
		}
		seen[name] = true
	}
	switch {
	case c.Wait < 0 || c.Wait > mcp.MaxWait:
		return fmt.Errorf("--wait must be from 0s to %s", mcp.MaxWait)
	case c.Listen == "" && len(c.Host) > 0:
		return errors.New("--host goes with --listen only")
	case c.Listen != "" && !c.Listen.Loopback() && len(c.Host) == 0:
		return fmt.Errorf("%s is not on loopback: name with --host how clients call this server", c.Listen)
	}
	return nil
}

func (c *MCPCmd) check() []config.Fault {
	if c.Listen != "" && c.APIKey.IsSet() {
		return []config.Fault{{Name: "A2AD_API_KEY", Text: "must not be set with --listen: " +
			"all callers would use it. Each caller sends a key of its own"}}
	}
	return nil
}

// Run serves until the client disconnects or the context ends.
func (c *MCPCmd) Run(ctx context.Context, app *App) error {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	log := slog.New(slog.NewTextHandler(app.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	s, err := mcp.Open(ctx, mcp.Config{
		URL: string(c.URL), Agents: c.Agent, APIKey: c.APIKey.Reveal(), Wait: c.Wait, Version: readVersion().Version,
		HTTP: &http.Client{Transport: transport}, Logger: log,
	})
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return refreshCards(ctx, s, log) })
	g.Go(func() error {
		if c.Listen != "" {
			return c.serveHTTP(ctx, app, s)
		}
		if err := s.ServeStdio(ctx, app.Stdin, app.Stdout); err != nil {
			return err
		}
		return errServed
	})
	if err := g.Wait(); !errors.Is(err, errServed) {
		return err
	}
	return nil
}

// errServed ends the other parts of the command once it has served.
var errServed = errors.New("the client has disconnected")

func refreshCards(ctx context.Context, s *mcp.Server, log *slog.Logger) error {
	tick := time.NewTicker(mcp.RefreshInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := s.Refresh(ctx); err != nil && ctx.Err() == nil {
				log.WarnContext(ctx, "cards are not current", "err", err)
			}
		}
	}
}

const (
	// drain is how long requests may take to end once the server stops.
	drain = 5 * time.Second
	// readTimeout is how long a request may take to arrive.
	readTimeout = 30 * time.Second
)

// newMCPServer returns a server whose requests must arrive in time. The timeout ends with the body of a request, so
// a call may take longer.
func newMCPServer(ctx context.Context, handler http.Handler, timeout time.Duration) *http.Server {
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: min(timeout, 10*time.Second), ReadTimeout: timeout,
		IdleTimeout: 2 * time.Minute, BaseContext: func(net.Listener) context.Context { return ctx },
	}
}

func (c *MCPCmd) serveHTTP(ctx context.Context, app *App, s *mcp.Server) error {
	handler, err := s.Handler(slices.Clone(c.Host))
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", string(c.Listen))
	if err != nil {
		return err
	}
	server := newMCPServer(ctx, handler, readTimeout)
	app.Note(fmt.Sprintf("serving MCP at http://%s%s", listener.Addr(), mcp.Path))
	serving, stop := context.WithCancel(ctx)
	defer stop()
	var g errgroup.Group
	g.Go(func() error {
		<-serving.Done()
		s.Close()
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
		defer cancel()
		if server.Shutdown(stopping) != nil {
			return server.Close()
		}
		return nil
	})
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		stop()
		return errors.Join(err, g.Wait())
	}
	return g.Wait()
}
