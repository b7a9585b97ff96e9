package console_test

import (
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/auth/authtest"
	"github.com/a2ad/a2ad/internal/console"
	"github.com/a2ad/a2ad/internal/throttle"
)

const attemptCookie = "__Host-a2ad-console-signin"

// logged is a log that a test reads.
type logged struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// people is a provider, and what lets its people sign in to consoles.
type people struct {
	*authtest.Provider
	log    logged
	change func(*console.Config)
}

// newPeople returns a provider whose person has scopes.
func (r *rig) newPeople(scopes ...auth.Scope) *people {
	r.T.Helper()
	p := &people{Provider: authtest.NewProvider(r.T)}
	names := make([]string, len(scopes))
	for i, s := range scopes {
		names[i] = string(s)
	}
	p.Claims = map[string]any{"scope": strings.Join(names, " ")}
	j, err := auth.NewJWT(auth.JWTConfig{Issuer: p.URL, Audience: "a2ad", Tenant: "acme"})
	if err != nil {
		r.T.Fatal(err)
	}
	const public = "https://127.0.0.1"
	flow, err := auth.NewCodeFlow(j, auth.CodeFlowConfig{
		ClientID: authtest.ClientID, ClientSecret: authtest.ClientSecret, RedirectURL: console.CallbackURL(public),
	})
	if err != nil {
		r.T.Fatal(err)
	}
	p.change = func(c *console.Config) {
		c.Provider, c.PublicURL, c.Logger = flow, public, slog.New(slog.NewTextHandler(&p.log, nil))
	}
	return p
}

// begin begins a sign-in, and returns the path with which the browser comes back.
func (b *browser) begin(p *people, query string) string {
	b.t.Helper()
	if status, body := b.get("/console/sign-in/provider?" + query); status != http.StatusSeeOther {
		b.t.Fatalf("the sign-in begins with %d: %s", status, body)
	}
	return p.Authorize(b.last.Header.Get("Location")).RequestURI()
}

// comeBack follows the link from the provider: browsers keep back strict cookies then.
func (b *browser) comeBack(path string) (status int, body string) {
	b.t.Helper()
	strict, had := b.cookies[cookieName]
	delete(b.cookies, cookieName)
	status, body = b.get(path)
	if _, has := b.cookies[cookieName]; had && !has {
		b.cookies[cookieName] = strict
	}
	return status, body
}

func TestPersonSignsInOnTwoReplicas(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.newPeople(everything...)
	one, two := r.serve(p.change), r.serve(p.change)
	if body := one.page("/console/sign-in?next=/console/audit"); !strings.Contains(body,
		`href="https://127.0.0.1/console/sign-in/provider?next=%2Fconsole%2Faudit"`) {
		t.Errorf("the page has no link to the provider: %s", body)
	}
	back := one.begin(p, "next=/console/audit?action=x")
	two.cookies = one.cookies
	status, body := two.comeBack(back)
	const onward = `<meta http-equiv="refresh" content="0;url=/console/audit?action=x">`
	if status != http.StatusOK || !strings.Contains(body, onward) || !strings.Contains(body,
		`<a href="/console/audit?action=x">`) {
		t.Fatalf("the callback answered %d: %s", status, body)
	}
	for _, c := range two.last.Cookies() {
		if !c.Secure || !c.HttpOnly || c.Path != "/" || c.Domain != "" || c.Name == cookieName && c.SameSite !=
			http.SameSiteStrictMode {
			t.Errorf("cookie %v", c)
		}
	}
	if _, ok := two.cookies[attemptCookie]; ok {
		t.Error("the sign-in that has ended is still in a cookie")
	}
	one.cookies = two.cookies
	body = one.page("/console/audit")
	if !strings.Contains(body, "oidc ann") || !strings.Contains(body, "session.open") {
		t.Errorf("the other replica shows %s", body)
	}
	task := r.NewTask()
	path := "/console/tasks/" + task.String()
	if status, body = one.post(path, path+"/cancel", url.Values{"reason": {"because"}}); status != http.StatusSeeOther {
		t.Errorf("a cancel answered %d: %s", status, body)
	}
	if got := r.Column(`SELECT actor FROM a2a.audit_log WHERE action = 'task.cancel'`); len(got) != 1 || got[0] !=
		"oidc ann" {
		t.Errorf("the audit log names %q", got)
	}
	stored := r.Column(`SELECT s::text FROM a2a.browser_sessions s`)
	if len(stored) != 1 || strings.Contains(stored[0], two.cookies[cookieName]) {
		t.Errorf("stored are %q", stored)
	}
	alone := r.serve() // the operator removed the provider
	alone.cookies = one.cookies
	if status, _ := alone.get("/console/tasks"); status != http.StatusSeeOther {
		t.Errorf("without a provider the session still works: %d", status)
	}
}

func TestSessionOfAPersonEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]string{
		"idle": `UPDATE a2a.browser_sessions SET used_at = used_at - interval '31 minutes'`,
		"old":  `UPDATE a2a.browser_sessions SET expires_at = expires_at - interval '4 hours'`,
		"gone": `DELETE FROM a2a.browser_sessions`,
	} {
		r := newRig(t)
		p := r.newPeople(everything...)
		b := r.serve(p.change)
		b.comeBack(b.begin(p, ""))
		b.page("/console/tasks")
		r.Exec(end)
		if status, _ := b.get("/console/tasks"); status != http.StatusSeeOther {
			t.Errorf("%s: the session still works: %d", name, status)
		}
	}
}

// TestCallbackNeedsItsOwnSignIn: an answer of the provider counts once, in the browser that has asked for it.
func TestCallbackNeedsItsOwnSignIn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.newPeople(everything...)
	b := r.serve(p.change)
	refused := func(what, path, reason string) {
		t.Helper()
		status, body := b.comeBack(path)
		if status != http.StatusForbidden || b.cookies[cookieName] != "" || !strings.Contains(body, reason) {
			t.Errorf("%s: %d, cookies %v: %s", what, status, b.cookies, body)
		}
		for _, secret := range []string{"code-", "state="} {
			if strings.Contains(body+p.log.String(), secret) {
				t.Errorf("%s: the page or the log has %q: %s %s", what, secret, body, p.log.String())
			}
		}
	}
	refused("a browser that has begun nothing", "/console/sign-in/callback?code=code-x&state=y", "has begun no sign-in")

	attacker := r.serve(p.change)
	theirs := attacker.begin(p, "")
	mine := b.begin(p, "")
	kept := b.cookies[attemptCookie]
	refused("the code of another browser (login CSRF)", theirs, "does not belong to a sign-in")
	b.cookies[attemptCookie] = kept
	refused("a sign-in whose state was used", mine, "was used before")

	back := b.begin(p, "")
	b.cookies[attemptCookie] = kept[:len(kept)-2] + "AA"
	refused("a forged cookie", back, "has begun no sign-in")

	back = b.begin(p, "")
	kept = b.cookies[attemptCookie]
	if status, body := b.comeBack(back); status != http.StatusOK {
		t.Fatalf("a good answer got %d: %s", status, body)
	}
	b.cookies = map[string]string{attemptCookie: kept}
	refused("a replayed answer", back, "was used before")
	if n := len(p.Asked()); n != 1 {
		t.Errorf("the provider was asked for tokens %d times, want once", n)
	}
}

// Made-up codes count for their address, and so do answers that were used. An outage of the provider does not.
func TestMadeUpCodesCountAsFailedSignIns(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.newPeople(everything...)
	limits := throttle.New(throttle.Limits{SignIns: throttle.Rate{PerSecond: 0.001, Burst: 3}}, nil)
	b := r.serve(p.change, func(c *console.Config) { c.SignInByCode = limits.SignInByCode })
	p.Token = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }
	for range 4 {
		if status, body := b.comeBack(b.begin(p, "")); status != http.StatusForbidden {
			t.Errorf("while the provider is down a sign-in got %d: %s", status, body)
		}
	}
	p.Token = nil
	back := b.begin(p, "")
	attempt := b.cookies[attemptCookie]
	madeUp := strings.Replace(back, "code=code-", "code=code-x", 1)
	for i := range 3 {
		b.cookies[attemptCookie] = attempt
		if status, body := b.comeBack(madeUp); status != http.StatusForbidden {
			t.Errorf("made-up answer %d got %d: %s", i, status, body)
		}
	}
	b.cookies[attemptCookie] = attempt
	status, body := b.comeBack(back)
	if status != http.StatusTooManyRequests || b.last.Header.Get("Retry-After") == "" {
		t.Errorf("after too many bad answers a further one got %d, %v: %s", status, b.last.Header, body)
	}
	if status, body = b.comeBack(b.begin(p, "")); status != http.StatusOK {
		t.Errorf("a good answer from the same address got %d: %s", status, body)
	}
}

func TestProviderWhoseAnswersAreBad(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for name, tc := range map[string]struct {
		spoil func(p *people, answer url.Values)
		text  string
	}{
		"wrong nonce":   {func(p *people, _ url.Values) { p.Claims["nonce"] = "x" }, "not valid for this server"},
		"wrong iss":     {func(_ *people, v url.Values) { v.Set("iss", "https://evil.example") }, "not valid for this"},
		"error":         {func(_ *people, v url.Values) { v.Set("error", "access_denied") }, "refused the sign-in"},
		"unknown error": {func(_ *people, v url.Values) { v.Set("error", "<b>call me</b>") }, "does not accept how"},
		"500": {func(p *people, _ url.Values) {
			p.Token = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }
		}, "cannot be reached"},
	} {
		p := r.newPeople(everything...)
		b := r.serve(p.change)
		back, err := url.Parse(b.begin(p, ""))
		if err != nil {
			t.Fatal(err)
		}
		answer := back.Query()
		tc.spoil(p, answer)
		status, body := b.comeBack(back.Path + "?" + answer.Encode())
		if status != http.StatusForbidden || b.cookies[cookieName] != "" || !strings.Contains(body, tc.text) ||
			strings.Contains(body, "call me") || strings.Contains(body, "code-") {
			t.Errorf("%s: %d %s", name, status, body)
		}
		if log := p.log.String(); !strings.Contains(log, "sign-in with the identity provider") || strings.Contains(log,
			"code-") {
			t.Errorf("%s: the log has %s", name, log)
		}
	}
}

func TestPersonWithoutScopesLearnsWhichOnesTheConsoleNeeds(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.newPeople(auth.ScopeTasksRead)
	b := r.serve(p.change)
	status, body := b.comeBack(b.begin(p, ""))
	if status != http.StatusForbidden || !strings.Contains(body, "acme/ann") || !strings.Contains(body,
		"operator:read, tenant:read and tasks:write") || b.cookies[cookieName] != "" {
		t.Errorf("got %d: %s", status, body)
	}
}

func TestSignInWithTheProviderLeadsToThisConsoleOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.newPeople(everything...)
	for _, next := range []string{"https://evil.example/", "//evil.example/console/", `/\evil.example`,
		"/console/..//evil.example", "javascript:alert(1)", "/other"} {
		b := r.serve(p.change)
		_, body := b.comeBack(b.begin(p, "next="+url.QueryEscape(next)))
		if !strings.Contains(body, `content="0;url=/console/"`) {
			t.Errorf("for %q the browser goes to %s", next, body)
		}
	}
}

// TestLongFormIsLostRatherThanTheSignIn: browsers drop cookies of more than 4096 bytes.
func TestLongFormIsLostRatherThanTheSignIn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.newPeople(everything...)
	for n, want := range map[int]string{
		500: "/console/keys/new?name=" + strings.Repeat("%26", 500), 1300: "/console/keys/new",
	} {
		b := r.serve(p.change)
		back := b.begin(p, "next="+url.QueryEscape("/console/keys/new?name="+strings.Repeat("%26", n)))
		if size := len(attemptCookie) + len(b.cookies[attemptCookie]); size > 4096 {
			t.Errorf("the cookie has %d bytes", size)
		}
		if _, body := b.comeBack(back); !strings.Contains(body, `content="0;url=`+want+`"`) {
			t.Errorf("after %d bytes the browser goes to %s", n, body)
		}
	}
	b := r.serve(p.change)
	if status, _ := b.get("/console/sign-in/provider?next=/console/" + strings.Repeat("x", 4000)); status !=
		http.StatusNotFound || b.cookies[attemptCookie] != "" {
		t.Errorf("a path that is too long answered %d", status)
	}
}

func TestProviderIsOfferedOnlyWhereItIsSet(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.newPeople(everything...)
	b := r.serve()
	if body := b.page("/console/sign-in"); strings.Contains(body, "/sign-in/provider") {
		t.Errorf("without a provider the page has a link to it: %s", body)
	}
	for _, path := range []string{"/console/sign-in/provider", "/console/sign-in/callback?code=x&state=y"} {
		if status, _ := b.get(path); status != http.StatusNotFound {
			t.Errorf("GET %s without a provider answered %d", path, status)
		}
	}
	b = r.serve(p.change)
	b.host = "a2ad.example"
	status, _ := b.get("/console/sign-in/provider")
	if status != http.StatusForbidden || b.cookies[attemptCookie] != "" {
		t.Errorf("over plain HTTP a sign-in begins: %d", status)
	}
	p.Close()
	b = r.serve(r.newPeople().change, func(c *console.Config) {
		c.Provider = mustFlow(t, p.URL)
	})
	if status, body := b.get("/console/sign-in/provider"); status != http.StatusForbidden || !strings.Contains(body,
		"cannot be reached") || !strings.Contains(body, `name="key"`) {
		t.Errorf("an unreachable provider: %d %s", status, body)
	}
}

func mustFlow(t *testing.T, issuer string) *auth.CodeFlow {
	t.Helper()
	j, err := auth.NewJWT(auth.JWTConfig{Issuer: issuer, Audience: "a2ad"})
	if err != nil {
		t.Fatal(err)
	}
	f, err := auth.NewCodeFlow(j, auth.CodeFlowConfig{
		ClientID: authtest.ClientID, RedirectURL: "https://127.0.0.1/", Timeout: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}
