package auth_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/auth/authtest"
)

const backTo = "https://a2ad.example/console/sign-in/callback"

// newFlow returns a flow of a provider.
func newFlow(t *testing.T, p *authtest.Provider, change ...func(*auth.JWTConfig, *auth.CodeFlowConfig)) *auth.CodeFlow {
	t.Helper()
	tokens := auth.JWTConfig{Issuer: p.URL, Audience: "a2ad"}
	cfg := auth.CodeFlowConfig{ClientID: authtest.ClientID, ClientSecret: authtest.ClientSecret, RedirectURL: backTo}
	for _, c := range change {
		c(&tokens, &cfg)
	}
	j, err := auth.NewJWT(tokens)
	if err != nil {
		t.Fatal(err)
	}
	f, err := auth.NewCodeFlow(j, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// signIn plays a whole sign-in. spoil, if not nil, changes what comes back.
func signIn(t *testing.T, p *authtest.Provider, f *auth.CodeFlow, again bool, spoil func(url.Values)) (auth.SignedIn,
	error) {
	t.Helper()
	a, to, err := f.Begin(t.Context(), again)
	if err != nil {
		return auth.SignedIn{}, err
	}
	answer := p.Authorize(to).Query()
	if spoil != nil {
		spoil(answer)
	}
	return f.Finish(t.Context(), a, answer)
}

// refusedFor checks that a person was not signed in, for a reason that the log has, and that neither the log nor the
// person sees anything secret.
func refusedFor(t *testing.T, p *authtest.Provider, err error, reason string) {
	t.Helper()
	var refused *auth.SignInError
	if !errors.As(err, &refused) {
		t.Errorf("got %v, want a refusal for %q", err, reason)
		return
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "err", refused)
	if !strings.Contains(log.String(), reason) {
		t.Errorf("the log has %s, want %q", log.String(), reason)
	}
	for _, form := range p.Asked() {
		for _, secret := range []string{form.Get("code"), form.Get("code_verifier"), authtest.ClientSecret} {
			if strings.Contains(log.String()+err.Error(), secret) {
				t.Errorf("%q and %q have the secret %q", log.String(), err, secret)
			}
		}
	}
}

func TestCodeFlowSignsAPersonIn(t *testing.T) {
	t.Parallel()
	p := authtest.NewProvider(t)
	asked := time.Now().Add(-time.Hour).Truncate(time.Second)
	p.Claims = map[string]any{"org": "acme", "email": "ann@acme.example", "roles": []string{"operator:read", "other"},
		"auth_time": asked.Unix(), "azp": authtest.ClientID}
	f := newFlow(t, p, func(j *auth.JWTConfig, c *auth.CodeFlowConfig) {
		j.TenantClaim, j.OwnerClaims, j.ScopeClaims = "org", []string{"email"}, []string{"roles"}
		j.Scopes = []auth.Scope{auth.ScopeTasksWrite}
		c.Scopes = []string{"email"}
	})
	_, to, err := f.Begin(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	if q := u.Query(); q.Get("scope") != "openid email" || q.Has("prompt") || len(q.Get("code_challenge")) != 43 {
		t.Errorf("the browser is sent to %s", to)
	}
	got, err := signIn(t, p, f, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := auth.Principal{Tenant: "acme", Owner: "ann@acme.example", Kind: auth.KindUser, Method: auth.MethodOIDC,
		Name: "ann", Scopes: []auth.Scope{auth.ScopeTasksWrite, auth.ScopeOperatorRead}}
	if fmt.Sprint(got.Principal) != fmt.Sprint(want) || !got.Authenticated.Equal(asked) {
		t.Errorf("got %+v, want %+v, asked at %s", got, want, asked)
	}
	if a := got.Principal.Actor(); a != "oidc ann" {
		t.Errorf("the audit log names the person %q", a)
	}
}

// TestClientCredentials: the secret is sent as the provider wants it, and a public client has none.
func TestClientCredentials(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		methods []string
		public  bool
		inForm  bool
	}{
		"not said": {nil, false, false},
		"basic":    {[]string{"client_secret_post", "client_secret_basic"}, false, false},
		"post":     {[]string{"client_secret_post"}, false, true},
		"public":   {[]string{"none"}, true, false},
	} {
		p := authtest.NewProvider(t)
		p.Public = tc.public
		if tc.methods != nil {
			p.Metadata = map[string]any{"token_endpoint_auth_methods_supported": tc.methods}
		}
		f := newFlow(t, p, func(_ *auth.JWTConfig, c *auth.CodeFlowConfig) {
			if tc.public {
				c.ClientSecret = ""
			}
		})
		if _, err := signIn(t, p, f, false, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if form := p.Asked()[0]; form.Has("client_secret") != tc.inForm {
			t.Errorf("%s: the form is %v", name, form)
		}
	}
}

// TestScopesOfTheAccessToken: it counts if it would sign the same person in at the API, and is ignored otherwise.
func TestScopesOfTheAccessToken(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change map[string]any
		counts bool
	}{
		"of the API":        {map[string]any{"aud": "a2ad", "scope": "operator:read"}, true},
		"for another API":   {map[string]any{"aud": "graph", "scope": "operator:read"}, false},
		"of another person": {map[string]any{"aud": "a2ad", "sub": "bob", "scope": "operator:read"}, false},
		"expired":           {map[string]any{"aud": "a2ad", "exp": 1, "scope": "operator:read"}, false},
	} {
		p := authtest.NewProvider(t)
		p.Claims, p.Access = map[string]any{"scope": "tasks:write"}, p.Sign(tc.change)
		got, err := signIn(t, p, newFlow(t, p), false, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if has := got.Principal.Has(auth.ScopeOperatorRead); has != tc.counts ||
			!got.Principal.Has(auth.ScopeTasksWrite) {
			t.Errorf("an access token %s: scopes %v", name, got.Principal.Scopes)
		}
	}
}

func TestCodeFlowRefusesBadTokens(t *testing.T) {
	t.Parallel()
	for reason, claims := range map[string]map[string]any{
		"another nonce":                 {"nonce": "of another sign-in"},
		"for another audience":          {"aud": "a2ad"},
		"token of another issuer":       {"iss": "https://evil.example"},
		"expired token":                 {"exp": time.Now().Add(-2 * time.Minute).Unix()},
		"token of the future":           {"iat": time.Now().Add(2 * time.Minute).Unix()},
		"for another client":            {"azp": "other"},
		"ID token for another client":   {"aud": []string{authtest.ClientID, "other"}},
		"without a subject":             {"sub": nil, "client_id": "x"},
		"malformed auth_time":           {"auth_time": "now"},
		"token without a tenant":        {"org": nil},
		"ID token with another nonce":   {"nonce": nil},
		"ID token: token without an ow": {"sub": strings.Repeat("x", 300)},
	} {
		p := authtest.NewProvider(t)
		p.Claims = map[string]any{"org": "acme"}
		for k, v := range claims {
			p.Claims[k] = v
		}
		f := newFlow(t, p, func(j *auth.JWTConfig, _ *auth.CodeFlowConfig) { j.TenantClaim = "org" })
		_, err := signIn(t, p, f, false, nil)
		refusedFor(t, p, err, reason)
	}
	p, other := authtest.NewProvider(t), authtest.NewProvider(t)
	p.Token = func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"id_token":%q}`, other.Sign(map[string]any{"iss": p.URL}))
	}
	_, err := signIn(t, p, newFlow(t, p), false, nil)
	refusedFor(t, p, err, "bad signature")
}

func TestCodeFlowRefusesBadAnswers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		spoil  func(url.Values)
	}{
		"wrong state":    {"another state", func(v url.Values) { v.Set("state", "x") }},
		"no state":       {"another state", func(v url.Values) { v.Del("state") }},
		"two states":     {"repeated parameter state", func(v url.Values) { v.Add("state", v.Get("state")) }},
		"two codes":      {"repeated parameter code", func(v url.Values) { v.Add("code", "x") }},
		"another issuer": {"of another issuer", func(v url.Values) { v.Set("iss", "https://evil.example") }},
		"no code":        {"no code", func(v url.Values) { v.Del("code") }},
		"another code":   {"error invalid_grant", func(v url.Values) { v.Set("code", "stolen") }},
		"refused":        {"error access_denied", func(v url.Values) { v.Set("error", "access_denied") }},
		"unknown error": {"error (none that is known)", func(v url.Values) {
			v.Set("error", "Call +1 555 now")
		}},
	} {
		p := authtest.NewProvider(t)
		_, err := signIn(t, p, newFlow(t, p), false, tc.spoil)
		t.Log(name)
		refusedFor(t, p, err, tc.reason)
	}
	p := authtest.NewProvider(t)
	p.Metadata = map[string]any{"authorization_response_iss_parameter_supported": true}
	_, err := signIn(t, p, newFlow(t, p), false, nil)
	refusedFor(t, p, err, "of another issuer")
	p.Issuer = p.URL
	if _, err := signIn(t, p, newFlow(t, p), false, nil); err != nil {
		t.Errorf("with its iss: %v", err)
	}
}

func TestCodeFlowSurvivesItsProvider(t *testing.T) {
	t.Parallel()
	never := make(chan struct{})
	for reason, answer := range map[string]http.HandlerFunc{
		"status 500": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"too large": func(w http.ResponseWriter, _ *http.Request) {
			w.Write(make([]byte, 1<<20)) //nolint:errcheck // the client gives up
		},
		"not JSON": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
		"no ID token": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"access_token":"x"}`)
		},
		"status 307": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		},
		"exceeded": func(http.ResponseWriter, *http.Request) { <-never },
	} {
		p := authtest.NewProvider(t)
		p.Token = answer
		f := newFlow(t, p, func(_ *auth.JWTConfig, c *auth.CodeFlowConfig) {
			if reason == "exceeded" {
				c.Timeout = 2 * time.Second // also for discovery, on a slow machine
			}
		})
		_, err := signIn(t, p, f, false, nil)
		refusedFor(t, p, err, reason)
	}
	close(never)
	p := authtest.NewProvider(t)
	f := newFlow(t, p)
	p.Close()
	_, _, err := f.Begin(t.Context(), false)
	refusedFor(t, p, err, "discover issuer")
}

func TestCodeFlowRefusesPlainHTTP(t *testing.T) {
	t.Parallel()
	for _, member := range []string{"authorization_endpoint", "token_endpoint"} {
		for _, at := range []string{"http://login.example/x", "ftp://login.example/x", "", "/x"} {
			p := authtest.NewProvider(t)
			p.Metadata = map[string]any{member: at}
			_, _, err := newFlow(t, p).Begin(t.Context(), false)
			refusedFor(t, p, err, "not https")
		}
	}
	j, err := auth.NewJWT(auth.JWTConfig{Issuer: "https://login.example", Audience: "a2ad"})
	if err != nil {
		t.Fatal(err)
	}
	cfg := auth.CodeFlowConfig{ClientID: "x", RedirectURL: "http://a2ad.example/console/sign-in/callback"}
	if _, err := auth.NewCodeFlow(j, cfg); err == nil {
		t.Error("codes may be sent over plain http")
	}
}

// TestSignInAgain: the provider must have asked for the credentials since the sign-in began.
func TestSignInAgain(t *testing.T) {
	t.Parallel()
	p := authtest.NewProvider(t)
	f := newFlow(t, p)
	_, to, err := f.Begin(t.Context(), true)
	if err != nil || !strings.Contains(to, "prompt=login") || !strings.Contains(to, "max_age=0") {
		t.Errorf("the browser is sent to %s, %v", to, err)
	}
	got, err := signIn(t, p, f, true, nil)
	if err != nil || time.Since(got.Authenticated) > time.Minute {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, asked := range []any{nil, time.Now().Add(-3 * time.Minute).Unix(), time.Now().Add(3 * time.Minute).Unix()} {
		p.Claims = map[string]any{"auth_time": asked}
		_, err := signIn(t, p, f, true, nil)
		refusedFor(t, p, err, "auth_time")
	}
}

// TestEndpointsAreReadOnce: however many people sign in, the provider is asked once in a while.
func TestEndpointsAreReadOnce(t *testing.T) {
	t.Parallel()
	p := authtest.NewProvider(t)
	f := newFlow(t, p)
	states := map[string]bool{}
	for range 5 {
		a, _, err := f.Begin(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		states[a.State], states[a.Nonce], states[a.Verifier] = true, true, true
	}
	if len(states) != 15 {
		t.Errorf("secrets of sign-ins are equal: %v", states)
	}
	p.Metadata = map[string]any{"issuer": "https://evil.example"}
	if _, _, err := f.Begin(t.Context(), false); err != nil {
		t.Errorf("the provider was asked again: %v", err)
	}
	_, _, err := newFlow(t, p).Begin(t.Context(), false)
	refusedFor(t, p, err, "calls itself")
}
