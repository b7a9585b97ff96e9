package auth

import (
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
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

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

func TestTokenAuthenticatesItsPrincipal(t *testing.T) {
	t.Parallel()
	p := newIDP(t)
	var keys []jose.JSONWebKey
	for alg := range testKeys() {
		keys = append(keys, testKey(alg, "k-"+string(alg)))
	}
	p.publish(keys...)
	for _, j := range []*JWT{p.newJWT(nil), p.newJWT(func(c *JWTConfig) { c.JWKSURL = p.URL + "/keys" })} {
		for _, key := range keys {
			got, err := with(t, j, p.token(key, nil))
			want := Principal{Tenant: "default", Owner: "ann", Kind: KindUser,
				Scopes: []Scope{ScopeTasksRead, ScopeTasksWrite}, Method: MethodJWT, Name: "ann",
				Until: time.Unix(p.now().Unix()+300, 0).Add(tokenLeeway)}
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
	j := p.newJWT(func(c *JWTConfig) {
		c.TenantClaim, c.OwnerClaims, c.ScopeClaims, c.Scopes = "https://example.com/org", []string{"email",
			"sub"}, []string{"roles"}, []Scope{ScopePushWrite}
	})
	for name, tc := range map[string]struct {
		claims map[string]any
		want   string
	}{
		"first owner": {map[string]any{"https://example.com/org": "acme", "email": "a@b",
			"roles": []string{"tasks:read", "tasks:write x", "worker"}},
			"acme/a@b jwt ann user [push:write tasks:read tasks:write worker]"},
		"second owner": {map[string]any{"https://example.com/org": "acme", "roles": "tasks:read"},
			"acme/ann jwt ann user [push:write tasks:read]"},
		"service": {map[string]any{"https://example.com/org": "acme", "client_id": "ann"},
			"acme/ann jwt ann service [push:write]"},
		"no tenant":     {map[string]any{"email": "a@b"}, "token without a tenant"},
		"tenant number": {map[string]any{"https://example.com/org": 5}, "token without a tenant"},
		"empty tenant":  {map[string]any{"https://example.com/org": ""}, "token without a tenant"},
		"no owner":      {map[string]any{"https://example.com/org": "acme", "sub": nil}, "token without an owner"},
		"owner is null": {map[string]any{"https://example.com/org": "acme", "email": []string{"a"}},
			"token without an owner"},
		"NUL": {map[string]any{"https://example.com/org": "acme", "sub": "a\x00b"}, "token without an owner"},
		"long": {map[string]any{"https://example.com/org": strings.Repeat("a", 201)},
			"token without a tenant"},
	} {
		got, err := with(t, j, p.token(key, tc.claims))
		if err != nil {
			refused(t, err, tc.want)
			continue
		}
		if text := fmt.Sprintf("%s/%s %s %s %v", got.Tenant, got.Owner, got.Actor(), got.Kind,
			got.Scopes); text != tc.want {
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
	public := jose.JSONWebKey{Key: der, KeyID: "r"} // the published key, used as a shared secret
	encode := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	claims, _ := json.Marshal(p.claimed(nil))
	token := p.token(good, nil)
	head, rest, _ := strings.Cut(token, ".")
	body, sig, _ := strings.Cut(rest, ".")
	for name, tc := range map[string]struct{ token, reason string }{
		"none": {encode(`{"alg":"none","typ":"JWT"}`) + "." + encode(string(claims)) + ".",
			"malformed token"},
		"None":               {encode(`{"alg":"None"}`) + "." + encode(string(claims)) + ".", "malformed token"},
		"HS256 with the key": {sign(t, public, jose.HS256, "JWT", p.claimed(nil)), "malformed token"},
		"RS512":              {sign(t, rsaKey, jose.RS512, "JWT", p.claimed(nil)), "malformed token"},
		"another alg of kid": {sign(t, jose.JSONWebKey{Key: rsaKey.Key, KeyID: "k"}, jose.RS256, "JWT", p.claimed(nil)),
			"bad signature"},
		"another alg of key": {sign(t, jose.JSONWebKey{Key: forOthers.Key, KeyID: "p"}, jose.RS256, "JWT",
			p.claimed(nil)), "bad signature"},
		"another key": {sign(t, jose.JSONWebKey{Key: other, KeyID: "k"}, jose.ES256, "JWT", p.claimed(nil)),
			"bad signature"},
		"unknown key": {sign(t, jose.JSONWebKey{Key: other, KeyID: "x"}, jose.ES256, "JWT", p.claimed(nil)),
			"unknown signing key"},
		"no kid, other key": {sign(t, jose.JSONWebKey{Key: other}, jose.ES256, "JWT", p.claimed(nil)),
			"bad signature"},
		"key in the header": {encode(`{"alg":"ES256","kid":"k","jwk":{"kty":"oct","k":"AA"}}`) + "." + body + "." +
			sig, "malformed token"},
		"changed payload": {head + "." + encode(strings.Replace(string(claims), "ann", "bob", 1)) + "." + sig,
			"bad signature"},
		"crit": {encode(`{"alg":"ES256","kid":"k","crit":["x"],"x":1}`) + "." + body + "." + sig,
			"bad signature"},
		"another typ": {sign(t, good, jose.ES256, "logout+jwt", p.claimed(nil)), "another type of token"},
		"JSON form": {`{"payload":"` + body + `","protected":"` + head + `","signature":"` + sig + `"}`,
			"malformed token"},
		"iss": {p.token(good, map[string]any{"iss": p.URL + "/"}),
			"token of another issuer or for another audience"},
		"beginning of iss": {p.token(good, map[string]any{"iss": p.URL[:len(p.URL)-1]}),
			"token of another issuer or for another audience"},
		"iss in capitals": {p.token(good, map[string]any{"iss": strings.ToUpper(p.URL)}),
			"token of another issuer or for another audience"},
		"no iss": {p.token(good, map[string]any{"iss": nil}),
			"token of another issuer or for another audience"},
		"aud": {p.token(good, map[string]any{"aud": []string{"b", "A2AD"}}),
			"token of another issuer or for another audience"},
		"no aud": {p.token(good, map[string]any{"aud": nil}),
			"token of another issuer or for another audience"},
		"expired":  {p.token(good, map[string]any{"exp": now - 61}), "expired token"},
		"no exp":   {p.token(good, map[string]any{"exp": nil}), "expired token"},
		"exp text": {p.token(good, map[string]any{"exp": "tomorrow"}), "malformed token"},
		"nbf":      {p.token(good, map[string]any{"nbf": now + 61}), "token of the future"},
		"iat":      {p.token(good, map[string]any{"iat": now + 61}), "token of the future"},
		"large":    {p.token(good, map[string]any{"x": strings.Repeat("x", maxToken)}), "malformed token"},
		"text":     {"nope", "malformed token"},
		"dots":     {"..", "malformed token"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := with(t, p.newJWT(nil), tc.token)
			refused(t, err, tc.reason)
			if got.Owner != "" || strings.Contains(err.Error(), tc.reason) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	j := p.newJWT(nil)
	for name, token := range map[string]string{
		"exp within the leeway": p.token(good, map[string]any{"exp": now - 59}),
		"nbf":                   p.token(good, map[string]any{"nbf": now + 59, "iat": now + 59}),
		"at+jwt":                sign(t, good, jose.ES256, "application/at+JWT", p.claimed(nil)),
		"no typ":                sign(t, good, jose.ES256, "", p.claimed(nil)),
		"several audiences":     p.token(good, map[string]any{"aud": []string{"b", "a2ad"}}),
		"no kid":                sign(t, jose.JSONWebKey{Key: good.Key}, jose.ES256, "JWT", p.claimed(nil)),
	} {
		if _, err := with(t, j, token); err != nil {
			var e *Error
			errors.As(err, &e)
			t.Errorf("%s: %v %+v", name, err, e)
		}
	}
}

func TestChainOfKeysAndTokens(t *testing.T) {
	t.Parallel()
	p := newIDP(t)
	key := testKey(jose.ES256, "k")
	p.publish(key)
	k, tb := withKeys(t, KeysConfig{})
	ours := newKey(t)
	tb.set(ours, nil)
	c := Chain{k, p.newJWT(nil)}
	if got, err := c.Authenticate(bearer(t, ours)); err != nil || got.Method != MethodAPIKey {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := c.Authenticate(request(t, "Authorization", "bearer "+p.token(key, nil))); err != nil ||
		got.Method != MethodJWT {
		t.Errorf("%+v, %v", got, err)
	}
	_, err := c.Authenticate(bearer(t, newKey(t)))
	refused(t, err, "unknown key")
	_, err = c.Authenticate(request(t, "Authorization", "Bearer x", "Authorization", "Bearer y"))
	refused(t, err, "repeated credential header")
	if want := []string{bearerChallenge, `ApiKey realm="a2ad", header="X-API-Key"`}; !slices.Equal(c.Challenges(),
		want) {
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

// FuzzToken checks that only a token of the issuer is accepted.
func FuzzToken(f *testing.F) {
	p := newIDP(f)
	key := testKey(jose.ES256, "k")
	p.publish(key)
	j := p.newJWT(nil)
	good := p.token(key, nil)
	if _, err := with(f, j, good); err != nil {
		f.Fatal(err)
	}
	head, rest, _ := strings.Cut(good, ".")
	for _, seed := range []string{good, head + "..", "." + rest, head + "." + rest + ".x", "eyJhbGciOiJub25lIn0.e30.",
		"a.b.c", strings.ToUpper(good), good + " "} {
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
	j := p.newJWT(nil)
	r := request(b, "Authorization", "Bearer "+p.token(key, nil))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := j.Authenticate(r); err != nil {
			b.Fatal(err)
		}
	}
}
