package main

import (
	"crypto/tls"
	"log/slog"
	"net/http"

	"github.com/a2ad/a2ad/internal/agents"
	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/executor"

	upstream "github.com/a2ad/a2ad/internal/executor/a2a"
)

// newUpstream makes the executor of an agent that is an A2A agent elsewhere.
func newUpstream(app *App, cfg config.Config, logger *slog.Logger, spec agents.A2A) (executor.Executor, error) {
	header, secure, err := connection(app, spec.Remote)
	if err != nil {
		return nil, err
	}
	c := upstream.Config{
		Card: spec.Card, AllowOrigins: spec.AllowOrigins, Version: spec.Version, Header: header, TLS: secure, Connect: spec.ConnectTimeout, Poll: spec.PollInterval,
		MaxBytes: int(cfg.MaxTask) + 1<<20, Log: logger,
	}
	if spec.OnLostTask == "fail" {
		c.OnLostTask = upstream.LostTaskFail
	}
	return upstream.New(c)
}

// connection returns what requests to an agent elsewhere carry, and how its server is trusted.
func connection(app *App, r agents.Remote) (http.Header, *tls.Config, error) {
	env := config.ReadEnviron(app.Environ)
	header, err := r.Header(func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	if err != nil {
		return nil, nil, err
	}
	secure, err := r.TLSConfig()
	return header, secure, err
}
