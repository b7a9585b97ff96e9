package push

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"pgregory.net/rapid"
)

func headers(id string, at time.Time, signature string) http.Header {
	h := http.Header{}
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", strconv.FormatInt(at.Unix(), 10))
	h.Set("webhook-signature", signature)
	return h
}

// verifyV1a verifies like a receiver that has the public key.
func verifyV1a(public ed25519.PublicKey, body []byte, h http.Header) bool {
	message := append([]byte(h.Get("webhook-id")+"."+h.Get("webhook-timestamp")+"."), body...)
	return slices.ContainsFunc(strings.Fields(h.Get("webhook-signature")), func(s string) bool {
		enc, ok := strings.CutPrefix(s, "v1a,")
		sig, err := base64.StdEncoding.DecodeString(enc)
		return ok && err == nil && ed25519.Verify(public, message, sig)
	})
}

func newSigningKey(t testing.TB) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestEveryKeyVerifies: during a rotation all keys sign, and the official library finds the one it
// has.
func TestEveryKeyVerifies(t *testing.T) {
	t.Parallel()
	oldSecret, oldText := NewSecret()
	secret, text := NewSecret()
	oldKey, key := newSigningKey(t), newSigningKey(t)
	signer := NewSigner([]Secret{secret, {}, oldSecret}, []ed25519.PrivateKey{key, oldKey})
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.StringMatching(`[A-Za-z0-9_-]{1,80}`).Draw(t, "id")
		body := rapid.SliceOf(rapid.Byte()).Draw(t, "body")
		before := bytes.Clone(body)
		now := time.Now()
		sig, err := signer.Sign(id, now, body)
		if err != nil {
			t.Fatal(err)
		}
		h := headers(id, now, sig)
		for _, text := range []string{text, oldText} {
			wh, err := standardwebhooks.NewWebhook(text)
			if err != nil {
				t.Fatal(err)
			}
			if err := wh.Verify(body, h); err != nil {
				t.Fatalf("v1: %v", err)
			}
			if wh.Verify(append(bytes.Clone(body), 'x'), h) == nil ||
				wh.Verify(body, headers(id+"x", now, sig)) == nil ||
				wh.Verify(body, headers(id, now.Add(time.Second), sig)) == nil {
				t.Fatal("v1: another body, id or time verifies")
			}
		}
		for _, k := range []ed25519.PrivateKey{key, oldKey} {
			public := k.Public().(ed25519.PublicKey)
			if !verifyV1a(public, body, h) {
				t.Fatal("v1a does not verify")
			}
			if verifyV1a(public, append(bytes.Clone(body), 'x'), h) ||
				verifyV1a(public, body, headers(id+"x", now, sig)) ||
				verifyV1a(public, body, headers(id, now.Add(time.Second), sig)) {
				t.Fatal("v1a: another body, id or time verifies")
			}
		}
		if got := strings.Count(sig, " "); got != 3 || !bytes.Equal(body, before) {
			t.Fatalf("%d separators in %q", got, sig)
		}
	})
}

// TestSignatureFollowsStandardWebhooks uses the test vector of the official libraries.
func TestSignatureFollowsStandardWebhooks(t *testing.T) {
	t.Parallel()
	secret, err := ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	got, err := NewSigner([]Secret{secret}, nil).Sign("msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0),
		[]byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want || err != nil {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

func TestInvalidIDsAreNotSigned(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", "a.b", ".", "a b", "a\nb", "ä", "a,b"} {
		if sig, err := (*Signer)(nil).Sign(id, time.Now(), nil); !errors.Is(err, ErrBadID) || sig != "" {
			t.Errorf("%q: got %q, %v", id, sig, err)
		}
	}
	if sig, err := (*Signer)(nil).Sign("a", time.Now(), nil); sig != "" || err != nil {
		t.Errorf("without keys: got %q, %v", sig, err)
	}
}

func TestSecretsAreParsedStrictly(t *testing.T) {
	t.Parallel()
	b64 := func(n int) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("h"), n)) }
	for text, good := range map[string]bool{
		"whsec_" + b64(24):        true,
		"whsec_" + b64(64):        true,
		"whsec_" + b64(23):        false,
		"whsec_" + b64(65):        false,
		b64(32):                   false,
		"whsk_" + b64(32):         false,
		"":                        false,
		"whsec_":                  false,
		"whsec_" + b64(32) + "\n": false,
		"whsec_!" + b64(32):       false,
		"WHSEC_" + b64(32):        false,
		"whsec_" + strings.TrimRight(b64(25), "="): false,
	} {
		if _, err := ParseSecret(text); (err == nil) != good || err != nil && strings.Contains(err.Error(), "hhh") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestSigningKeysAreNotPrinted(t *testing.T) {
	t.Parallel()
	seed := []byte("hunter2hunter2hunter2hunter2hunt")
	text := secretPrefix + base64.StdEncoding.EncodeToString(seed)
	secret, err := ParseSecret(text)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := json.Marshal(storedKey{algorithm, seed})
	if err != nil {
		t.Fatal(err)
	}
	key, err := ParseKey(stored, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	signer := NewSigner([]Secret{secret}, []ed25519.PrivateKey{key.Private()})
	issuer, err := NewIssuer("https://x", key)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for _, v := range []any{secret, &secret, key, &key, signer, issuer, struct{ k Key }{key},
		struct{ s Secret }{secret}, struct{ s *Signer }{signer}, struct{ i *Issuer }{issuer}, []Key{key},
		Plan{Signer: key}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
		slog.New(slog.NewTextHandler(&out, nil)).Info("x", "v", v)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "v", v)
	}
	for _, bad := range []string{"hunter2", text[6:20], fmt.Sprintf("%x", "hunter2"), fmt.Sprintf("%X", "hunter2"),
		"104 117 110", "0x68, 0x75"} {
		if strings.Contains(out.String(), bad) {
			i := strings.Index(out.String(), bad)
			t.Errorf("%q is seen: %.200q", bad, out.String()[max(0, i-100):])
		}
	}
}
