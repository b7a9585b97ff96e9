package auth

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// idp is an identity provider on loopback, with a clock that the test moves.
type idp struct {
	*httptest.Server
	t testing.TB

	mu       sync.Mutex
	keys     []jose.JSONWebKey // guarded by mu; published
	requests int               // guarded by mu; number of requests for the keys
	down     bool              // guarded by mu
	body     string            // guarded by mu; sent instead of the keys
	claims   map[string]any    // guarded by mu; override members of the discovery document
	clock    time.Time         // guarded by mu

	discovery string // guarded by mu; sent instead of the discovery document
}

func newIDP(t testing.TB) *idp {
	t.Helper()
	p := &idp{t: t, clock: time.Unix(1_900_000_000, 0)}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		doc := map[string]any{"issuer": p.URL, "jwks_uri": p.URL + "/keys", "authorization_endpoint": p.URL + "/auth",
			"token_endpoint": p.URL + "/token"}
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
		http.Error(w, "unavailable", http.StatusServiceUnavailable)
	case p.body != "":
		fmt.Fprint(w, p.body)
	default:
		json.NewEncoder(w).Encode(v) //nolint:errcheck // the test fails anyway
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

func testKey(alg jose.SignatureAlgorithm, kid string) jose.JSONWebKey {
	return jose.JSONWebKey{Key: testKeys()[alg], KeyID: kid, Algorithm: string(alg), Use: "sig"}
}

func (p *idp) publish(keys ...jose.JSONWebKey) { p.set(func() { p.keys = keys }) }

// claimed returns the claims of a valid token with changes. A nil value removes a claim.
func (p *idp) claimed(change map[string]any) map[string]any {
	now := p.now().Unix()
	claims := map[string]any{"iss": p.URL, "aud": "a2ad", "sub": "ann", "exp": now + 300, "iat": now,
		"scope": "tasks:read other tasks:write"}
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

// token returns a valid token with changed claims.
func (p *idp) token(key jose.JSONWebKey, change map[string]any) string {
	return sign(p.t, key, jose.SignatureAlgorithm(key.Algorithm), "JWT", p.claimed(change))
}

// newJWT returns an Authenticator of the provider's tokens.
func (p *idp) newJWT(change func(*JWTConfig)) *JWT {
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
