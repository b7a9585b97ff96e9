package auth

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/a2ad/a2ad/internal/a2a"
)

// A new key of the issuer is found at once. A retired key is refused after the keys are read again.
func TestKeysOfTheIssuerRotate(t *testing.T) {
	t.Parallel()
	p := newIDP(t)
	old, next := testKey(jose.ES256, "old"), testKey(jose.EdDSA, "new")
	p.publish(old)
	j := p.newJWT(nil)
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

// Whatever key ids tokens have, the keys are requested at most once per cool-down, and at most once a minute
// for one id.
func TestUnknownKeysDoNotFloodTheIssuer(t *testing.T) {
	t.Parallel()
	p := newIDP(t)
	p.publish(testKey(jose.ES256, "k"))
	j := p.newJWT(nil)
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

func TestUnreachableIssuer(t *testing.T) {
	t.Parallel()
	p := newIDP(t)
	key := testKey(jose.ES256, "k")
	p.publish(key)
	p.set(func() { p.down = true })
	j := p.newJWT(nil)
	var e *Error
	if _, err := with(t, j, p.token(key, nil)); a2a.CodeOf(err) != a2a.CodeUnavailable || errors.As(err, &e) {
		t.Errorf("no keys yet: got %v, want CodeUnavailable", err)
	}
	p.set(func() { p.down, p.clock = false, p.clock.Add(keysCooldown) })
	if _, err := with(t, j, p.token(key, nil)); err != nil {
		t.Fatalf("the issuer is back: %v", err)
	}
	p.set(func() { p.down, p.clock = true, p.clock.Add(keysStale) })
	j.keys.refresh(t.Context())
	if _, err := with(t, j, p.token(key, nil)); err != nil {
		t.Errorf("unreachable for an hour: %v", err)
	}
	p.set(func() { p.clock = p.clock.Add(time.Second) })
	if _, err := with(t, j, p.token(key, nil)); a2a.CodeOf(err) != a2a.CodeUnavailable {
		t.Errorf("unreachable for more than an hour: %v", err)
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
		j := p.newJWT(func(c *JWTConfig) { c.JWKSURL = p.URL + "/keys" })
		if _, err := with(t, j, p.token(key, nil)); a2a.CodeOf(err) != a2a.CodeUnavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
	p := newIDP(t)
	p.publish(key)
	for _, issuer := range []string{"https://example.com", p.URL + "/", ""} {
		p.set(func() { p.claims = map[string]any{"issuer": issuer} })
		if _, err := with(t, p.newJWT(nil), p.token(key, nil)); a2a.CodeOf(err) != a2a.CodeUnavailable {
			t.Errorf("the document of issuer %q: %v", issuer, err)
		}
	}
	p.set(func() { p.claims = nil })
	elsewhere := httptest.NewServer(http.RedirectHandler(p.URL+"/keys", http.StatusFound))
	defer elsewhere.Close()
	_, err = with(t, p.newJWT(func(c *JWTConfig) { c.JWKSURL = elsewhere.URL }), p.token(key, nil))
	if a2a.CodeOf(err) != a2a.CodeUnavailable {
		t.Errorf("keys after a redirect: %v", err)
	}
	if _, err := with(t, p.newJWT(nil), p.token(key, nil)); err != nil {
		t.Errorf("good answers: %v", err)
	}
	for _, uri := range []string{"http://example.com/keys", "http://127.0.0.1.example.com/keys",
		"ftp://example.com/keys", "//example.com/keys", "", "https:keys"} {
		p := newIDP(t)
		p.set(func() { p.claims = map[string]any{"issuer": p.URL, "jwks_uri": uri} })
		_, err := with(t, p.newJWT(nil), p.token(testKey(jose.ES256, "k"), nil))
		if a2a.CodeOf(err) != a2a.CodeUnavailable || !strings.Contains(fmt.Sprint(errors.Unwrap(err)), "not https") {
			t.Errorf("keys at %q: %v, %v", uri, err, errors.Unwrap(err))
		}
	}
	for _, uri := range []string{"https://example.com/keys", "http://localhost:1/keys", "http://127.0.0.1:1/keys",
		"http://[::1]/keys"} {
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
	j := p.newJWT(nil)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- j.Run(ctx) }()
	for p.asked() == 0 {
		j.keys.refresh(t.Context()) // waits for the refresh in progress
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
