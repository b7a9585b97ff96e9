package console

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/store/access"
)

const (
	callbackPath = Prefix + "/sign-in/callback"
	// attemptCookie has a sign-in that has begun. The browser must send it when it comes back from another site, so it
	// is SameSite=Lax; the cookie of the session stays Strict.
	attemptCookie = "__Host-a2ad-console-signin"
	attemptLife   = 10 * time.Minute
	maxAttempt    = 3800 // bytes of the cookie, of which browsers keep 4096 with its name
	maxSignIns    = 8    // that wait for the identity provider at once
)

// CallbackURL returns where the identity provider sends people back to, for a server with a public URL.
func CallbackURL(public string) string { return public + callbackPath }

// attempt is a sign-in with the identity provider that has begun. Any replica can finish it.
type attempt struct {
	auth.SignInAttempt
	Next string
	// Of the session that this sign-in confirms: only the same person may, and the new session replaces it.
	Token, Tenant, Owner, Subject string
}

// newSealer returns what encrypts attempts, with a key that all replicas derive from the key of forms.
func newSealer(formKey []byte) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, formKey, nil, "a2ad console sign-in", 32)
	if err != nil {
		return nil, fmt.Errorf("derive key: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("derive key: %w", err)
	}
	return cipher.NewGCMWithRandomNonce(block)
}

func (c *Console) sealAttempt(a *attempt) (string, error) {
	text, err := json.Marshal(a)
	if err != nil {
		return "", fmt.Errorf("encode sign-in: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(c.sealer.Seal(nil, nil, text, []byte(attemptCookie))), nil
}

// openAttempt returns the sign-in that the browser has begun, if it is not too old.
func (c *Console) openAttempt(r *http.Request) (a attempt, ok bool) {
	cookie, err := r.Cookie(attemptCookie)
	if err != nil {
		return a, false
	}
	sealed, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	if err != nil {
		return a, false
	}
	text, err := c.sealer.Open(nil, nil, sealed, []byte(attemptCookie))
	if err != nil || json.Unmarshal(text, &a) != nil {
		return a, false
	}
	return a, time.Since(a.Begun) < attemptLife
}

// beginSignIn sends the browser to the identity provider. It is a link and no form, because the policy of pages lets no
// form lead to another host.
func (c *Console) beginSignIn(q *request) error {
	if c.cfg.Open || c.cfg.Provider == nil {
		return errNotFound
	}
	if !c.secure(q.r) {
		return c.renderSignIn(q, http.StatusForbidden, "")
	}
	a := attempt{Next: q.r.FormValue("next")}
	if q.r.FormValue("again") != "" {
		v, err := c.viewerOf(q.r)
		if err != nil && !errors.Is(err, errSignedOut) {
			return err
		}
		if a.Again = err == nil && v.principal.Method == auth.MethodOIDC; a.Again {
			p := &v.principal
			a.Token, a.Tenant, a.Owner, a.Subject = v.token, p.Tenant, p.Owner, p.Name
		}
	}
	made, to, err := c.cfg.Provider.Begin(q.Context(), a.Again)
	if err != nil {
		return c.refuseSignIn(q, err)
	}
	a.SignInAttempt = made
	sealed, err := c.sealAttempt(&a)
	if err == nil && len(sealed) > maxAttempt { // rather lose what was written than the sign-in
		a.Next, _, _ = strings.Cut(a.Next, "?")
		if sealed, err = c.sealAttempt(&a); len(sealed) > maxAttempt {
			return errNotFound // no page has such a path
		}
	}
	if err != nil {
		return err
	}
	http.SetCookie(q.w, attemptCookieOf(sealed, int(attemptLife.Seconds())))
	http.Redirect(q.w, q.r, to, http.StatusSeeOther)
	return nil
}

func attemptCookieOf(value string, age int) *http.Cookie {
	return &http.Cookie{
		Name: attemptCookie, Value: value, Path: "/", MaxAge: age, Secure: true, HttpOnly: true,
		SameSite: http.SameSiteLaxMode,
	}
}

// finishSignIn takes the answer of the identity provider, and opens a session for the person.
func (c *Console) finishSignIn(q *request) error {
	answer := q.r.URL.Query()
	q.r = q.r.Clone(q.Context())
	q.r.URL.RawQuery, q.r.Form = "", nil // no page may show the code
	if c.cfg.Open || c.cfg.Provider == nil {
		return errNotFound
	}
	http.SetCookie(q.w, attemptCookieOf("", -1))
	a, ok := c.openAttempt(q.r)
	if !ok {
		return c.renderSignIn(q, http.StatusForbidden, "This browser has begun no sign-in, or began it more than 10 "+
			"minutes ago. Sign in here.")
	}
	person, err := c.exchange(q, &a, answer)
	if err != nil {
		return c.refuseSignIn(q, err)
	}
	return c.admit(q, &a, &person)
}

// exchange has the identity provider say who has come back. An answer that is refused counts for its address as a bad
// API key does: whoever has begun a sign-in could make the server ask the provider about any number of made-up codes.
func (c *Console) exchange(q *request, a *attempt, answer url.Values) (person auth.SignedIn, err error) {
	r := q.r.Clone(q.Context())
	r.Header.Del("X-Api-Key")
	r.Header.Set("Authorization", "Code "+answer.Get("code"))
	_, err = c.cfg.SignInByCode(func(*http.Request) (auth.Principal, error) {
		select {
		case c.signIns <- struct{}{}:
			defer func() { <-c.signIns }()
		default:
			return auth.Principal{}, errBusy
		}
		// The state is used up before the provider is asked: a second answer with it is refused, whatever became of the
		// first.
		first, err := c.cfg.Store.Access.UseSignIn(q.Context(), a.State, 2*attemptLife)
		if err == nil && !first {
			err = auth.ErrSignInUsed
		}
		if err == nil {
			person, err = c.cfg.Provider.Finish(q.Context(), a.SignInAttempt, answer)
		}
		return person.Principal, err
	}, r)
	return person, err
}

// admit opens the session of a person whom the identity provider has signed in.
func (c *Console) admit(q *request, a *attempt, person *auth.SignedIn) error {
	p := &person.Principal
	if a.Token != "" && (p.Tenant != a.Tenant || p.Owner != a.Owner || p.Name != a.Subject) {
		return c.renderSignIn(q, http.StatusForbidden, fmt.Sprintf(
			"You have signed in as %s/%s, and the session is that of %s/%s. Sign out first.",
			p.Tenant, p.Owner, a.Tenant, a.Owner))
	}
	if !mayEnter(p) {
		return c.renderSignIn(q, http.StatusForbidden, fmt.Sprintf("The identity provider knows you as %s/%s, but "+
			"gives you none of the scopes %s. Ask whoever manages your rights there for one of them.", p.Tenant,
			p.Owner, scopesOfEntry))
	}
	n := access.NewSession{
		Session: access.Session{Tenant: p.Tenant, Owner: p.Owner, Subject: p.Name}, Life: personLife, Replaces: a.Token,
	}
	for _, s := range p.Scopes {
		n.Scopes = append(n.Scopes, string(s))
	}
	if !person.Authenticated.IsZero() {
		n.AuthenticatedAgo = new(time.Since(person.Authenticated))
	}
	err := c.count(p, true)
	if err == nil {
		err = c.openSession(q, n)
	}
	if err != nil {
		return err
	}
	// A redirect would still count as a navigation from the provider's site, for which browsers keep back the strict
	// cookie. A page of this site that leads on does not.
	return c.render(q, "signedin", "Signed in", onward(localPath(a.Next)))
}

// refuseSignIn shows why the identity provider has not signed a person in, and logs it.
func (c *Console) refuseSignIn(q *request, err error) error {
	var refused *auth.SignInError
	if !errors.As(err, &refused) {
		return err
	}
	c.cfg.Logger.WarnContext(q.Context(), "sign-in with the identity provider", "request_id",
		q.w.Header().Get("X-Request-Id"), "err", refused)
	return c.renderSignIn(q, http.StatusForbidden, refused.Error())
}

// providerLink returns the URL at which a sign-in begins; empty: there is no identity provider. It is below the public
// URL, because the browser comes back there and must have the cookie.
func (c *Console) providerLink(next string, again bool) string {
	if c.cfg.Provider == nil {
		return ""
	}
	query := url.Values{"next": {next}}
	if again {
		query.Set("again", "1")
	}
	return strings.TrimSuffix(c.cfg.PublicURL, "/") + Prefix + "/sign-in/provider?" + query.Encode()
}
