package push

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func newKey(t *testing.T, at time.Time) Key {
	stored, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	k, err := ParseKey(stored, at)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

var day0 = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

const day = 24 * time.Hour

// TestTokenVerifiesAgainstTheKeySet: a receiver reads the key set from the server and verifies with
// the key that the token names.
func TestTokenVerifiesAgainstTheKeySet(t *testing.T) {
	t.Parallel()
	old, key := newKey(t, day0), newKey(t, day0.Add(day))
	issuer, err := NewIssuer("https://agents.example", key)
	if err != nil {
		t.Fatal(err)
	}
	body := []byte(`{"kind":"task"}`)
	now := time.Unix(1_800_000_000, 999)
	text, err := issuer.Mint(Claims{Audience: "https://hooks.example:443", Task: "task-1", ID: "msg_x_1", Body: body},
		now)
	if err != nil {
		t.Fatal(err)
	}
	served, err := JWKS([]Key{key, old})
	if err != nil {
		t.Fatal(err)
	}
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(served, &set); err != nil {
		t.Fatal(err)
	}
	token, err := jwt.ParseSigned(text, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		t.Fatal(err)
	}
	if h := token.Headers[0]; h.KeyID != key.ID || h.Algorithm != "EdDSA" || h.ExtraHeaders[jose.HeaderType] != "JWT" ||
		h.JSONWebKey != nil {
		t.Errorf("header %+v", h)
	}
	var standard jwt.Claims
	var all map[string]any
	if err := token.Claims(&set, &standard, &all); err != nil {
		t.Fatal(err)
	}
	if err := standard.Validate(jwt.Expected{Issuer: "https://agents.example",
		AnyAudience: jwt.Audience{"https://hooks.example:443"}, ID: "msg_x_1", Subject: "task-1",
		Time: now}); err != nil {
		t.Error(err)
	}
	if err := standard.ValidateWithLeeway(jwt.Expected{Time: now.Add(5*time.Minute + time.Second)}, 0); err == nil {
		t.Error("still good after five minutes")
	}
	sum := sha256.Sum256(body)
	want := map[string]any{
		"iss": "https://agents.example", "aud": "https://hooks.example:443", "sub": "task-1", "taskId": "task-1",
		"jti": "msg_x_1",
		"iat": 1.8e9, "exp": 1.8e9 + 300, "request_body_sha256": hex.EncodeToString(sum[:]),
	}
	if diff := cmp.Diff(want, all); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
	// Without the key in the set, or with the signature of another token, verification fails.
	served, err = JWKS([]Key{old})
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(served, &set); err != nil {
		t.Fatal(err)
	}
	if err := token.Claims(&set, &all); err == nil {
		t.Error("verifies against another key")
	}
}

func TestKeySetHasOnlyPublicKeys(t *testing.T) {
	t.Parallel()
	keys := []Key{newKey(t, day0), newKey(t, day0), newKey(t, day0.Add(time.Hour))}
	want, err := JWKS(keys)
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		if got, err := JWKS(keys); err != nil || string(got) != string(want) {
			t.Fatalf("got %s, %v; want %s", got, err, want)
		}
	}
	var set struct{ Keys []map[string]string }
	if err := json.Unmarshal(want, &set); err != nil {
		t.Fatal(err)
	}
	if len(set.Keys) != 3 || set.Keys[2]["kid"] != sortKeys(keys)[2].ID {
		t.Errorf("got %v", set.Keys)
	}
	for _, k := range set.Keys {
		if k["kty"] != "OKP" || k["crv"] != "Ed25519" || k["alg"] != "EdDSA" || k["use"] != "sig" ||
			len(k["x"]) != 43 || len(k) != 6 {
			t.Errorf("got %v", k)
		}
	}
	if got, err := JWKS(nil); err != nil || string(got) != `{"keys":[]}` {
		t.Errorf("without keys: %s, %v", got, err)
	}
}

func TestStoredKeys(t *testing.T) {
	t.Parallel()
	stored, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	a, errA := ParseKey(stored, day0)
	b, errB := ParseKey(stored, day0)
	if errA != nil || errB != nil || a.ID != b.ID || len(a.ID) != 43 || !a.Private().Equal(b.Private()) ||
		!a.CreatedAt.Equal(day0) {
		t.Errorf("%v, %v; %v, %v", a, b, errA, errB)
	}
	for _, text := range []string{"", "{}", "null", string(stored[:len(stored)-3]),
		strings.Replace(string(stored), "EdDSA", "ES256", 1), `{"alg":"EdDSA","seed":"aHVudGVyMg=="}`} {
		if k, err := ParseKey([]byte(text), day0); err == nil || k.ID != "" ||
			strings.Contains(err.Error(), "hunter") || strings.Contains(err.Error(), "aHVu") {
			t.Errorf("%q: %v, %v", text, k, err)
		}
	}
	if _, err := NewIssuer("x", Key{}); err == nil {
		t.Error("an issuer without a key")
	}
}

func TestMintingIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	key := newKey(t, day0)
	issuer, err := NewIssuer("https://x", key)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			text, err := issuer.Mint(Claims{ID: "a"}, day0)
			if err != nil {
				t.Error(err)
				return
			}
			if token, err := jwt.ParseSigned(text, []jose.SignatureAlgorithm{jose.EdDSA}); err != nil ||
				token.Claims(key.Public(), &map[string]any{}) != nil {
				t.Errorf("%s: %v", text, err)
			}
		})
	}
	wg.Wait()
}

// TestRotation is the life of a server in months: which key signs, which keys are published, and
// when the next change is due.
func TestRotation(t *testing.T) {
	t.Parallel()
	a, b, c := newKey(t, day0), newKey(t, day0.Add(time.Second)), newKey(t, day0.Add(30*day+2*time.Second))
	name := map[string]string{"": "-", a.ID: "a", b.ID: "b", c.ID: "c"}
	names := func(keys []Key) (out string) {
		for _, k := range keys {
			out += name[k.ID]
		}
		return out
	}
	for _, tt := range []struct {
		keys                       []Key
		after                      time.Duration
		signer, published, retired string
		make                       bool
		next                       time.Duration // -1: never
	}{
		{nil, 0, "-", "", "", true, -1},
		{[]Key{a}, 0, "a", "a", "", true, -1},
		{[]Key{a, b}, time.Second, "a", "ab", "", false, 30*day + time.Second},
		{[]Key{b, a}, 30 * day, "a", "ab", "", false, 30*day + time.Second},
		{[]Key{a, b}, 30*day + time.Second, "b", "ab", "", true, 31*day + time.Second},
		{[]Key{a, b, c}, 30*day + 2*time.Second, "b", "abc", "", false, 31*day + time.Second},
		{[]Key{a, b, c}, 31*day + time.Second, "b", "bc", "a", false, 60*day + 2*time.Second},
		{[]Key{b, c}, 31*day + time.Second, "b", "bc", "", false, 60*day + 2*time.Second},
		{[]Key{a, b, c}, 60*day + 2*time.Second, "c", "bc", "a", true, 61*day + 2*time.Second},
		{[]Key{a, b, c}, 300 * day, "c", "c", "ab", true, -1},
	} {
		p := Rotation{}.Plan(tt.keys, day0.Add(tt.after))
		next := time.Duration(-1)
		if !p.Next.IsZero() {
			next = p.Next.Sub(day0)
		}
		if name[p.Signer.ID] != tt.signer || names(p.Published) != tt.published || names(p.Retired) != tt.retired ||
			p.Make != tt.make || next != tt.next {
			t.Errorf("%s after %s: signer %s, published %s, retired %s, make %t, next %s; want %+v", names(tt.keys),
				tt.after, name[p.Signer.ID], names(p.Published), names(p.Retired), p.Make, next, tt)
		}
	}
	if p := (Rotation{Every: time.Minute, Keep: time.Minute}).Plan([]Key{a, b},
		day0.Add(time.Hour)); p.Signer.ID != a.ID {
		t.Error("a key signs that was published for less than a day")
	}
}

// TestRotationKeepsItsPromises plans a server over a year in random steps. Its replicas make keys
// at the same time, and may or may not drop retired ones. A key that signs has been published for a
// day, a key that signed stays published for a day, and there are two.
func TestRotationKeepsItsPromises(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := Rotation{Every: time.Duration(rapid.IntRange(0, 40).Draw(t, "every")) * day,
			Keep: time.Duration(rapid.IntRange(0, 3).Draw(t, "keep")) * day}
		now := day0
		var keys []Key
		signed := map[string]time.Time{} // when a key last signed
		first, made := true, 0
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			p := r.Plan(keys, now)
			for p.Make {
				for range rapid.IntRange(1, 2).Draw(t, "replicas") {
					made++
					keys = append(keys, Key{ID: fmt.Sprint("key", made), CreatedAt: now})
				}
				if p = r.Plan(keys, now); p.Make && len(keys) > 3 {
					t.Fatal("wants a key, however many there are")
				}
			}
			if rapid.Bool().Draw(t, "drop") {
				keys = slices.DeleteFunc(keys, func(k Key) bool {
					return slices.ContainsFunc(p.Retired, func(dead Key) bool { return dead.ID == k.ID })
				})
				if after := r.Plan(keys, now); after.Signer.ID != p.Signer.ID ||
					len(after.Published) != len(p.Published) || !after.Next.Equal(p.Next) || len(after.Retired) != 0 {
					t.Fatalf("dropping changed the plan from %v to %v", p, after)
				}
			}
			if !first && now.Sub(p.Signer.CreatedAt) < MinPublished && len(signed) > 0 {
				if _, before := signed[p.Signer.ID]; !before {
					t.Fatalf("%v signs %s after it was made", p.Signer, now.Sub(p.Signer.CreatedAt))
				}
			}
			first = false
			signed[p.Signer.ID] = now
			for id, at := range signed {
				if now.Sub(at) < MinPublished &&
					!slices.ContainsFunc(p.Published, func(k Key) bool { return k.ID == id }) {
					t.Fatalf("%s signed %s ago and is not published", id, now.Sub(at))
				}
			}
			if len(p.Published) < 2 || !p.Next.After(now) {
				t.Fatalf("%d published, next at %s, now %s", len(p.Published), p.Next, now)
			}
			if rapid.Bool().Draw(t, "at the change") {
				now = p.Next
			} else {
				now = now.Add(time.Duration(rapid.Int64Range(1, int64(20*day)).Draw(t, "later")))
			}
		}
	})
}
