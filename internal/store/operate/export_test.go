package operate

import (
	"context"

	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate/dbsqlc"
)

// CountWaiting counts waiting tasks, from at most the given number of pages of their table.
func CountWaiting(ctx context.Context, s *Store, pages int64) (list []WaitingCount, err error) {
	err = s.db.Search(ctx, func(tx *db.Tx) error {
		list, err = countWaiting(ctx, dbsqlc.New(tx), pages)
		return err
	})
	return list, err
}
