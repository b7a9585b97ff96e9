package console_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/console"
	"github.com/a2ad/a2ad/internal/engine"
	"github.com/a2ad/a2ad/internal/notify"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/stream"
	"github.com/a2ad/a2ad/internal/tail"
	"github.com/a2ad/a2ad/internal/wake"
)

func TestMain(m *testing.M) { storetest.Main(m) }

// rig is a store and consoles on it. Each console is one of another replica.
type rig struct {
	*storetest.Fixture
	hub      *notify.Hub
	follower *stream.Follower
	tail     *tail.Tail
	keys     *auth.Keys
	engine   *engine.Engine
	patterns []string         // of the console that was served last
	console  *console.Console // that was served last
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{hub: &notify.Hub{}}
	r.Fixture = storetest.Open(t, func(cfg *store.Config) {
		cfg.Wake = func(keys ...string) { r.hub.Wake(keys...) }
		cfg.Committed = func(id a2a.ID, events []a2a.Entry) {
			if r.follower.Offer(id, events) {
				r.hub.WakeClass(wake.Task(id))
			} else {
				r.hub.Wake(wake.Task(id))
			}
		}
	})
	r.follower = stream.New(r.Tasks, r.hub, time.Hour, slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = r.follower.Run(ctx) })
	r.tail = tail.New(r.Operate.SearchTasks, r.hub, slog.New(slog.DiscardHandler))
	running.Go(func() { _ = r.tail.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	var err error
	if r.keys, err = auth.NewKeys(auth.KeysConfig{Lookup: r.lookup, TTL: -1}); err != nil {
		t.Fatal(err)
	}
	r.engine, err = engine.New(r.Store, r.follower, engine.Config{PageKey: make([]byte, 32), Drain: ctx})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) lookup(ctx context.Context, id string) (auth.StoredKey, error) {
	k, secret, err := r.Access.LookupKey(ctx, id)
	if errors.Is(err, access.ErrNoKey) {
		return auth.StoredKey{}, auth.ErrUnknownKey
	}
	stored := auth.StoredKey{SecretHash: secret[:], Tenant: k.Tenant, Owner: k.Owner, Agents: k.Agents,
		ExpiresAt: k.ExpiresAt, RevokedAt: k.RevokedAt, Kind: auth.KindService}
	for _, s := range k.Scopes {
		stored.Scopes = append(stored.Scopes, auth.Scope(s))
	}
	return stored, err
}

// key creates an API key of tenant acme.
func (r *rig) key(scopes ...auth.Scope) auth.Key { return r.keyOf("operator", scopes...) }

func (r *rig) keyOf(owner string, scopes ...auth.Scope) auth.Key {
	r.T.Helper()
	k, err := auth.NewKey("test", nil)
	if err != nil {
		r.T.Fatal(err)
	}
	stored := access.Key{ID: k.ID(), Tenant: "acme", Owner: owner}
	for _, s := range scopes {
		stored.Scopes = append(stored.Scopes, string(s))
	}
	if _, err := r.Access.CreateKey(r.T.Context(), stored, k.SecretHash(), 0); err != nil {
		r.T.Fatal(err)
	}
	return k
}

// serve starts a console.
func (r *rig) serve(change ...func(*console.Config)) *browser {
	r.T.Helper()
	cfg := console.Config{
		Store: r.Store, Engine: r.engine, Follower: r.follower, FormKey: []byte("the same on all replicas"),
		Agents:     func() []*a2a.Agent { return []*a2a.Agent{{Name: storetest.Agent}} },
		Card:       func(string) (a2a.Card, bool) { return a2a.Card{}, false },
		Changed:    func() (<-chan struct{}, func()) { return r.hub.WaitClass(wake.Tasks) },
		Tail:       r.tail,
		JobChanged: func(id a2a.ID) (<-chan struct{}, func()) { return r.hub.Wait(wake.Job(id)) },
		SignIn:     r.keys.Authenticate, SignInByCode: unlimited, LookupKey: r.lookup, Ping: time.Hour,
		WriteTimeout: time.Minute, AnswerTimeout: time.Minute,
		Drain: context.Background(), Logger: slog.New(slog.NewTextHandler(r.T.Output(), nil)), Version: "test",
		Doctor: func(context.Context) []console.Finding { return nil },
	}
	for _, c := range change {
		c(&cfg)
	}
	c, err := console.New(cfg)
	if err != nil {
		r.T.Fatal(err)
	}
	r.patterns, r.console = c.Patterns(), c
	srv := httptest.NewServer(c)
	r.T.Cleanup(srv.Close)
	return &browser{t: r.T, url: srv.URL, cookies: map[string]string{}}
}

// asking returns a task of an owner of tenant acme that waits for an answer.
func (r *rig) asking(owner string) a2a.ID {
	r.T.Helper()
	in := storetest.Submission("hello")
	in.Caller = db.Caller{Tenant: "acme", Owner: owner}
	id := r.Submit(in).Task
	r.Append(r.ClaimTask(id), storetest.Status(a2a.StateInputRequired, "May I?"))
	return id
}

// runJobs runs all bulk jobs to their ends, as a server does.
func (r *rig) runJobs() {
	r.T.Helper()
	fail := func(err error) {
		r.T.Helper()
		if err != nil {
			r.T.Fatal(err)
		}
	}
	for {
		j, found, err := r.Jobs.Claim(r.T.Context(), "r1", false)
		if fail(err); !found {
			return
		}
		for !j.Collected {
			fail(r.Jobs.Collect(r.T.Context(), j))
		}
		for j.Remaining > 0 {
			fail(r.Jobs.Act(r.T.Context(), j, nil))
		}
		fail(r.Jobs.End(r.T.Context(), j, ""))
	}
}

// unlimited signs in as a server without limits does.
func unlimited(check func(*http.Request) (auth.Principal, error), r *http.Request) (auth.Principal, error) {
	return check(r)
}

func open(cfg *console.Config) { cfg.Open = true }

// browser is a client that keeps cookies, as a browser does on loopback.
type browser struct {
	t       testing.TB
	url     string
	host    string // empty: the address
	cookies map[string]string
	last    *http.Response

	unattended bool // requests are those that a page makes by itself
}

// noRedirects gives up on an answer that does not end: a live page where none should be.
var noRedirects = &http.Client{
	Timeout:       time.Minute,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// send sends a request and returns the status and the body.
func (b *browser) send(method, path string, form url.Values) (int, string) {
	b.t.Helper()
	kind := ""
	if form != nil {
		kind = "application/x-www-form-urlencoded"
	}
	return b.sendBody(method, path, kind, form.Encode())
}

// request returns a request with the cookies.
func (b *browser) request(method, path string, body io.Reader) *http.Request {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, body)
	if err != nil {
		b.t.Fatal(err)
	}
	if b.host != "" {
		req.Host = b.host
	}
	if b.unattended {
		req.Header.Set("X-A2ad-Unattended", "1")
	}
	for name, value := range b.cookies {
		req.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	return req
}

func (b *browser) sendBody(method, path, kind, text string) (int, string) {
	b.t.Helper()
	req := b.request(method, path, strings.NewReader(text))
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	res, err := noRedirects.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, c := range res.Cookies() {
		if b.cookies[c.Name] = c.Value; c.MaxAge < 0 {
			delete(b.cookies, c.Name)
		}
	}
	b.last = res
	return res.StatusCode, string(body)
}

// begins returns the status of an answer that does not end.
func (b *browser) begins(path string) int {
	b.t.Helper()
	res, err := noRedirects.Do(b.request(http.MethodGet, path, nil))
	if err != nil {
		b.t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode
}

func (b *browser) get(path string) (int, string) { return b.send(http.MethodGet, path, nil) }

// page returns a page, which there must be.
func (b *browser) page(path string) string {
	b.t.Helper()
	status, body := b.get(path)
	if status != http.StatusOK {
		b.t.Fatalf("GET %s answered %d: %s", path, status, body)
	}
	return body
}

var tokenField = regexp.MustCompile(`name="form_token" value="([^"]+)"`)

// post sends a form with the token of a page.
func (b *browser) post(page, path string, form url.Values) (int, string) {
	b.t.Helper()
	m := tokenField.FindStringSubmatch(b.page(page))
	if m == nil {
		b.t.Fatalf("%s has no form", page)
	}
	form.Set("form_token", m[1])
	return b.send(http.MethodPost, path, form)
}

// signIn signs in with a key.
func (b *browser) signIn(k auth.Key) (status int, body string) {
	b.t.Helper()
	return b.post("/console/sign-in", "/console/sign-in", url.Values{"key": {k.Reveal()}})
}

func (b *browser) mustSignIn(k auth.Key) {
	b.t.Helper()
	if status, body := b.signIn(k); status != http.StatusSeeOther {
		b.t.Fatalf("sign-in answered %d: %s", status, body)
	}
}
