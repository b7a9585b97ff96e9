package rpc

import (
	"errors"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"
)

// Only this file knows the router, so that another one can replace it.

// routes registers the handlers, except those of HTTP+JSON: their paths contain verbs after a colon
// and ids of any form, which the router cannot match. A trailing slash makes no difference to a
// path. Conformance kits post to both forms, and a redirect would lose the body.
func (s *Server) routes() http.Handler {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	// The client is the peer of the connection. Headers that claim otherwise are not believed.
	e.IPExtractor = echo.ExtractIPDirect()
	e.HTTPErrorHandler = func(err error, c echo.Context) {
		code := http.StatusInternalServerError
		var he *echo.HTTPError
		if errors.As(err, &he) {
			code = he.Code
		}
		s.writePlainError(c.Response(), code)
	}
	root := func(h func(http.ResponseWriter, *http.Request, *served)) echo.HandlerFunc {
		return wrap(func(w http.ResponseWriter, r *http.Request) { h(w, r, s.root()) })
	}
	named := func(h func(http.ResponseWriter, *http.Request, *served)) echo.HandlerFunc {
		return func(c echo.Context) error {
			sv := s.agent(c.Param("agent"))
			if sv == nil {
				return echo.ErrNotFound
			}
			return wrap(func(w http.ResponseWriter, r *http.Request) { h(w, r, sv) })(c)
		}
	}
	for _, path := range []string{"", "/"} {
		e.POST(path, root(s.serveRPC))
		e.POST("/agents/:agent"+path, named(s.serveRPC))
	}
	// The URL of an agent also serves its card, because some clients look for it only there.
	for _, file := range []string{"/.well-known/agent-card.json", "/.well-known/agent.json", "", "/"} {
		e.GET(file, root(s.serveCard))
		e.HEAD(file, root(s.serveCard))
		e.GET("/agents/:agent"+file, named(s.serveCard))
		e.HEAD("/agents/:agent"+file, named(s.serveCard))
	}
	if s.cfg.JWKS != nil {
		e.GET("/.well-known/jwks.json", wrap(s.serveJWKS))
	}
	if s.cfg.Workers != nil {
		e.Any("/worker/v1/*", wrap(apart(s.cfg.Workers, routeWorker)))
	}
	if s.cfg.Operators != nil {
		e.Any("/admin/v1/*", wrap(apart(s.cfg.Operators, routeOperator)))
	}
	if s.cfg.Console != nil {
		e.Any("/console", wrap(apart(s.cfg.Console, routeConsole)))
		e.Any("/console/*", wrap(apart(s.cfg.Console, routeConsole)))
	}
	return s.observed(s.guarded(s.orREST(e)))
}

// apart passes requests to an API whose own router names the route. unknown is the route of requests that it refuses.
func apart(h http.Handler, unknown string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		rec := recordOf(r.Context())
		if _, path, ok := strings.Cut(r.Pattern, " "); ok {
			rec.route = path
		} else {
			rec.route = unknown
		}
	}
}

func wrap(h http.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		h(c.Response(), c.Request())
		return nil
	}
}
