package workerapi

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/budget"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/store/db"
)

//go:embed openapi.json
var openAPI []byte

// Prefix is where the API is served.
const Prefix = "/worker/v1"

func (a *API) routes() {
	a.mux = http.NewServeMux()
	const run = Prefix + "/runs/{task}/{epoch}"
	a.mux.HandleFunc("POST "+Prefix+"/claim", a.handle(auth.ScopeWorker, a.serveClaim))
	a.mux.HandleFunc("POST "+run+"/events", a.handle(auth.ScopeWorker, a.serveEvents))
	a.mux.HandleFunc("GET "+run+"/steps", a.handle(auth.ScopeWorker, a.serveSteps))
	a.mux.HandleFunc("POST "+run+"/heartbeat", a.handle(auth.ScopeWorker, a.serveHeartbeat))
	a.mux.HandleFunc("POST "+run+"/finish", a.handle(auth.ScopeWorker, a.serveFinish))
	a.mux.HandleFunc("POST "+Prefix+"/tasks/{task}/signals/{name}", a.handle(auth.ScopeSignal, a.serveSignal))
	a.mux.HandleFunc("GET "+Prefix+"/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		write(w, http.StatusOK, openAPI)
	})
	a.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		a.refuse(w, r, notFound("not found; %s/openapi.json lists what is here", Prefix))
	})
}

// ServeHTTP answers one request of a worker.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

// request is an HTTP request of a signed-in worker, with its body.
type request struct {
	*http.Request
	w         http.ResponseWriter
	principal auth.Principal
	body      []byte
	mem       *budget.Lease // memory that the request holds until its answer has been written
}

// handle authenticates the caller before it reads the body, so that callers without access learn
// nothing about what is wrong with a request.
func (a *API) handle(scope auth.Scope, do func(ctx context.Context, r *request) ([]byte, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, hr *http.Request) {
		r := &request{Request: hr, w: w}
		defer func() { r.mem.Release() }()
		answer, err := func() (_ []byte, err error) {
			if r.principal, err = a.cfg.Authenticator.Authenticate(hr); err != nil {
				return nil, err
			}
			session := a.cfg.Sessions.Enter(hr, r.principal)
			defer session.Leave()
			ctx, stop := session.Context(hr.Context())
			defer stop()
			if !r.principal.Has(scope) {
				w.Header().Add("WWW-Authenticate", `Bearer error="insufficient_scope", scope="`+string(scope)+`"`)
				return nil, a2a.Errorf(a2a.CodeForbidden, "the credentials lack the scope %s", scope)
			}
			r.mem = a.cfg.Budget.Open(budget.Owner{Tenant: r.principal.Tenant, Name: r.principal.Owner})
			if r.body, err = a.readBody(r); err != nil {
				return nil, err
			}
			answer, err := do(ctx, r)
			if ended := auth.Ended(ctx); err != nil && ended != nil {
				return nil, ended
			}
			return answer, err
		}()
		if err != nil {
			a.refuse(w, hr, err)
			return
		}
		write(w, http.StatusOK, answer)
	}
}

func write(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write(body) //nolint:errcheck // the worker disconnected, and its lease will expire
}

// notFoundError says that a path or an agent does not exist.
type notFoundError struct{ error }

func notFound(format string, args ...any) error { return notFoundError{fmt.Errorf(format, args...)} }

var statuses = map[a2a.ErrorCode]int{
	a2a.CodeParse:                http.StatusBadRequest,
	a2a.CodeInvalidRequest:       http.StatusBadRequest,
	a2a.CodeInvalidParams:        http.StatusBadRequest,
	a2a.CodeTaskTerminal:         http.StatusConflict,
	a2a.CodeInvalidAgentResponse: http.StatusBadRequest,
	a2a.CodeUnauthenticated:      http.StatusUnauthorized,
	a2a.CodeForbidden:            http.StatusForbidden,
	a2a.CodeTooLarge:             http.StatusRequestEntityTooLarge,
	a2a.CodeMediaType:            http.StatusUnsupportedMediaType,
	a2a.CodeRateLimited:          http.StatusTooManyRequests,
	a2a.CodeUnavailable:          http.StatusServiceUnavailable,
}

// statusClientGone is the status of a request whose client has disconnected, as proxies log it. Nobody reads it.
const statusClientGone = 499

// refuse answers with an error. An error that was not written for callers only goes to the log.
func (a *API) refuse(w http.ResponseWriter, r *http.Request, err error) {
	status, reason, text, field := http.StatusInternalServerError, a2a.CodeInternal.Reason(), "Internal error", ""
	var e *a2a.Error
	var nf notFoundError
	switch {
	case errors.Is(err, db.ErrLeaseLost):
		status, reason = http.StatusConflict, "LEASE_LOST"
		text = "you do not hold the lease of this run: stop working on it"
	case errors.As(err, &nf):
		status, reason, text = http.StatusNotFound, "NOT_FOUND", nf.Error()
	case errors.As(err, &e) && statuses[e.Code] != 0:
		status, reason, text, field = statuses[e.Code], e.Code.Reason(), e.Message, e.Field
	case r.Context().Err() != nil:
		status = statusClientGone
	default:
		a.cfg.Logger.ErrorContext(r.Context(), "internal error",
			"request_id", w.Header().Get("X-Request-Id"), "path", clip(r.URL.Path), "err", err)
	}
	h := w.Header()
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	// How to sign in, or when to come back.
	var withHeader interface{ SetHeader(h http.Header) }
	if errors.As(err, &withHeader) {
		withHeader.SetHeader(h)
	}
	b := rawjson.AppendString([]byte(`{"error":{"reason":`), reason)
	b = rawjson.AppendString(append(b, `,"message":`...), strings.ToValidUTF8(text, "\uFFFD"))
	if field != "" {
		b = rawjson.AppendString(append(b, `,"field":`...), strings.ToValidUTF8(field, "\uFFFD"))
	}
	if status == http.StatusInternalServerError {
		b = rawjson.AppendString(append(b, `,"requestId":`...), w.Header().Get("X-Request-Id"))
	}
	write(w, status, append(b, "}}"...))
}

// extendDeadlines keeps the connection open for as long as an answer may take.
func (a *API) extendDeadlines(w http.ResponseWriter, wait time.Duration) {
	rc := http.NewResponseController(w)
	written := time.Now().Add(wait + a.cfg.AnswerTimeout)
	for _, err := range []error{rc.SetReadDeadline(time.Time{}), rc.SetWriteDeadline(written)} {
		if err != nil && !errors.Is(err, http.ErrNotSupported) {
			a.cfg.Logger.Debug("set a deadline", "err", err)
		}
	}
}

func appendTime(b []byte, t time.Time) []byte {
	return t.UTC().AppendFormat(b, `"2006-01-02T15:04:05.000Z"`)
}
