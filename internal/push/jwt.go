package push

import (
	"cmp"
	"crypto"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// tokenLife is how long a token is valid.
const tokenLife = 5 * time.Minute

// Key is a signing key of this server, for tokens and v1a signatures. Its id is the RFC 7638 thumbprint of its public
// half, so the id follows from the key and need not be stored. It prints as its id. The key is in a function because
// fmt prints unexported fields without calling their methods.
type Key struct {
	ID        string
	CreatedAt time.Time // by the database's clock
	private   func() ed25519.PrivateKey
}

// storedKey is a Key as it is encrypted and stored.
type storedKey struct {
	Algorithm string `json:"alg"`
	Seed      []byte `json:"seed"`
}

const algorithm = string(jose.EdDSA)

var errBadKey = errors.New("not a signing key of this server")

// NewKey makes a key, in the form that the caller encrypts and stores.
func NewKey() ([]byte, error) {
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, fmt.Errorf("make signing key: %w", err)
	}
	return json.Marshal(storedKey{algorithm, private.Seed()})
}

// ParseKey reads what NewKey made. Its error does not show the text.
func ParseKey(stored []byte, createdAt time.Time) (Key, error) {
	var s storedKey
	if err := json.Unmarshal(stored, &s); err != nil || s.Algorithm != algorithm || len(s.Seed) != ed25519.SeedSize {
		return Key{}, errBadKey
	}
	private := ed25519.NewKeyFromSeed(s.Seed)
	k := Key{CreatedAt: createdAt, private: func() ed25519.PrivateKey { return private }}
	thumb, err := k.jwk().Thumbprint(crypto.SHA256)
	if err != nil {
		return Key{}, fmt.Errorf("name signing key: %w", err)
	}
	k.ID = base64.RawURLEncoding.EncodeToString(thumb)
	return k, nil
}

// Private returns the private key, for NewSigner.
func (k Key) Private() ed25519.PrivateKey { return k.private() }

// Public returns the public key.
func (k Key) Public() ed25519.PublicKey { return k.private().Public().(ed25519.PublicKey) }

// Format keeps the key out of printed text.
func (k Key) Format(f fmt.State, _ rune) { fmt.Fprint(f, "key "+k.ID) }

// jwk is the public half in its published form.
func (k Key) jwk() *jose.JSONWebKey {
	return &jose.JSONWebKey{Key: k.Public(), KeyID: k.ID, Algorithm: algorithm, Use: "sig"}
}

// JWKS returns the key set with the public halves of keys, for /.well-known/jwks.json. The same keys give the same
// bytes, in any order.
func JWKS(keys []Key) ([]byte, error) {
	set := struct {
		Keys []*jose.JSONWebKey `json:"keys"`
	}{make([]*jose.JSONWebKey, 0, len(keys))}
	for _, k := range sortKeys(keys) {
		set.Keys = append(set.Keys, k.jwk())
	}
	out, err := json.Marshal(set)
	if err != nil {
		return nil, fmt.Errorf("encode key set: %w", err)
	}
	return out, nil
}

// sortKeys returns keys oldest first.
func sortKeys(keys []Key) []Key {
	keys = slices.Clone(keys)
	slices.SortFunc(keys, func(a, b Key) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.ID, b.ID))
	})
	return keys
}

// Rotation says how long signing keys are used. The zero value works.
type Rotation struct {
	// Every is how long a key signs; 0 means 30 days. Before that the key is published for as long, next to the one
	// that signs, and so for at least MinPublished.
	Every time.Duration
	// Keep is how long a key stays published after it was replaced; at least MinPublished.
	Keep time.Duration
}

// MinPublished is how long a key is at least published before it signs, and after it signed: receivers cache key sets
// for a day.
const MinPublished = 24 * time.Hour

const defaultRotation = 30 * 24 * time.Hour

// Plan says what happens with the signing keys of a server at one moment.
type Plan struct {
	Signer    Key       // the key that signs; with an empty ID if there are no keys
	Published []Key     // the key set, oldest first
	Retired   []Key     // keys that are no longer needed
	Make      bool      // the next key is missing: make one, and plan again
	Next      time.Time // when the plan changes by itself; zero: never
}

// Plan decides by when the keys were made. A key made at time c signs from c+Every on until a newer one does. The
// oldest key signs immediately if it is the only one, so that a new server can sign; its successor is made together
// with it. Every replica makes the same plan from the same keys, and deleting the retired keys does not change it.
func (r Rotation) Plan(keys []Key, now time.Time) Plan {
	every := r.Every
	if every == 0 {
		every = defaultRotation
	}
	every, keep := max(every, MinPublished), max(r.Keep, MinPublished)
	keys = sortKeys(keys)
	signer := 0
	for i, k := range keys {
		if !now.Before(k.CreatedAt.Add(every)) {
			signer = i
		}
	}
	p := Plan{Make: signer+1 >= len(keys)}
	change := func(at time.Time) {
		if at.After(now) && (p.Next.IsZero() || at.Before(p.Next)) {
			p.Next = at
		}
	}
	for i, k := range keys {
		if i+1 < len(keys) {
			replaced := keys[i+1].CreatedAt.Add(every)
			change(replaced)
			change(replaced.Add(keep))
			if !now.Before(replaced.Add(keep)) {
				p.Retired = append(p.Retired, k)
				continue
			}
		}
		p.Published = append(p.Published, k)
	}
	if len(keys) > 0 {
		p.Signer = keys[signer]
	}
	return p
}

// Issuer mints tokens by which receivers recognize this server. It is safe for concurrent use.
type Issuer struct {
	issuer string
	signer jose.Signer
}

// NewIssuer makes an Issuer that signs with k. The issuer is the public URL of the server, which also serves the key
// set.
func NewIssuer(issuer string, k Key) (*Issuer, error) {
	if k.private == nil {
		return nil, errBadKey
	}
	key := jose.JSONWebKey{Key: k.private(), KeyID: k.ID}
	options := (&jose.SignerOptions{}).WithType("JWT")
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: key}, options)
	if err != nil {
		return nil, fmt.Errorf("make signer of tokens: %w", err)
	}
	return &Issuer{issuer: issuer, signer: signer}, nil
}

// Format keeps the key out of printed text.
func (i *Issuer) Format(f fmt.State, _ rune) { fmt.Fprint(f, redacted) }

// Claims are the claims of a token that depend on the notification.
type Claims struct {
	Audience string // the receiver's origin
	Task     string
	ID       string // of the notification
	Body     []byte
}

// token is the payload of a JWT. The audience is one string: some receivers compare it.
type token struct {
	Issuer   string `json:"iss"`
	Audience string `json:"aud"`
	Subject  string `json:"sub"`
	TaskID   string `json:"taskId"`
	ID       string `json:"jti"`
	IssuedAt int64  `json:"iat"`
	Expiry   int64  `json:"exp"`
	Body     string `json:"request_body_sha256"`
}

// Mint makes a token that is valid for five minutes.
func (i *Issuer) Mint(c Claims, now time.Time) (string, error) {
	sum := sha256.Sum256(c.Body)
	text, err := jwt.Signed(i.signer).Claims(token{
		Issuer: i.issuer, Audience: c.Audience, Subject: c.Task, TaskID: c.Task, ID: c.ID,
		IssuedAt: now.Unix(), Expiry: now.Add(tokenLife).Unix(), Body: hex.EncodeToString(sum[:]),
	}).Serialize()
	if err != nil {
		return "", fmt.Errorf("mint token: %w", err)
	}
	return text, nil
}
