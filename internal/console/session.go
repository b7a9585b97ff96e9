package console

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/term"
)

// How long a session lasts, and for how long a sign-in is recent.
const (
	sessionLife  = 12 * time.Hour
	personLife   = 4 * time.Hour // the identity provider may withdraw rights, and is asked again only at a sign-in
	recentSignIn = 5 * time.Minute
)

// A cookie with this prefix is accepted by browsers only from the host itself, over HTTPS.
const (
	sessionCookie = "__Host-a2ad-console"
	themeCookie   = "a2ad-theme"
	formToken     = "form_token"
	maxForm       = 1 << 20 // bytes of a form, which may have an answer of some length
	maxPublicForm = 8 << 10 // bytes of a form of a stranger
)

// errSignedOut says that the viewer must sign in.
var errSignedOut = errors.New("signed out")

// viewer is who looks at a page.
type viewer struct {
	principal auth.Principal
	token     string // of the session; empty: the console is open
	recent    bool   // the viewer has signed in a short time ago
	useDue    bool   // the use of the session is to be recorded
	FormToken string // for the forms of this session
	Theme     string // light or dark; empty: as the system
	Path      string // of the page
	Signed    bool

	shown shown
}

// Who names the viewer as the audit log does.
func (v *viewer) Who() string { return v.principal.Actor() }

// viewerOf returns who has sent a request, or errSignedOut.
func (c *Console) viewerOf(r *http.Request) (viewer, error) {
	v := c.stranger(r)
	if c.cfg.Open {
		p, err := auth.Anonymous{}.Authenticate(r)
		v.principal, v.recent = p, true
		return v, err
	}
	cookie, err := r.Cookie(sessionCookie)
	if err != nil || !c.made(cookie.Value) {
		return v, errSignedOut
	}
	s, err := c.cfg.Store.Access.FindSession(r.Context(), cookie.Value, recentSignIn)
	if errors.Is(err, access.ErrNoSession) {
		return v, errSignedOut
	}
	if err != nil {
		return v, err
	}
	if v.principal, err = c.principalOf(r, &s); err != nil {
		return v, err
	}
	v.token, v.FormToken, v.Signed, v.recent = cookie.Value, c.formTokenOf(cookie.Value), true, s.Recent
	v.useDue = s.UseDue
	return v, nil
}

// useTimeout bounds the record of the use of a session.
const useTimeout = time.Second

// unattended is a header of requests that a page makes by itself. They do not count as a use of the session.
const unattended = "X-A2ad-Unattended"

// use records that the viewer has used the session, so that it does not end for being idle. Pages can be read while the
// database accepts no changes.
func (c *Console) use(r *http.Request, v *viewer) {
	if !v.useDue || r.Header.Get(unattended) != "" {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), useTimeout)
	defer cancel()
	if err := c.cfg.Store.Access.UseSession(ctx, v.token); err != nil {
		c.cfg.Logger.DebugContext(ctx, "console", "err", err)
	}
}

// principalOf returns who has a session, or errSignedOut if its key is no longer good, or if people can no longer sign
// in with the identity provider.
func (c *Console) principalOf(r *http.Request, s *access.Session) (auth.Principal, error) {
	if s.KeyID == "" {
		if c.cfg.Provider == nil {
			return auth.Principal{}, errSignedOut
		}
		p := auth.Principal{
			Tenant: s.Tenant, Owner: s.Owner, Kind: auth.KindUser, Method: auth.MethodOIDC, Name: s.Subject,
		}
		for _, scope := range s.Scopes {
			p.Scopes = append(p.Scopes, auth.Scope(scope))
		}
		return p, nil
	}
	key, err := c.cfg.LookupKey(r.Context(), s.KeyID)
	if err != nil && !errors.Is(err, auth.ErrUnknownKey) {
		return auth.Principal{}, err
	}
	expired := !key.ExpiresAt.IsZero() && !time.Now().Before(key.ExpiresAt)
	if err != nil || !key.RevokedAt.IsZero() || expired || key.Agents != nil {
		return auth.Principal{}, errSignedOut
	}
	return auth.Principal{
		Tenant: key.Tenant, Owner: key.Owner, Kind: key.Kind, Scopes: key.Scopes, Method: auth.MethodAPIKey,
		KeyID: s.KeyID,
	}, nil
}

// openSession opens a session for the browser that has sent a request.
func (c *Console) openSession(q *request, n access.NewSession) error {
	secret := rand.Text() + rand.Text()
	n.Token = secret + "." + c.mac("session", secret)
	if err := c.cfg.Store.Access.OpenSession(q.Context(), n); err != nil {
		return err
	}
	http.SetCookie(q.w, sessionCookieOf(n.Token, int(n.Life.Seconds())))
	return nil
}

// made reports whether a token is one of openSession. So a stranger's token costs no read of the database.
func (c *Console) made(token string) bool {
	secret, mac, _ := strings.Cut(token, ".")
	return hmac.Equal([]byte(mac), []byte(c.mac("session", secret)))
}

func sessionCookieOf(value string, age int) *http.Cookie {
	return &http.Cookie{
		Name: sessionCookie, Value: value, Path: "/", MaxAge: age, Secure: true, HttpOnly: true,
		SameSite: http.SameSiteStrictMode,
	}
}

// stranger is the viewer of pages that need no session.
func (c *Console) stranger(r *http.Request) viewer {
	v := viewer{Path: r.URL.Path, FormToken: c.formTokenOf("")}
	if cookie, err := r.Cookie(themeCookie); err == nil && (cookie.Value == "light" || cookie.Value == "dark") {
		v.Theme = cookie.Value
	}
	return v
}

// formTokenOf returns the token that the forms of a session send: a page of another origin cannot know it.
func (c *Console) formTokenOf(session string) string { return c.mac("form", session) }

// mac returns a code of a text that only replicas of this server can make.
func (c *Console) mac(of, text string) string {
	mac := hmac.New(sha256.New, c.cfg.FormKey)
	mac.Write([]byte(of + "|" + text))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// readForm reads the form of a request, of at most limit bytes. Nothing else reads a body.
func (q *request) readForm(limit int64) error {
	if q.r.Method != http.MethodPost {
		q.r.Body = http.NoBody // FormValue reads the body of any method, without a limit
		return nil
	}
	q.r.Body = http.MaxBytesReader(q.w, q.r.Body, limit)
	parse := q.r.ParseForm
	if kind, _, _ := mime.ParseMediaType(q.r.Header.Get("Content-Type")); kind == "multipart/form-data" {
		parse = func() error { return q.r.ParseMultipartForm(limit) } // all of it stays in memory
	}
	if err := parse(); err != nil {
		return &problem{http.StatusBadRequest, "Not done", fmt.Sprintf(
			"The form could not be read, or is longer than %s.", term.Size(limit))}
	}
	return nil
}

// checkForm refuses a form that this session did not get from the console.
func (q *request) checkForm() error {
	if subtle.ConstantTimeCompare([]byte(q.r.PostForm.Get(formToken)), []byte(q.FormToken)) != 1 {
		return &problem{http.StatusForbidden, "Not done",
			"The form does not belong to your session. Go back, reload the page, and try again."}
	}
	return nil
}

// setTheme stores the choice of colors in the browser. It changes nothing on the server, so it needs no session.
func (c *Console) setTheme(q *request) error {
	theme := q.r.PostForm.Get("theme")
	if theme != "light" && theme != "dark" {
		return &problem{http.StatusBadRequest, "Not done", "The theme is light or dark."}
	}
	http.SetCookie(q.w, &http.Cookie{ //nolint:gosec // it is no secret, and must work over HTTP on loopback
		Name: themeCookie, Value: theme, Path: Prefix, MaxAge: 365 * 24 * 3600, HttpOnly: true,
		SameSite: http.SameSiteStrictMode,
	})
	http.Redirect(q.w, q.r, localPath(q.r.PostForm.Get("next")), http.StatusSeeOther)
	return nil
}
