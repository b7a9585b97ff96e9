package replica

import (
	"context"
	"fmt"
	"net/http"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/console"
	"github.com/a2ad/a2ad/internal/engine"
	"github.com/a2ad/a2ad/internal/wake"
)

// openConsole makes the console, which the API serves below /console.
func (r *Replica) openConsole(draining context.Context, eng *engine.Engine) (*console.Console, error) {
	key, err := r.database.store.Access.ServerKey(draining, "console-forms")
	if err != nil {
		return nil, fmt.Errorf("key of the console: %w", err)
	}
	cfg, p := &r.cfg, r.public()
	provider, err := r.credentials.provider(cfg)
	if err != nil {
		return nil, err
	}
	return console.New(console.Config{
		Store: r.database.store, Engine: eng, Follower: r.database.follower,
		Agents:      func() []*a2a.Agent { return *r.agents.served.Load() },
		Card:        func(agent string) (a2a.Card, bool) { return r.api.server.Card(agent) },
		Changed:     func() (<-chan struct{}, func()) { return r.database.hub.WaitClass(wake.Tasks) },
		Tail:        r.database.changes,
		JobChanged:  func(id a2a.ID) (<-chan struct{}, func()) { return r.database.hub.Wait(wake.Job(id)) },
		MoveSecrets: r.moveSecrets,
		Open:        cfg.Auth == config.AuthNone,
		SignIn:      func(req *http.Request) (auth.Principal, error) { return r.api.server.SignIn(req) },
		SignInByCode: func(
			check func(*http.Request) (auth.Principal, error), req *http.Request,
		) (auth.Principal, error) {
			return r.api.server.SignInByCode(check, req)
		},
		Admit:     func(p auth.Principal, write bool) error { return r.api.server.AdmitOperator(p, write) },
		LookupKey: r.credentials.lookupKey, FormKey: key, PublicURL: p.url(), Provider: provider,
		Doctor: func(ctx context.Context) []console.Finding {
			if r.options.Doctor == nil {
				return nil
			}
			list := r.options.Doctor(ctx, cfg, false)
			findings := make([]console.Finding, len(list))
			for i, f := range list {
				findings[i] = console.Finding(f)
			}
			return findings
		},
		TraceURL: string(cfg.ConsoleTraceURL),
		Ping:     cfg.SSEPing, WriteTimeout: cfg.SSEWriteTimeout, AnswerTimeout: cfg.WriteTimeout, Drain: draining,
		Logger: r.log, Version: r.options.Build.Version,
	})
}
