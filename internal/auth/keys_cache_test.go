package auth

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestValidKeysAreCachedForTheTTL(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k, tb := withKeys(t, KeysConfig{TTL: 10 * time.Second})
		key := newKey(t)
		tb.set(key, nil)
		for range 20 { // one per second
			if _, err := k.Authenticate(bearer(t, key)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if n := tb.count(); n != 2 {
			t.Errorf("%d lookups in 20 s, want 2", n)
		}
		// Forget was not called, so the revocation is seen after the TTL.
		tb.set(key, func(s *StoredKey) { s.RevokedAt = time.Now() })
		time.Sleep(10 * time.Second)
		_, err := k.Authenticate(bearer(t, key))
		refused(t, err, "revoked key")
	})
}

func TestCachedKeyExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k, tb := withKeys(t, KeysConfig{})
		key := newKey(t)
		tb.set(key, func(s *StoredKey) { s.ExpiresAt = time.Now().Add(5 * time.Second) })
		if _, err := k.Authenticate(bearer(t, key)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		_, err := k.Authenticate(bearer(t, key))
		refused(t, err, "expired key")
	})
}

func TestForget(t *testing.T) {
	t.Parallel()
	k, tb := withKeys(t, KeysConfig{})
	for _, forget := range []func(string){k.Forget, func(string) { k.ForgetAll() }} {
		key := newKey(t)
		tb.set(key, nil)
		if _, err := k.Authenticate(bearer(t, key)); err != nil {
			t.Fatal(err)
		}
		tb.set(key, func(s *StoredKey) { s.RevokedAt = time.Now() })
		if _, err := k.Authenticate(bearer(t, key)); err != nil {
			t.Errorf("before Forget: %v", err)
		}
		forget(key.ID())
		_, err := k.Authenticate(bearer(t, key))
		refused(t, err, "revoked key")
	}
}

// A lookup reads a key, then the key is revoked and forgotten, then the lookup returns. If its result were
// cached, the revoked key would stay valid for the TTL.
func TestForgetDuringALookup(t *testing.T) {
	t.Parallel()
	k, tb := withKeys(t, KeysConfig{})
	key := newKey(t)
	tb.set(key, nil)
	tb.gate = make(chan struct{})
	done := make(chan error, 1)
	r := bearer(t, key)
	go func() { _, err := k.Authenticate(r); done <- err }()
	<-tb.reading
	tb.set(key, func(s *StoredKey) { s.RevokedAt = time.Now() })
	k.Forget(key.ID())
	tb.mu.Lock()
	close(tb.gate)
	tb.gate = nil
	tb.mu.Unlock()
	if err := <-done; err != nil {
		t.Errorf("the request that came before the revocation: %v", err)
	}
	_, err := k.Authenticate(bearer(t, key))
	refused(t, err, "revoked key")
}

// An unknown id and a wrong secret must cost the same, even if the right secret is cached.
func TestWrongSecretIsLookedUpLikeAnUnknownKey(t *testing.T) {
	t.Parallel()
	k, tb := withKeys(t, KeysConfig{})
	key := newKey(t)
	tb.set(key, nil)
	if _, err := k.Authenticate(bearer(t, key)); err != nil {
		t.Fatal(err)
	}
	guess := keyPrefix + "test_" + key.ID() + "_" + strings.Repeat("x", secretLen)
	guess += "_" + checksum(guess)
	for i := range 3 {
		_, err := k.Authenticate(request(t, "X-API-Key", guess))
		refused(t, err, "wrong secret")
		if n := tb.count(); n != i+2 {
			t.Errorf("after %d guesses: %d lookups, want %d", i+1, n, i+2)
		}
	}
	if _, err := k.Authenticate(bearer(t, key)); err != nil || tb.count() != 4 {
		t.Errorf("guesses displaced the right secret: %v, %d lookups", err, tb.count())
	}
}

func TestKeyCacheIsBounded(t *testing.T) {
	t.Parallel()
	k, tb := withKeys(t, KeysConfig{MaxCached: 3})
	for range 20 {
		key := newKey(t)
		tb.set(key, nil)
		if _, err := k.Authenticate(bearer(t, key)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(k.cached); n != 3 {
		t.Errorf("%d keys remembered, want 3", n)
	}
	k, tb = withKeys(t, KeysConfig{TTL: -1})
	key := newKey(t)
	tb.set(key, nil)
	for range 3 {
		if _, err := k.Authenticate(bearer(t, key)); err != nil {
			t.Fatal(err)
		}
	}
	if tb.count() != 3 || len(k.cached) != 0 {
		t.Errorf("negative TTL: %d lookups, %d remembered, want 3 and 0", tb.count(), len(k.cached))
	}
}
