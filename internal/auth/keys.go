package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"github.com/a2ad/a2ad/internal/a2a"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// MaxKeyTTL is the longest that a key may be cached, and so the longest that a revoked key may be
// accepted if the wake-up of its revocation was lost.
const MaxKeyTTL = 30 * time.Second

// ErrUnknownKey is returned by a Lookup that finds no key with the id.
var ErrUnknownKey = errors.New("unknown API key")

// StoredKey is a key as the database has it.
type StoredKey struct {
	SecretHash []byte // SHA-256 of the secret
	Tenant     string
	Owner      string
	Kind       Kind
	Scopes     []Scope
	Agents     []string  // nil: all
	ExpiresAt  time.Time // zero: never. Compared with this machine's clock
	RevokedAt  time.Time // zero: not revoked
}

// KeysConfig configures Keys. Lookup is required.
type KeysConfig struct {
	// Lookup reads a key by its id, or returns ErrUnknownKey. Keys calls it for every credential
	// that is not cached, so for each guess too.
	Lookup func(ctx context.Context, keyID string) (StoredKey, error)

	// Used, if set, is called when a key was accepted, once per key and TTL. It must not block.
	Used func(keyID string)

	TTL       time.Duration // how long a good key is cached; 0 means MaxKeyTTL, negative not at all
	MaxCached int           // cached keys; 0 means 10,000
}

// Keys authenticates API keys, sent as `Authorization: Bearer a2ad_…` or as X-API-Key. It caches
// good keys for a while and bad ones never. An unknown id and a wrong secret both cost one Lookup,
// and take the same time.
type Keys struct {
	cfg KeysConfig

	mu     sync.Mutex
	cached map[string]cachedKey // guarded by mu; by key id
	epoch  uint64               // guarded by mu; counts Forget and ForgetAll
}

type cachedKey struct {
	StoredKey
	until time.Time
}

// NewKeys returns an Authenticator of API keys. It fails if the config has no Lookup or more than
// MaxKeyTTL.
func NewKeys(cfg KeysConfig) (*Keys, error) {
	if cfg.Lookup == nil {
		return nil, errors.New("auth: no Lookup function")
	}
	if cfg.TTL > MaxKeyTTL {
		return nil, fmt.Errorf("auth: keys may be cached for at most %v", MaxKeyTTL)
	}
	if cfg.TTL == 0 {
		cfg.TTL = MaxKeyTTL
	}
	if cfg.MaxCached <= 0 {
		cfg.MaxCached = 10_000
	}
	return &Keys{cfg: cfg, cached: make(map[string]cachedKey)}, nil
}

// Schemes returns one scheme for each way to send a key.
func (k *Keys) Schemes() []a2a.SecurityScheme {
	return []a2a.SecurityScheme{
		{Name: "bearer", Kind: a2a.SecurityBearer, Description: "An API key as bearer token."},
		{Name: "apiKey", Kind: a2a.SecurityAPIKey, Description: "An API key.", Header: "X-API-Key"},
	}
}

// Challenges returns one challenge for each way to send a key.
func (k *Keys) Challenges() []string {
	return []string{bearerChallenge, `ApiKey realm="a2ad", header="X-API-Key"`}
}

const bearerChallenge = `Bearer realm="a2ad"`

// Forget removes a key from the cache, and keeps a lookup in progress from caching it. Call it when
// the key was changed or revoked.
func (k *Keys) Forget(keyID string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.epoch++
	delete(k.cached, keyID)
}

// ForgetAll empties the cache, for example after the listener lost its connection.
func (k *Keys) ForgetAll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.epoch++
	clear(k.cached)
}

// Authenticate returns the principal of the key of r. See Authenticator for the errors.
func (k *Keys) Authenticate(r *http.Request) (Principal, error) {
	text, err := apiKeyOf(r.Header)
	if err != nil {
		return Principal{}, err
	}
	id, hash, err := ParseKey(text)
	if err != nil {
		return Principal{}, refuse("malformed key", "")
	}
	key, err := k.find(r.Context(), id, hash)
	if err != nil {
		return Principal{}, err
	}
	return Principal{
		Tenant: key.Tenant, Owner: key.Owner, Kind: key.Kind, Scopes: key.Scopes, Agents: key.Agents,
		Method: MethodAPIKey, KeyID: id,
		Until: key.ExpiresAt,
	}, nil
}

// find returns the key if the hash matches its secret and it is in force.
func (k *Keys) find(ctx context.Context, id string, hash [sha256.Size]byte) (StoredKey, error) {
	key, epoch, ok := k.recall(id, hash)
	if ok {
		return key, check(key, id)
	}
	key, err := k.cfg.Lookup(ctx, id)
	unknown := errors.Is(err, ErrUnknownKey)
	if err != nil && !unknown {
		return StoredKey{}, fmt.Errorf("look up API key: %w", err)
	}
	if unknown {
		key.SecretHash = make([]byte, len(hash)) // compared all the same, so that both cases take the same time
	}
	equal := subtle.ConstantTimeCompare(key.SecretHash, hash[:]) == 1
	switch {
	case unknown:
		return StoredKey{}, refuse("unknown key", id)
	case !equal:
		return StoredKey{}, refuse("wrong secret", id)
	}
	if err := check(key, id); err != nil {
		return StoredKey{}, err
	}
	key.Scopes, key.Agents = slices.Clone(key.Scopes), slices.Clone(key.Agents)
	k.remember(epoch, id, key)
	if k.cfg.Used != nil {
		k.cfg.Used(id)
	}
	return key, nil
}

// check refuses a key that is not in force. A key without an owner is an error in the database and
// not of the caller: if accepted it would own all tasks without an owner.
func check(key StoredKey, id string) error {
	switch {
	case !key.RevokedAt.IsZero():
		return refuse("revoked key", id)
	case !key.ExpiresAt.IsZero() && !time.Now().Before(key.ExpiresAt):
		return refuse("expired key", id)
	case key.Tenant == "" || key.Owner == "":
		return fmt.Errorf("API key %s has no tenant or no owner", id)
	}
	return nil
}

// recall returns a cached key. It does not answer for another secret than the cached one: that
// would be faster than for an unknown id, and so reveal the difference.
func (k *Keys) recall(id string, hash [sha256.Size]byte) (key StoredKey, epoch uint64, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c, ok := k.cached[id]
	if !ok || !time.Now().Before(c.until) || subtle.ConstantTimeCompare(c.SecretHash, hash[:]) != 1 {
		return StoredKey{}, k.epoch, false
	}
	return c.StoredKey, k.epoch, true
}

// remember caches a good key, unless a key was forgotten since epoch: the lookup may have read
// outdated data then.
func (k *Keys) remember(epoch uint64, id string, key StoredKey) {
	if k.cfg.TTL < 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.epoch != epoch {
		return
	}
	if _, ok := k.cached[id]; !ok && len(k.cached) >= k.cfg.MaxCached {
		for victim := range k.cached { // a random one
			delete(k.cached, victim)
			break
		}
	}
	k.cached[id] = cachedKey{StoredKey: key, until: time.Now().Add(k.cfg.TTL)}
}

// apiKeyOf returns the API key in h. A bearer token without our prefix belongs to another
// Authenticator. Two different keys are refused, because it would be unclear who the caller is.
func apiKeyOf(h http.Header) (string, error) {
	direct, bearer := h.Values("X-Api-Key"), h.Values("Authorization")
	if len(direct) > 1 || len(bearer) > 1 {
		return "", refuse("repeated credential header", "")
	}
	var found []string
	if len(direct) == 1 {
		found = append(found, strings.TrimSpace(direct[0]))
	}
	if len(bearer) == 1 {
		if token, ok := bearerToken(bearer[0]); ok && strings.HasPrefix(token, keyPrefix) {
			found = append(found, token)
		}
	}
	switch {
	case len(found) == 0:
		return "", ErrNoCredential
	case len(found) == 2 && found[0] != found[1]:
		return "", refuse("two different keys", "")
	}
	return found[0], nil
}

// bearerToken returns the token of an Authorization header with the scheme Bearer, in any case.
func bearerToken(header string) (token string, ok bool) {
	scheme, rest, found := strings.Cut(strings.TrimSpace(header), " ")
	token = strings.TrimSpace(rest)
	if !found || !strings.EqualFold(scheme, "Bearer") || token == "" || strings.ContainsAny(token, " \t\r\n") {
		return "", false
	}
	return token, true
}
