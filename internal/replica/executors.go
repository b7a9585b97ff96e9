package replica

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"reflect"
	"slices"

	"github.com/a2ad/a2ad/internal/agents"
	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/executor"
	upstream "github.com/a2ad/a2ad/internal/executor/a2a"
	"github.com/a2ad/a2ad/internal/executor/echo"
	httpexec "github.com/a2ad/a2ad/internal/executor/http"
	"github.com/a2ad/a2ad/internal/executor/script"
)

// executors makes the executors of agents.
type executors struct {
	cfg       *config.Config
	log       *slog.Logger
	environ   []string // of the process, without secrets
	userAgent string
}

// build returns the agents of files. An agent whose executor is described as in old keeps it, with its
// connections and whatever else it holds.
func (e *executors) build(old agentSet, files []agents.File) (agentSet, error) {
	next := make(agentSet, len(files))
	for i, f := range files {
		a := agent{File: f, secrets: digest(f.Executor)}
		a.Agent.Executor = f.Executor.Kind()
		before := old.find(f.Agent.Name)
		if before != nil && before.secrets == a.secrets && reflect.DeepEqual(before.File.Executor, f.Executor) {
			a.executor = before.executor
		} else {
			var err error
			if a.executor, err = e.make(f.Executor); err != nil {
				return nil, fmt.Errorf("agent %s: %w", f.Agent.Name, err)
			}
		}
		if p, ok := a.executor.(*script.Executor); ok {
			a.Agent.RepliesTo = p.Replies
		}
		next[i] = a
	}
	return next, nil
}

func (e *executors) make(spec agents.Spec) (executor.Executor, error) {
	switch spec := spec.(type) {
	case agents.Echo:
		return echo.Executor{}, nil
	case agents.Script:
		return script.New(script.Config{Allow: e.mayCall}), nil
	case agents.HTTP:
		return e.makeHTTP(spec)
	case agents.Pull:
		return nil, nil // remote workers do it: see work
	case agents.Exec:
		return e.makeExec(spec)
	case agents.A2A:
		return e.makeUpstream(spec)
	}
	return nil, fmt.Errorf("unknown executor %T", spec)
}

// mayCall reports whether the script agent may call a private address.
func (e *executors) mayCall(a netip.Addr) bool {
	return slices.ContainsFunc(e.cfg.PushAllowCIDRs, func(p netip.Prefix) bool { return p.Contains(a) })
}

func (e *executors) makeHTTP(spec agents.HTTP) (executor.Executor, error) {
	header, secure, err := e.connection(spec.Remote)
	if err != nil {
		return nil, err
	}
	return httpexec.New(httpexec.Config{
		URL: spec.URL, CancelURL: spec.CancelURL, Header: header, TLS: secure, ConnectTimeout: spec.ConnectTimeout,
		FirstByteTimeout: spec.FirstByteTimeout, IdleTimeout: spec.IdleTimeout, UserAgent: e.userAgent, Log: e.log,
	})
}

// makeUpstream makes the executor of an agent that is an A2A agent on another server.
func (e *executors) makeUpstream(spec agents.A2A) (executor.Executor, error) {
	header, secure, err := e.connection(spec.Remote)
	if err != nil {
		return nil, err
	}
	c := upstream.Config{
		Card: spec.Card, AllowOrigins: spec.AllowOrigins, Version: spec.Version, Header: header, TLS: secure,
		Connect: spec.ConnectTimeout, Poll: spec.PollInterval, MaxBytes: int(e.cfg.MaxTask) + 1<<20, Log: e.log,
	}
	if spec.OnLostTask == "fail" {
		c.OnLostTask = upstream.LostTaskFail
	}
	return upstream.New(c)
}

// connection returns what requests to a remote agent carry, and how its server is trusted.
func (e *executors) connection(r agents.Remote) (http.Header, *tls.Config, error) {
	header, err := r.Header(config.ReadEnviron(e.environ).Lookup)
	if err != nil {
		return nil, nil, err
	}
	secure, err := r.TLSConfig()
	return header, secure, err
}
