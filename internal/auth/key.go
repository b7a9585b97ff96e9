package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"strings"
)

// A key has the form a2ad_<env>_<id>_<secret>_<checksum>. A double click selects all of it, the
// prefix lets scanners find leaked keys, and the checksum lets them and us reject look-alikes
// without a lookup.
const (
	keyPrefix   = "a2ad_"
	maxEnvLen   = 16
	keyIDLen    = 12
	secretLen   = 32 // 190 bits: no slow hash is needed
	checksumLen = 8  // hex of CRC-32 (IEEE) over the text before the last underscore
	maxKeyLen   = len(keyPrefix) + maxEnvLen + keyIDLen + secretLen + checksumLen + 3
)

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

const redacted = "[redacted]"

// ErrMalformedKey is returned by ParseKey. It reveals nothing about the text.
var ErrMalformedKey = errors.New("malformed API key")

var errBadEnv = errors.New("environment of an API key must have 1 to 16 lower-case letters or digits")

// Key is a new API key with its secret. Printed, logged or marshaled it shows as [redacted]. Only
// Reveal returns it, to be shown once to its owner.
type Key struct {
	id   string
	hash [sha256.Size]byte
	text *string // a pointer, because fmt prints unexported fields of other types
}

// NewKey makes a key for an environment such as "live" or "test", which is part of its text. random
// is the source of the id and the secret; nil means crypto/rand.
func NewKey(env string, random io.Reader) (Key, error) {
	if !ValidEnv(env) {
		return Key{}, errBadEnv
	}
	if random == nil {
		random = rand.Reader
	}
	chars, err := randomBase62(random, keyIDLen+secretLen)
	if err != nil {
		return Key{}, fmt.Errorf("make API key: %w", err)
	}
	id, secret := chars[:keyIDLen], chars[keyIDLen:]
	text := keyPrefix + env + "_" + id + "_" + secret
	text += "_" + checksum(text)
	return Key{id: id, hash: sha256.Sum256([]byte(secret)), text: &text}, nil
}

// ID returns the public id of the key.
func (k Key) ID() string { return k.id }

// SecretHash returns the SHA-256 of the secret, which is what is stored.
func (k Key) SecretHash() [sha256.Size]byte { return k.hash }

// Reveal returns the whole key. Show it once, and never log it.
func (k Key) Reveal() string {
	if k.text == nil {
		return ""
	}
	return *k.text
}

// String returns "[redacted]".
func (k Key) String() string { return redacted }

// Format writes "[redacted]" for every verb.
func (k Key) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// LogValue returns "[redacted]".
func (k Key) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText returns "[redacted]", for encoding/json and similar packages.
func (k Key) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// ParseKey checks the form and the checksum of a key, and returns its id and the SHA-256 of its
// secret. It makes no lookup, so the key may be unknown, expired or revoked. It returns
// ErrMalformedKey for any other text, at bounded cost.
func ParseKey(s string) (id string, secretHash [sha256.Size]byte, err error) {
	if len(s) > maxKeyLen {
		return "", secretHash, ErrMalformedKey
	}
	rest, ok := strings.CutPrefix(s, keyPrefix)
	parts := strings.Split(rest, "_")
	if !ok || len(parts) != 4 {
		return "", secretHash, ErrMalformedKey
	}
	env, id, secret, sum := parts[0], parts[1], parts[2], parts[3]
	if !ValidEnv(env) || !isBase62(id, keyIDLen) || !isBase62(secret, secretLen) ||
		sum != checksum(s[:max(len(s)-checksumLen-1, 0)]) {
		return "", secretHash, ErrMalformedKey
	}
	// A copy: the id is kept in caches and logs, and must not keep the secret in memory.
	return strings.Clone(id), sha256.Sum256([]byte(secret)), nil
}

func checksum(s string) string {
	return hex.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE([]byte(s))))
}

// ValidEnv reports whether NewKey accepts an environment: 1 to 16 lower-case letters and digits.
func ValidEnv(env string) bool {
	if env == "" || len(env) > maxEnvLen {
		return false
	}
	for i := range len(env) {
		if !isDigit(env[i]) && !isLower(env[i]) {
			return false
		}
	}
	return true
}

func isBase62(s string, length int) bool {
	if len(s) != length {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isDigit(c) && !isLower(c) && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return true
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
func isLower(c byte) bool { return 'a' <= c && c <= 'z' }

// randomBase62 draws characters uniformly. Bytes from 248 on would favor the first eight.
func randomBase62(random io.Reader, n int) (string, error) {
	const even = 256 / len(base62) * len(base62)
	out := make([]byte, 0, n)
	buf := make([]byte, n)
	for len(out) < n {
		if _, err := io.ReadFull(random, buf); err != nil {
			return "", fmt.Errorf("read random bytes: %w", err)
		}
		for _, b := range buf {
			if int(b) < even && len(out) < n {
				out = append(out, base62[int(b)%len(base62)])
			}
		}
	}
	return string(out), nil
}
