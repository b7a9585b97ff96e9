package push

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/a2ad/a2ad/internal/seal"
	"github.com/a2ad/a2ad/internal/store"
)

// KeysConfig says which keys sign notifications.
type KeysConfig struct {
	Store    *store.Store
	Ring     seal.Ring // without keys the server has no signing keys: no tokens and no v1a signatures
	Secrets  []Secret  // for v1 signatures
	Issuer   string    // public URL of the server
	Rotation Rotation
	Logger   *slog.Logger
}

// Keys are the signing keys of the server, for tokens and signatures. All replicas share them; they are stored
// encrypted, and rotated. Load must be called first; the other methods are safe for concurrent use.
type Keys struct {
	cfg     KeysConfig
	current atomic.Pointer[keyState]
}

type keyState struct {
	signer *Signer
	issuer *Issuer     // nil without signing keys
	cards  *cardSigner // nil without signing keys
	jwks   []byte
}

// NewKeys returns Keys, which the caller must Load.
func NewKeys(cfg KeysConfig) *Keys { return &Keys{cfg: cfg} }

// Signer returns the current Signer.
func (k *Keys) Signer() *Signer { return k.current.Load().signer }

// Issuer returns the current Issuer of tokens, or nil.
func (k *Keys) Issuer() *Issuer { return k.current.Load().issuer }

// JWKS returns the key set to publish.
func (k *Keys) JWKS() []byte { return k.current.Load().jwks }

const keysEvery = time.Hour

// Run keeps the keys up to date until ctx is done.
func (k *Keys) Run(ctx context.Context) error {
	ticker := time.NewTicker(keysEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := k.Load(ctx); err != nil && ctx.Err() == nil {
			k.cfg.Logger.WarnContext(ctx, "load signing keys", "err", err)
		}
	}
}

const signingTable = "server_keys"

// Load reads the keys, makes the next one and deletes old ones, as the rotation demands.
func (k *Keys) Load(ctx context.Context) error {
	if k.cfg.Ring.Empty() {
		set, err := JWKS(nil)
		k.current.Store(&keyState{signer: NewSigner(k.cfg.Secrets, nil), jwks: set})
		return err
	}
	for {
		named, last, now, err := k.read(ctx)
		if err != nil {
			return err
		}
		keys := make([]Key, len(named))
		for i := range named {
			keys[i] = named[i].key
		}
		plan := k.cfg.Rotation.Plan(keys, now)
		if plan.Make {
			if err := k.add(ctx, last+1); err != nil {
				return err
			}
			continue
		}
		if err := k.drop(ctx, named, plan.Retired); err != nil {
			return err
		}
		return k.use(plan)
	}
}

func (k *Keys) drop(ctx context.Context, named []namedKey, retired []Key) error {
	for _, old := range retired {
		for _, n := range named {
			if n.key.ID != old.ID {
				continue
			}
			if err := k.cfg.Store.Access.DropSigningKey(ctx, n.name); err != nil {
				return err
			}
		}
	}
	return nil
}

// read returns the keys with their names. It ignores keys that the ring cannot decrypt: they belong to servers with
// another ring.
func (k *Keys) read(ctx context.Context) (keys []namedKey, last int, now time.Time, err error) {
	stored, now, err := k.cfg.Store.Access.SigningKeys(ctx)
	if err != nil {
		return nil, 0, now, err
	}
	for _, s := range stored {
		_, number, _ := strings.Cut(s.Name, "/")
		if i, err := strconv.Atoi(number); err == nil {
			last = max(last, i)
		}
		plain, err := k.cfg.Ring.Open(s.Sealed, seal.Cell{Table: signingTable, Row: s.Name, Column: "key"})
		if errors.Is(err, seal.ErrUnknownKey) {
			k.cfg.Logger.WarnContext(ctx, "a signing key is not used", "name", s.Name, "err", err)
			continue
		}
		if err != nil {
			return nil, 0, now, fmt.Errorf("open signing key %s: %w", s.Name, err)
		}
		key, err := ParseKey(plain, s.CreatedAt)
		if err != nil {
			return nil, 0, now, fmt.Errorf("signing key %s: %w", s.Name, err)
		}
		keys = append(keys, namedKey{s.Name, key})
	}
	return keys, last, now, nil
}

type namedKey struct {
	name string
	key  Key
}

// add stores one more key. Its number follows the highest one, so that if two servers add a key at the same time,
// only one of them succeeds.
func (k *Keys) add(ctx context.Context, number int) error {
	name := strconv.Itoa(number)
	plain, err := NewKey()
	if err != nil {
		return err
	}
	sealed, err := k.cfg.Ring.Seal(plain, seal.Cell{Table: signingTable, Row: "signing/" + name, Column: "key"})
	if err != nil {
		return err
	}
	return k.cfg.Store.Access.AddSigningKey(ctx, name, sealed)
}

func (k *Keys) use(p Plan) error {
	state := &keyState{}
	var private []ed25519.PrivateKey
	var err error
	if p.Signer.ID != "" {
		if state.issuer, err = NewIssuer(k.cfg.Issuer, p.Signer); err != nil {
			return err
		}
		if state.cards, err = newCardSigner(k.cfg.Issuer, p.Signer); err != nil {
			return err
		}
		private = append(private, p.Signer.Private())
	}
	state.signer = NewSigner(k.cfg.Secrets, private)
	if state.jwks, err = JWKS(p.Published); err != nil {
		return err
	}
	k.current.Store(state)
	return nil
}

// ResealKeys encrypts the stored keys again if the ring has a newer key, and returns how many it changed. Keys that the
// ring cannot decrypt stay unchanged.
func ResealKeys(ctx context.Context, s *store.Store, ring seal.Ring) (int, error) {
	stored, _, err := s.Access.SigningKeys(ctx)
	if err != nil {
		return 0, err
	}
	changed := 0
	for _, k := range stored {
		if !ring.NeedsRewrap(k.Sealed) {
			continue
		}
		at := seal.Cell{Table: signingTable, Row: k.Name, Column: "key"}
		plain, err := ring.Open(k.Sealed, at)
		if errors.Is(err, seal.ErrUnknownKey) {
			continue
		}
		if err != nil {
			return changed, fmt.Errorf("open signing key %s: %w", k.Name, err)
		}
		sealed, err := ring.Seal(plain, at)
		if err != nil {
			return changed, err
		}
		if err := s.Access.ResealSigningKey(ctx, k.Name, k.Sealed, sealed); err != nil {
			return changed, err
		}
		changed++
	}
	return changed, nil
}
