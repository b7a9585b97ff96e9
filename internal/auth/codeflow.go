package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// CodeFlowConfig says how people sign in at the issuer of tokens. ClientID and RedirectURL are required.
type CodeFlowConfig struct {
	ClientID     string
	ClientSecret string   // empty: a public client, which has only PKCE
	Scopes       []string // that are asked for; openid is always one of them
	RedirectURL  string   // where the issuer sends people back to

	Timeout time.Duration // of one request to the issuer; default 5 s
}

// CodeFlow signs people in with the authorization code flow of OpenID Connect, with PKCE (S256), state and nonce. It
// keeps nothing of a sign-in between Begin and Finish, so each may run in another replica. It is safe for concurrent
// use.
type CodeFlow struct {
	cfg    CodeFlowConfig
	issuer *issuer
	ids    *JWT // verifies ID tokens
	access *JWT // verifies access tokens
}

// NewCodeFlow returns a CodeFlow of the issuer of j. It maps claims as j does, and uses its keys.
func NewCodeFlow(j *JWT, cfg CodeFlowConfig) (*CodeFlow, error) {
	if cfg.ClientID == "" || !private(cfg.RedirectURL) {
		return nil, errors.New("auth: sign-in with the issuer needs a client id, and an https URL to come back to")
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = keysTimeout
	}
	if !slices.Contains(cfg.Scopes, "openid") {
		cfg.Scopes = append([]string{"openid"}, cfg.Scopes...)
	}
	ids := &JWT{cfg: j.cfg, keys: j.keys}
	ids.cfg.Audience = cfg.ClientID
	client := *j.keys.client
	client.Timeout = cfg.Timeout
	return &CodeFlow{cfg: cfg, ids: ids, access: j, issuer: &issuer{keys: j.keys, client: &client}}, nil
}

// Host returns the host of the issuer, which people know it by.
func (f *CodeFlow) Host() string {
	u, err := url.Parse(f.ids.cfg.Issuer)
	if err != nil {
		return f.ids.cfg.Issuer
	}
	return u.Host
}

// SignInAttempt is what Finish must know of Begin. It must be kept where only the browser of the person can present
// it, and must be used once.
type SignInAttempt struct {
	State, Nonce, Verifier string
	Begun                  time.Time
	Again                  bool // the issuer was told to ask for the person's credentials again
}

// SignInError says why a person was not signed in, in words for that person. Its reason is for logs only. Neither has
// any code, token or text of the issuer. It unwraps to an *Error if what the browser has sent was refused.
type SignInError struct {
	text, reason string
	refused      bool
}

// ErrSignInUsed is for a second answer to one SignInAttempt.
var ErrSignInUsed = &SignInError{"This sign-in was used before. Sign in again.", "an answer that was used", true}

func (e *SignInError) Error() string { return e.text }

// errRefusedAnswer has one reason for all answers, because whoever sends them chooses what is wrong with them.
var errRefusedAnswer = refuse("answer of the identity provider", "")

// Unwrap returns an *Error that counts as a failed sign-in, or nil: the issuer is the reason.
func (e *SignInError) Unwrap() error {
	if !e.refused {
		return nil
	}
	return errRefusedAnswer
}

// LogValue returns the reason.
func (e *SignInError) LogValue() slog.Value { return slog.StringValue(e.reason) }

func signInError(text, format string, args ...any) *SignInError {
	return &SignInError{text, fmt.Sprintf(format, args...), text != textUnreachable}
}

// Texts for people.
const (
	textStrange     = "The answer does not belong to a sign-in that this browser has begun. Begin again."
	textUnreachable = "The identity provider cannot be reached, or does not answer as it should. Try again later."
	textInvalid     = "The identity provider sent an answer that is not valid for this server."
	textNotAgain    = "The identity provider did not ask you for your credentials again, or does not say when it " +
		"did. Use an API key for this action."
)

// Begin begins a sign-in: the person must go to the URL. With again, the issuer is told to ask for the credentials even
// if it knows the person. The error is a *SignInError.
func (f *CodeFlow) Begin(ctx context.Context, again bool) (a SignInAttempt, to string, err error) {
	at, err := f.issuer.endpoints(ctx)
	if err != nil {
		return a, "", signInError(textUnreachable, "discover issuer: %v", err)
	}
	a = SignInAttempt{
		State: rand.Text(), Nonce: rand.Text(), Verifier: rand.Text() + rand.Text(), Begun: f.ids.cfg.now(),
		Again: again,
	}
	u, err := url.Parse(at.authorization)
	if err != nil {
		return a, "", signInError(textUnreachable, "its authorization endpoint is no URL")
	}
	sum := sha256.Sum256([]byte(a.Verifier))
	q := u.Query()
	for name, value := range map[string]string{
		"response_type": "code", "client_id": f.cfg.ClientID, "redirect_uri": f.cfg.RedirectURL,
		"scope": strings.Join(f.cfg.Scopes, " "), "state": a.State, "nonce": a.Nonce,
		"code_challenge": base64.RawURLEncoding.EncodeToString(sum[:]), "code_challenge_method": "S256",
	} {
		q.Set(name, value)
	}
	if again {
		q.Set("prompt", "login")
		q.Set("max_age", "0")
	}
	u.RawQuery = q.Encode()
	return a, u.String(), nil
}

// SignedIn is a person whom the issuer has signed in.
type SignedIn struct {
	Principal Principal
	// Authenticated is when the issuer last asked for the person's credentials; zero: it does not say.
	Authenticated time.Time
}

// Finish finishes a sign-in with what the issuer has sent to the redirect URL. The scopes are those of the ID token
// and, if the access token would sign the person in at the API, those of the access token. An error that is for the
// person is a *SignInError.
func (f *CodeFlow) Finish(ctx context.Context, a SignInAttempt, answer url.Values) (SignedIn, error) {
	for _, name := range []string{"state", "iss", "error", "code"} {
		if len(answer[name]) > 1 {
			return SignedIn{}, signInError(textStrange, "repeated parameter %s", name)
		}
	}
	if a.State == "" || subtle.ConstantTimeCompare([]byte(answer.Get("state")), []byte(a.State)) != 1 {
		return SignedIn{}, signInError(textStrange, "another state")
	}
	at, err := f.issuer.endpoints(ctx)
	if err != nil {
		return SignedIn{}, signInError(textUnreachable, "discover issuer: %v", err)
	}
	if iss := answer.Get("iss"); iss != f.ids.cfg.Issuer && (iss != "" || at.namesItself) {
		return SignedIn{}, signInError(textInvalid, "the answer is of another issuer")
	}
	if answer.Has("error") {
		return SignedIn{}, refusedBy(answer.Get("error"))
	}
	if answer.Get("code") == "" {
		return SignedIn{}, signInError(textInvalid, "no code")
	}
	tokens, err := f.issuer.exchange(ctx, at, f.cfg, answer.Get("code"), a.Verifier)
	if err != nil {
		failed := signInError(textUnreachable, "exchange the code: %v", err)
		failed.refused = errors.Is(err, errBadCode)
		return SignedIn{}, failed
	}
	return f.person(ctx, a, tokens)
}

// refusedBy explains an error code of the issuer. Its description is not shown: whoever made the URL may have written
// it.
func refusedBy(code string) *SignInError {
	texts := map[string]string{
		"access_denied":           "The identity provider refused the sign-in, or you canceled it.",
		"login_required":          "The identity provider needs you to sign in there first.",
		"interaction_required":    "The identity provider needs you to sign in there first.",
		"consent_required":        "The identity provider needs your consent first.",
		"temporarily_unavailable": textUnreachable,
		"server_error":            textUnreachable,
	}
	text, ok := texts[code]
	if !ok {
		text = "The identity provider does not accept how this server asks. Its operator finds the reason in the log."
	}
	return signInError(text, "the issuer answered with the error %s", word(code))
}

// word returns a code of an issuer for logs, if it is one.
func word(code string) string {
	const letters = "abcdefghijklmnopqrstuvwxyz_"
	if code == "" || len(code) > 40 || strings.Trim(code, letters) != "" {
		return "(none that is known)"
	}
	return code
}

// person verifies the ID token and returns whom it names.
func (f *CodeFlow) person(ctx context.Context, a SignInAttempt, tokens members) (SignedIn, error) {
	claims, err := f.ids.verify(ctx, tokens.text("id_token"))
	if err != nil {
		return SignedIn{}, refusedToken(err)
	}
	audiences, _ := claims.texts("aud")
	switch party := claims.text("azp"); {
	case subtle.ConstantTimeCompare([]byte(claims.text("nonce")), []byte(a.Nonce)) != 1:
		return SignedIn{}, signInError(textInvalid, "ID token with another nonce")
	case party != f.cfg.ClientID && (party != "" || len(audiences) > 1):
		return SignedIn{}, signInError(textInvalid, "ID token for another client")
	case claims.text("sub") == "":
		return SignedIn{}, signInError(textInvalid, "ID token without a subject")
	}
	asked, there, ok := claims.seconds("auth_time")
	if !ok {
		return SignedIn{}, signInError(textInvalid, "malformed auth_time")
	}
	s := SignedIn{}
	if there {
		s.Authenticated = time.Unix(int64(asked), 0)
	}
	now := f.ids.cfg.now()
	if a.Again && (s.Authenticated.Before(a.Begun.Add(-tokenLeeway)) || s.Authenticated.After(now.Add(tokenLeeway))) {
		return SignedIn{}, signInError(textNotAgain, "auth_time is missing, or not of this sign-in")
	}
	if s.Principal, err = f.ids.principal(claims); err != nil {
		return SignedIn{}, refusedToken(err)
	}
	p := &s.Principal
	p.Method, p.Kind, p.Until = MethodOIDC, KindUser, time.Time{}
	// An access token of the API permits what it would permit there. Any other says nothing to this server.
	access, err := f.access.verify(ctx, tokens.text("access_token"))
	if err == nil && access.text("sub") == claims.text("sub") {
		for _, scope := range f.access.scopes(access) {
			if !p.Has(scope) {
				p.Scopes = append(p.Scopes, scope)
			}
		}
	}
	return s, nil
}

func refusedToken(err error) *SignInError {
	var refused *Error
	if errors.As(err, &refused) {
		return signInError(textInvalid, "ID token: %s", refused.reason)
	}
	return signInError(textUnreachable, "ID token: %v", errors.Unwrap(err))
}

// endpointsOf is how an issuer signs people in.
type endpointsOf struct {
	authorization, token string
	namesItself          bool // it always sends iss (RFC 9207)
	basic                bool // it accepts the secret in a header; else in the form
}

// issuer asks an identity provider what is not about one token.
type issuer struct {
	keys   *keySet
	client *http.Client

	mu    sync.Mutex
	known endpointsOf // guarded by mu
	err   error       // guarded by mu; of the last attempt to read known
	until time.Time   // guarded by mu; when known or err is too old
}

// endpoints returns the endpoints that the issuer publishes. It asks at most once in ten seconds, whoever wants to sign
// in.
func (i *issuer) endpoints(ctx context.Context) (endpointsOf, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := i.keys.now()
	if now.Before(i.until) {
		return i.known, i.err
	}
	// Others wait for the same answer; the client has a timeout.
	doc, err := i.keys.discover(context.WithoutCancel(ctx), i.client)
	if err == nil {
		i.known, i.err = readEndpoints(doc)
	} else {
		i.known, i.err = endpointsOf{}, err
	}
	i.until = now.Add(keysFresh)
	if i.err != nil {
		i.until = now.Add(keysCooldown)
	}
	return i.known, i.err
}

func readEndpoints(doc members) (endpointsOf, error) {
	at := endpointsOf{authorization: doc.text("authorization_endpoint"), token: doc.text("token_endpoint")}
	for _, u := range []string{at.authorization, at.token} {
		if !private(u) {
			return endpointsOf{}, fmt.Errorf("an endpoint is at %q, which is not https", u)
		}
	}
	at.namesItself = string(doc["authorization_response_iss_parameter_supported"]) == "true"
	methods, ok := doc.texts("token_endpoint_auth_methods_supported")
	if !ok {
		return endpointsOf{}, errors.New("token_endpoint_auth_methods_supported is no list")
	}
	at.basic = methods == nil || slices.Contains(methods, "client_secret_basic")
	return at, nil
}

// errBadCode says that the issuer does not know a code.
var errBadCode = errors.New("status 400, error invalid_grant")

// exchange exchanges a code for tokens.
func (i *issuer) exchange(
	ctx context.Context, at endpointsOf, c CodeFlowConfig, code, verifier string,
) (members, error) {
	form := url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {c.RedirectURL},
		"code_verifier": {verifier},
	}
	basic := c.ClientSecret != "" && at.basic
	if !basic {
		form.Set("client_id", c.ClientID)
		if c.ClientSecret != "" {
			form.Set("client_secret", c.ClientSecret)
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at.token, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	if basic {
		req.SetBasicAuth(url.QueryEscape(c.ClientID), url.QueryEscape(c.ClientSecret)) // RFC 6749, section 2.3.1
	}
	status, body, err := do(i.client, req)
	if err != nil {
		return nil, err
	}
	doc, err := readMembers(body)
	switch {
	case status == http.StatusBadRequest && err == nil && doc.text("error") == "invalid_grant":
		return nil, errBadCode
	case status != http.StatusOK && err == nil:
		return nil, fmt.Errorf("status %d, error %s", status, word(doc.text("error")))
	case status != http.StatusOK:
		return nil, fmt.Errorf("status %d", status)
	case err != nil:
		return nil, errors.New("the answer is not JSON")
	case doc.text("id_token") == "":
		return nil, errors.New("the answer has no ID token")
	}
	return doc, nil
}
