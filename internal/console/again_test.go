package console_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
)

// age lets time pass since all sign-ins.
func (r *rig) age() {
	r.Exec(`UPDATE a2a.browser_sessions SET authenticated_at = authenticated_at - interval '6 minutes'`)
}

// again returns where the browser must sign in again, for an answer that asks for it; else "".
func (b *browser) again() string {
	at := b.last.Header.Get("Location")
	if b.last.StatusCode != http.StatusSeeOther || !strings.HasPrefix(at, "/console/sign-in/again?next=") {
		return ""
	}
	return at
}

// TestActionsThatNeedARecentSignIn: an old session can neither see nor send the form of any of them.
func TestActionsThatNeedARecentSignIn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	task, k := r.NewTask(), r.key(append(everything, auth.ScopeTasksWrite)...)
	purge := "/console/tasks/" + task.String() + "/purge"
	b, other := r.serve(), r.serve()
	b.mustSignIn(k)
	other.mustSignIn(k)
	session := r.Column(`SELECT id FROM a2a.browser_sessions ORDER BY created_at DESC LIMIT 1`)[0]
	forms := map[string]url.Values{
		purge:                   {},
		"/console/keys/new":     {"tenant": {"acme"}, "owner": {"new"}, "scope": {"tasks:read"}, "life": {"1 day"}},
		"/console/keys/revoke":  {"id": {r.key(everything...).ID()}},
		"/console/sessions/end": {"id": {session}},
	}
	r.age()
	before := r.Column(`SELECT count(*)::text FROM a2a.audit_log`)[0]
	for path, form := range forms {
		form.Set("reason", "because")
		b.get(path + "?" + form.Encode())
		if b.again() == "" {
			t.Errorf("GET %s with an old sign-in answered %d", path, b.last.StatusCode)
		}
		b.post("/console/keys", path, form)
		at := b.again()
		if at == "" {
			t.Fatalf("POST %s with an old sign-in answered %d", path, b.last.StatusCode)
		}
		next, err := url.Parse(at)
		if err != nil {
			t.Fatal(err)
		}
		page, err := url.Parse(next.Query().Get("next"))
		if err != nil || page.Path != path || page.Query().Get("reason") != "because" ||
			page.Query().Has("form_token") {
			t.Errorf("after the sign-in the browser goes to %s", page)
		}
	}
	if after := r.Column(`SELECT count(*)::text FROM a2a.audit_log`)[0]; after != before {
		t.Errorf("the audit log grew from %s to %s", before, after)
	}
	if r.Snapshot(task).Status.State == a2a.StateCanceled {
		t.Error("the task was canceled")
	}

	b.post("/console/sign-in/again", "/console/sign-in/again", url.Values{"key": {k.Reveal()}, "next": {purge}})
	if at := b.last.Header.Get("Location"); at != purge {
		t.Fatalf("after the sign-in the browser goes to %q", at)
	}
	for path, form := range forms {
		page := path
		if id := form.Get("id"); id != "" {
			page += "?id=" + id
		}
		status, body := b.post(page, path, form)
		if want := path == "/console/keys/new"; (status == http.StatusOK) != want || !want && status !=
			http.StatusSeeOther {
			t.Errorf("POST %s after the sign-in answered %d: %s", path, status, body)
		}
	}
	const did = `SELECT action || ' ' || actor || ' ' || (detail->>'reason') FROM a2a.audit_log
		WHERE action IN ('task.purge', 'key.create', 'key.revoke', 'session.revoke') AND detail->>'reason' <> ''
		ORDER BY action`
	by := " key " + k.ID() + " because"
	if got, want := strings.Join(r.Column(did), "\n"), "key.create"+by+"\nkey.revoke"+by+"\nsession.revoke"+by+
		"\ntask.purge"+by; got != want {
		t.Errorf("the audit log has\n%s\nwant\n%s", got, want)
	}
	if status, _ := other.get("/console/tasks"); status != http.StatusSeeOther {
		t.Errorf("the session that was ended still works: %d", status)
	}
}

func TestKeyConfirmsItsOwnSessionOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b, k := r.serve(), r.key(everything...)
	b.mustSignIn(k)
	old := b.cookies[cookieName]
	r.age()
	for status, key := range map[int]string{
		http.StatusForbidden: r.key(everything...).Reveal(), http.StatusUnauthorized: "a2ad_x",
	} {
		if got, body := b.post("/console/sign-in/again", "/console/sign-in/again", url.Values{"key": {key}}); got !=
			status || b.cookies[cookieName] != old {
			t.Errorf("another key answered %d, want %d: %s", got, status, body)
		}
	}
	b.post("/console/sign-in/again", "/console/sign-in/again", url.Values{"key": {k.Reveal()}, "next": {"//evil"}})
	if at := b.last.Header.Get("Location"); at != "/console/" || b.cookies[cookieName] == old {
		t.Errorf("the browser goes to %q, with the same session: %t", at, b.cookies[cookieName] == old)
	}
	b.page("/console/keys/new")
	b.cookies[cookieName] = old
	if status, _ := b.get("/console/tasks"); status != http.StatusSeeOther {
		t.Errorf("the session that was replaced still works: %d", status)
	}
}

// TestPersonConfirmsWithTheProvider: the provider is told to ask again, and must say when it has.
func TestPersonConfirmsWithTheProvider(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.newPeople(everything...)
	b := r.serve(p.change)
	b.comeBack(b.begin(p, "")) // the provider knew ann, and does not say since when
	old := b.cookies[cookieName]
	b.get("/console/keys/new?owner=carl")
	at := b.again()
	if at == "" {
		t.Fatalf("a session whose age is not known answered %d", b.last.StatusCode)
	}
	link := regexp.MustCompile(`href="https://127\.0\.0\.1(/console/sign-in/provider\?[^"]+)"`).FindStringSubmatch(
		b.page(at))
	if link == nil || strings.Contains(b.page(at), `name="key"`) {
		t.Fatalf("the page offers %q: %s", link, b.page(at))
	}
	query := strings.ReplaceAll(strings.TrimPrefix(link[1], "/console/sign-in/provider?"), "&amp;", "&")

	scope := p.Claims["scope"]
	for name, claims := range map[string]map[string]any{
		"its provider did not ask":  {"scope": scope, "auth_time": 1},
		"its provider says nothing": {"scope": scope, "auth_time": nil},
		"of another person":         {"scope": scope, "sub": "bob"},
	} {
		p.Claims = claims
		status, body := b.comeBack(b.begin(p, query))
		if status != http.StatusForbidden || b.cookies[cookieName] != old {
			t.Errorf("a sign-in %s answered %d: %s", name, status, body)
		}
	}
	p.Claims = map[string]any{"scope": scope}
	status, body := b.comeBack(b.begin(p, query))
	if status != http.StatusOK || !strings.Contains(body, `content="0;url=/console/keys/new?owner=carl"`) {
		t.Fatalf("the callback answered %d: %s", status, body)
	}
	if body := b.page("/console/keys/new?owner=carl"); !strings.Contains(body, `value="carl"`) {
		t.Errorf("what was written is lost: %s", body)
	}
	if n := r.Column(`SELECT count(*)::text FROM a2a.browser_sessions`)[0]; n != "1" {
		t.Errorf("%s sessions are left, want the new one", n)
	}
}

func TestNewKeyIsShownOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := r.serve()
	b.mustSignIn(r.key(everything...))
	form := func() url.Values {
		return url.Values{"tenant": {"acme"}, "owner": {"carl"}, "scope": {"tasks:read", "tenant:read"},
			"life": {"1 day"}, "reason": {"he asked"}, "name": {"laptop"}}
	}
	status, body := b.post("/console/keys/new", "/console/keys/new", form())
	secret := regexp.MustCompile(`a2ad_live_[A-Za-z0-9_]+`).FindString(body)
	if status != http.StatusOK || secret == "" {
		t.Fatalf("got %d: %s", status, body)
	}
	made := r.serve()
	if status, body := made.post("/console/sign-in", "/console/sign-in", url.Values{"key": {secret}}); status !=
		http.StatusSeeOther {
		t.Errorf("the new key signs in with %d: %s", status, body)
	}
	if page := b.page("/console/keys"); strings.Contains(page, secret) || !strings.Contains(page, "laptop") {
		t.Errorf("the list shows %s", page)
	}
	for name, spoil := range map[string]func(url.Values){
		"no owner":      func(v url.Values) { v.Set("owner", " ") },
		"no scope":      func(v url.Values) { v.Del("scope") },
		"unknown scope": func(v url.Values) { v.Set("scope", "root") },
		"unknown life":  func(v url.Values) { v.Set("life", "2 years") },
		"no reason":     func(v url.Values) { v.Set("reason", " ") },
		"long name":     func(v url.Values) { v.Set("name", strings.Repeat("x", 201)) },
	} {
		f := form()
		spoil(f)
		status, body := b.post("/console/keys/new", "/console/keys/new", f)
		if status != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	weak := r.serve()
	weak.mustSignIn(r.key(auth.ScopeTenantRead, auth.ScopeOperatorWrite))
	if status, _ := weak.get("/console/keys"); status != http.StatusForbidden {
		t.Errorf("the keys of all tenants are shown to support staff: %d", status)
	}
	id := r.Column(`SELECT id FROM a2a.api_keys WHERE owner = 'carl'`)[0]
	session := r.Column(`SELECT id FROM a2a.browser_sessions WHERE owner = 'carl'`)[0]
	for _, path := range []string{"/keys/new", "/keys/revoke?id=" + id, "/sessions/end?id=" + session} {
		status, body := weak.get("/console" + path)
		if status != http.StatusForbidden || strings.Contains(body, "carl") {
			t.Errorf("support staff gets %d from %s: %s", status, path, body)
		}
	}
	f := form()
	f.Set("scope", "operator:read")
	if status, _ := weak.post("/console/tasks", "/console/keys/new", f); status != http.StatusForbidden {
		t.Errorf("a key with a scope that its maker lacks: %d", status)
	}
	if n := r.Column(`SELECT count(*)::text FROM a2a.api_keys WHERE owner = 'carl'`)[0]; n != "1" {
		t.Errorf("there are %s keys, want 1", n)
	}
}
