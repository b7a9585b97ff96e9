// Package console serves the console: pages for operators in a browser, rendered on the server.
//
// It promises that text of tasks is never run or followed, that every change needs a session, the right scope and a
// token of its own page, and that each change is in the audit log with who made it and why. Pages work without
// JavaScript. It knows nothing of the protocol's versions and of how agents work.
package console

import (
	"bytes"
	"context"
	"crypto/cipher"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/engine"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/stream"
	"github.com/a2ad/a2ad/internal/tail"
)

// Prefix is the path of the console.
const Prefix = "/console"

// Config configures a Console. All fields without another remark are required.
type Config struct {
	Store    *store.Store
	Engine   *engine.Engine
	Follower *stream.Follower
	Agents   func() []*a2a.Agent // that this server serves now
	// Card returns the card of an agent as its clients see it.
	Card func(agent string) (card a2a.Card, ok bool)
	// Changed registers for a token in the channel whenever some task has changed, until stop. Tail says which ones.
	Changed func() (changed <-chan struct{}, stop func())
	Tail    *tail.Tail
	// JobChanged registers for a token in the channel whenever a bulk job has come to more tasks or has ended, until
	// stop.
	JobChanged func(id a2a.ID) (changed <-chan struct{}, stop func())
	// MoveSecrets encrypts the secrets of webhooks for the task that a retry makes.
	MoveSecrets tasks.MoveSecrets

	Open bool // no sign-in; the server listens on loopback only
	// SignIn checks a credential, SignInByCode a code of the provider that check knows and that is in the Authorization
	// header, and LookupKey reads the key of a session. None is used if Open.
	SignIn       func(*http.Request) (auth.Principal, error)
	SignInByCode func(check func(*http.Request) (auth.Principal, error), r *http.Request) (auth.Principal, error)
	LookupKey    func(ctx context.Context, id string) (auth.StoredKey, error)
	// Admit counts a request of a viewer, and refuses it if there were too many; nil: no limit.
	Admit   func(p auth.Principal, write bool) error
	FormKey []byte // makes the tokens of forms; the same on all replicas
	// Doctor checks the installation, as `a2ad doctor` does.
	Doctor    func(ctx context.Context) []Finding
	PublicURL string // of the server; may be empty
	TraceURL  string // of a trace, with {trace_id} in place of its id; empty: traces are no links
	// Provider signs people in, who come back to CallbackURL; nil: only API keys do.
	Provider *auth.CodeFlow

	Ping          time.Duration   // between two signs of life of a live page
	WriteTimeout  time.Duration   // to send an event of a live page
	AnswerTimeout time.Duration   // to send a page, or a piece of a file
	Drain         context.Context //nolint:containedctx // ends when the server is about to stop
	Logger        *slog.Logger
	Version       string
}

// Console is the console as an http.Handler. Use New.
type Console struct {
	cfg      Config
	mux      router
	assets   assets
	pages    pages
	findings findings
	sealer   cipher.AEAD   // encrypts sign-ins that have begun
	slots    chan struct{} // one for each page that is being made
	lives    chan struct{} // one for each live page
	ownPages *shares       // of slots, and for pages that are being sent
	ownLives *shares       // of lives
	signIns  chan struct{} // one for each sign-in that waits for the identity provider
}

// New returns a Console. It starts nothing.
func New(cfg Config) (*Console, error) {
	c := &Console{
		cfg: cfg, mux: router{ServeMux: http.NewServeMux()}, slots: make(chan struct{}, maxPages),
		lives: make(chan struct{}, maxLive), ownPages: newShares(maxOwnPages), ownLives: newShares(maxOwnLive),
		signIns:  make(chan struct{}, maxSignIns),
		findings: findings{check: cfg.Doctor},
	}
	var err error
	if c.sealer, err = newSealer(cfg.FormKey); err != nil {
		return nil, err
	}
	if c.assets, err = loadAssets(); err != nil {
		return nil, err
	}
	if c.pages, err = c.parsePages(); err != nil {
		return nil, err
	}
	c.routes()
	return c, nil
}

// router knows its patterns, so that a test has a row for each of them.
type router struct {
	*http.ServeMux
	patterns []string
}

// HandleFunc adds a route.
func (r *router) HandleFunc(pattern string, h http.HandlerFunc) {
	r.patterns = append(r.patterns, pattern)
	r.ServeMux.HandleFunc(pattern, h)
}

func (c *Console) routes() {
	get := func(path string, h func(*request) error) {
		c.mux.HandleFunc("GET "+Prefix+path, c.page(readers(h)))
	}
	post := func(path string, h func(*request) error) {
		c.mux.HandleFunc("POST "+Prefix+path, c.page(changes(h)))
	}
	c.mux.HandleFunc("GET "+Prefix, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, Prefix+"/", http.StatusFound)
	})
	c.mux.HandleFunc("GET "+Prefix+"/assets/{file}", c.serveAsset)
	c.mux.HandleFunc("GET "+Prefix+"/sign-in", c.public(c.showSignIn))
	c.mux.HandleFunc("POST "+Prefix+"/sign-in", c.public(c.signIn))
	c.mux.HandleFunc("GET "+Prefix+"/sign-in/provider", c.public(c.beginSignIn))
	c.mux.HandleFunc("GET "+callbackPath, c.public(c.finishSignIn))
	c.mux.HandleFunc("GET "+Prefix+"/sign-in/again", c.page(c.showAgain))
	c.mux.HandleFunc("POST "+Prefix+"/sign-in/again", c.page(c.signInAgain))
	c.mux.HandleFunc("POST "+Prefix+"/theme", c.public(c.setTheme))
	c.mux.HandleFunc("POST "+Prefix+"/sign-out", c.public(c.signOut))
	c.mux.HandleFunc("GET "+Prefix+"/{$}", c.page(operators(c.showOverview)))
	for path, show := range map[string]func(*request) error{ // each shows an owner its own tasks alone
		"/tasks": c.showTasks, "/tasks/{id}": c.showTask, "/inbox": c.showInbox,
		"/tasks/{id}/files/{artifact}/{part}": c.sendFile, "/tasks/{id}/images/{artifact}/{part}": c.sendImage,
	} {
		c.mux.HandleFunc("GET "+Prefix+path, c.page(owners(show)))
	}
	get("/tasks/{id}/raw", c.showRaw)
	c.mux.HandleFunc("GET "+Prefix+"/playground", c.page(players(c.showPlayground)))
	c.mux.HandleFunc("POST "+Prefix+"/playground", c.page(sends(c.sendPlayed)))
	c.mux.HandleFunc("GET "+Prefix+"/playground/{id}", c.page(players(c.showPlayed)))
	c.mux.HandleFunc("GET "+Prefix+"/live", c.live(c.followAll))
	c.mux.HandleFunc("GET "+Prefix+"/tasks/{id}/live", c.live(c.followTask))
	get("/tasks/bulk", c.showBulk)
	post("/tasks/bulk", c.startJob)
	c.mux.HandleFunc("GET "+Prefix+"/jobs", c.page(operators(c.showJobs)))
	get("/jobs/{id}", c.showJob)
	post("/jobs/{id}/stop", c.stopJob)
	c.mux.HandleFunc("GET "+Prefix+"/jobs/{id}/live", c.live(c.followJob))
	c.mux.HandleFunc("POST "+Prefix+"/tasks/views", c.page(ofViews(c.saveView)))
	c.mux.HandleFunc("POST "+Prefix+"/tasks/views/remove", c.page(ofViews(c.removeView)))
	c.mux.HandleFunc("POST "+Prefix+"/tasks/{id}/cancel", c.page(acts(c.cancelTask)))
	c.mux.HandleFunc("POST "+Prefix+"/tasks/{id}/answer", c.page(acts(c.answerTask)))
	post("/tasks/{id}/retry", c.retryTask)
	post("/tasks/{id}/resume", c.resumeTask)
	post("/tasks/{id}/assign", c.assignTask)
	for path, act := range map[string]func(*request) error{
		"/agents/pause": c.pauseAgent, "/agents/resume": c.resumeAgent,
		"/workers/drain": c.drainWorker, "/workers/resume": c.resumeWorker,
		"/destinations/enable": c.enableDestination, "/destinations/replay": c.replayDestination,
		"/webhooks/replay": c.replayWebhook,
	} {
		c.mux.HandleFunc("POST "+Prefix+path, c.page(ofService(act)))
	}
	for path, show := range map[string]func(*request) error{
		"/agents": c.showAgents, "/webhooks": c.showWebhooks, "/schedules": c.showSchedules,
		"/audit": c.showAudit, "/keys": c.showKeys, "/workers": c.showWorkers, "/doctor": c.showDoctor,
	} {
		c.mux.HandleFunc("GET "+Prefix+path, c.page(operators(show)))
	}
	c.confirmations()
	c.mux.HandleFunc(Prefix+"/", c.page(func(*request) error { return errNotFound }))
}

// ServeHTTP serves the console below Prefix.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if !c.hostAllowed(r) {
		c.writeError(c.answer(w), r, http.StatusForbidden, "Wrong host",
			"This server has no sign-in. Open it as localhost, by a loopback address, or by the host of "+
				"A2AD_PUBLIC_URL.")
		return
	}
	c.mux.ServeHTTP(w, r)
}

// pagePolicy lets a page use nothing except the assets and the live events of this server.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// request is a request of somebody who has signed in.
type request struct {
	w http.ResponseWriter
	r *http.Request
	viewer
}

func (q *request) Context() context.Context { return q.r.Context() }

// problem is an error that the viewer sees.
type problem struct {
	status      int
	title, text string
}

func (p *problem) Error() string { return p.text }

var (
	errNotFound = &problem{http.StatusNotFound, "Not found", "The console has no such page, or the task was removed."}
	errBusy     = &problem{http.StatusServiceUnavailable, "Busy",
		"The console is making too many pages at once. Try again."}
)

// fail answers with an error page.
func (c *Console) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := c.problemOf(w, r, err)
	c.writeError(w, r, p.status, p.title, p.text)
}

// problemOf returns what the viewer sees of an error. Errors that are not for the viewer are logged, and shown without
// their text.
func (c *Console) problemOf(w http.ResponseWriter, r *http.Request, err error) *problem {
	var p *problem
	var known *a2a.Error
	switch {
	case errors.As(err, &p):
	case errors.Is(err, a2a.ErrTaskNotFound):
		p = errNotFound
	case errors.As(err, &known) && known.Code != a2a.CodeInternal:
		p = &problem{http.StatusConflict, "Not done", known.Error() + "."}
		switch known.Code {
		case a2a.CodeUnavailable:
			p.status = http.StatusServiceUnavailable
		case a2a.CodeRateLimited:
			p.status = http.StatusTooManyRequests
			w.Header().Set("Retry-After", "1")
		}
		var withHeader interface{ SetHeader(h http.Header) }
		if errors.As(err, &withHeader) { // it says when to come back
			withHeader.SetHeader(w.Header())
		}
	case errors.Is(err, tasks.ErrNothingToSend):
		p = &problem{http.StatusConflict, "Not done", "The task has no message of a client that could be sent again."}
	case errors.Is(err, tasks.ErrNothingToRetry):
		p = &problem{http.StatusConflict, "Not done", tasks.ErrNothingToRetry.Error() + "."}
	default:
		if r.Context().Err() == nil {
			c.cfg.Logger.ErrorContext(r.Context(), "console", "request_id", w.Header().Get("X-Request-Id"), "err", err)
		}
		p = &problem{http.StatusInternalServerError, "Internal error",
			"The server could not do this. Its log has the reason under request " +
				w.Header().Get("X-Request-Id") + "."}
	}
	return p
}

// send sends a page that is complete.
func (c *Console) send(w http.ResponseWriter, status int, body *bytes.Buffer) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(body.Len()))
	w.WriteHeader(status)
	w.Write(body.Bytes()) //nolint:errcheck // the client disconnected
}
