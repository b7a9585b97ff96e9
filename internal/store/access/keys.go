package access

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/store/access/dbsqlc"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/wake"
)

// Key is a key without its secret.
type Key struct {
	ID        string
	Tenant    string
	Owner     string
	Name      string
	Scopes    []string
	Agents    []string // nil: all
	CreatedAt time.Time
	ExpiresAt time.Time // zero: never
	RevokedAt time.Time // zero: in force
	UsedAt    time.Time // to the minute or so; zero: never
}

// ErrNoKey says that there is no such API key.
var ErrNoKey = errors.New("no such API key")

// CreateKey stores a new key with the SHA-256 of its secret, and returns it with the times of the database. It expires
// after life, or never if life is 0.
func (s *Store) CreateKey(ctx context.Context, k Key, secret [32]byte, life time.Duration) (Key, error) {
	r, err := db.InTx(ctx, s.db.Work(), func(tx *db.Tx) (dbsqlc.APIKeyInsertRow, error) {
		q := dbsqlc.New(tx)
		r, err := q.APIKeyInsert(ctx, dbsqlc.APIKeyInsertParams{
			ID: k.ID, SecretSha256: secret[:], Tenant: k.Tenant, Owner: k.Owner, Name: k.Name, Scopes: k.Scopes,
			Agents: k.Agents,
			Life:   pgtype.Interval{Microseconds: life.Microseconds(), Valid: life > 0},
		})
		if err != nil {
			return r, err
		}
		detail := map[string]any{"key": k.ID, "scopes": k.Scopes}
		if k.Agents != nil {
			detail["agents"] = k.Agents
		}
		if life > 0 {
			detail["expires"] = db.TimeOrZero(r.ExpiresAt)
		}
		return r, Record(ctx, tx, Action{Name: ActionKeyCreate, Tenant: k.Tenant, Owner: k.Owner, Detail: detail})
	})
	if err != nil {
		return Key{}, fmt.Errorf("create API key: %w", db.Unavailable(err))
	}
	k.CreatedAt, k.ExpiresAt = r.CreatedAt.Time.UTC(), db.TimeOrZero(r.ExpiresAt)
	return k, nil
}

// LookupKey reads a key and the SHA-256 of its secret for a sign-in, or returns ErrNoKey. The key may be revoked or
// expired by the database's clock. ExpiresAt is by the clock of this machine; if the key has expired, it is in the
// past. LookupKey writes nothing: see UseKey.
func (s *Store) LookupKey(ctx context.Context, id string) (k Key, secret [32]byte, err error) {
	var r dbsqlc.APIKeyByIDRow
	err = s.db.RepeatRead(ctx, func() (err error) {
		r, err = dbsqlc.New(s.db.SignIns()).APIKeyByID(ctx, id)
		return err
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return k, secret, ErrNoKey
	case err != nil:
		return k, secret, fmt.Errorf("look up API key: %w", err)
	}
	k = Key{
		ID: id, Tenant: r.Tenant, Owner: r.Owner, Scopes: r.Scopes, Agents: r.Agents,
		RevokedAt: db.TimeOrZero(r.RevokedAt),
	}
	switch {
	case r.Expired:
		k.ExpiresAt = time.Now()
	case r.LeftMs > 0:
		k.ExpiresAt = time.Now().Add(time.Duration(r.LeftMs) * time.Millisecond)
	}
	copy(secret[:], r.SecretSha256)
	return k, secret, nil
}

// UseKey records that a caller has signed in with a key, at most once a minute.
func (s *Store) UseKey(ctx context.Context, id string) error {
	if err := dbsqlc.New(s.db.Work()).APIKeyUsed(ctx, id); err != nil {
		return fmt.Errorf("note the use of API key %s: %w", id, db.Unavailable(err))
	}
	return nil
}

// Keys lists all keys, oldest first, for the operator.
func (s *Store) Keys(ctx context.Context) ([]Key, error) {
	rows, err := dbsqlc.New(s.db.Work()).APIKeyList(ctx)
	if err != nil {
		return nil, fmt.Errorf("list API keys: %w", err)
	}
	keys := make([]Key, len(rows))
	for i, r := range rows {
		keys[i] = Key{
			ID: r.ID, Tenant: r.Tenant, Owner: r.Owner, Name: r.Name, Scopes: r.Scopes, Agents: r.Agents,
			CreatedAt: r.CreatedAt.Time.UTC(), ExpiresAt: db.TimeOrZero(r.ExpiresAt),
			RevokedAt: db.TimeOrZero(r.RevokedAt), UsedAt: db.TimeOrZero(r.LastUsedAt),
		}
	}
	return keys, nil
}

// RevokeKey revokes a key, or returns ErrNoKey. Replicas are notified at once.
func (s *Store) RevokeKey(ctx context.Context, id string) error {
	err := db.DoInTx(ctx, s.db.Work(), func(tx *db.Tx) error {
		q := dbsqlc.New(tx)
		tx.Wake(wake.APIKeys)
		k, err := q.APIKeyRevoke(ctx, id)
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrNoKey
		}
		if err != nil || k.Before {
			return err
		}
		return Record(ctx, tx, Action{
			Name: ActionKeyRevoke, Tenant: k.Tenant, Owner: k.Owner, Detail: map[string]any{"key": id},
		})
	})
	if err != nil {
		return fmt.Errorf("revoke API key: %w", db.Unavailable(err))
	}
	return nil
}

// ServerKey returns the 32 random bytes that all replicas share under a name. The first replica that asks creates them.
func (s *Store) ServerKey(ctx context.Context, name string) ([]byte, error) {
	fresh := make([]byte, 32)
	rand.Read(fresh)
	q := dbsqlc.New(s.db.Work())
	if err := q.ServerKeyMake(ctx, name, fresh); err != nil {
		return nil, fmt.Errorf("make server key: %w", db.Unavailable(err))
	}
	key, err := q.ServerKey(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("read server key: %w", db.Unavailable(err))
	}
	return key, nil
}

// SigningKey is an encrypted key that all replicas share.
type SigningKey struct {
	Name      string
	Sealed    []byte
	CreatedAt time.Time
}

const signingPrefix = "signing/"

// SigningKeys reads the signing keys, oldest first, and the database's time.
func (s *Store) SigningKeys(ctx context.Context) (keys []SigningKey, now time.Time, err error) {
	rows, err := dbsqlc.New(s.db.Work()).ServerKeys(ctx, signingPrefix)
	if err != nil {
		return nil, now, fmt.Errorf("read signing keys: %w", db.Unavailable(err))
	}
	now = time.Now()
	for _, r := range rows {
		keys = append(keys, SigningKey{Name: r.Name, Sealed: r.Key, CreatedAt: r.CreatedAt.Time.UTC()})
		now = r.Now.Time.UTC()
	}
	return keys, now, nil
}

// AddSigningKey stores a key under a name that the caller derives from the existing keys. If two servers add a key at
// once, the first wins.
func (s *Store) AddSigningKey(ctx context.Context, name string, sealed []byte) error {
	if err := dbsqlc.New(s.db.Work()).ServerKeyMake(ctx, signingPrefix+name, sealed); err != nil {
		return fmt.Errorf("add signing key: %w", db.Unavailable(err))
	}
	return nil
}

// DropSigningKey removes a key.
func (s *Store) DropSigningKey(ctx context.Context, name string) error {
	if err := dbsqlc.New(s.db.Work()).ServerKeyDrop(ctx, name); err != nil {
		return fmt.Errorf("drop signing key: %w", db.Unavailable(err))
	}
	return nil
}

// ResealSigningKey stores a key that was encrypted again, unless the stored key has changed.
func (s *Store) ResealSigningKey(ctx context.Context, name string, old, sealed []byte) error {
	if err := dbsqlc.New(s.db.Work()).ServerKeyReseal(ctx, dbsqlc.ServerKeyResealParams{
		Name: name, OldKey: old, NewKey: sealed,
	}); err != nil {
		return fmt.Errorf("reseal signing key: %w", db.Unavailable(err))
	}
	return nil
}
