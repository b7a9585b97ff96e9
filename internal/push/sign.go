package push

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	secretPrefix = "whsec_" // of keys in the text form of Standard Webhooks

	minSecret = 24
	maxSecret = 64
	redacted  = "[redacted]"
)

// Secret is a shared key for v1 signatures. It prints as [redacted]. The key is in a function because fmt prints
// unexported fields without calling their methods.
type Secret struct{ key func() []byte }

// ParseSecret reads whsec_ and 24 to 64 bytes in base64. Its errors do not show the text.
func ParseSecret(text string) (Secret, error) {
	enc, ok := strings.CutPrefix(text, secretPrefix)
	key, err := base64.StdEncoding.Strict().DecodeString(enc)
	if !ok || err != nil || strings.ContainsAny(enc, "\r\n") || len(key) < minSecret || len(key) > maxSecret {
		return Secret{}, fmt.Errorf("not %s and %d to %d bytes in base64", secretPrefix, minSecret, maxSecret)
	}
	return Secret{func() []byte { return key }}, nil
}

// NewSecret makes a random secret and its text.
func NewSecret() (Secret, string) {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it never fails
	return Secret{func() []byte { return key }}, secretPrefix + base64.StdEncoding.EncodeToString(key)
}

func (s Secret) String() string { return redacted }

// Format keeps the key out of text printed with %x, %#v and the like.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, redacted) }

// MarshalText keeps the key out of encoded values.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue keeps the key out of logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// Signer signs with every key it has, so that a receiver that knows one of them can verify signatures during a
// rotation. A nil Signer has no keys. It is safe for concurrent use.
type Signer struct {
	secrets []Secret
	keys    []func() ed25519.PrivateKey
}

// NewSigner makes a Signer for v1 with secrets and v1a with keys. Signatures appear in this order, in which receivers
// try them.
func NewSigner(secrets []Secret, keys []ed25519.PrivateKey) *Signer {
	s := &Signer{secrets: slices.DeleteFunc(slices.Clone(secrets), func(s Secret) bool { return s.key == nil })}
	for _, key := range keys {
		s.keys = append(s.keys, func() ed25519.PrivateKey { return key })
	}
	return s
}

// Format keeps the keys out of printed text.
func (s *Signer) Format(f fmt.State, _ rune) { fmt.Fprint(f, redacted) }

// ErrBadID says that an id cannot be signed.
var ErrBadID = errors.New("the id of a notification is empty or has characters other than letters, digits, - and _")

// Sign returns the webhook-signature of a notification that is sent at the given time: a list separated by spaces,
// empty without keys. It returns ErrBadID for an invalid id. A dot in an id would make one signature fit several
// notifications.
func (s *Signer) Sign(id string, at time.Time, body []byte) (string, error) {
	if !validID(id) {
		return "", ErrBadID
	}
	if s == nil {
		return "", nil
	}
	prefix := append(strconv.AppendInt(append([]byte(id), '.'), at.Unix(), 10), '.')
	var out []byte
	add := func(version string, sig []byte) {
		if len(out) > 0 {
			out = append(out, ' ')
		}
		out = base64.StdEncoding.AppendEncode(append(append(out, version...), ','), sig)
	}
	for _, secret := range s.secrets {
		mac := hmac.New(sha256.New, secret.key())
		mac.Write(prefix)
		mac.Write(body)
		add("v1", mac.Sum(nil))
	}
	if len(s.keys) > 0 {
		message := append(prefix, body...)
		for _, key := range s.keys {
			add("v1a", ed25519.Sign(key(), message))
		}
	}
	return string(out), nil
}

func validID(id string) bool {
	return id != "" && !strings.ContainsFunc(id, func(r rune) bool { return !isLabelRune(r) })
}
