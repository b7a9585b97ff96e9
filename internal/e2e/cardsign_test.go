package e2e_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/a2ad/a2ad/internal/seal"
)

// Card signatures verify with the key set that their header names, from any replica.
func TestSignedCardsVerify(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	env := []string{"A2AD_AUTH=required", "A2AD_DB_POOL=4", "A2AD_CARD_SIGNING=on", "A2AD_KEYS=" + seal.Generate("k"),
		"A2AD_PUBLIC_URL=https://agents.example"}
	a, b := c.start("a", env...), c.start("b", env...)
	for _, path := range []string{"", "/agents/script"} {
		card := c.do(a, http.MethodGet, path+"/.well-known/agent-card.json", nil, "A2A-Version", "1.0")
		var doc map[string]any
		var sig struct {
			Signatures []struct{ Protected, Signature string }
		}
		if err := json.Unmarshal(card.body, &doc); err != nil {
			t.Fatalf("%d %s", card.status, card.body)
		}
		if err := json.Unmarshal(card.body, &sig); err != nil || len(sig.Signatures) != 1 {
			t.Fatalf("%v: %s", err, card.body)
		}
		// For ASCII and whole numbers the canonical form is that of encoding/json.
		delete(doc, "signatures")
		var canonical bytes.Buffer
		e := json.NewEncoder(&canonical)
		e.SetEscapeHTML(false)
		if err := e.Encode(doc); err != nil {
			t.Fatal(err)
		}
		payload := base64.RawURLEncoding.EncodeToString(bytes.TrimSpace(canonical.Bytes()))
		jws, err := jose.ParseSignedCompact(sig.Signatures[0].Protected+"."+payload+"."+sig.Signatures[0].Signature,
			[]jose.SignatureAlgorithm{jose.EdDSA})
		if err != nil {
			t.Fatal(err)
		}
		header := jws.Signatures[0].Protected
		jku, _ := header.ExtraHeaders["jku"].(string)
		at, ok := strings.CutPrefix(jku, "https://agents.example")
		if !ok {
			t.Fatalf("the header has %v", header)
		}
		for _, r := range []*replica{a, b} {
			var set jose.JSONWebKeySet
			if got := c.do(r, http.MethodGet, at, nil); json.Unmarshal(got.body, &set) != nil ||
				len(set.Key(header.KeyID)) != 1 {
				t.Fatalf("%s lacks at %s the key %s: %d %s", r.name, at, header.KeyID, got.status, got.body)
			}
			if _, err := jws.Verify(set.Key(header.KeyID)[0]); err != nil {
				t.Errorf("by the key of %s: %v: %s", r.name, err, card.body)
			}
			if same := c.do(r, http.MethodGet, path+"/.well-known/agent-card.json", nil, "A2A-Version",
				"1.0"); !bytes.Equal(same.body, card.body) {
				t.Errorf("%s has another card: %s\nthan %s", r.name, same.body, card.body)
			}
		}
	}
}
