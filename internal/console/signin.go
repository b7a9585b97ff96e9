package console

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/store/access"
)

// public serves a page that needs no session.
func (c *Console) public(h func(*request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q := &request{c.answer(w), r, c.stranger(r)}
		err := q.readForm(maxPublicForm)
		if err == nil {
			err = h(q)
		}
		if err != nil {
			c.fail(q.w, r, err)
		}
	}
}

// signInPage asks a person to sign in, or to do so again.
type signInPage struct {
	Next     string
	Refused  string
	Insecure bool
	Again    bool   // the viewer has a session, and must prove who it is
	Key      bool   // an API key is accepted
	Provider string // URL at which a sign-in with the identity provider begins; empty: none
	Host     string // of the identity provider
}

func (c *Console) showSignIn(q *request) error {
	if c.cfg.Open {
		http.Redirect(q.w, q.r, Prefix+"/", http.StatusFound)
		return nil
	}
	return c.renderSignIn(q, http.StatusOK, "")
}

func (c *Console) renderSignIn(q *request, status int, refused string) error {
	next := shortPath(localPath(q.r.FormValue("next")), maxNext)
	data := signInPage{
		Next: next, Refused: refused, Insecure: !c.secure(q.r), Key: true, Provider: c.providerLink(next, false),
	}
	if c.cfg.Provider != nil {
		data.Host = c.cfg.Provider.Host()
	}
	return c.renderStatus(q, status, "signin", "Sign in", data)
}

// signIn exchanges an API key for a session.
func (c *Console) signIn(q *request) error {
	if err := q.checkForm(); err != nil {
		return err
	}
	if c.cfg.Open || !c.secure(q.r) {
		return c.renderSignIn(q, http.StatusForbidden, "")
	}
	p, err := c.checkKey(q)
	var refused *auth.Error
	switch {
	case errors.As(err, &refused):
		return c.renderSignIn(q, http.StatusUnauthorized, textNoKey)
	case err != nil:
		return err
	case p.Method != auth.MethodAPIKey || p.Agents != nil || !mayEnter(&p):
		return c.renderSignIn(q, http.StatusForbidden,
			"The console needs a key for all agents with one of the scopes "+scopesOfEntry+".")
	}
	if err = c.count(&p, true); err == nil {
		err = c.openSession(q, keySession(&p))
	}
	if err != nil {
		return err
	}
	http.Redirect(q.w, q.r, localPath(q.r.PostForm.Get("next")), http.StatusSeeOther)
	return nil
}

const textNoKey = "This is no valid API key."

// checkKey checks the key of a form as that of any client: bad ones count for the address, and are recorded.
func (c *Console) checkKey(q *request) (auth.Principal, error) {
	r := q.r.Clone(q.Context())
	r.Header.Del("Authorization")
	r.Header.Set("X-Api-Key", strings.TrimSpace(q.r.PostForm.Get("key")))
	return c.cfg.SignIn(r)
}

func keySession(p *auth.Principal) access.NewSession {
	return access.NewSession{
		Session: access.Session{KeyID: p.KeyID, Tenant: p.Tenant, Owner: p.Owner},
		Life:    sessionLife, AuthenticatedAgo: new(time.Duration),
	}
}

// recently is for what cannot be undone, and for what gives rights: who does it has signed in a short time ago. Others
// do so again, and then see the page of the action with what they had written. What they sent is not carried out.
func (c *Console) recently(h func(*request) error) func(*request) error {
	return func(q *request) error {
		if q.recent {
			return h(q)
		}
		page := url.URL{Path: q.r.URL.Path, RawQuery: q.r.URL.RawQuery}
		if q.r.Method == http.MethodPost {
			written := url.Values{}
			for name, values := range q.r.PostForm {
				if name != formToken {
					written[name] = values
				}
			}
			page.RawQuery = written.Encode()
		}
		next := shortPath(page.String(), maxWritten)
		http.Redirect(q.w, q.r, Prefix+"/sign-in/again?next="+url.QueryEscape(next), http.StatusSeeOther)
		return nil
	}
}

// Bytes of a path to come back to. It is escaped once or twice on its way, each time to three times its length at most.
const (
	maxWritten = 4000    // with what was written in a form
	maxNext    = 2 << 10 // so that it fits into a form of a stranger, beside an API key
)

// shortPath returns a path without its query if it has more than limit bytes with it: a sign-in must not fail for it.
func shortPath(path string, limit int) string {
	if len(path) > limit {
		path, _, _ = strings.Cut(path, "?")
	}
	if len(path) > limit { // no page has such a path
		return Prefix + "/"
	}
	return path
}

// showAgain asks a viewer to sign in again.
func (c *Console) showAgain(q *request) error { return c.renderAgain(q, http.StatusOK, "") }

func (c *Console) renderAgain(q *request, status int, refused string) error {
	next := localPath(q.r.FormValue("next"))
	data := signInPage{Next: next, Refused: refused, Again: true, Key: q.principal.Method == auth.MethodAPIKey}
	if q.principal.Method == auth.MethodOIDC {
		data.Provider, data.Host = c.providerLink(next, true), c.cfg.Provider.Host()
	}
	return c.renderStatus(q, status, "signin", "Sign in again", data)
}

// signInAgain replaces the session by one that its key has just been shown for.
func (c *Console) signInAgain(q *request) error {
	if err := q.checkForm(); err != nil {
		return err
	}
	if q.principal.Method != auth.MethodAPIKey {
		return c.renderAgain(q, http.StatusForbidden, "")
	}
	p, err := c.checkKey(q)
	var refused *auth.Error
	switch {
	case errors.As(err, &refused):
		return c.renderAgain(q, http.StatusUnauthorized, textNoKey)
	case err != nil:
		return err
	case p.Method != auth.MethodAPIKey || p.KeyID != q.principal.KeyID:
		return c.renderAgain(q, http.StatusForbidden, "This is another key than the one that you signed in with.")
	}
	n := keySession(&p)
	n.Replaces = q.token
	if err := c.openSession(q, n); err != nil {
		return err
	}
	http.Redirect(q.w, q.r, localPath(q.r.PostForm.Get("next")), http.StatusSeeOther)
	return nil
}

// signOut ends the session. It counts against no limit and needs no page of the owner's share: whoever wants to end a
// session must be able to, however busy programs of the same owner are.
func (c *Console) signOut(q *request) error {
	v, err := c.viewerOf(q.r)
	if errors.Is(err, errSignedOut) {
		c.redirectToSignIn(q.w, q.r)
		return nil
	}
	if err != nil {
		return err
	}
	q.viewer = v
	if err := q.checkForm(); err != nil {
		return err
	}
	if q.token != "" {
		if err := c.cfg.Store.Access.EndSession(q.Context(), q.token); err != nil {
			return err
		}
	}
	http.SetCookie(q.w, sessionCookieOf("", -1))
	http.Redirect(q.w, q.r, Prefix+"/sign-in", http.StatusSeeOther)
	return nil
}

func (c *Console) redirectToSignIn(w http.ResponseWriter, r *http.Request) {
	next := ""
	if r.Method == http.MethodGet && r.URL.Path != Prefix+"/" {
		next = "?next=" + url.QueryEscape(shortPath(r.URL.RequestURI(), maxNext))
	}
	http.Redirect(w, r, Prefix+"/sign-in"+next, http.StatusSeeOther)
}

// localPath returns a path of the console to go to. Anything else becomes the start page, so that no link to the
// console leads to another site.
func localPath(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || strings.Contains(next, `\`) ||
		!strings.HasPrefix(u.Path, Prefix+"/") || strings.Contains(u.Path, "//") {
		return Prefix + "/"
	}
	return u.RequestURI()
}

// secure reports whether browsers keep the cookie of the session: over HTTPS, also where a proxy ends it, and on this
// machine.
func (c *Console) secure(r *http.Request) bool {
	host := hostOf(r.Host)
	public, err := url.Parse(c.cfg.PublicURL)
	proxied := err == nil && public.Scheme == "https" && strings.EqualFold(public.Hostname(), host)
	return r.TLS != nil || proxied || isLoopback(host)
}

// hostAllowed refuses other names for a console without sign-in: the page of an attacker may have pointed its own name
// at this machine (DNS rebinding), and would then be of the same origin as the console.
func (c *Console) hostAllowed(r *http.Request) bool {
	if !c.cfg.Open {
		return true
	}
	host := hostOf(r.Host)
	public, err := url.Parse(c.cfg.PublicURL)
	return isLoopback(host) || err == nil && public.Hostname() != "" && strings.EqualFold(public.Hostname(), host)
}

func hostOf(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.TrimSuffix(strings.Trim(host, "[]"), ".")
}

func isLoopback(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	return strings.EqualFold(host, "localhost")
}
