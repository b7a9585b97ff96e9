package push

import (
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/seal"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// TestDeliveryHasATokenOfTheServer: without credentials, Bearer is a token of the server, which the
// published keys verify.
func TestDeliveryHasATokenOfTheServer(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	s := newSink(t, ok)
	task := b.task(a2a.PushConfig{URL: s.URL, Schemes: []string{"Bearer"}})
	b.deliver()
	b.awaitDelivered(task, 1)
	r := s.requests()[0]
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(b.keys(b.Store, b.ring).JWKS(), &set); err != nil || len(set.Keys) != 2 {
		t.Fatalf("%d keys, %v, want two", len(set.Keys), err)
	}
	parsed, err := jwt.ParseSigned(strings.TrimPrefix(r.header.Get("Authorization"), "Bearer "),
		[]jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		t.Fatal(err)
	}
	var c jwt.Claims
	if err := parsed.Claims(set, &c); err != nil {
		t.Fatal(err)
	}
	err = c.Validate(jwt.Expected{Issuer: "https://a2ad.example", AnyAudience: jwt.Audience{s.URL},
		Subject: task.String(), ID: r.header.Get("Webhook-Id")})
	if err != nil {
		t.Errorf("claims %+v: %v", c, err)
	}
}

func TestReplicasMakeOneSetOfKeys(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	stores := []*store.Store{b.Store, b.replica("r2"), b.replica("r3")}
	sets := make([]string, len(stores))
	var wg sync.WaitGroup
	for i, s := range stores {
		wg.Go(func() {
			k := NewKeys(KeysConfig{Store: s, Ring: b.ring, Issuer: "https://a2ad.example",
				Logger: slog.New(slog.DiscardHandler)})
			if err := k.Load(t.Context()); err != nil {
				t.Error(err)
				return
			}
			sets[i] = string(k.JWKS())
		})
	}
	wg.Wait()
	if sets[0] != sets[1] || sets[0] != sets[2] || strings.Count(sets[0], `"kid"`) != 2 {
		t.Errorf("sets %s", strings.Join(sets, "\n"))
	}
	// A server with another ring cannot read these keys, and makes its own.
	other := b.keys(b.Store, newRing(t, "k2"))
	if got := string(other.JWKS()); got == sets[0] || strings.Count(got, `"kid"`) != 2 {
		t.Errorf("with another ring: %s", got)
	}
	if again := b.keys(b.Store, b.ring); string(again.JWKS()) != sets[0] {
		t.Errorf("the first ring now has %s", again.JWKS())
	}
	// Without a ring there are no keys, but there is a set.
	none := b.keys(b.Store, seal.Ring{})
	if none.Issuer() != nil || string(none.JWKS()) != `{"keys":[]}` {
		t.Errorf("without a ring: %s", none.JWKS())
	}
}

func TestKeysAndSecretsMoveToAnotherRing(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	s := newSink(t, ok)
	old := b.keys(b.Store, b.ring)
	oldText, newText := seal.Generate("old"), seal.Generate("new")
	both, err := seal.Parse(newText + "," + oldText)
	if err != nil {
		t.Fatal(err)
	}
	if b.ring, err = seal.Parse(oldText); err != nil {
		t.Fatal(err)
	}
	task := b.task(a2a.PushConfig{URL: s.URL, Token: "tok"})
	before := b.keys(b.Store, b.ring)
	n, err := b.Webhooks.Reseal(t.Context(), func(row a2a.ID, s webhooks.Secrets) (webhooks.Secrets, bool, error) {
		return Reseal(both, row, s)
	})
	if n != 1 || err != nil {
		t.Errorf("%d webhooks resealed, %v", n, err)
	}
	// Keys of the first ring, which is not available here, must not stop the others.
	if n, err := ResealKeys(t.Context(), b.Store, both); n != 2 || err != nil {
		t.Errorf("%d keys resealed, %v, want 2", n, err)
	}
	if b.ring, err = seal.Parse(newText); err != nil {
		t.Fatal(err)
	}
	if after := b.keys(b.Store, b.ring); string(after.JWKS()) != string(before.JWKS()) ||
		string(after.JWKS()) == string(old.JWKS()) {
		t.Errorf("keys %s, want %s", after.JWKS(), before.JWKS())
	}
	b.deliver()
	b.awaitDelivered(task, 1)
	if got := s.requests()[0].header.Get("A2a-Notification-Token"); got != "tok" {
		t.Errorf("token %q", got)
	}
}
