package console_test

import (
	"crypto/rand"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/auth"
)

const cookieName = "__Host-a2ad-console"

var everything = []auth.Scope{auth.ScopeOperatorRead, auth.ScopeOperatorWrite}

func TestPagesNeedASession(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b, task := r.serve(), r.NewTask().String()
	for _, path := range []string{"/", "/tasks", "/tasks/" + task, "/tasks/" + task + "/raw", "/inbox", "/agents",
		"/webhooks", "/schedules", "/audit", "/keys", "/workers", "/doctor", "/playground"} {
		status, body := b.get("/console" + path)
		if at := b.last.Header.Get("Location"); status != http.StatusSeeOther || !strings.HasPrefix(at,
			"/console/sign-in") ||
			strings.Contains(body, "<main") {
			t.Errorf("GET %s answered %d to %q", path, status, at)
		}
	}
	for _, path := range []string{"/live", "/tasks/" + task + "/live"} {
		if status, _ := b.get("/console" + path); status != http.StatusForbidden {
			t.Errorf("GET %s answered %d", path, status)
		}
	}
	b.send(http.MethodPost, "/console/tasks/"+task+"/cancel", url.Values{"reason": {"x"}})
	if s := r.Snapshot(mustID(t, task)).Status.State; s.Terminal() {
		t.Errorf("without a session a task was ended: it is %s", s)
	}
}

func TestSessionWorksOnEveryReplicaUntilSignOut(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	one, two := r.serve(), r.serve()
	one.mustSignIn(r.key(everything...))
	two.cookies = one.cookies
	if body := two.page("/console/tasks"); !strings.Contains(body, "Sign out") {
		t.Errorf("the other replica does not know the session: %s", body)
	}
	stolen := one.cookies[cookieName]
	if status, _ := two.post("/console/tasks", "/console/sign-out", url.Values{}); status != http.StatusSeeOther {
		t.Fatalf("sign-out answered %d", status)
	}
	one.cookies = map[string]string{cookieName: stolen}
	if status, _ := one.get("/console/tasks"); status != http.StatusSeeOther {
		t.Errorf("after sign-out the cookie still works: %d", status)
	}
}

func TestPagesCanBeReadWhileTheDatabaseIsReadOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b, task := r.serve(), "/console/tasks/"+r.NewTask().String()
	b.mustSignIn(r.key(append(everything, auth.ScopeTasksWrite)...))
	token := tokenField.FindStringSubmatch(b.page("/console/tasks"))[1]
	r.Exec(`UPDATE a2a.browser_sessions SET used_at = used_at - interval '2 minutes'`) // so that its use is due
	r.Exec(`DO $$ BEGIN
		EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database());
	END $$`)
	r.Exec(`SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a
		WHERE a.datname = current_database() AND a.application_name LIKE 'a2ad-r1-%'`)
	for _, path := range []string{"/", "/tasks", "/inbox", "/agents", "/webhooks", "/schedules", "/audit", "/keys",
		"/workers", "/doctor", "/jobs", "/playground"} {
		b.page("/console" + path)
	}
	b.page(task)
	b.page(task + "/raw")
	form := url.Values{"reason": {"because"}, "form_token": {token}}
	status, body := b.send(http.MethodPost, task+"/cancel", form)
	if status != http.StatusServiceUnavailable || !strings.Contains(body, "the database accepts no changes") {
		t.Errorf("a cancel answered %d: %s", status, body)
	}
}

func TestSessionEndsWithItsKeyAndWithoutUse(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(r *rig, k auth.Key){
		"revoked": func(r *rig, k auth.Key) {
			if err := r.Access.RevokeKey(r.T.Context(), k.ID()); err != nil {
				r.T.Fatal(err)
			}
		},
		"idle": func(r *rig, _ auth.Key) {
			r.Exec(`UPDATE a2a.browser_sessions SET used_at = used_at - interval '31 minutes'`)
		},
		"expired": func(r *rig, _ auth.Key) { r.Exec(`UPDATE a2a.browser_sessions SET expires_at = now()`) },
		"no scopes": func(r *rig, k auth.Key) {
			r.Exec(`UPDATE a2a.api_keys SET scopes = '{tasks:read}' WHERE id = $1`, k.ID())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			b, k := r.serve(), r.key(everything...)
			b.mustSignIn(k)
			b.page("/console/tasks")
			end(r, k)
			if status, body := b.get("/console/tasks"); status == http.StatusOK {
				t.Errorf("the session still works: %s", body)
			}
		})
	}
}

var scriptOf = regexp.MustCompile(`src="(/console/assets/[^"]+)"`)

// The script marks what a page reads by itself, unless somebody has asked for it or uses the page.
func TestScriptSaysWhatIsUnattended(t *testing.T) {
	t.Parallel()
	b := newRig(t).serve(open)
	script := b.page(scriptOf.FindStringSubmatch(b.page("/console/tasks"))[1])
	if !strings.Contains(script, "if (!force && !used) headers['X-A2ad-Unattended'] = '1';") {
		t.Error("the script does not send the header")
	}
}

func TestSessionCookieStaysWithItsHost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := r.serve()
	b.mustSignIn(r.key(everything...))
	for _, c := range b.last.Cookies() {
		if c.Name != cookieName {
			continue
		}
		if !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" {
			t.Errorf("cookie %v", c)
		}
		if n := len(r.Column(`SELECT token_sha256::text FROM a2a.browser_sessions`)); n != 1 {
			t.Errorf("%d sessions are stored, want 1", n)
		}
		if stored := r.Column(`SELECT s::text FROM a2a.browser_sessions s`); strings.Contains(stored[0], c.Value) {
			t.Error("the token itself is stored")
		}
		return
	}
	t.Error("there is no cookie")
}

// What a stranger sends is not read beyond a few kilobytes, whatever the method.
func TestStrangersSendShortForms(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := r.serve()
	token := tokenField.FindStringSubmatch(b.page("/console/sign-in"))[1]
	long := strings.Repeat("x", 64<<10)
	for path, form := range map[string]url.Values{
		"/sign-in": {"key": {long}, "form_token": {token}},
		"/theme":   {"theme": {"dark"}, "next": {"/console/" + long}},
	} {
		status, body := b.send(http.MethodPost, "/console"+path, form)
		if status != http.StatusBadRequest || !strings.Contains(body, "longer than 8.0 KiB") {
			t.Errorf("POST %s with 64 KiB answered %d: %s", path, status, body)
		}
	}
	const kind = "multipart/form-data; boundary=x"
	const next = "--x\r\nContent-Disposition: form-data; name=next\r\n\r\n/console/audit\r\n--x--\r\n"
	if _, body := b.sendBody(http.MethodGet, "/console/sign-in", kind, next); strings.Contains(body, "audit") {
		t.Errorf("the body of a GET was read: %s", body)
	}
}

var nextField = regexp.MustCompile(`name="next" value="([^"]*)"`)

// A page with a long query can be come back to, if need be without it.
func TestLongPathsFitIntoFormsOfStrangers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	k := r.key(everything...)
	const path = "/console/keys/new"
	for n, want := range map[int]string{
		600: path + "?name=" + strings.Repeat("%26", 600), 1300: path, 9000: path,
	} {
		b := r.serve()
		at := path + "?name=" + strings.Repeat("%26", n)
		b.get(at)
		if to := b.last.Header.Get("Location"); len(to) > 8<<10 {
			t.Errorf("the browser goes to a URL of %d bytes", len(to))
		}
		next := func(page string, i int) string {
			t.Helper()
			return html.UnescapeString(nextField.FindAllStringSubmatch(b.page(page), -1)[i][1])
		}
		const signIn, theme = 1, 0 // the order of the forms
		for _, page := range []string{b.last.Header.Get("Location"), "/console/sign-in?next=" + url.QueryEscape(at)} {
			form := url.Values{"key": {k.Reveal()}, "next": {next(page, signIn)}}
			if status, body := b.post("/console/sign-in", "/console/sign-in", form); status != http.StatusSeeOther {
				t.Fatalf("the sign-in for a path of %d bytes answered %d: %s", len(at), status, body)
			}
			if to := b.last.Header.Get("Location"); to != want {
				t.Errorf("after the sign-in for a path of %d bytes the browser goes to %s", len(at), to)
			}
		}
		form := url.Values{"theme": {"dark"}, "next": {next(at, theme)}}
		if status, body := b.send(http.MethodPost, "/console/theme", form); status != http.StatusSeeOther ||
			b.last.Header.Get("Location") != want {
			t.Errorf("the choice of colors on a path of %d bytes answered %d: %s", len(at), status, body)
		}
		r.age()
		if b.get(at); len(b.again()) > 16<<10 {
			t.Errorf("the browser goes to a URL of %d bytes", len(b.again()))
		}
	}
}

// Guesses of strangers must not reach the database.
func TestForgedSessionCookieCostsNoStatement(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := r.serve()
	b.mustSignIn(r.key(everything...))
	good := b.cookies[cookieName]
	defer r.Lock(`LOCK TABLE a2a.browser_sessions IN ACCESS EXCLUSIVE MODE`)() // a statement would wait, and fail
	for _, forged := range []string{rand.Text() + rand.Text(), good[:10] + "x" + good[11:], good + "x", ".", ""} {
		b.cookies = map[string]string{cookieName: forged}
		if status, _ := b.get("/console/tasks"); status != http.StatusSeeOther {
			t.Errorf("with the cookie %q a page answered %d", forged, status)
		}
		if status, _ := b.get("/console/live"); status != http.StatusForbidden {
			t.Errorf("with the cookie %q a live page answered %d", forged, status)
		}
	}
}

func TestSignInRefusesKeysWithoutAScope(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	unknown, err := auth.NewKey("test", nil)
	if err != nil {
		t.Fatal(err)
	}
	for want, k := range map[int]auth.Key{
		http.StatusForbidden:    r.key(auth.ScopeTasksRead, auth.ScopePushWrite),
		http.StatusUnauthorized: unknown,
	} {
		b := r.serve()
		if status, _ := b.signIn(k); status != want || b.cookies[cookieName] != "" {
			t.Errorf("sign-in answered %d with cookies %v, want %d and none", status, b.cookies, want)
		}
	}
}

func TestSignInNeedsHTTPSFromOtherMachines(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b, k := r.serve(), r.key(everything...)
	token := tokenField.FindStringSubmatch(b.page("/console/sign-in"))[1]
	b.host = "a2ad.example"
	if body := b.page("/console/sign-in"); strings.Contains(body, `name="key"`) || !strings.Contains(body,
		"plain HTTP") {
		t.Errorf("over plain HTTP the page asks for a key: %s", body)
	}
	form := url.Values{"key": {k.Reveal()}, "form_token": {token}}
	if status, _ := b.send(http.MethodPost, "/console/sign-in", form); status != http.StatusForbidden {
		t.Errorf("over plain HTTP a key is accepted: %d", status)
	}
}

func TestFormsNeedTheTokenOfTheirSession(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b, other, task := r.serve(), r.serve(), r.NewTask()
	b.mustSignIn(r.key(everything...))
	other.mustSignIn(r.key(everything...))
	foreign := tokenField.FindStringSubmatch(other.page("/console/tasks"))[1]
	path := "/console/tasks/" + task.String()
	for _, action := range []string{"/cancel", "/retry", "/resume", "/answer"} {
		for _, token := range []string{"", "x", foreign} {
			form := url.Values{"reason": {"because"}, "form_token": {token}}
			if status, _ := b.send(http.MethodPost, path+action, form); status != http.StatusForbidden {
				t.Errorf("%s with the token %q answered %d, want 403", action, token, status)
			}
		}
	}
	if s := r.Snapshot(task).Status.State; s.Terminal() {
		t.Errorf("the task is %s", s)
	}
}

func TestReadersCannotAct(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b, task := r.serve(), r.NewTask()
	b.mustSignIn(r.key(auth.ScopeOperatorRead))
	path := "/console/tasks/" + task.String()
	if body := b.page(path); strings.Contains(body, path+"/cancel") {
		t.Error("the page offers an action")
	}
	if status, _ := b.post(path, path+"/cancel", url.Values{"reason": {"because"}}); status != http.StatusForbidden {
		t.Errorf("a cancel answered %d, want 403", status)
	}
	if s := r.Snapshot(task).Status.State; s.Terminal() {
		t.Errorf("the task is %s", s)
	}
}

func TestTenantReaderSeesTheOwnTenantOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	own, foreign := r.NewTask(), r.NewTask()
	r.Exec(`UPDATE a2a.tasks SET tenant = 'globex' WHERE id = $1`, foreign.String())
	b := r.serve()
	b.mustSignIn(r.key(auth.ScopeTenantRead))
	for _, query := range []string{"", "?tenant=globex", "?q=" + foreign.String()[:13]} {
		if body := b.page("/console/tasks" + query); strings.Contains(body, foreign.String()) {
			t.Errorf("the list %q shows a task of another tenant", query)
		}
	}
	if body := b.page("/console/tasks"); !strings.Contains(body, own.String()) {
		t.Error("the list has no task of the own tenant")
	}
	for _, path := range []string{"", "/raw", "/files/0/0", "/images/0/0", "/live"} {
		if status, _ := b.get("/console/tasks/" + foreign.String() + path); status != http.StatusNotFound {
			t.Errorf("GET %q of a task of another tenant answered %d", path, status)
		}
	}
	for _, path := range []string{
		"/audit", "/keys", "/webhooks", "/schedules", "/agents", "/workers", "/doctor", "/playground",
	} {
		if status, _ := b.get("/console" + path); status != http.StatusForbidden {
			t.Errorf("GET %s answered %d, want 403", path, status)
		}
	}
}

func TestOpenConsoleAnswersToItsOwnNamesOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := r.serve(open)
	for host, want := range map[string]int{
		"localhost": 200, "localhost:8080": 200, "127.0.0.1:8080": 200, "[::1]:8080": 200,
		"evil.example": 403, "127.0.0.1.evil.example": 403, "localhost.evil.example": 403, "192.0.2.1": 403,
	} {
		b.host = host
		if status, _ := b.get("/console/tasks"); status != want {
			t.Errorf("Host %s answered %d, want %d", host, status, want)
		}
	}
}

func TestSignInLeadsToThisConsoleOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	k := r.key(everything...)
	for next, want := range map[string]string{
		"/console/tasks?state=failed": "/console/tasks?state=failed", "": "/console/",
		"https://evil.example/console/": "/console/",
		"//evil.example/console/":       "/console/", `/\evil.example`: "/console/",
		"/console/..//evil.example": "/console/",
		"/other":                    "/console/", "javascript:alert(1)": "/console/",
	} {
		b := r.serve()
		b.post("/console/sign-in", "/console/sign-in", url.Values{"key": {k.Reveal()}, "next": {next}})
		if got := b.last.Header.Get("Location"); got != want {
			t.Errorf("after the sign-in for %q the browser goes to %q, want %q", next, got, want)
		}
	}
}
