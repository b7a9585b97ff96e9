package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// table is a database of keys that counts its lookups.
type table struct {
	mu      sync.Mutex
	keys    map[string]StoredKey // guarded by mu
	lookups int                  // guarded by mu
	used    []string             // guarded by mu
	gate    chan struct{}        // if set, a lookup waits for it after it has read
	reading chan struct{}        // receives when a lookup waits
}

func (tb *table) lookup(_ context.Context, id string) (StoredKey, error) {
	tb.mu.Lock()
	tb.lookups++
	key, ok := tb.keys[id]
	gate := tb.gate
	tb.mu.Unlock()
	if gate != nil {
		tb.reading <- struct{}{}
		<-gate
	}
	if !ok {
		return StoredKey{}, fmt.Errorf("read key: %w", ErrUnknownKey)
	}
	return key, nil
}

func (tb *table) set(key Key, change func(*StoredKey)) {
	hash := key.SecretHash()
	stored := StoredKey{
		SecretHash: hash[:], Tenant: "acme", Owner: "ann", Kind: KindService, Scopes: []Scope{ScopeTasksRead},
	}
	if change != nil {
		change(&stored)
	}
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.keys[key.ID()] = stored
}

func (tb *table) count() int {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	return tb.lookups
}

func withKeys(t *testing.T, cfg KeysConfig) (*Keys, *table) {
	t.Helper()
	tb := &table{keys: make(map[string]StoredKey), reading: make(chan struct{}, 1)}
	cfg.Lookup = tb.lookup
	cfg.Used = func(id string) {
		tb.mu.Lock()
		defer tb.mu.Unlock()
		tb.used = append(tb.used, id)
	}
	k, err := NewKeys(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return k, tb
}

// request has the given headers: name, value, name, value, …
func request(t testing.TB, headers ...string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

func bearer(t testing.TB, key Key) *http.Request {
	t.Helper()
	return request(t, "Authorization", "Bearer "+key.Reveal())
}

// refused fails unless err is an *Error for the reason.
func refused(t *testing.T, err error, reason string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.reason != reason {
		t.Errorf("err = %v (%+v), want a refusal: %s", err, e, reason)
	}
}

func TestKeyAuthenticatesItsPrincipal(t *testing.T) {
	t.Parallel()
	k, tb := withKeys(t, KeysConfig{})
	key := newKey(t)
	tb.set(key, nil)
	text := key.Reveal()
	for _, headers := range [][]string{
		{"Authorization", "Bearer " + text},
		{"Authorization", "bearer   " + text + " "},
		{"X-API-Key", text},
		{"x-api-key", " " + text},
		{"X-API-Key", text, "Authorization", "BEARER " + text},
		{"X-API-Key", text, "Authorization", "Basic dXNlcjpwYXNz"},
		{"X-API-Key", text, "Authorization", "Bearer eyJhbGciOi.x.y"},
	} {
		p, err := k.Authenticate(request(t, headers...))
		if err != nil {
			t.Errorf("%q: %v", headers, err)
			continue
		}
		if p.Tenant != "acme" || p.Owner != "ann" || p.Kind != KindService || p.Method != MethodAPIKey ||
			p.KeyID != key.ID() {
			t.Errorf("%q: principal %+v", headers, p)
		}
		if !p.Has(ScopeTasksRead) || p.Has(ScopeTasksWrite) || p.Has(ScopeWorker) {
			t.Errorf("%q: scopes %v, want only tasks:read", headers, p.Scopes)
		}
	}
	if tb.count() != 1 || !slices.Equal(tb.used, []string{key.ID()}) {
		t.Errorf("%d lookups, used %q, want one of each", tb.count(), tb.used)
	}
}

func TestBadCredentialsAreRefused(t *testing.T) {
	t.Parallel()
	k, tb := withKeys(t, KeysConfig{})
	good, forged, unknown, revoked, expired := newKey(t), newKey(t), newKey(t), newKey(t), newKey(t)
	tb.set(good, nil)
	tb.set(forged, func(s *StoredKey) { s.SecretHash[7] ^= 1 })
	tb.set(revoked, func(s *StoredKey) { s.RevokedAt = time.Now() })
	tb.set(expired, func(s *StoredKey) { s.ExpiresAt = time.Now().Add(-time.Second) })
	tests := []struct {
		reason  string
		headers []string
	}{
		{"wrong secret", []string{"X-API-Key", forged.Reveal()}},
		{"unknown key", []string{"X-API-Key", unknown.Reveal()}},
		{"revoked key", []string{"X-API-Key", revoked.Reveal()}},
		{"expired key", []string{"X-API-Key", expired.Reveal()}},
		{"malformed key", []string{"X-API-Key", "hunter2"}},
		{"malformed key", []string{"X-API-Key", ""}},
		{"malformed key", []string{"Authorization", "Bearer a2ad_" + strings.Repeat("x", 1<<15)}},
		{"two different keys", []string{"X-API-Key", good.Reveal(), "Authorization", "Bearer " + unknown.Reveal()}},
		{"repeated credential header", []string{"X-API-Key", good.Reveal(), "X-API-Key", good.Reveal()}},
		{"repeated credential header",
			[]string{"Authorization", "Bearer " + good.Reveal(), "Authorization", "Basic x"}},
	}
	texts := make(map[string]bool)
	for range 2 { // refusals are not cached, and stay refusals
		for _, tt := range tests {
			p, err := k.Authenticate(request(t, tt.headers...))
			refused(t, err, tt.reason)
			if p.Tenant != "" || p.Owner != "" || p.Scopes != nil {
				t.Errorf("%s: principal %+v", tt.reason, p)
			}
			texts[err.Error()] = true
		}
	}
	if len(texts) != 1 {
		t.Errorf("got different texts: %v", texts)
	}
	if len(k.cached) != 0 || len(tb.used) != 0 {
		t.Errorf("%d refused keys are remembered, %d counted as used", len(k.cached), len(tb.used))
	}
}

func TestOtherCredentialsAreIgnored(t *testing.T) {
	t.Parallel()
	k, tb := withKeys(t, KeysConfig{})
	for _, headers := range [][]string{
		nil,
		{"Authorization", ""},
		{"Authorization", "Bearer"},
		{"Authorization", "Bearer "},
		{"Authorization", "Bearer eyJhbGciOi.x.y"},
		{"Authorization", "Bearer a2ad_x y"},
		{"Authorization", "Basic a2ad_x"},
		{"Authorization", "a2ad_x"},
	} {
		if _, err := k.Authenticate(request(t, headers...)); !errors.Is(err, ErrNoCredential) {
			t.Errorf("%q: err = %v, want ErrNoCredential", headers, err)
		}
	}
	if n := tb.count(); n != 0 {
		t.Errorf("%d lookups, want none", n)
	}
}

// A fault of the server is not a 401.
func TestFaultsAreNotRefusals(t *testing.T) {
	t.Parallel()
	down := errors.New("database unreachable")
	k, err := NewKeys(KeysConfig{Lookup: func(context.Context, string) (StoredKey, error) { return StoredKey{}, down }})
	if err != nil {
		t.Fatal(err)
	}
	var e *Error
	if _, err := (Chain{k}).Authenticate(bearer(t, newKey(t))); !errors.Is(err, down) || errors.As(err, &e) {
		t.Errorf("err = %v, want the fault", err)
	}
	k, tb := withKeys(t, KeysConfig{})
	key := newKey(t)
	tb.set(key, func(s *StoredKey) { s.Owner = "" })
	if _, err := k.Authenticate(bearer(t, key)); err == nil || errors.As(err, &e) || len(k.cached) != 0 {
		t.Errorf("a key without owner: err = %v, %d remembered", err, len(k.cached))
	}
}

func TestKeysConfigIsChecked(t *testing.T) {
	t.Parallel()
	if _, err := NewKeys(KeysConfig{}); err == nil {
		t.Error("no Lookup was accepted")
	}
	lookup := func(context.Context, string) (StoredKey, error) { return StoredKey{}, ErrUnknownKey }
	if _, err := NewKeys(KeysConfig{Lookup: lookup, TTL: MaxKeyTTL + 1}); err == nil {
		t.Error("a TTL above the limit was accepted")
	}
}

func FuzzCredentialHeaders(f *testing.F) {
	f.Add("Bearer "+goldenKey, "")
	f.Add("bearer \t"+goldenKey, goldenKey)
	f.Add("Basic x", "a2ad_")
	f.Add("", " ")
	f.Fuzz(func(t *testing.T, authorization, apiKey string) {
		h := http.Header{"Authorization": {authorization}}
		if apiKey != "" {
			h.Set("X-API-Key", apiKey)
		}
		text, err := apiKeyOf(h)
		var e *Error
		switch {
		case err == nil && apiKey == "" &&
			(!strings.HasPrefix(text, keyPrefix) || !strings.Contains(authorization, text)):
			t.Fatalf("%q: took %q for a key", authorization, text)
		case err == nil && apiKey != "" && text != strings.TrimSpace(apiKey):
			t.Fatalf("%q, %q: took %q for the key", authorization, apiKey, text)
		case err != nil && text != "":
			t.Fatalf("%q, %q: %q and %v", authorization, apiKey, text, err)
		case err != nil && !errors.Is(err, ErrNoCredential) && !errors.As(err, &e):
			t.Fatalf("%q, %q: %v is neither absence nor refusal", authorization, apiKey, err)
		}
	})
}

func BenchmarkAuthenticate(b *testing.B) {
	key := newKey(b)
	hash := key.SecretHash()
	k, err := NewKeys(KeysConfig{Lookup: func(context.Context, string) (StoredKey, error) {
		return StoredKey{SecretHash: hash[:], Tenant: "acme", Owner: "ann", Kind: KindUser, Scopes: Scopes()}, nil
	}})
	if err != nil {
		b.Fatal(err)
	}
	r := bearer(b, key)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.Authenticate(r); err != nil {
			b.Fatal(err)
		}
	}
}
