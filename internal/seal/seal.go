// Package seal keeps secrets that are stored: it encrypts them with one key of a ring and
// binds them to the place where they are kept, so that a sealed secret opens nowhere else.
//
// It promises that nothing is sealed without a key, that what was tampered with or moved
// does not open, and that no key is printed. It must not know what is sealed, nor where
// the text of the ring comes from.
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
	// ErrNoKeys says that there is no key to seal with. Nothing is ever stored in clear instead.
	ErrNoKeys = errors.New("no key to seal secrets with: set A2AD_KEYS")
	// ErrUnknownKey says that the key with which something was sealed is not in the ring.
	ErrUnknownKey = errors.New("sealed with a key that is not in A2AD_KEYS")
	// ErrBroken says that something is not what was sealed for this place.
	ErrBroken = errors.New("not what was sealed for this place")
)

const (
	keySize  = 32 // AES-256
	redacted = "[redacted]"
	// format is the first byte of everything sealed: one byte of length and the id of the key
	// follow, then a nonce, the ciphertext and its tag.
	format = 1
)

var keyID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

// Cell is where a sealed secret is kept. Two secrets never have the same one.
type Cell struct{ Table, Row, Column string }

// aad is what a ciphertext is bound to. Its parts hold no separator: see valid.
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

// Ring is a list of keys: the first one seals, all of them open. The zero value has none.
// A Ring prints its keys' ids and is safe for concurrent use once it is made.
type Ring struct{ keys []*key }

// key holds no key bytes, only what was made of them, and behind a pointer, where fmt does
// not look.
type key struct {
	id   string
	aead cipher.AEAD
}

// Parse reads id:base64-of-32-bytes pairs with commas between them. The empty text is a
// ring without keys. Its errors show no key.
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

// Empty reports whether there is no key.
func (r Ring) Empty() bool { return len(r.keys) == 0 }

// IDs returns the ids of the keys; the first one seals.
func (r Ring) IDs() []string {
	out := make([]string, len(r.keys))
	for i, k := range r.keys {
		out[i] = k.id
	}
	return out
}

// Seal encrypts plaintext for one place. It returns ErrNoKeys without a key.
func (r Ring) Seal(plaintext []byte, at Cell) ([]byte, error) {
	if r.Empty() {
		return nil, ErrNoKeys
	}
	if !at.valid() {
		return nil, fmt.Errorf("seal for %+v: not a place", at)
	}
	k := r.keys[0]
	head := append([]byte{format, byte(len(k.id))}, k.id...)
	return k.aead.Seal(head, nil, plaintext, at.aad(k.id)), nil
}

// Open returns what was sealed for a place. Its errors wrap ErrUnknownKey or ErrBroken, and
// show nothing of what was sealed.
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

// NeedsRewrap reports whether something is sealed with another key than the one that seals
// now: open it and seal it again.
func (r Ring) NeedsRewrap(sealed []byte) bool {
	id, _, ok := split(sealed)
	return ok && !r.Empty() && id != r.keys[0].id
}

// KeyID returns the id of the key with which something was sealed.
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

// UnmarshalText is Parse, but a text without a key is an error: a setting that is there
// was meant.
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

// MarshalText names the keys.
func (r Ring) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Format names the keys with every verb of fmt.
func (r Ring) Format(f fmt.State, _ rune) { fmt.Fprint(f, r.String()) }

// LogValue names the keys.
func (r Ring) LogValue() slog.Value { return slog.StringValue(r.String()) }
