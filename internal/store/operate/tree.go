package operate

import (
	"context"
	"fmt"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate/dbsqlc"
)

// Called is a task in a tree of calls.
type Called struct {
	ID        a2a.ID
	Key       string    // of the call that made it; empty: the root
	Depth     int       // below the root
	Agent     string    // empty: the task was removed
	State     a2a.State // as of now
	StatusAt  time.Time
	CreatedAt time.Time
}

// Tree returns a task and, after each task, those that it has called, in the order of the calls: up to most tasks.
// Calls of a task whose log was removed are missing.
func (s *Store) Tree(ctx context.Context, root a2a.ID, most int) ([]Called, error) {
	rows, err := dbsqlc.New(s.db.Reads()).TaskTree(ctx, int32(most), db.PGID(root))
	if err != nil {
		return nil, fmt.Errorf("read the tree of a task: %w", db.Unavailable(err))
	}
	list := make([]Called, len(rows))
	for i, r := range rows {
		list[i] = Called{
			r.ID.Bytes, r.Key, int(r.Depth), r.Agent, a2a.State(r.State), db.WireTime(r.StatusAt),
			db.WireTime(r.CreatedAt),
		}
	}
	return list, nil
}
