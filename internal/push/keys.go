package push

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/a2ad/a2ad/internal/seal"
	"github.com/a2ad/a2ad/internal/store"
)

// KeysConfig says what notifications are signed with.
type KeysConfig struct {
	Store    *store.Store
	Ring     seal.Ring // without keys there are no keys of our own: no tokens and no v1a signatures
	Secrets  []Secret  // for v1 signatures
	Issuer   string    // public URL of the server
	Rotation Rotation
	Logger   *slog.Logger
}

// Keys are the keys of the server for tokens and signatures: shared by all replicas, kept
// sealed, and changed in time. Load must be called before anything else; the rest is safe
// for concurrent use.
type Keys struct {
	cfg     KeysConfig
	current atomic.Pointer[keyState]
}

type keyState struct {
	signer *Signer
	issuer *Issuer // nil without keys of our own
	jwks   []byte
}

// NewKeys returns Keys that are not loaded yet.
func NewKeys(cfg KeysConfig) *Keys { return &Keys{cfg: cfg} }

// Signer returns what signs now.
func (k *Keys) Signer() *Signer { return k.current.Load().signer }

// Issuer returns what mints tokens now, or nil.
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
			k.cfg.Logger.WarnContext(ctx, "signing keys", "err", err)
		}
	}
}

const signingTable = "server_keys"

// Load reads the keys and makes and drops what the rotation asks for.
func (k *Keys) Load(ctx context.Context) error {
	if k.cfg.Ring.Empty() {
		set, err := JWKS(nil)
		k.current.Store(&keyState{signer: NewSigner(k.cfg.Secrets, nil), jwks: set})
		return err
	}
	for {
		names, keys, now, err := k.read(ctx)
		if err != nil {
			return err
		}
		plan := k.cfg.Rotation.Plan(keys, now)
		if plan.Make {
			if err := k.add(ctx, names); err != nil {
				return err
			}
			continue
		}
		for _, old := range plan.Retired {
			for i := range keys {
				if keys[i].ID == old.ID {
					if err := k.cfg.Store.DropSigningKey(ctx, names[i]); err != nil {
						return err
					}
				}
			}
		}
		return k.use(plan)
	}
}

func (k *Keys) read(ctx context.Context) (names []string, keys []Key, now time.Time, err error) {
	stored, now, err := k.cfg.Store.SigningKeys(ctx)
	if err != nil {
		return nil, nil, now, err
	}
	for _, s := range stored {
		plain, err := k.cfg.Ring.Open(s.Sealed, seal.Place{Table: signingTable, Row: s.Name, Column: "key"})
		if err != nil {
			return nil, nil, now, fmt.Errorf("open signing key %s: %w", s.Name, err)
		}
		key, err := ParseKey(plain, s.CreatedAt)
		if err != nil {
			return nil, nil, now, fmt.Errorf("signing key %s: %w", s.Name, err)
		}
		names, keys = append(names, s.Name), append(keys, key)
	}
	return names, keys, now, nil
}

// add stores one more key. Its number follows from those that there are.
func (k *Keys) add(ctx context.Context, names []string) error {
	last := 0
	for _, n := range names {
		_, number, _ := strings.Cut(n, "/")
		if i, err := strconv.Atoi(number); err == nil {
			last = max(last, i)
		}
	}
	name := strconv.Itoa(last + 1)
	plain, err := NewKey()
	if err != nil {
		return err
	}
	sealed, err := k.cfg.Ring.Seal(plain, seal.Place{Table: signingTable, Row: "signing/" + name, Column: "key"})
	if err != nil {
		return err
	}
	return k.cfg.Store.AddSigningKey(ctx, name, sealed)
}

func (k *Keys) use(p Plan) error {
	state := &keyState{}
	var private []ed25519.PrivateKey
	var err error
	if p.Signer.ID != "" {
		if state.issuer, err = NewIssuer(k.cfg.Issuer, p.Signer); err != nil {
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
