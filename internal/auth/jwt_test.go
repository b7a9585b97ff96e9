package auth

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/a2ad/a2ad/internal/a2a"
)

// idp is an identity provider on loopback, with a clock that the test moves.
type idp struct {
	*httptest.Server
	t testing.TB

	mu       sync.Mutex
	keys     []jose.JSONWebKey // guarded by mu; published
	requests int               // guarded by mu; for the keys
	down     bool              // guarded by mu
	body     string            // guarded by mu; in place of the keys
	claims   map[string]any    // guarded by mu; of the discovery document, in place of its own
	clock    time.Time         // guarded by mu

	discovery string // guarded by mu; in place of the document
}

func newIDP(t testing.TB) *idp {
	t.Helper()
	p := &idp{t: t, clock: time.Unix(1_900_000_000, 0)}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		doc := map[string]any{"issuer": p.URL, "jwks_uri": p.URL + "/keys", "authorization_endpoint": p.URL + "/auth", "token_endpoint": p.URL + "/token"}
		maps.Copy(doc, p.claims)
		if p.discovery != "" {
			fmt.Fprint(w, p.discovery)
			return
		}
		p.answer(w, doc)
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.requests++
		set := jose.JSONWebKeySet{}
		for _, k := range p.keys {
			set.Keys = append(set.Keys, k.Public())
		}
		p.answer(w, set)
	})
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

func (p *idp) answer(w http.ResponseWriter, v any) {
	switch {
	case p.down:
		http.Error(w, "away", http.StatusServiceUnavailable)
	case p.body != "":
		fmt.Fprint(w, p.body)
	default:
		json.NewEncoder(w).Encode(v) //nolint:errcheck // the test will see
	}
}

func (p *idp) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

func (p *idp) now() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clock
}

func (p *idp) asked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests
}

var testKeys = sync.OnceValue(func() map[jose.SignatureAlgorithm]crypto.Signer {
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	e, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	_, d, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	return map[jose.SignatureAlgorithm]crypto.Signer{jose.RS256: r, jose.ES256: e, jose.EdDSA: d}
})

func testKey(alg jose.SignatureAlgorithm, kid string) jose.JSONWebKey {
	return jose.JSONWebKey{Key: testKeys()[alg], KeyID: kid, Algorithm: string(alg), Use: "sig"}
}

func (p *idp) publish(keys ...jose.JSONWebKey) { p.set(func() { p.keys = keys }) }

// claimed returns the claims of a good token, changed; nil takes one away.
func (p *idp) claimed(change map[string]any) map[string]any {
	now := p.now().Unix()
	claims := map[string]any{"iss": p.URL, "aud": "a2ad", "sub": "ann", "exp": now + 300, "iat": now, "scope": "tasks:read other tasks:write"}
	for name, v := range change {
		if claims[name] = v; v == nil {
			delete(claims, name)
		}
	}
	return claims
}

func sign(t testing.TB, key jose.JSONWebKey, alg jose.SignatureAlgorithm, typ string, claims map[string]any) string {
	t.Helper()
	opts := &jose.SignerOptions{}
	if typ != "" {
		opts.WithType(jose.ContentType(typ))
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, opts)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	jws, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	text, err := jws.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// token is a good one, changed.
func (p *idp) token(key jose.JSONWebKey, change map[string]any) string {
	return sign(p.t, key, jose.SignatureAlgorithm(key.Algorithm), "JWT", p.claimed(change))
}

func (p *idp) takes(change func(*JWTConfig)) *JWT {
	p.t.Helper()
	cfg := JWTConfig{Issuer: p.URL, Audience: "a2ad", now: p.now}
	if change != nil {
		change(&cfg)
	}
	j, err := NewJWT(cfg)
	if err != nil {
		p.t.Fatal(err)
	}
	return j
}

func with(t testing.TB, j *JWT, token string) (Principal, error) {
	t.Helper()
	return Chain{j}.Authenticate(request(t, "Authorization", "Bearer "+token))
}

func TestTokenAuthenticatesItsPrincipal(t *testing.T) {
	t.Parallel()
	p := newIDP(t)
	var keys []jose.JSONWebKey
	for alg := range testKeys() {
		keys = append(keys, testKey(alg, "k-"+string(alg)))
	}
	p.publish(keys...)
	for _, j := range []*JWT{p.takes(nil), p.takes(func(c *JWTConfig) { c.JWKSURL = p.URL + "/keys" })} {
		for _, key := range keys {
			got, err := with(t, j, p.token(key, nil))
			want := Principal{Tenant: "default", Owner: "ann", Kind: KindUser, Scopes: []Scope{ScopeTasksRead, ScopeTasksWrite}, Method: MethodJWT, Name: "ann", Until: time.Unix(p.now().Unix()+300, 0).Add(tokenLeeway)}
			if err != nil || got.Actor() != "jwt ann" || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: %+v, %v", key.Algorithm, got, err)
			}
		}
	}
	if n := p.asked(); n != 2 {
		t.Errorf("the keys were read %d times, want once by each", n)
	}
}

func TestClaimsAreMappedBySettings(t *testing.T) {
	t.Parallel()
	p := newIDP(t)
	key := testKey(jose.ES256, "k")
	p.publish(key)
	j := p.takes(func(c *JWTConfig) {
		c.TenantClaim, c.OwnerClaims, c.ScopeClaims, c.Scopes = "https://example.com/org", []string{"email", "sub"}, []string{"roles"}, []Scope{ScopePushWrite}
	})
	for name, tc := range map[string]struct {
		claims map[string]any
		want   string
	}{
		"first owner":   {map[string]any{"https://example.com/org": "acme", "email": "a@b", "roles": []string{"tasks:read", "tasks:write x", "worker"}}, "acme/a@b jwt ann user [push:write tasks:read tasks:write worker]"},
		"second owner":  {map[string]any{"https://example.com/org": "acme", "roles": "tasks:read"}, "acme/ann jwt ann user [push:write tasks:read]"},
		"service":       {map[string]any{"https://example.com/org": "acme", "client_id": "ann"}, "acme/ann jwt ann service [push:write]"},
		"no tenant":     {map[string]any{"email": "a@b"}, "token without a tenant"},
		"tenant number": {map[string]any{"https://example.com/org": 5}, "token without a tenant"},
		"empty tenant":  {map[string]any{"https://example.com/org": ""}, "token without a tenant"},
		"no owner":      {map[string]any{"https://example.com/org": "acme", "sub": nil}, "token without an owner"},
		"owner is null": {map[string]any{"https://example.com/org": "acme", "email": []string{"a"}}, "token without an owner"},
		"NUL":           {map[string]any{"https://example.com/org": "acme", "sub": "a\x00b"}, "token without an owner"},
		"long":          {map[string]any{"https://example.com/org": strings.Repeat("a", 201)}, "token without a tenant"},
	} {
		got, err := with(t, j, p.token(key, tc.claims))
		if err != nil {
			refused(t, err, tc.want)
			continue
		}
		if text := fmt.Sprintf("%s/%s %s %s %v", got.Tenant, got.Owner, got.Actor(), got.Kind, got.Scopes); text != tc.want {
			t.Errorf("%s: %s, want %s", name, text, tc.want)
		}
	}
}

func TestBadTokensAreRefused(t *testing.T) {
	t.Parallel()
	p := newIDP(t)
	good, rsaKey := testKey(jose.ES256, "k"), testKey(jose.RS256, "r")
	forOthers := testKey(jose.RS256, "p")
	forOthers.Algorithm = string(jose.PS256)
	p.publish(good, rsaKey, forOthers)
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := p.now().Unix()
	der, err := x509.MarshalPKIXPublicKey(rsaKey.Public().Key)
	if err != nil {
		t.Fatal(err)
	}
	public := jose.JSONWebKey{Key: der, KeyID: "r"} // the published key as a secret
	encode := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	claims, _ := json.Marshal(p.claimed(nil))
	token := p.token(good, nil)
	head, rest, _ := strings.Cut(token, ".")
	body, sig, _ := strings.Cut(rest, ".")
	for name, tc := range map[string]struct{ token, reason string }{
		"none":               {encode(`{"alg":"none","typ":"JWT"}`) + "." + encode(string(claims)) + ".", "malformed token"},
		"None":               {encode(`{"alg":"None"}`) + "." + encode(string(claims)) + ".", "malformed token"},
		"HS256 with the key": {sign(t, public, jose.HS256, "JWT", p.claimed(nil)), "malformed token"},
		"RS512":              {sign(t, rsaKey, jose.RS512, "JWT", p.claimed(nil)), "malformed token"},
		"another alg of kid": {sign(t, jose.JSONWebKey{Key: rsaKey.Key, KeyID: "k"}, jose.RS256, "JWT", p.claimed(nil)), "bad signature"},
		"another alg of key": {sign(t, jose.JSONWebKey{Key: forOthers.Key, KeyID: "p"}, jose.RS256, "JWT", p.claimed(nil)), "bad signature"},
		"another key":        {sign(t, jose.JSONWebKey{Key: other, KeyID: "k"}, jose.ES256, "JWT", p.claimed(nil)), "bad signature"},
		"unknown key":        {sign(t, jose.JSONWebKey{Key: other, KeyID: "x"}, jose.ES256, "JWT", p.claimed(nil)), "unknown signing key"},
		"no kid, other key":  {sign(t, jose.JSONWebKey{Key: other}, jose.ES256, "JWT", p.claimed(nil)), "bad signature"},
		"key in the header":  {encode(`{"alg":"ES256","kid":"k","jwk":{"kty":"oct","k":"AA"}}`) + "." + body + "." + sig, "malformed token"},
		"changed payload":    {head + "." + encode(strings.Replace(string(claims), "ann", "bob", 1)) + "." + sig, "bad signature"},
		"crit":               {encode(`{"alg":"ES256","kid":"k","crit":["x"],"x":1}`) + "." + body + "." + sig, "bad signature"},
		"another typ":        {sign(t, good, jose.ES256, "logout+jwt", p.claimed(nil)), "another type of token"},
		"JSON form":          {`{"payload":"` + body + `","protected":"` + head + `","signature":"` + sig + `"}`, "malformed token"},
		"iss":                {p.token(good, map[string]any{"iss": p.URL + "/"}), "token of another issuer or for another audience"},
		"beginning of iss":   {p.token(good, map[string]any{"iss": p.URL[:len(p.URL)-1]}), "token of another issuer or for another audience"},
		"iss in capitals":    {p.token(good, map[string]any{"iss": strings.ToUpper(p.URL)}), "token of another issuer or for another audience"},
		"no iss":             {p.token(good, map[string]any{"iss": nil}), "token of another issuer or for another audience"},
		"aud":                {p.token(good, map[string]any{"aud": []string{"b", "A2AD"}}), "token of another issuer or for another audience"},
		"no aud":             {p.token(good, map[string]any{"aud": nil}), "token of another issuer or for another audience"},
		"expired":            {p.token(good, map[string]any{"exp": now - 61}), "expired token"},
		"no exp":             {p.token(good, map[string]any{"exp": nil}), "expired token"},
		"exp text":           {p.token(good, map[string]any{"exp": "tomorrow"}), "malformed token"},
		"nbf":                {p.token(good, map[string]any{"nbf": now + 61}), "token of the future"},
		"iat":                {p.token(good, map[string]any{"iat": now + 61}), "token of the future"},
		"large":              {p.token(good, map[string]any{"x": strings.Repeat("x", maxToken)}), "malformed token"},
		"text":               {"nope", "malformed token"},
		"dots":               {"..", "malformed token"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := with(t, p.takes(nil), tc.token)
			refused(t, err, tc.reason)
			if got.Owner != "" || strings.Contains(err.Error(), tc.reason) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	j := p.takes(nil)
	for name, token := range map[string]string{
		"exp within the leeway": p.token(good, map[string]any{"exp": now - 59}), "nbf": p.token(good, map[string]any{"nbf": now + 59, "iat": now + 59}),
		"at+jwt": sign(t, good, jose.ES256, "application/at+JWT", p.claimed(nil)), "no typ": sign(t, good, jose.ES256, "", p.claimed(nil)),
		"several audiences": p.token(good, map[string]any{"aud": []string{"b", "a2ad"}}), "no kid": sign(t, jose.JSONWebKey{Key: good.Key}, jose.ES256, "JWT", p.claimed(nil)),
	} {
		if _, err := with(t, j, token); err != nil {
			var e *Error
			errors.As(err, &e)
			t.Errorf("%s: %v %+v", name, err, e)
		}
	}
}

// A key that the issuer signs with from now on is found at once; a retired one is refused when
// its keys are read again.
func TestKeysOfTheIssuerRotate(t *testing.T) {
	t.Parallel()
	p := newIDP(t)
	old, next := testKey(jose.ES256, "old"), testKey(jose.EdDSA, "new")
	p.publish(old)
	j := p.takes(nil)
	if _, err := with(t, j, p.token(old, nil)); err != nil {
		t.Fatal(err)
	}
	p.publish(next)
	p.set(func() { p.clock = p.clock.Add(keysCooldown) })
	if _, err := with(t, j, p.token(next, nil)); err != nil {
		t.Errorf("the new key: %v", err)
	}
	_, err := with(t, j, p.token(old, nil))
	refused(t, err, "unknown signing key")
}

// Whatever ids tokens have, the issuer is asked once in the cool-down, and of one id once a minute.
func TestUnknownKeysDoNotFloodTheIssuer(t *testing.T) {
	t.Parallel()
	p := newIDP(t)
	p.publish(testKey(jose.ES256, "k"))
	j := p.takes(nil)
	flood := func(kid string, n int) {
		var wg sync.WaitGroup
		for i := range n {
			id := kid
			if kid == "" {
				id = fmt.Sprint("x", i)
			}
			wg.Go(func() {
				_, err := with(t, j, p.token(testKey(jose.EdDSA, id), nil))
				refused(t, err, "unknown signing key")
			})
		}
		wg.Wait()
	}
	flood("", 200)
	if n := p.asked(); n != 1 {
		t.Errorf("asked %d times, want once", n)
	}
	if n := len(j.keys.ignored); n > maxKeySet {
		t.Errorf("%d unknown ids are remembered", n)
	}
	p.set(func() { p.clock = p.clock.Add(keysCooldown) })
	flood("y", 10)
	p.set(func() { p.clock = p.clock.Add(keysCooldown) })
	flood("y", 10)
	if n := p.asked(); n != 2 {
		t.Errorf("asked %d times, want once more for y", n)
	}
	if _, err := with(t, j, p.token(testKey(jose.ES256, "k"), nil)); err != nil {
		t.Errorf("a known key meanwhile: %v", err)
	}
}

func TestIssuerThatIsAway(t *testing.T) {
	t.Parallel()
	p := newIDP(t)
	key := testKey(jose.ES256, "k")
	p.publish(key)
	p.set(func() { p.down = true })
	j := p.takes(nil)
	var e *Error
	if _, err := with(t, j, p.token(key, nil)); a2a.CodeOf(err) != a2a.CodeUnavailable || errors.As(err, &e) {
		t.Errorf("no keys yet: %v, want that it cannot be told", err)
	}
	p.set(func() { p.down, p.clock = false, p.clock.Add(keysCooldown) })
	if _, err := with(t, j, p.token(key, nil)); err != nil {
		t.Fatalf("the issuer is back: %v", err)
	}
	p.set(func() { p.down, p.clock = true, p.clock.Add(keysStale) })
	j.keys.refresh(t.Context())
	if _, err := with(t, j, p.token(key, nil)); err != nil {
		t.Errorf("away for an hour: %v", err)
	}
	p.set(func() { p.clock = p.clock.Add(time.Second) })
	if _, err := with(t, j, p.token(key, nil)); a2a.CodeOf(err) != a2a.CodeUnavailable {
		t.Errorf("away for more than an hour: %v", err)
	}
}

func TestAnswersOfTheIssuerAreChecked(t *testing.T) {
	t.Parallel()
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	weakKey, _ := (&jose.JSONWebKey{Key: weak.Public(), KeyID: "k"}).MarshalJSON()
	key := testKey(jose.ES256, "k")
	good, _ := key.Public().MarshalJSON()
	encKey := key
	encKey.Use = "enc"
	encJSON, _ := encKey.Public().MarshalJSON()
	for name, body := range map[string]string{
		"no keys": `{"keys":[]}`, "not JSON": `<html>`, "a secret": `{"keys":[{"kty":"oct","kid":"k","k":"c2VjcmV0"}]}`,
		"a weak key": `{"keys":[` + string(weakKey) + `]}`, "for encryption": `{"keys":[` + string(encJSON) + `]}`,
		"large": `{"keys":[` + string(good) + `],"x":"` + strings.Repeat("x", maxKeysBody) + `"}`,
	} {
		p := newIDP(t)
		p.set(func() { p.body = body })
		j := p.takes(func(c *JWTConfig) { c.JWKSURL = p.URL + "/keys" })
		if _, err := with(t, j, p.token(key, nil)); a2a.CodeOf(err) != a2a.CodeUnavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
	p := newIDP(t)
	p.publish(key)
	for _, issuer := range []string{"https://example.com", p.URL + "/", ""} {
		p.set(func() { p.claims = map[string]any{"issuer": issuer} })
		if _, err := with(t, p.takes(nil), p.token(key, nil)); a2a.CodeOf(err) != a2a.CodeUnavailable {
			t.Errorf("the document of issuer %q: %v", issuer, err)
		}
	}
	p.set(func() { p.claims = nil })
	elsewhere := httptest.NewServer(http.RedirectHandler(p.URL+"/keys", http.StatusFound))
	defer elsewhere.Close()
	_, err = with(t, p.takes(func(c *JWTConfig) { c.JWKSURL = elsewhere.URL }), p.token(key, nil))
	if a2a.CodeOf(err) != a2a.CodeUnavailable {
		t.Errorf("keys behind a redirect: %v", err)
	}
	if _, err := with(t, p.takes(nil), p.token(key, nil)); err != nil {
		t.Errorf("good answers: %v", err)
	}
	for _, uri := range []string{"http://example.com/keys", "http://127.0.0.1.example.com/keys", "ftp://example.com/keys", "//example.com/keys", "", "https:keys"} {
		p := newIDP(t)
		p.set(func() { p.claims = map[string]any{"issuer": p.URL, "jwks_uri": uri} })
		_, err := with(t, p.takes(nil), p.token(testKey(jose.ES256, "k"), nil))
		if a2a.CodeOf(err) != a2a.CodeUnavailable || !strings.Contains(fmt.Sprint(errors.Unwrap(err)), "not https") {
			t.Errorf("keys at %q: %v, %v", uri, err, errors.Unwrap(err))
		}
	}
	for _, uri := range []string{"https://example.com/keys", "http://localhost:1/keys", "http://127.0.0.1:1/keys", "http://[::1]/keys"} {
		if !private(uri) {
			t.Errorf("keys at %s are refused", uri)
		}
	}
	keys, err := parseKeySet([]byte(`{"keys":[{"kty":"new"},5,` + string(good) + `]}`))
	if err != nil || len(keys) != 1 || keys[0].KeyID != "k" {
		t.Errorf("among unknown keys: %v, %v", keys, err)
	}
}

func TestRunReadsTheKeysBeforeTheyAreNeeded(t *testing.T) {
	t.Parallel()
	p := newIDP(t)
	key := testKey(jose.ES256, "k")
	p.publish(key)
	j := p.takes(nil)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- j.Run(ctx) }()
	for p.asked() == 0 {
		j.keys.refresh(t.Context()) // waits for the one that is under way
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := with(t, j, p.token(key, nil)); err != nil {
		t.Error(err)
	}
	if n := p.asked(); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

func TestKeysAndTokensSideBySide(t *testing.T) {
	t.Parallel()
	p := newIDP(t)
	key := testKey(jose.ES256, "k")
	p.publish(key)
	k, tb := withKeys(t, KeysConfig{})
	ours := newKey(t)
	tb.set(ours, nil)
	c := Chain{k, p.takes(nil)}
	if got, err := c.Authenticate(bearer(t, ours)); err != nil || got.Method != MethodAPIKey {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := c.Authenticate(request(t, "Authorization", "bearer "+p.token(key, nil))); err != nil || got.Method != MethodJWT {
		t.Errorf("%+v, %v", got, err)
	}
	_, err := c.Authenticate(bearer(t, newKey(t)))
	refused(t, err, "unknown key")
	_, err = c.Authenticate(request(t, "Authorization", "Bearer x", "Authorization", "Bearer y"))
	refused(t, err, "repeated credential header")
	if want := []string{bearerChallenge, `ApiKey realm="a2ad", header="X-API-Key"`}; !slices.Equal(c.Challenges(), want) {
		t.Errorf("challenges %q", c.Challenges())
	}
	var names []string
	for _, s := range c.Schemes() {
		names = append(names, s.Name)
	}
	if !slices.Equal(names, []string{"bearer", "apiKey", "oidc"}) {
		t.Errorf("schemes %q", names)
	}
}

// FuzzToken holds that nothing but a token of the issuer's signs anybody in.
func FuzzToken(f *testing.F) {
	p := newIDP(f)
	key := testKey(jose.ES256, "k")
	p.publish(key)
	j := p.takes(nil)
	good := p.token(key, nil)
	if _, err := with(f, j, good); err != nil {
		f.Fatal(err)
	}
	head, rest, _ := strings.Cut(good, ".")
	for _, seed := range []string{good, head + "..", "." + rest, head + "." + rest + ".x", "eyJhbGciOiJub25lIn0.e30.", "a.b.c", strings.ToUpper(good), good + " "} {
		f.Add("Bearer " + seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		got, err := Chain{j}.Authenticate(&http.Request{Header: http.Header{"Authorization": {header}}})
		var e *Error
		switch {
		case err == nil && (got.Owner != "ann" || !strings.Contains(header, head+".")):
			t.Fatalf("%q signed in as %+v", header, got)
		case err != nil && (!errors.As(err, &e) || got.Owner != ""):
			t.Fatalf("%q: %+v, %v", header, got, err)
		}
	})
}

func BenchmarkToken(b *testing.B) {
	p := newIDP(b)
	key := testKey(jose.ES256, "k")
	p.publish(key)
	j := p.takes(nil)
	r := request(b, "Authorization", "Bearer "+p.token(key, nil))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := j.Authenticate(r); err != nil {
			b.Fatal(err)
		}
	}
}
