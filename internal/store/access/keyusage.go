package access

import (
	"context"
	"fmt"

	"github.com/a2ad/a2ad/internal/store/access/dbsqlc"
	"github.com/a2ad/a2ad/internal/store/db"
)

// KeyUsage counts the secrets that are encrypted with one key, and has one of them to test the key with.
type KeyUsage struct {
	KeyID   string
	Secrets int64
	Place   string // "token", "credentials" of a webhook, or "signing"
	Name    string // of the row
	Sample  []byte
}

// SealedWith counts the stored secrets by the id of the key that they are encrypted with.
func (s *Store) SealedWith(ctx context.Context) ([]KeyUsage, error) {
	var rows []dbsqlc.SealedWithRow
	err := s.db.Search(ctx, func(tx *db.Tx) (err error) {
		q := dbsqlc.New(tx)
		rows, err = q.SealedWith(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read encrypted secrets: %w", db.Unavailable(err))
	}
	out := make([]KeyUsage, len(rows))
	for i, r := range rows {
		out[i] = KeyUsage{KeyID: r.KeyID, Secrets: r.Secrets, Place: r.Place, Name: r.Name, Sample: r.Sealed}
	}
	return out, nil
}
