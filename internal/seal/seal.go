// Package seal encrypts stored secrets with one key of a ring. It binds each secret to its row and column, so
// that the secret cannot be decrypted anywhere else.
//
// It promises that nothing is stored without encryption, that a changed or moved secret does not
// decrypt, and that no key is printed. It does not know what it encrypts or where the ring's text
// comes from.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
)

// Errors that callers branch on.
var (
	// ErrNoKeys says that the ring has no key. Secrets are never stored unencrypted instead.
	ErrNoKeys = errors.New("no key to seal secrets with: set A2AD_KEYS")
	// ErrUnknownKey says that a secret was encrypted with a key that is not in the ring.
	ErrUnknownKey = errors.New("encrypted with a key that is not in A2AD_KEYS")
	// ErrBroken says that a secret was changed, or belongs to another cell.
	ErrBroken = errors.New("not what was encrypted for this row and column")
)

const (
	keySize  = 32 // AES-256
	redacted = "[redacted]"
	// format is the first byte of every encrypted secret. After it come one byte with the length of
	// the key's id, the id, a nonce, the ciphertext and its tag.
	format = 1
)

var keyID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

// Cell is the row and the column where a secret is stored. No two secrets share one.
type Cell struct{ Table, Row, Column string }

// aad returns the additional data that binds a ciphertext to its cell and key. No part contains the
// separator: see valid.
func (p Cell) aad(key string) []byte {
	return []byte(p.Table + "|" + p.Row + "|" + p.Column + "|" + key)
}

func (p Cell) valid() bool {
	for _, part := range []string{p.Table, p.Row, p.Column} {
		if part == "" || strings.Contains(part, "|") {
			return false
		}
	}
	return true
}

// Ring is a list of keys: the first one encrypts, and all of them decrypt. The zero value has no
// keys. A Ring prints as the ids of its keys. It is safe for concurrent use.
type Ring struct{ keys []*key }

// key holds no key bytes but the cipher made from them, behind a pointer, which fmt does not
// follow.
type key struct {
	id   string
	aead cipher.AEAD
}

// Parse reads pairs of id:base64-of-32-bytes, separated by commas. The empty text is a ring without
// keys. Its errors contain no key.
func Parse(text string) (Ring, error) {
	var r Ring
	if strings.TrimSpace(text) == "" {
		return r, nil
	}
	n := 0
	for item := range strings.SplitSeq(text, ",") {
		n++
		id, enc, ok := strings.Cut(strings.TrimSpace(item), ":")
		if !ok || !keyID.MatchString(id) {
			return Ring{}, fmt.Errorf("key %d is not of the form id:base64-of-32-bytes", n)
		}
		raw, err := base64.StdEncoding.DecodeString(enc)
		if err != nil || len(raw) != keySize {
			return Ring{}, fmt.Errorf("key %q is not 32 bytes in base64: make one with `openssl rand -base64 32`", id)
		}
		if r.find(id) != nil {
			return Ring{}, fmt.Errorf("key id %q is there twice", id)
		}
		aead, err := newAEAD(raw)
		if err != nil {
			return Ring{}, fmt.Errorf("key %q: %w", id, err)
		}
		r.keys = append(r.keys, &key{id, aead})
	}
	return r, nil
}

func newAEAD(raw []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(raw)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// Generate returns the text of a ring with one new key.
func Generate(id string) string {
	raw := make([]byte, keySize)
	_, _ = rand.Read(raw) // it never fails
	return id + ":" + base64.StdEncoding.EncodeToString(raw)
}

func (r Ring) find(id string) *key {
	for _, k := range r.keys {
		if k.id == id {
			return k
		}
	}
	return nil
}

// Empty reports whether the ring has no keys.
func (r Ring) Empty() bool { return len(r.keys) == 0 }

// IDs returns the ids of the keys. The first one encrypts.
func (r Ring) IDs() []string {
	out := make([]string, len(r.keys))
	for i, k := range r.keys {
		out[i] = k.id
	}
	return out
}

// Seal encrypts plaintext for one cell. It returns ErrNoKeys without a key.
func (r Ring) Seal(plaintext []byte, at Cell) ([]byte, error) {
	if r.Empty() {
		return nil, ErrNoKeys
	}
	if !at.valid() {
		return nil, fmt.Errorf("seal for %+v: not a complete cell", at)
	}
	k := r.keys[0]
	head := append([]byte{format, byte(len(k.id))}, k.id...)
	return k.aead.Seal(head, nil, plaintext, at.aad(k.id)), nil
}

// Open decrypts a secret of a cell. Its errors wrap ErrUnknownKey or ErrBroken, and contain nothing
// of the secret.
func (r Ring) Open(sealed []byte, at Cell) ([]byte, error) {
	id, box, ok := split(sealed)
	if !ok || !at.valid() {
		return nil, ErrBroken
	}
	k := r.find(id)
	if k == nil {
		return nil, fmt.Errorf("%w: key %q", ErrUnknownKey, id)
	}
	plaintext, err := k.aead.Open(nil, nil, box, at.aad(id))
	if err != nil {
		return nil, fmt.Errorf("%w: key %q", ErrBroken, id)
	}
	return plaintext, nil
}

// NeedsRewrap reports whether a secret should be encrypted again because its key is not the first
// one.
func (r Ring) NeedsRewrap(sealed []byte) bool {
	id, _, ok := split(sealed)
	return ok && !r.Empty() && id != r.keys[0].id
}

// KeyID returns the id of the key that encrypted a secret.
func KeyID(sealed []byte) (string, bool) {
	id, _, ok := split(sealed)
	return id, ok
}

func split(sealed []byte) (id string, box []byte, ok bool) {
	if len(sealed) < 2 || sealed[0] != format {
		return "", nil, false
	}
	end := 2 + int(sealed[1])
	if len(sealed) < end || !keyID.Match(sealed[2:end]) {
		return "", nil, false
	}
	return string(sealed[2:end]), sealed[end:], true
}

// UnmarshalText is Parse, but refuses a text without a key: a setting that is present is meant to
// have one.
func (r *Ring) UnmarshalText(text []byte) error {
	ring, err := Parse(string(text))
	if err == nil && ring.Empty() {
		err = errors.New("no key: write id:base64-of-32-bytes")
	}
	if err != nil {
		return err
	}
	*r = ring
	return nil
}

func (r Ring) String() string {
	var b strings.Builder
	for i, id := range r.IDs() {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(id + ":" + redacted)
	}
	return b.String()
}

// MarshalText returns the ids of the keys.
func (r Ring) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Format prints the ids of the keys for every verb of fmt.
func (r Ring) Format(f fmt.State, _ rune) { fmt.Fprint(f, r.String()) }

// LogValue returns the ids of the keys.
func (r Ring) LogValue() slog.Value { return slog.StringValue(r.String()) }
