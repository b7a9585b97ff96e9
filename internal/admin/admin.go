// Package admin is what operators do with a running service, as an API below /admin/v1: find tasks, see what happened
// to them, and repair them. One table of routes makes the router and the OpenAPI document.
//
// It promises that a caller sees no more than its scopes permit, that each write is in the audit log with who and why,
// and that no search takes longer than its timeout. It does not know listeners and how callers sign in.
package admin

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/budget"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// Prefix is where the API is served.
const Prefix = "/admin/v1"

// Config sets an API up. Zero durations and sizes take their defaults.
type Config struct {
	Store *store.Store
	// SignIn returns the caller of a request, as auth.Authenticator does.
	SignIn func(*http.Request) (auth.Principal, error)
	// Admit counts a request of a caller, and refuses it if there were too many; nil: no limit.
	Admit       func(p auth.Principal, write bool) error
	Sessions    *auth.Sessions      // ends requests whose credential expires or is revoked; nil: nothing does
	Agents      func() []*a2a.Agent // whose files this server has; nil: there is no server
	MoveSecrets tasks.MoveSecrets   // copies the secrets of webhooks for a retry; nil: tasks with any are not retried
	// JobHolder is the worker in this process that runs the bulk jobs that are started here; empty: any server does.
	JobHolder string
	Budget    *budget.Budget // of memory; nil: no limit
	Streams   Streams
	// Doctor checks the installation. Its findings have no secrets. It is not called concurrently. nil: nothing does.
	Doctor func(ctx context.Context, offline bool) []Finding

	SearchTimeout time.Duration // of one search; default 5 s
	MaxBody       int64         // default 2 MiB
	MaxTask       int64         // bytes of a task that is shown; default 32 MiB
	MaxTaskBytes  int64         // stored bytes of a task that is answered; 0: no limit
	MaxHistory    int64         // messages of a task that is answered; 0: no limit
	AnswerTimeout time.Duration // to write an answer; default 30 s
	Logger        *slog.Logger
}

func (c *Config) setDefaults() {
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{{&c.SearchTimeout, 5 * time.Second}, {&c.AnswerTimeout, 30 * time.Second}, {&c.Streams.Ping, defaultPing}} {
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	if c.MaxBody == 0 {
		c.MaxBody = 2 << 20
	}
	if c.MaxTask == 0 {
		c.MaxTask = 32 << 20
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// API answers operators. Use New. It is safe for concurrent use.
type API struct {
	cfg   Config
	store *store.Store
	mux   *http.ServeMux

	checking sync.Mutex // held while the doctor runs
}

// New returns an API.
func New(cfg Config) *API {
	cfg.setDefaults()
	a := &API{cfg: cfg, store: cfg.Store, mux: http.NewServeMux()}
	for i := range routes {
		a.mux.HandleFunc(routes[i].method+" "+Prefix+routes[i].path, a.handle(&routes[i]))
	}
	document := Document()
	a.mux.HandleFunc("GET "+Prefix+"/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		write(w, http.StatusOK, document)
	})
	a.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		const text = "not found; " + Prefix + "/openapi.json lists what is here"
		a.refuse(w, r, refusal{http.StatusNotFound, reasonNotFound, text})
	})
	return a
}

// ServeHTTP answers one request of an operator.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }
