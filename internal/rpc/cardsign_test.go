package rpc_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/push"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/rpc"
	"github.com/a2ad/a2ad/internal/seal"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	v03 "github.com/a2ad/a2ad/internal/wire/v03"
	v1 "github.com/a2ad/a2ad/internal/wire/v1"
)

func cardKeys(t *testing.T) *push.Keys {
	t.Helper()
	pg, err := store.Open(t.Context(), store.Config{Config: db.Config{URL: storetest.New(t).URL, Replica: "r",
		PoolSize: 4}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pg.Close)
	ring, err := seal.Parse(seal.Generate("k"))
	if err != nil {
		t.Fatal(err)
	}
	keys := push.NewKeys(push.KeysConfig{Store: pg, Ring: ring, Issuer: "http://h"})
	if err := keys.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return keys
}

// sorted returns the canonical form of a value with only integers and ASCII. It does not use the
// server's code: encoding/json sorts the names.
func sorted(t *testing.T, doc []byte) []byte {
	t.Helper()
	var v any
	if err := json.Unmarshal(doc, &v); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return []byte(strings.TrimSpace(out.String()))
}

// verify checks the signature of a card as a client does, with the key set that its header names.
func verify(t *testing.T, card, jwks []byte) {
	t.Helper()
	var sig struct{ Protected, Signature string }
	for s := range rawjson.Elements(rawjson.Get(card, "signatures")) {
		if err := json.Unmarshal(s, &sig); err != nil {
			t.Fatal(err)
		}
	}
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(jwks, &set); err != nil {
		t.Fatal(err)
	}
	payload := base64.RawURLEncoding.EncodeToString(sorted(t, rawjson.Without(card, "signatures")))
	jws, err := jose.ParseSignedCompact(sig.Protected+"."+payload+"."+sig.Signature,
		[]jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		t.Fatalf("%v: %s", err, card)
	}
	h := jws.Signatures[0].Protected
	if h.ExtraHeaders["typ"] != "JOSE" || h.ExtraHeaders["jku"] != "http://h/.well-known/jwks.json" {
		t.Errorf("header %+v", h)
	}
	keys := set.Key(h.KeyID)
	if len(keys) != 1 {
		t.Fatalf("got %d keys with the id %q", len(keys), h.KeyID)
	}
	if _, err := jws.Verify(keys[0].Key.(ed25519.PublicKey)); err != nil {
		t.Errorf("%v: %s", err, card)
	}
}

func TestCardsOf1AreSigned(t *testing.T) {
	t.Parallel()
	keys := cardKeys(t)
	s := newBare(t, func(c *rpc.Config) {
		c.Authenticator, c.CardSigner, c.JWKS = auth.Chain{schemed{}}, keys, keys.JWKS
		for _, a := range c.Agents {
			a.Card = a2a.Card{
				Name: "n <&>", Description: "d", Version: "1", InputModes: []string{"*/*"},
				OutputModes: []string{"a/b"},
				Skills:      []a2a.Skill{{ID: "s", Name: "s", Description: "d"}},
				Extensions:  []a2a.Extension{{URI: "urn:x", Params: a2a.Raw(`{"b":1,"a":[true,"x"]}`)}},
			}
			extended := a.Card
			extended.Name = "extended"
			a.Extended = &extended
		}
	})
	jwks := []byte(send(t, s, http.MethodGet, "/.well-known/jwks.json", "", nil).body)
	one := send(t, s, http.MethodGet, cardPath, "", http.Header{"A2a-Version": {"1.0"}})
	verify(t, []byte(one.body), jwks)
	again := send(t, s, http.MethodGet, cardPath, "",
		http.Header{"A2a-Version": {"1.0"}, "If-None-Match": {one.header.Get("Etag")}})
	if again.status != http.StatusNotModified {
		t.Errorf("a conditional request for the same card: got %d", again.status)
	}
	extended := send(t, s, http.MethodGet, "/extendedAgentCard", "",
		http.Header{"A2a-Version": {"1.0"}, "X-Who": {"acme/ann"}})
	verify(t, []byte(extended.body), jwks)
	for _, h := range []http.Header{{"A2a-Version": {"0.3"}}, {}} {
		if got := send(t, s, http.MethodGet, cardPath, "", h); strings.Contains(got.body, "signatures") {
			t.Errorf("%v: %s", h, got.body)
		}
	}
}

// turning is a signer whose key can change.
type turning struct{ n atomic.Int32 }

func (k *turning) CardKey() string { return string('a' + k.n.Load()) }

func (k *turning) SignCard([]byte) (key, protected, signature string, err error) {
	return k.CardKey(), "p", k.CardKey(), nil
}

func TestCardIsSignedAnewWhenTheKeyChanges(t *testing.T) {
	t.Parallel()
	k := &turning{}
	s := newBare(t, func(c *rpc.Config) {
		c.CardSigner, c.PureCard = k, true
		for _, a := range c.Agents {
			a.Card = a2a.Card{Name: "n", Description: "d", Version: "1", InputModes: []string{"a/b"},
				OutputModes: []string{"a/b"}, Skills: []a2a.Skill{{ID: "s", Name: "s", Description: "d"}}}
		}
	})
	first := send(t, s, http.MethodGet, cardPath, "", nil)
	k.n.Add(1)
	second := send(t, s, http.MethodGet, cardPath, "", nil)
	if !strings.HasSuffix(first.body, `,"signatures":[{"protected":"p","signature":"a"}]}`) ||
		!strings.HasSuffix(second.body, `"signature":"b"}]}`) ||
		first.header.Get("Etag") == second.header.Get("Etag") {
		t.Errorf("%s\n%s", first.body, second.body)
	}
}

// TestCardsThatImplementationsSerializeDifferentlyAreRefused: the server refuses them at the start,
// and says what to change.
func TestCardsThatImplementationsSerializeDifferentlyAreRefused(t *testing.T) {
	t.Parallel()
	good := a2a.Card{Name: "n", Description: "d", Version: "1", InputModes: []string{"a/b"},
		OutputModes: []string{"a/b"}, Skills: []a2a.Skill{{ID: "s", Name: "s", Description: "d"}}}
	for what, change := range map[string]func(*a2a.Card){
		"card.skills[0].description is an empty text": func(c *a2a.Card) {
			c.Skills = []a2a.Skill{{ID: "s", Name: "s"}}
		},
		"card.defaultInputModes is an empty list": func(c *a2a.Card) { c.InputModes = nil },
		"extensions[0].params is an empty object": func(c *a2a.Card) {
			c.Extensions = []a2a.Extension{{URI: "urn:x", Params: a2a.Raw(`{}`)}}
		},
		"extensions[0].params.a is false": func(c *a2a.Card) {
			c.Extensions = []a2a.Extension{{URI: "urn:x", Params: a2a.Raw(`{"a":false}`)}}
		},
		"extensions[0].params.a[1] is the number 0": func(c *a2a.Card) {
			c.Extensions = []a2a.Extension{{URI: "urn:x", Params: a2a.Raw(`{"a":[1,0]}`)}}
		},
		"extensions[0].params.a is the number 1.5": func(c *a2a.Card) {
			c.Extensions = []a2a.Extension{{URI: "urn:x", Params: a2a.Raw(`{"a":1.5}`)}}
		},
		"extensions[0].params.a is null": func(c *a2a.Card) {
			c.Extensions = []a2a.Extension{{URI: "urn:x", Params: a2a.Raw(`{"a":null}`)}}
		},
		`extensions[0].params is the name "ä"`: func(c *a2a.Card) {
			c.Extensions = []a2a.Extension{{URI: "urn:x", Params: a2a.Raw(`{"ä":1}`)}}
		},
		"extensions[0].params.a is the number 9007199254740993": func(c *a2a.Card) {
			c.Extensions = []a2a.Extension{{URI: "urn:x", Params: a2a.Raw(`{"a":9007199254740993}`)}}
		},
	} {
		card := good
		change(&card)
		err := start(card, &turning{})
		if err == nil || !strings.Contains(err.Error(), what+", which implementations serialize differently") ||
			!strings.HasPrefix(err.Error(), "card of agent a: ") {
			t.Errorf("%s: %v", what, err)
		}
		if err := start(card, nil); err != nil {
			t.Errorf("%s, not signed: %v", what, err)
		}
	}
	if err := start(good, &turning{}); err != nil {
		t.Errorf("a card that can be signed: got %v", err)
	}
}

// start makes a server with one agent. It signs the cards if there is a signer.
func start(c a2a.Card, signer rpc.CardSigner) error {
	_, err := rpc.New(rpc.Config{
		Authenticator: auth.Anonymous{}, V03: v03.Codec{}, V1: v1.Codec{}, PublicURL: "http://h", CardSigner: signer,
		Agents: []*a2a.Agent{{Name: "a", Default: true, Card: c}},
	})
	return err
}
