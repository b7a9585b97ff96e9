package access

import (
	"context"
	"fmt"

	"github.com/a2ad/a2ad/internal/store/access/dbsqlc"
	"github.com/a2ad/a2ad/internal/store/db"
)

// Sealed is what is sealed with one key, with one of the secrets to try the key on.
type Sealed struct {
	KeyID   string
	Secrets int64
	Place   string // "token", "credentials" of a webhook, or "signing"
	Name    string // of the row
	Sample  []byte
}

// SealedWith counts the secrets that are stored, by the id of the key that they are sealed with.
func (s *Store) SealedWith(ctx context.Context) ([]Sealed, error) {
	var rows []dbsqlc.SealedWithRow
	err := s.db.Search(ctx, func(tx *db.Tx) (err error) {
		q := dbsqlc.New(tx)
		rows, err = q.SealedWith(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read sealed secrets: %w", db.Unavailable(err))
	}
	out := make([]Sealed, len(rows))
	for i, r := range rows {
		out[i] = Sealed{KeyID: r.KeyID, Secrets: r.Secrets, Place: r.Place, Name: r.Name, Sample: r.Sealed}
	}
	return out, nil
}
