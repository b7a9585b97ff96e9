package main

import (
	"log/slog"

	"github.com/a2ad/a2ad/internal/agents"
	"github.com/a2ad/a2ad/internal/executor"
	upstream "github.com/a2ad/a2ad/internal/executor/a2a"
)

// newUpstream makes the executor of an agent that is an A2A agent elsewhere.
func newUpstream(app *App, cfg Config, logger *slog.Logger, spec agents.A2A) (executor.Executor, error) {
	env := readEnviron(app.Environ)
	header, err := spec.Header(func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	if err != nil {
		return nil, err
	}
	tls, err := spec.TLSConfig()
	if err != nil {
		return nil, err
	}
	c := upstream.Config{
		Card: spec.Card, Version: spec.Version, Header: header, TLS: tls, Connect: spec.ConnectTimeout, Poll: spec.PollInterval,
		MaxBytes: int(cfg.MaxTask) + 1<<20, Log: logger,
	}
	if spec.OnLostTask == "fail" {
		c.OnLostTask = upstream.LostTaskFail
	}
	return upstream.New(c)
}
