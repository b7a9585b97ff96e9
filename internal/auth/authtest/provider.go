package authtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// The client that a Provider knows.
const (
	ClientID     = "console"
	ClientSecret = "s3cret/+:" // has characters that RFC 6749 escapes
)

// Provider is an OpenID provider on loopback with one person, who signs in without being asked. Its fields may change
// until the request that they are about.
type Provider struct {
	*httptest.Server

	Claims   map[string]any   // of the ID token, over the usual ones; nil removes a claim
	Access   string           // the access token; "": an opaque one
	Metadata map[string]any   // of discovery, over the usual members
	Issuer   string           // the iss of answers; "": none
	Token    http.HandlerFunc // answers the token requests in place of the provider; nil: nothing does
	Public   bool             // the client has no secret

	t   testing.TB
	key jose.JSONWebKey

	mu    sync.Mutex
	codes map[string]url.Values // guarded by mu; what was asked for, by code
	asked []url.Values          // guarded by mu; the token requests
}

// NewProvider starts a provider, which ends with the test.
func NewProvider(t testing.TB) *Provider {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := &Provider{t: t, codes: make(map[string]url.Values)}
	p.key = jose.JSONWebKey{Key: key, KeyID: "k", Algorithm: string(jose.ES256), Use: "sig"}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		doc := map[string]any{
			"issuer": p.URL, "jwks_uri": p.URL + "/keys", "authorization_endpoint": p.URL + "/authorize?theme=dark",
			"token_endpoint": p.URL + "/token",
		}
		maps.Copy(doc, p.Metadata)
		reply(w, http.StatusOK, doc)
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{p.key.Public()}})
	})
	mux.HandleFunc("POST /token", p.token)
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

// Authorize signs the person in for the URL that a browser was sent to, and returns the URL that the browser is sent
// back to.
func (p *Provider) Authorize(at string) *url.URL {
	p.t.Helper()
	u, err := url.Parse(at)
	if err != nil || u.Scheme+"://"+u.Host != p.URL || u.Path != "/authorize" || u.Query().Get("theme") != "dark" {
		p.t.Fatalf("the browser was sent to %q, and not to the provider", at)
	}
	q := u.Query()
	for name, want := range map[string]string{
		"response_type": "code", "client_id": ClientID, "code_challenge_method": "S256",
	} {
		if q.Get(name) != want {
			p.t.Fatalf("%s = %q, want %q", name, q.Get(name), want)
		}
	}
	code := "code-" + rand.Text()
	p.mu.Lock()
	p.codes[code] = q
	p.mu.Unlock()
	back, err := url.Parse(q.Get("redirect_uri"))
	if err != nil {
		p.t.Fatal(err)
	}
	answer := url.Values{"code": {code}, "state": {q.Get("state")}}
	if p.Issuer != "" {
		answer.Set("iss", p.Issuer)
	}
	back.RawQuery = answer.Encode()
	return back
}

// Asked returns the forms of the token requests so far.
func (p *Provider) Asked() []url.Values {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

func (p *Provider) token(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		reply(w, http.StatusBadRequest, map[string]string{"error": "invalid_request"})
		return
	}
	p.mu.Lock()
	p.asked = append(p.asked, r.PostForm)
	begun, ok := p.codes[r.PostForm.Get("code")]
	delete(p.codes, r.PostForm.Get("code"))
	p.mu.Unlock()
	if p.Token != nil {
		p.Token(w, r)
		return
	}
	sum := sha256.Sum256([]byte(r.PostForm.Get("code_verifier")))
	switch {
	case !p.knows(r):
		reply(w, http.StatusUnauthorized, map[string]string{"error": "invalid_client"})
		return
	case !ok || r.PostForm.Get("redirect_uri") != begun.Get("redirect_uri") ||
		base64.RawURLEncoding.EncodeToString(sum[:]) != begun.Get("code_challenge"):
		reply(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant"})
		return
	}
	access := p.Access
	if access == "" {
		access = "opaque"
	}
	claims := map[string]any{"nonce": begun.Get("nonce")}
	if begun.Get("max_age") == "0" {
		claims["auth_time"] = time.Now().Unix()
	}
	maps.Copy(claims, p.Claims)
	reply(w, http.StatusOK, map[string]string{
		"access_token": access, "token_type": "Bearer", "id_token": p.Sign(claims),
	})
}

// knows reports whether a token request has the credentials of the client.
func (p *Provider) knows(r *http.Request) bool {
	if p.Public {
		return r.Header.Get("Authorization") == "" && r.PostForm.Get("client_id") == ClientID
	}
	id, secret, basic := r.BasicAuth()
	if !basic {
		return r.PostForm.Get("client_id") == ClientID && r.PostForm.Get("client_secret") == ClientSecret
	}
	id, err := url.QueryUnescape(id)
	if err == nil {
		secret, err = url.QueryUnescape(secret)
	}
	return err == nil && id == ClientID && secret == ClientSecret
}

// Sign returns a token for the client, with changed claims. A nil value removes a claim.
func (p *Provider) Sign(change map[string]any) string {
	now := time.Now().Unix()
	claims := map[string]any{"iss": p.URL, "aud": ClientID, "sub": "ann", "exp": now + 300, "iat": now}
	for name, v := range change {
		if claims[name] = v; v == nil {
			delete(claims, name)
		}
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		panic(err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: p.key}, nil)
	if err != nil {
		panic(err)
	}
	jws, err := signer.Sign(payload)
	if err != nil {
		panic(err)
	}
	text, err := jws.CompactSerialize()
	if err != nil {
		panic(err)
	}
	return text
}

func reply(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, "%s", body)
}
