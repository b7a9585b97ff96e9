package access_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/wake"
)

func TestAPIKeys(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	secret := [32]byte{1, 2, 3}
	k := access.Key{
		ID: "k1", Tenant: "acme", Owner: "ann", Name: "laptop",
		Scopes: []string{"tasks:read"}, Agents: []string{"words"},
	}
	k, err := f.Access.CreateKey(t.Context(), k, secret, 0)
	if err != nil || k.CreatedAt.IsZero() || !k.ExpiresAt.IsZero() {
		t.Fatalf("made %+v, %v", k, err)
	}
	if _, err := f.Access.CreateKey(t.Context(), k, secret, 0); err == nil {
		t.Error("CreateKey with a used id = nil, want an error")
	}
	for range 2 {
		got, gotSecret, err := f.Access.LookupKey(t.Context(), "k1")
		if err != nil || gotSecret != secret {
			t.Fatalf("lookup: secret %v, %v", gotSecret, err)
		}
		storetest.Same(t, "key of a sign-in",
			access.Key{ID: "k1", Tenant: "acme", Owner: "ann", Scopes: k.Scopes, Agents: k.Agents}, got)
	}
	// A lookup is no use of the key: the caller may have another secret.
	if list, err := f.Access.Keys(t.Context()); err != nil || len(list) != 1 || !list[0].UsedAt.IsZero() {
		t.Fatalf("keys = %+v, %v, want one that was not used", list, err)
	}
	if err := f.Access.UseKey(t.Context(), "k1"); err != nil {
		t.Fatal(err)
	}
	list, err := f.Access.Keys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 1 || list[0].UsedAt.IsZero() {
		t.Fatalf("keys = %+v, want one that was used", list)
	}
	list[0].UsedAt = time.Time{}
	storetest.Same(t, "key in the list", k, list[0])

	if err := f.Access.RevokeKey(t.Context(), "k1"); err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "wakes", []string{wake.APIKeys}, f.TakeWakes())
	if got, _, err := f.Access.LookupKey(t.Context(), "k1"); err != nil || got.RevokedAt.IsZero() {
		t.Errorf("a revoked key = %+v, %v", got, err)
	}
	if err := f.Access.RevokeKey(t.Context(), "k1"); err != nil {
		t.Errorf("revoke again: %v", err)
	}
	if err := f.Access.RevokeKey(t.Context(), "none"); !errors.Is(err, access.ErrNoKey) {
		t.Errorf("revoke an unknown key: %v, want ErrNoKey", err)
	}
}

func TestAPIKeyExpires(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	key := access.Key{ID: "k", Tenant: "acme", Owner: "ann", Scopes: []string{}}
	made, err := f.Access.CreateKey(t.Context(), key, [32]byte{}, time.Hour)
	if err != nil || made.ExpiresAt.Sub(made.CreatedAt).Round(time.Minute) != time.Hour {
		t.Fatalf("made %+v, %v", made, err)
	}
	got, _, err := f.Access.LookupKey(t.Context(), "k")
	if left := time.Until(got.ExpiresAt); err != nil || left > time.Hour || left < 50*time.Minute || got.Agents != nil {
		t.Errorf("a key that expires later = %+v, %v", got, err)
	}
	f.Exec("UPDATE a2a.api_keys SET expires_at = clock_timestamp()")
	got, _, err = f.Access.LookupKey(t.Context(), "k")
	if err != nil || got.ExpiresAt.IsZero() || got.ExpiresAt.After(time.Now()) {
		t.Errorf("an expired key = %+v, %v", got, err)
	}
}

// A guess must cost one read, whether or not a key has the id. Otherwise an attacker could keep the database busy, and
// learn from the time of the answer which ids exist.
func TestAPIKeyIsLookedUpByOneRead(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	for _, id := range []string{"revoked", "in force"} {
		key := access.Key{ID: id, Tenant: "t", Owner: "o", Scopes: []string{}}
		if _, err := f.Access.CreateKey(t.Context(), key, [32]byte{}, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Access.RevokeKey(t.Context(), "revoked"); err != nil {
		t.Fatal(err)
	}
	s, p := f.BehindProxy(t)
	for i, id := range []string{"none", "none", "revoked", "in force"} { // the first one prepares the statement
		n := 0
		p.Arm(storetest.Fault{Match: func(request []byte) bool {
			if storetest.IsExecute(request) {
				n++
			}
			return false
		}})
		_, _, err := s.Access.LookupKey(t.Context(), id)
		if errors.Is(err, access.ErrNoKey) != (id == "none") || err != nil && id != "none" {
			t.Errorf("%s: error = %v", id, err)
		}
		p.Disarm()
		if n != 1 && (n > 2 || i > 0) {
			t.Errorf("%s: %d statements, want one read", id, n)
		}
	}
}

func TestServerKeyIsMadeOnce(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	replicas := []*store.Store{f.Store, f.Replica("r2")}
	keys := make([][]byte, 16)
	var g errgroup.Group
	for i := range keys {
		g.Go(func() (err error) {
			keys[i], err = replicas[i%2].Access.ServerKey(t.Context(), "page-token")
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		if len(k) != 32 || !bytes.Equal(k, keys[0]) {
			t.Errorf("key %x, want 32 bytes, all the same", k)
		}
	}
	if other, err := f.Access.ServerKey(t.Context(), "other"); err != nil || bytes.Equal(other, keys[0]) {
		t.Errorf("the key of another name is %x, %v, want another key", other, err)
	}
}
